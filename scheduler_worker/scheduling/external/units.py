"""Filters, weights and balances that ask a class in a sandbox."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import structs

from scheduler_worker.model.cluster_load import BalanceMemory, BalancePlan, ClusterLoad, Migration
from scheduler_worker.model.hosts import AskingTime, Hosts, HostState, Mask, Values
from scheduler_worker.model.requests import RequestSpec, every_field
from scheduler_worker.scheduling.catalogue import TYPES, UnitKind
from scheduler_worker.scheduling.external.contract import (
    ON_FAILURE,
    OnFailure,
    OwnParameter,
    PluginClass,
    read_balance,
    read_filter,
    read_passes,
    read_raw,
    read_scores,
)
from scheduler_worker.scheduling.external.facts import Facts, facts_of
from scheduler_worker.scheduling.plugin import Balance, Filter, Unit, UnitContext, Weigher

T = TypeVar("T")

_RESTS_S = 120.0
"""For how long a VM that has been moved stays where it is."""


class Fallback(NamedTuple):
    """What stands in for the answer of a call that failed."""

    words: str
    result: str
    """How such calls are counted."""


_PASS = Fallback("all hosts pass", "passed")
_FALLBACKS = {
    "pass": _PASS,
    "refuse": Fallback("no host passes", "refused"),
    "weight": Fallback("every score is 0", "failed"),
    "balance": Fallback("nothing moves", "failed"),
}


class PluginCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a class."""

    plugin: PluginClass
    hosts: Sequence[str]
    """The ids of the hosts that it is asked about."""
    vm: str = ""
    """The id of the VM that is placed; empty for a balance."""
    properties: Mapping[str, Any]
    """The parameters that the policy sets; of a class of our own form also those it does not."""
    facts: Facts = {}
    """What a class of our own form declares that it reads of the hosts."""
    spec: Any = None
    """The request for a class of our own form, as plain data."""
    now_s: float = 0.0
    asking: AskingTime = msgspec.field(default_factory=AskingTime)
    """The time that is left for it and the other calls of the decision."""


class Plugins:
    """Calls classes in sandboxes; this one, for workers without any, has none and fails each
    call.
    """

    on_failure: OnFailure = ON_FAILURE
    """What happens to hosts where a filter fails that declares nothing."""

    def ask(self, question: PluginCall, read: Callable[[object, Collection[str]], T]) -> T | None:
        """What ``read`` makes of the answer; None: the unit failed, which is reported already.

        ``read`` gets the answer and the hosts, and raises ValueError for an answer that cannot be
        used. Returns in bounded time, whatever the class does, and before ``question.asking`` is
        over. A unit that has too little time left is not called, which counts as a failure.
        """
        return None

    def trouble(self, plugin: PluginClass) -> str | None:
        """Why the last call of a class failed; None: it did not."""
        return "this process has no sandboxes: [external_units] directory is not set"

    def fallback(self, plugin: PluginClass) -> Fallback:
        """What a call of the class does if it fails."""
        is_filter = plugin.kind is UnitKind.FILTER
        return _FALLBACKS[(plugin.on_failure or self.on_failure) if is_filter else plugin.kind]


class ExternalUnit(Unit):
    """The part that all kinds share."""

    plugin: ClassVar[PluginClass]
    needs_enabling = True
    collaborators = (Plugins,)

    def __init__(self, context: UnitContext | None = None) -> None:
        super().__init__(context)
        self._plugins = self.collaborator(Plugins)
        values = structs.asdict(self.parameters)
        self._properties = {name: value for name, value in values.items() if value is not None}

    def note(self) -> str | None:
        trouble = self._plugins.trouble(self.plugin)
        if trouble is None:
            return None
        return f"{self.name} failed, {self._plugins.fallback(self.plugin).words}: {trouble}"

    def _asked(
        self, hosts: Sequence[str], read: Callable[[object, Collection[str]], T], **more: Any
    ) -> T | None:
        if not hosts:
            return None
        question = PluginCall(plugin=self.plugin, hosts=hosts, properties=self._properties, **more)
        return self._plugins.ask(question, read)

    def _asked_with_facts(
        self, hosts: Hosts, spec: RequestSpec, read: Callable[[object, Collection[str]], T]
    ) -> T | None:
        """Ask a class of our own form."""
        facts = facts_of(hosts, self.host_facts)
        ids, plain = [host.uuid for host in hosts.states()], _without_secrets(spec)
        asking, now_s = hosts.asking, hosts.now_s
        return self._asked(ids, read, facts=facts, spec=plain, now_s=now_s, asking=asking)


