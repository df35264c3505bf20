"""Recorded decisions are decided again, in their order, on a copy of the hosts: a simulation.

Instances that are still where they came to in the span are taken away first, and decided again. An
instance that is gone by now, or came elsewhere by a later decision, counts only at the moment of
its decision: nobody knows for how long it stayed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from statistics import fmean, pstdev
from typing import NamedTuple, get_args

from msgspec import structs

from scheduler_worker.errors import NoValidHost, RequestError, SchedulerWorkerError
from scheduler_worker.model.claims import Resources
from scheduler_worker.model.host_records import HostRecord, HostReport, limits_of, reported_use
from scheduler_worker.model.kept_decisions import DecisionId, Details, KeptDecision
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.model.providers import ResourceProvider
from scheduler_worker.model.rehearsals import (
    BeforeAfter,
    Change,
    ChangedDecision,
    Packing,
    PackingChange,
    RehearsalSummary,
    UseSpread,
)
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.observer import Outcome
from scheduler_worker.ports import Clock, ClusterLock, Put
from scheduler_worker.scheduling.pci.pools import pci_requests
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.scheduling.prefilters.needs import needs_of
from scheduler_worker.scheduling.selections import resources_of
from scheduler_worker.service.decisions.reasons import why_refused
from scheduler_worker.service.placement.dependencies import PlacementLimits
from scheduler_worker.service.placement.scheduler import Scheduler
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.simulation.copies import (
    Snapshot,
    hosts_in,
    instances_in,
    reservations_in,
)
from scheduler_worker.service.state import records
from scheduler_worker.service.state.replica import Fleet


class InstanceUse(NamedTuple):
    """What an instance takes of its host."""

    resources: Resources
    amounts: Mapping[str, int]
    """Of the inventories of the compute node: resource class -> amount."""


def rewound(snapshot: Snapshot, taken: Mapping[str, InstanceUse]) -> tuple[Snapshot, set[str]]:
    """The snapshot as if these instances, by uuid, were not there, and the instances that were.

    Reservations go as they are. What a host reports as used is reduced by what the instance takes
    if the host is its only one, and has a single node: else it stays where it is.
    """
    changes: list[tuple[str, Put]] = []
    gone: set[str] = set()
    hosts_of = _hosts_of(snapshot, taken)
    for cluster, found in snapshot.clusters.items():
        reserved = [
            reservation
            for reservation in reservations_in(found)
            if reservation.instance_uuid in taken
        ]
        changes += [(cluster, records.gone(records.RESERVATION + each.id)) for each in reserved]
        gone |= {each.instance_uuid for each in reserved}
        for name, node in _single_nodes(found):
            here = [each for each in hosts_of.get((cluster, name), ()) if each not in gone]
            if here:
                left = reduce(lambda node, each: _without(node, each, taken[each]), here, node)
                changes.append((cluster, records.put_host(left)))
                gone.update(here)
    for cluster, found in snapshot.clusters.items():
        for host, instances in instances_in(found):
            stay = {uuid: facts for uuid, facts in instances.items() if uuid not in gone}
            if len(stay) < len(instances):
                changes.append((cluster, records.put_instances(host, stay)))
    return snapshot.having(changes), gone


def _hosts_of(
    snapshot: Snapshot, wanted: Mapping[str, InstanceUse]
) -> dict[tuple[str, str], list[str]]:
    """Cluster and host -> the wanted instances that are there, and nowhere else."""
    hosts = {
        (cluster, host): [instance for instance in instances if instance in wanted]
        for cluster, found in snapshot.clusters.items()
        for host, instances in instances_in(found)
    }
    times = Counter(each for some in hosts.values() for each in some)
    return {place: [each for each in some if times[each] == 1] for place, some in hosts.items()}


def _single_nodes(found: Mapping[str, str]) -> list[tuple[str, HostRecord]]:
    """The hosts with one node, by name."""
    nodes: dict[str, list[HostRecord]] = {}
    for node in hosts_in(found):
        nodes.setdefault(node.host, []).append(node)
    return [(name, some[0]) for name, some in nodes.items() if len(some) == 1]


def _without(node: HostRecord, instance: str, taken: InstanceUse) -> HostRecord:
    of, disk_gb = taken.resources, -(-taken.resources.disk_mb // 1024)
    more = {
        name: value + amount
        for name, amount in (
            ("free_ram_mb", of.memory_mb),
            ("free_disk_gb", disk_gb),
            ("disk_available_least", disk_gb),
        )
        if (value := getattr(node, name)) is not None
    }
    return structs.replace(
        node,
        vcpus_used=max(0, node.vcpus_used - of.vcpus),
        memory_mb_used=max(0, node.memory_mb_used - of.memory_mb),
        local_gb_used=max(0, node.local_gb_used - disk_gb),
        resource_providers=tuple(
            _root_without(resource_provider, instance, taken.amounts)
            if resource_provider.uuid == node.uuid
            else resource_provider
            for resource_provider in node.resource_providers
        ),
        **more,
    )


def _root_without(
    root: ResourceProvider, instance: str, amounts: Mapping[str, int]
) -> ResourceProvider:
    if root.consumers is not None and instance not in root.consumers:
        return root
    return structs.replace(
        root,
        usages={name: max(0, used - amounts.get(name, 0)) for name, used in root.usages.items()},
        consumers=root.consumers
        and tuple(consumer for consumer in root.consumers if consumer != instance),
    )


FOR_EVER_S = 10.0 * 365 * 86_400
"""How long leases and reservations last: the clock stands still."""


class Tried(NamedTuple):
    """The conditions of a simulation that differ from those in force."""

    policy: ClusterPolicy | None = None
    cluster: str | None = None
    """The cluster that the policy is for; None: all."""
    drained: Collection[str] = ()
    """Hosts, by name, that take no more instances."""
    added: Sequence[HostReport] = ()
    """Reports of further hosts."""


class RehearsalPlan(NamedTuple):
    """What is to be decided again, and on which hosts."""

    snapshot: Snapshot
    """The hosts without the instances that are decided again."""
    decisions: tuple[KeptDecision, ...]
    """The oldest first."""
    staying: frozenset[DecisionId]
    """The decisions whose instances take room afterwards."""
    left_out: Mapping[str, int]
    """Why decisions are left out -> how many."""


def alterations(snapshot: Snapshot, tried: Tried) -> Iterator[tuple[str, Put]]:
    """The records of a policy that is tried, and of drained hosts, each with its cluster.

    Raises RequestError for a cluster or a host that is not there.
    """
    clusters = snapshot.clusters
    if tried.policy is not None:
        for cluster in [tried.cluster] if tried.cluster else clusters:
            if cluster not in clusters:
                known = ", ".join(sorted(clusters)) or "none"
                raise RequestError(
                    "cluster", f"there is no cluster {cluster!r:.80}; known are {known}"
                )
            yield cluster, records.put_policy(tried.policy)
    missing = set(tried.drained)
    for cluster, found in clusters.items() if tried.drained else ():
        for host in hosts_in(found):
            if host.host in tried.drained:
                missing.discard(host.host)
                service = {**host.service, "disabled": True}
                yield cluster, records.put_host(structs.replace(host, service=service))
    if missing:
        raise RequestError("host", f"there is no host {min(missing)!r:.80}")


def planned(
    snapshot: Snapshot, decisions: Iterable[KeptDecision], pipelines: Pipelines
) -> RehearsalPlan:
    """What to decide again of these decisions, in whatever order they are given."""
    left_out: Counter[str] = Counter()
    wanted: list[KeptDecision] = []
    last: dict[str, KeptDecision] = {}
    for decision in sorted(decisions, key=lambda each: each.id):
        if why := _why_not(decision):
            left_out[why] += 1
            continue
        wanted.append(decision)
        if decision.outline.result == "placed":
            last |= dict.fromkeys(decision.outline.instances, decision)
    uses = {uuid: _use(_details(each).spec, pipelines) for uuid, each in last.items()}
    before, gone = rewound(snapshot, {uuid: use for uuid, use in uses.items() if use is not None})
    present = {uuid for uuid in _present(snapshot) if uuid in uses and uses[uuid] is None}
    rehearsed = []
    for each in wanted:
        if any(uuid in present and last[uuid] is each for uuid in each.outline.instances):
            left_out["takes of NUMA cells, devices or providers of its host"] += 1
        else:
            rehearsed.append(each)
    staying = {each.id for uuid, each in last.items() if uuid in gone}
    staying |= {each.id for each in rehearsed if each.outline.result == "refused"}
    return RehearsalPlan(before, tuple(rehearsed), frozenset(staying), left_out)


def decided(
    plan: RehearsalPlan, fleet: Fleet, lock: ClusterLock, clock: Clock, pipelines: Pipelines
) -> Iterator[ChangedDecision]:
    """Decide one after the other on a fleet of its own, whose state has the plan's snapshot."""
    outcomes: list[Outcome] = []
    scheduler = Scheduler(
        fleet=fleet,
        lock=lock,
        pipelines=lambda: pipelines,
        clock=clock,
        limits=PlacementLimits(
            hold_timeout_s=FOR_EVER_S,
            reservation_ttl_s=FOR_EVER_S,
            wait_timeout_s=0.0,
            max_reservations=10**9,
            max_attempts=1,
        ),
        keep=lambda _, outcome, __: outcomes.append(outcome),
    )
    for each in plan.decisions:
        outcomes.clear()
        details = _details(each)
        hosts: tuple[str, ...] = ()
        reason = None
        try:
            decision = scheduler.select(
                Request(
                    spec=details.spec,
                    instance_uuids=each.outline.instances,
                    priority=details.priority,
                )
            )
        except NoValidHost:
            [outcome] = outcomes
            of_now = structs.replace(
                details, candidates=outcome.candidates, rejections=outcome.rejections
            )
            reason = why_refused(outcome, of_now, lambda name: pipelines.of_cluster(fleet, name))
        except SchedulerWorkerError as error:
            reason = str(error)
        else:
            end = scheduler.answered if each.id in plan.staying else scheduler.take_back
            end(decision)
            hosts = tuple(some[0].service_host for some in decision.selections)
        yield _changed(each, hosts, reason)


