"""Recorded decisions are replay again, in their order, on a copy of the hosts: a rehearsal.

Instances that are still where they came to in the span are taken away first, and replay again. An
instance that is gone by now, or came elsewhere by a later decision, counts only at the moment of
its decision: nobody knows for how long it stayed.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from statistics import fmean, pstdev
from typing import NamedTuple, get_args

from msgspec import structs

from scheduler_worker.errors import NoValidHost, RequestError, SchedulerWorkerError
from scheduler_worker.model.claims import Resources
from scheduler_worker.model.decision_history import DecisionDetails, DecisionId, KeptDecision
from scheduler_worker.model.host_records import HostRecord, known_as, limits_of, reported_use
from scheduler_worker.model.host_reports import HostReport
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
from scheduler_worker.ports import Put
from scheduler_worker.scheduling.pci.pools import pci_requests
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.scheduling.prefilters.needs import needs_of
from scheduler_worker.scheduling.selections import resources_of
from scheduler_worker.service.decisions.recorder import why_refused
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.rehearsal.snapshots import (
    Snapshot,
    hosts_in,
    instances_in,
    reservations_in,
)
from scheduler_worker.service.requests.scheduler import Scheduler
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
    for cluster, by_key in snapshot.clusters.items():
        reserved = {
            reservation.id: reservation.instance_uuid
            for reservation in reservations_in(by_key)
            if reservation.instance_uuid in taken
        }
        changes += [(cluster, records.gone(records.RESERVATION + key)) for key in reserved]
        gone.update(reserved.values())
        for name, node in _single_nodes(by_key):
            here = [uuid for uuid in hosts_of.get((cluster, name), ()) if uuid not in gone]
            if here:
                reduced = reduce(lambda node, uuid: _without(node, uuid, taken[uuid]), here, node)
                changes.append((cluster, records.put_host(reduced)))
                gone.update(here)
    for cluster, by_key in snapshot.clusters.items():
        for host, instances in instances_in(by_key):
            stay = {uuid: facts for uuid, facts in instances.items() if uuid not in gone}
            if len(stay) < len(instances):
                changes.append((cluster, records.put_instances(host, stay)))
    return snapshot.having(changes), gone


def _hosts_of(
    snapshot: Snapshot, taken: Mapping[str, InstanceUse]
) -> dict[tuple[str, str], list[str]]:
    """Cluster and host -> the taken instances that are there, and nowhere else."""
    hosts = {
        (cluster, host): [uuid for uuid in instances if uuid in taken]
        for cluster, by_key in snapshot.clusters.items()
        for host, instances in instances_in(by_key)
    }
    times = Counter(uuid for uuids in hosts.values() for uuid in uuids)
    return {place: [uuid for uuid in uuids if times[uuid] == 1] for place, uuids in hosts.items()}


def _single_nodes(by_key: Mapping[str, str]) -> list[tuple[str, HostRecord]]:
    nodes: dict[str, list[HostRecord]] = {}
    for node in hosts_in(by_key):
        nodes.setdefault(node.host, []).append(node)
    return [(name, of_host[0]) for name, of_host in nodes.items() if len(of_host) == 1]


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


class RehearsalOverrides(NamedTuple):
    """The conditions of a rehearsal that differ from those in force."""

    policy: ClusterPolicy | None = None
    cluster: str | None = None
    """The cluster that the policy is for; None: all."""
    drained: Collection[str] = ()
    """Hosts, by name, that take no more instances."""
    added: Sequence[HostReport] = ()
    """Reports of further hosts."""


class RehearsalPlan(NamedTuple):
    """What is to be replay again, and on which hosts."""

    snapshot: Snapshot
    """The hosts without the instances that are replay again."""
    decisions: tuple[KeptDecision, ...]
    """The oldest first."""
    staying: frozenset[DecisionId]
    """The decisions whose instances take room afterwards."""
    left_out: Mapping[str, int]
    """Why decisions are left out -> how many."""


def alterations(snapshot: Snapshot, tried: RehearsalOverrides) -> Iterator[tuple[str, Put]]:
    """The records of a policy that is tried, and of drained hosts, each with its cluster.

    Raises RequestError for a cluster or a host that is not there.
    """
    clusters = snapshot.clusters
    if tried.policy is not None:
        for cluster in [tried.cluster] if tried.cluster else clusters:
            if cluster not in clusters:
                known = ", ".join(sorted(clusters)) or "none"
                problem = f"there is no cluster {cluster!r:.80}; known are {known}"
                raise RequestError("cluster", problem)
            yield cluster, records.put_policy(tried.policy)
    for cluster, host in found(snapshot, tried.drained):
        service = {**host.service, "disabled": True}
        yield cluster, records.put_host(structs.replace(host, service=service))


def found(snapshot: Snapshot, names: Collection[str]) -> list[tuple[str, HostRecord]]:
    """The hosts of these names, each with its cluster; raises RequestError for a missing one."""
    wanted, missing = set(names), set(names)
    hosts = []
    for cluster, by_key in snapshot.clusters.items() if names else ():
        for host in hosts_in(by_key):
            if not wanted.isdisjoint(known := known_as(host)):
                missing.difference_update(known)
                hosts.append((cluster, host))
    if missing:
        raise RequestError("host", f"there is no host {min(missing)!r:.80}")
    return hosts


def replay_plan(
    snapshot: Snapshot, decisions: Iterable[KeptDecision], pipelines: Pipelines
) -> RehearsalPlan:
    """What to decide again of these decisions, in whatever order they are given."""
    left_out: Counter[str] = Counter()
    decidable: list[KeptDecision] = []
    last: dict[str, KeptDecision] = {}
    for decision in sorted(decisions, key=lambda decision: decision.id):
        if why := _why_not(decision):
            left_out[why] += 1
            continue
        decidable.append(decision)
        if decision.outline.result == "placed":
            last |= dict.fromkeys(decision.outline.instances, decision)
    uses = {uuid: _use(_details(decision).spec, pipelines) for uuid, decision in last.items()}
    before, gone = rewound(snapshot, {uuid: use for uuid, use in uses.items() if use is not None})
    present = {uuid for uuid in _present(snapshot) if uuid in uses and uses[uuid] is None}
    rehearsed = []
    for decision in decidable:
        if any(uuid in present and last[uuid] is decision for uuid in decision.outline.instances):
            left_out["takes of NUMA cells, devices or providers of its host"] += 1
        else:
            rehearsed.append(decision)
    staying = {decision.id for uuid, decision in last.items() if uuid in gone}
    staying |= {decision.id for decision in rehearsed if decision.outline.result == "refused"}
    return RehearsalPlan(before, tuple(rehearsed), frozenset(staying), left_out)


def replay(
    plan: RehearsalPlan,
    scheduler: Scheduler,
    outcomes: list[Outcome],
    fleet: Fleet,
    pipelines: Pipelines,
) -> Iterator[ChangedDecision]:
    """Decide one after the other on a fleet of its own, whose state has the plan's snapshot.

    The scheduler keeps how requests end in ``outcomes``.
    """
    for kept in plan.decisions:
        outcomes.clear()
        details = _details(kept)
        hosts: tuple[str, ...] = ()
        reason = None
        try:
            request = Request(
                spec=details.spec, instance_uuids=kept.outline.instances, priority=details.priority
            )
            decision = scheduler.select(request)
        except NoValidHost:
            [outcome] = outcomes
            of_now = structs.replace(
                details, candidates=outcome.candidates, rejections=outcome.rejections
            )
            reason = why_refused(outcome, of_now, lambda name: pipelines.of_cluster(fleet, name))
        except SchedulerWorkerError as error:
            reason = str(error)
        else:
            end = scheduler.answered if kept.id in plan.staying else scheduler.take_back
            end(decision)
            hosts = tuple(choices[0].service_host for choices in decision.selections)
        yield _changed(kept, hosts, reason)


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
    if kept.details is None:
        return "its details are not kept any more"
    if kept.outline.result == "failed":
        return "it failed"
    if kept.details.spec.is_rebuild_check:
        return "it checked a new image for a rebuild"
    return None


def _details(kept: KeptDecision) -> DecisionDetails:
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
    present: set[str] = set()
    for cluster in snapshot.clusters.values():
        present.update(*(instances for _, instances in instances_in(cluster)))
        present.update(reservation.instance_uuid for reservation in reservations_in(cluster))
    return present


_AMOUNTS = ("vcpus", "memory_mb", "disk_mb")


def summarized(
    decisions: Sequence[ChangedDecision],
    left_out: Mapping[str, int],
    before: Snapshot,
    after: Snapshot,
    *,
    most: int | None = None,
) -> RehearsalSummary:
    """The summary of all decisions; ``most`` bounds the changes of each kind, None: all."""
    counts: Counter[Change] = Counter()
    changes = []
    for decision in decisions:
        counts[decision.change] += 1
        if decision.change != "same" and (most is None or counts[decision.change] <= most):
            changes.append(decision)
    placed = BeforeAfter(
        sum(bool(decision.hosts_before) for decision in decisions),
        sum(bool(decision.hosts) for decision in decisions),
    )
    return RehearsalSummary(
        rehearsed=len(decisions),
        left_out=dict(left_out),
        placed=placed,
        refused=BeforeAfter(len(decisions) - placed.before, len(decisions) - placed.after),
        counts={change: counts[change] for change in get_args(Change)},
        changes=changes,
        packing=PackingChange(packing_of(before), packing_of(after)),
    )


def packing_of(snapshot: Snapshot) -> list[Packing]:
    """How full the hosts of each cluster are, by name, and how evenly."""
    return [_of_cluster(name, snapshot.scopes[name]) for name in sorted(snapshot.clusters)]


def _of_cluster(name: str, by_key: dict[str, str]) -> Packing:
    reserved: defaultdict[str, list[Resources]] = defaultdict(list)
    for reservation in reservations_in(by_key):
        reserved[reservation.host_uuid].append(reservation.resources)
    shares: dict[str, list[float]] = {amount: [] for amount in _AMOUNTS}
    hosts = unused = 0
    for host in hosts_in(by_key):
        hosts += 1
        limits, reported, held = limits_of(host), reported_use(host), reserved[host.uuid]
        used = {
            amount: getattr(reported, amount) + sum(getattr(taken, amount) for taken in held)
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
            amount: UseSpread(round(fmean(percents), 2), round(pstdev(percents), 2))
            for amount, percents in shares.items()
            if percents
        },
    )