class ExternalFilter(ExternalUnit, Filter):
    """A filter in a sandbox; if it fails, all hosts pass, or none:
    :attr:`PluginClass.on_failure`.
    """

    looks_at_rows = True  # so that it is asked last, about the hosts that are left

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        if self.plugin.own:
            answers = self._asked_with_facts(hosts, spec, read_passes)
        else:
            ids = [host.uuid for host in hosts.states()]
            vm = spec.instance_uuid or ""
            kept = self._asked(ids, read_filter, vm=vm, asking=hosts.asking)
            answers = None if kept is None else [uuid in kept for uuid in ids]
        if answers is None:
            return np.full(len(hosts), self._plugins.fallback(self.plugin) is _PASS)
        return np.array(answers, bool)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        verb = "pass" if self.plugin.own else "keep"
        return self.note() or f"{self.plugin.name} of {self.plugin.file} does not {verb} it"


class ExternalWeight(ExternalUnit, Weigher):
    """A weight in a sandbox; a host without a score, or a failure, counts as 0."""

    lower_is_better = True
    """Of oVirt's form; one of the worker's own form declares it."""

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        if self.plugin.own:
            raw = self._asked_with_facts(hosts, spec, read_raw)
            return np.zeros(len(hosts)) if raw is None else np.array(raw, "f8")
        ids = [host.uuid for host in hosts.states()]
        vm = spec.instance_uuid or ""
        scores = self._asked(ids, read_scores, vm=vm, asking=hosts.asking) or {}
        return np.fromiter((scores.get(uuid, 0) for uuid in ids), "f8", len(ids))


class ExternalBalance(ExternalUnit, Balance):
    """A balance in a sandbox, which knows hosts by name; if it fails, nothing moves."""

    def plan(self, cluster: ClusterLoad, memory: BalanceMemory, now_s: float) -> BalancePlan:
        hosts = cluster.settled
        proposal = self._asked([host.name for host in hosts], read_balance)
        if proposal is None:
            why = self.note() or f"{self.plugin.name} proposes nothing"
            return BalancePlan(nothing_because=why, memory=memory)
        vm, destinations = proposal
        memory = memory.without_moves_before(now_s - _RESTS_S)
        guests = ((guest, host.name) for host in hosts for guest in host.vms)
        source = next((name for guest, name in guests if guest.id == vm and guest.can_move), None)
        targets = tuple(destination for destination in destinations if destination != source)
        if source is None or not targets or vm in memory.moves:
            why = f"{self.plugin.name} proposes VM {vm}, which cannot move there now"
            return BalancePlan(nothing_because=why, memory=memory)
        why = f"{self.plugin.name} proposes it"
        move = Migration(vm=vm, source=source, destinations=targets, reason=why)
        return BalancePlan(migrations=(move,), memory=memory)


_BASES: dict[UnitKind, type[ExternalUnit]] = {
    UnitKind.FILTER: ExternalFilter,
    UnitKind.WEIGHT: ExternalWeight,
    UnitKind.BALANCE: ExternalBalance,
}


def unit_class(plugin: PluginClass) -> type[Unit]:
    """The unit that asks a class.

    Raises TypeError or ValueError where bounds of a parameter do not fit its type.
    """
    members = {} if plugin.own is None else structs.asdict(plugin.own)
    members |= {
        "plugin": plugin,
        "parameters_type": msgspec.defstruct(
            f"{plugin.name}Parameters",
            list(_parameters(plugin, members.pop("parameters", ()))),
            frozen=True,
            kw_only=True,
        ),
        "__doc__": plugin.description,
        "__module__": f"external_units.{plugin.file.removesuffix('.py')}",
    }
    return type(plugin.name, (_BASES[plugin.kind],), members)


def _parameters(plugin: PluginClass, own: Iterable[OwnParameter]) -> Iterator[tuple[str, Any, Any]]:
    """The same names, types, bounds and defaults as in the sandbox, which checks them once more."""
    annotated: Any = Annotated
    for name, regex in plugin.parameters.items():
        yield name, annotated[str, msgspec.Meta(pattern=regex)] | None, None
    for each in own:
        limits: Any = {"pattern": each.regex}
        limits |= each.bounds
        yield each.name, annotated[TYPES[each.type], msgspec.Meta(**limits)] | None, each.default


def _without_secrets(spec: RequestSpec) -> Any:
    """The request as plain data, without the passwords that the URLs of a cell contain."""
    destination = spec.requested_destination
    if destination is not None and destination.cell is not None:
        cell = {"uuid": destination.cell_uuid}
        spec = structs.replace(spec, requested_destination=structs.replace(destination, cell=cell))
    return every_field(spec)
