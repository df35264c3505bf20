"""From hosts and a request to a decision: filter, weigh, choose, consume; then the next instance.

The order is that of Nova's filter scheduler once it has its hosts: the requested destination with
ignored and forced hosts first, then the enabled filters, then the weighers, then the choice. The
claims that a decision returns are consumed on the table it was given. The caller owns that table,
and gives the claims back if they cannot be stored.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.claims import Claim
from scheduler_worker.model.decisions import Decision, Diagnosis, FilterStep, Ranked, Selection
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import ClaimOrReservation, Values
from scheduler_worker.model.policy_references import PolicyReference
from scheduler_worker.model.providers import Owner
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.evaluation import Evaluation
from scheduler_worker.scheduling.evaluator import Evaluator
from scheduler_worker.scheduling.numa.constraints import with_page_sizes
from scheduler_worker.scheduling.plugin import Balance, Filter, Unit, Weigher
from scheduler_worker.scheduling.prefilters import units
from scheduler_worker.scheduling.scales import WeightEnds
from scheduler_worker.scheduling.selections import PlacementOptions, Selections
from scheduler_worker.scheduling.selectors import RandomSource, Ranking, Selector

NOT_ENOUGH_HOSTS = "There are not enough hosts available."


class Request(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is to be decided: ``spec`` for each of ``instance_uuids``."""

    spec: RequestSpec
    instance_uuids: tuple[str, ...]
    request_id: str = ""
    global_request_id: str | None = None
    """The id of the operation that this request is a part of; for logs only."""
    traceparent: str | None = None
    """The caller's trace context, in W3C's form; for traces only."""
    waited_s: float = 0.0
    """How long it waited in this process before it came to the scheduler; for traces only."""
    num_alternates: int = 0
    owner: Owner | None = None
    """For whom its hosts are claimed, where they are claimed in Placement."""
    priority: int = 0
    """From -100 to 100: the caller's rank of this request among others in a cluster's queue."""

    def without(self, hosts: Iterable[str]) -> "Request":
        """The same, to be decided without these hosts."""
        ignored = (*(self.spec.ignore_hosts or ()), *sorted(hosts))
        spec = msgspec.structs.replace(self.spec, ignore_hosts=ignored)
        return msgspec.structs.replace(self, spec=spec)