def _changed(kept: KeptDecision, hosts: tuple[str, ...], reason: str | None) -> ChangedDecision:
    before = kept.outline.hosts
    change: Change = "moved" if before else "placed"
    if hosts == before:
        change = "same"
    elif not hosts:
        change = "refused"
    return ChangedDecision(
        id=str(kept.id),
        change=change,
        instances=kept.outline.instances,
        flavor=kept.outline.flavor,
        hosts_before=before,
        hosts=hosts,
        reason=reason,
    )


def _why_not(kept: KeptDecision) -> str | None:
    """Why a decision cannot be decided again."""
    if kept.details is None:
        return "its details are not kept any more"
    if kept.outline.result == "failed":
        return "it failed"
    if kept.details.spec.is_rebuild_check:
        return "it checked a new image for a rebuild"
    return None


def _details(kept: KeptDecision) -> Details:
    assert kept.details is not None  # noqa: S101 - others are left out
    return kept.details


def _use(spec: RequestSpec, pipelines: Pipelines) -> InstanceUse | None:
    """What an instance takes; None: more than amounts, which cannot be taken away again."""
    if spec.numa_topology is not None or pci_requests(spec) or spec.vm:
        return None
    try:
        needs = needs_of(spec, pipelines.nova.candidates.parameters)
    except (NoValidHost, RequestError):
        return InstanceUse(resources_of(spec.flavor), {})
    if needs.supply is not None:
        return None
    return InstanceUse(resources_of(spec.flavor), dict(needs.amounts))


