"""Evaluates the hosts for a request: from the evaluation cache where possible, else afresh.

A table keeps one :class:`~.evaluation.Evaluation` for each *equivalence class* of requests,
of which all units read the same. A request takes that of its class, brought up to date, and narrows
it by what is of this request alone. Asking every unit what it reads of a request costs more than
updating the few hosts that changed since the last request of its class, so the class is remembered
by the request's encoded content.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import msgspec

from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import Mask
from scheduler_worker.model.policy_references import PolicyReference
from scheduler_worker.model.providers import ASKED
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.destination import names_destination
from scheduler_worker.scheduling.evaluation import Evaluation
from scheduler_worker.scheduling.filter_results import FilterResults
from scheduler_worker.scheduling.plugin import Filter, Unit, Weigher
from scheduler_worker.scheduling.scales import Scale

_MOST_KNOWN = 4096
_LONGEST_KNOWN = 8192
"""How many requests are remembered, and up to which length in bytes; most have some 500."""

U = TypeVar("U", bound=Unit)

_encode = msgspec.msgpack.Encoder().encode


class EquivalenceClass(msgspec.Struct, eq=False):
    """Requests of which all units read the same; compared by identity."""

    applying: frozenset[Unit]
    """The units that look at something the request asks for."""
    undeclared: frozenset[Unit]
    """The units among them that do not declare what they read: their answers cannot be kept."""

    def unkept(self, units: Sequence[U]) -> list[U]:
        """The units among these whose answers cannot be kept."""
        return [unit for unit in units if unit in self.undeclared] if self.undeclared else []


class EquivalenceClasses:
    """Finds the class of a request for some units."""

    def __init__(self, readers: Iterable[Unit]) -> None:
        self._readers = tuple(readers)
        self._by_content: dict[bytes, EquivalenceClass] = {}
        self._by_reads: dict[Hashable, EquivalenceClass] = {}
        self._last: tuple[RequestSpec, EquivalenceClass] | None = None
        """One pair in one attribute: threads replace it as a whole, so no lock is needed. Instances
        of one request, and several steps of one decision, ask with the same object."""

    def of(self, spec: RequestSpec) -> EquivalenceClass:
        """The class of the request, the same for all its instances. Raises what units raise."""
        last = self._last
        if last is not None and last[0] is spec:
            return last[1]
        content = _content(spec)
        kind = self._by_content.get(content) if content else None
        if kind is None:
            kind = self._asked(spec)
            if content is not None:
                if len(self._by_content) >= _MOST_KNOWN:
                    self._by_content.clear()
                self._by_content[content] = kind
        self._last = spec, kind
        return kind

    def _asked(self, spec: RequestSpec) -> EquivalenceClass:
        applying = frozenset(unit for unit in self._readers if unit.applies(spec))
        # False: does not apply; None: applies and does not declare what it reads.
        reads = tuple(unit.reads(spec) if unit in applying else False for unit in self._readers)
        pairs = zip(self._readers, reads, strict=True)
        undeclared = frozenset(unit for unit, read in pairs if read is None)
        if len(self._by_reads) >= _MOST_KNOWN:
            self._by_reads.clear()
        return self._by_reads.setdefault(reads, EquivalenceClass(applying, undeclared))


def _content(spec: RequestSpec) -> bytes | None:
    """The request but its instance, encoded; None: too long, or not encodable."""
    # Units whose answers are kept may read that Placement was asked, and not what it answered.
    asked = ASKED if spec.allocation_candidates else None
    plain = msgspec.structs.replace(spec, instance_uuid=None, allocation_candidates=asked)
    try:
        content = _encode(plain)
    except (TypeError, ValueError, OverflowError):
        return None
    return content if len(content) <= _LONGEST_KNOWN else None


_CACHED_BYTES = 64 * 2**20
_MANY_CACHED, _MOST_BYTES = 32, 512 * 2**20
_FEWEST_CACHED = 2
"""How large the evaluation cache of a table grows. How many evaluations are kept if that is
more, and up to which size. How many are kept even then. At 100,000 hosts one takes 11 MB."""


class Evaluator:
    """Asks the filters and weights of a policy; its only state are the equivalence classes."""

    def __init__(
        self,
        policy: PolicyReference,
        mandatory: Sequence[Filter],
        filters: Sequence[Filter],
        weights: Sequence[Weigher],
        scale: type[Scale],
    ) -> None:
        self.filters = (*mandatory, *filters)
        """In the order of the policy."""
        self._by_cost = (*mandatory, *sorted(filters, key=_cost))
        # A host survives if all filters pass it, whatever their order, so the cheap ones go first.
        self._policy = policy
        self._weights = weights
        self._scale = scale
        self._of_one_request = [unit for unit in self.filters if unit.of_one_request]
        shared = [unit for unit in self.filters if not unit.of_one_request]
        readers = (unit for unit in (*shared, *weights) if unit.reads_request)
        self.classes = EquivalenceClasses(readers)

    def evaluate(
        self,
        hosts: HostTable,
        spec: RequestSpec,
        before: Evaluation | None = None,
        claimed_row: int | None = None,
        *,
        is_same: bool = False,
    ) -> Evaluation:
        """The survivors of all filters on the hosts as they are now.

        ``before`` is the evaluation for the last instance of the request, for which ``claimed_row``
        was chosen. A host that was rejected for an earlier instance stays rejected. ``is_same``:
        ``spec`` is that of ``before``, so what a filter that looks at rows has said of a host holds
        until the host changes.
        """
        if before is not None and before.is_of_later_instance:
            return self.evaluate_afresh(hosts, spec, before, is_same=is_same)
        evaluation = self._cached(hosts, spec, is_first=before is None)
        if evaluation is None:
            return self.evaluate_afresh(hosts, spec, before, is_same=is_same)
        if before is None:
            return evaluation
        survivors = evaluation.results.survivors
        # A cached evaluation asks every filter about a host that changed, but a filter that runs
        # once per request must not reject for what an earlier instance of the request took.
        if (
            claimed_row is not None
            and not survivors[claimed_row]
            and evaluation.results.rejected_once(claimed_row)
        ):
            return self.evaluate_afresh(hosts, spec, before, claimed_row, is_same=is_same)
        if before is not evaluation and (survivors & ~before.results.survivors).any():
            return self.evaluate_afresh(hosts, spec, before, is_same=is_same)
        return evaluation

    def evaluate_afresh(
        self,
        hosts: HostTable,
        spec: RequestSpec,
        before: Evaluation | None = None,
        claimed_row: int | None = None,
        *,
        is_same: bool = False,
        in_order: bool = False,
    ) -> Evaluation:
        """Ask every filter about every host that is left, ``claimed_row`` among them.

        ``in_order`` asks the filters as the policy orders them, which changes the filter that is
        named for a rejected host, and not which hosts are rejected.
        """
        earlier = None if before is None else before.results.survivors
        changed = before.changed(hosts) if before is not None and is_same else None
        if earlier is not None and claimed_row is not None:
            earlier = earlier.copy()
            earlier[claimed_row] = True
            if changed is not None:
                changed[claimed_row] = True
        units = self.filters if in_order else self._by_cost
        results = FilterResults(
            hosts,
            spec,
            self._asked_for(spec, units, first=before is None),
            before=None if before is None else before.results,
            earlier=earlier,
            changed=changed,
            policy=self._policy,
        )
        weights = [unit for unit in self._weights if unit.applies(spec)]
        evaluation = Evaluation(hosts, results, weights, self._scale)
        evaluation.is_of_later_instance = before is not None
        return evaluation

    def asked(self, spec: RequestSpec) -> list[Filter]:
        """The filters that the request concerns, in the order of the policy."""
        return [unit for unit in self._asked_for(spec, self.filters) if unit.applies(spec)]

    def survivors(self, hosts: HostTable, spec: RequestSpec) -> Mask:
        """The hosts that pass all filters; remembers nothing, for questions not asked again."""
        return FilterResults(hosts, spec, self._asked_for(spec, self._by_cost)).survivors

    def _cached(self, hosts: HostTable, spec: RequestSpec, *, is_first: bool) -> Evaluation | None:
        """The evaluation of the request's class, up to date, narrowed to the request.

        None where nothing can be kept.
        """
        if spec.is_rebuild_check or names_destination(spec):
            return None
        kind = self.classes.of(spec)
        filters = kind.unkept(self._by_cost)
        if filters and not is_first:
            return None  # these are asked about the hosts they left for the instance before
        # Taken out while it changes: if a unit raises, a half updated one must not be found again.
        evaluation: Evaluation | None = hosts.evaluation_cache.pop(kind, None)
        if evaluation is None or not evaluation.catch_up(hosts, spec):
            outdated, evaluation = evaluation, self._of_class(hosts, spec, kind)
            if outdated is not None:
                evaluation.inherit(outdated, hosts)
            _make_room(hosts.evaluation_cache)
        hosts.evaluation_cache[kind] = evaluation
        results = evaluation.results.narrowed(hosts, spec, self._of_one_request, filters)
        weights = kind.unkept(self._weights)
        return evaluation.narrowed(hosts, spec, results, weights)

    def _of_class(self, hosts: HostTable, spec: RequestSpec, kind: EquivalenceClass) -> Evaluation:
        """Ask every unit about every host, but for the units whose answers cannot be kept."""
        results = FilterResults(
            hosts,
            spec,
            self._asked_for(spec, self._by_cost),
            left_out={*kind.undeclared, *self._of_one_request},
            policy=self._policy,
        )
        weights = [
            unit for unit in self._weights if unit.applies(spec) and unit not in kind.undeclared
        ]
        return Evaluation(hosts, results, weights, self._scale)

    def _asked_for(
        self, spec: RequestSpec, filters: Iterable[Filter], *, first: bool = True
    ) -> list[Filter]:
        return [
            unit
            for unit in filters
            if (unit.runs_on_forced_hosts or not spec.skips_filters)
            and (first or not unit.run_filter_once_per_request)
            and (unit.RUN_ON_REBUILD or not spec.is_rebuild_check)
        ]


def _make_room(cache: OrderedDict[Hashable, Evaluation]) -> None:
    """Forget the evaluations that were not used for longest, so that one more can be kept."""
    size = sum(evaluation.size for evaluation in cache.values())
    while len(cache) >= _FEWEST_CACHED and size > _CACHED_BYTES:
        if len(cache) < _MANY_CACHED and size <= _MOST_BYTES:
            return
        size -= cache.popitem(last=False)[1].size


def _cost(unit: Filter) -> tuple[bool, bool]:
    """First the filters that look at all hosts at once; among them those whose answers are kept."""
    return unit.looks_at_rows, not (unit.declares_reads() or unit.of_one_request)