class Pipeline:
    """A compiled policy: its filters, weights, selector and balance.

    ``mandatory`` filters are asked first whatever the policy says. ``compiler.py`` makes pipelines.
    Any number of clusters and threads may share one: it keeps no state but what it remembers of
    requests.
    """

    def __init__(
        self,
        policy: PolicyReference,
        *,
        inventories: units.Inventories,
        providers: units.ResourceProviders,
        candidates: units.PlacementCandidates,
        mandatory: Sequence[Filter],
        filters: Sequence[Filter],
        weights: Sequence[Weigher],
        selector: Selector,
        options: PlacementOptions,
        balance: Balance | None = None,
    ) -> None:
        self.policy = policy
        self.inventories = inventories
        self.providers = providers
        self.candidates = candidates
        self.mandatory = tuple(mandatory)
        self.filters = tuple(filters)
        self.weights = tuple(weights)
        self.selector = selector
        self.balance = balance
        used: tuple[Unit, ...] = (*self.filters, *self.weights)
        self._noting = [unit for unit in used if type(unit).note is not Unit.note]
        self.options = options
        self.evaluator = Evaluator(policy, mandatory, filters, self.weights, selector.scale)
        self.selections = Selections(
            self.filters, inventories, providers, candidates, self.evaluator.classes, options
        )

    def undeclared(self) -> list[str]:
        """The names of external units that do not declare what they read.

        Each is asked about every host that the others left, for every request.
        """
        external = [unit for unit in (*self.filters, *self.weights) if not unit.is_internal()]
        return [
            each.name for each in external if not (each.declares_reads() or each.of_one_request)
        ]

    def notes(self) -> tuple[str, ...]:
        """What is odd about the latest answers of the units."""
        notes = (unit.note() for unit in self._noting)
        return tuple(note for note in notes if note is not None)

    def decide(
        self,
        hosts: HostTable,
        request: Request,
        rng: RandomSource,
        reserved: Mapping[str, int] | None = None,
    ) -> Decision:
        """Choose a host for every instance and consume the claims on ``hosts``.

        ``reserved`` maps instances that have a reservation to its row: they keep their host and
        claim nothing more. A rebuild check claims nothing either.

        Raises NoValidHost: not every instance has a host; nothing stays consumed.
        """
        consumed = _Consumed(hosts)
        try:
            return self._decide(hosts, request, rng, reserved or {}, consumed)
        except BaseException:
            consumed.undo()
            raise

    def _decide(
        self,
        hosts: HostTable,
        request: Request,
        rng: RandomSource,
        reserved: Mapping[str, int],
        consumed: "_Consumed",
    ) -> Decision:
        spec, claimed_row = request.spec, None
        evaluation: Evaluation | None = None
        ranking: Ranking | None = None
        chosen: list[tuple[int, Selection]] = []
        evaluated: RequestSpec | None = None
        for uuid in request.instance_uuids:
            spec = msgspec.structs.replace(spec, instance_uuid=uuid)
            row = reserved.get(uuid)
            if row is None:
                evaluation = self.evaluator.evaluate(hosts, spec, evaluation, claimed_row)
                evaluated = spec
                if not evaluation.results.passed:
                    raise NoValidHost(NOT_ENOUGH_HOSTS, self._diagnosis(evaluation))
                ranking = self.rank(hosts, evaluation, spec, rng)
                row = ranking.first
            selection = self.selections.of(hosts, row, spec, evaluation)
            chosen.append((row, selection))
            if uuid not in reserved and not spec.is_rebuild_check:
                state = hosts.state(row)
                claim = self.selections.claim(state, spec, selection.limits, request.request_id)
                consumed.consume(claim)
                claimed_row = row
                spec = with_page_sizes(spec, claim.resources)
            spec = with_group_host(spec, selection.service_host)
        diagnosis, ranked = self._seen(hosts, evaluation, ranking)
        alternates: list[Selection] = []
        if request.num_alternates:
            if ranking is None or len(chosen) > 1:
                # For one instance its own ranking serves; after several the hosts have changed.
                evaluation = self.evaluator.evaluate(
                    hosts, spec, evaluation, claimed_row, is_same=spec is evaluated
                )
                passed = evaluation.results.passed
                ranking = self.rank(hosts, evaluation, spec, rng) if passed else None
            alternates = self.selections.alternates(
                hosts, ranking or (), chosen, spec, evaluation, request.num_alternates
            )
        count = request.num_alternates
        selections = tuple((each, *_same_cell(alternates, each, count)) for _, each in chosen)
        return Decision(
            selections=selections,
            claims=tuple(consumed.claims),
            diagnosis=diagnosis,
            ranked=ranked,
            records=_records(hosts, selections),
        )

    def _seen(
        self, hosts: HostTable, evaluation: Evaluation | None, ranking: Ranking | None
    ) -> tuple[Diagnosis, Ranked]:
        """How many hosts passed for the last instance, and the best of them."""
        if evaluation is None:
            return Diagnosis(hosts=len(hosts), policy=self.policy), Ranked()
        ranked = Ranked()
        if ranking is not None and self.options.ranked_hosts:
            ranked = evaluation.ranked(hosts, ranking.head(self.options.ranked_hosts))
        return self._diagnosis(evaluation), ranked

    def _diagnosis(self, evaluation: Evaluation) -> Diagnosis:
        diagnosis, notes = evaluation.results.diagnosis(), self.notes()
        return msgspec.structs.replace(diagnosis, notes=notes) if notes else diagnosis

    def rank(
        self, hosts: HostTable, evaluation: Evaluation, spec: RequestSpec, rng: RandomSource
    ) -> Ranking:
        """The survivors, best first."""
        return self.selector.rank(evaluation.rows, evaluation.totals(hosts, spec), rng)

    def best_totals(self, tables: Sequence[HostTable], spec: RequestSpec) -> list[float | None]:
        """The best total in each table, scored over the hosts of all; None: no host passes.

        Totals of tables that were scored apart could not be compared: normalised scores depend on
        the hosts they are normalised over.
        """
        evaluations = [self.evaluator.evaluate(table, spec) for table in tables]
        pairs = list(zip(tables, evaluations, strict=True))
        ends = [each.ends(table, spec) for table, each in pairs if each.results.passed]
        if not ends:
            return [None] * len(tables)
        if (common := _common(ends)) is not None:
            return [each.best(common) if each.results.passed else None for each in evaluations]
        views = [table.take(each.rows) for table, each in pairs]
        starts = np.cumsum([len(view) for view in views])[:-1]
        totals = [np.zeros(len(view)) for view in views]
        for unit in self.weights:
            if unit.applies(spec):
                raw = np.concatenate([unit.weigh(view, spec) for view in views])
                scores = self.selector.scale(unit, spec, 1.0, raw).every_product()
                for at, part in enumerate(np.split(scores, starts)):
                    totals[at] += unit.multiplier(views[at]) * part
        return [float(total.max()) if len(total) else None for total in totals]

    def demands(self, spec: RequestSpec, steps: Iterable[FilterStep]) -> dict[str, str]:
        """What the filters of these steps demand of hosts, by their names."""
        names = {step.name for step in steps}
        return {
            unit.name: unit.demand(spec) for unit in self.evaluator.filters if unit.name in names
        }

    def passing(self, table: HostTable, spec: RequestSpec) -> int:
        """How many hosts of a table pass all filters."""
        return self.evaluator.evaluate(table, spec).results.passed