def _present(snapshot: Snapshot) -> set[str]:
    """The instances that are on hosts, or have reservations."""
    found: set[str] = set()
    for cluster in snapshot.clusters.values():
        found.update(*(instances for _, instances in instances_in(cluster)))
        found.update(reservation.instance_uuid for reservation in reservations_in(cluster))
    return found


_AMOUNTS = ("vcpus", "memory_mb", "disk_mb")


def summarized(
    found: Sequence[ChangedDecision],
    left_out: Mapping[str, int],
    before: Snapshot,
    after: Snapshot,
    *,
    most: int | None = None,
) -> RehearsalSummary:
    """The summary of all decisions; ``most`` bounds the changes of each kind, None: all."""
    counts: Counter[Change] = Counter()
    changes = []
    for each in found:
        counts[each.change] += 1
        if each.change != "same" and (most is None or counts[each.change] <= most):
            changes.append(each)
    placed = BeforeAfter(
        sum(bool(each.hosts_before) for each in found), sum(bool(each.hosts) for each in found)
    )
    return RehearsalSummary(
        rehearsed=len(found),
        left_out=dict(left_out),
        placed=placed,
        refused=BeforeAfter(len(found) - placed.before, len(found) - placed.after),
        counts={change: counts[change] for change in get_args(Change)},
        changes=changes,
        packing=PackingChange(packing_of(before), packing_of(after)),
    )


def packing_of(snapshot: Snapshot) -> list[Packing]:
    """How full the hosts of each cluster are, by name, and how evenly."""
    return [_of_cluster(name, snapshot.scopes[name]) for name in sorted(snapshot.clusters)]


def _of_cluster(name: str, found: dict[str, str]) -> Packing:
    reserved: defaultdict[str, list[Resources]] = defaultdict(list)
    for reservation in reservations_in(found):
        reserved[reservation.host_uuid].append(reservation.resources)
    shares: dict[str, list[float]] = {amount: [] for amount in _AMOUNTS}
    hosts = unused = 0
    for host in hosts_in(found):
        hosts += 1
        limits, reported, held = limits_of(host), reported_use(host), reserved[host.uuid]
        used = {
            amount: getattr(reported, amount) + sum(getattr(each, amount) for each in held)
            for amount in _AMOUNTS
        }
        unused += used["memory_mb"] <= host.reserved_host_memory_mb
        for amount in _AMOUNTS:
            if limit := getattr(limits, amount):
                shares[amount].append(100 * used[amount] / limit)
    return Packing(
        cluster=name,
        hosts=hosts,
        unused=unused,
        use={
            amount: UseSpread(round(fmean(some), 2), round(pstdev(some), 2))
            for amount, some in shares.items()
            if some
        },
    )