def _common(ends: Sequence[WeightEnds | None]) -> Values | None:
    """The lowest and the highest ends of several tables; None: not all have the same weights."""
    known = [each for each in ends if each is not None]
    if len(known) < len(ends) or len({each.weights for each in known}) != 1:
        return None
    low, high = np.array([each.ends for each in known]).transpose(2, 0, 1)
    return np.stack([np.fmin.reduce(low), np.fmax.reduce(high)], axis=1)


def _records(hosts: HostTable, selections: Iterable[Iterable[Selection]]) -> dict[str, HostRecord]:
    chosen = (selection.compute_node_uuid for some in selections for selection in some)
    rows = ((uuid, hosts.row_of(uuid)) for uuid in chosen)
    return {uuid: hosts.records[row] for uuid, row in rows if row is not None}


class _Consumed:
    """The claims of one decision, to be given back together if it fails."""

    def __init__(self, hosts: HostTable) -> None:
        self._hosts = hosts
        self._replaced: list[ClaimOrReservation | None] = []
        self.claims: list[Claim] = []

    def consume(self, claim: Claim) -> None:
        self._replaced.append(self._hosts.consume(claim))
        self.claims.append(claim)

    def undo(self) -> None:
        for claim, before in zip(self.claims, self._replaced, strict=True):
            self._hosts.give_back(claim.id)
            if before is not None:
                self._hosts.consume(before)


def with_group_host(spec: RequestSpec, host: str) -> RequestSpec:
    """The request as the next instance sees it: its group is on one more host."""
    group = spec.instance_group
    if group is None or host in group.hosts:
        return spec
    grown = msgspec.structs.replace(group, hosts=(*group.hosts, host))
    return msgspec.structs.replace(spec, instance_group=grown)


def _same_cell(alternates: Sequence[Selection], chosen: Selection, count: int) -> list[Selection]:
    cell = chosen.cell_uuid
    return [alternate for alternate in alternates if alternate.cell_uuid == cell][:count]
