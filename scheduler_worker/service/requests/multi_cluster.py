"""Multi-cluster placement: a request for several instances that no single cluster can take whole.

The locks of all candidate clusters are acquired in the order of their names, so that two such
requests cannot deadlock. Then each instance goes to the best host, in whichever cluster it is. All
instances are reserved, or none stays reserved.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from scheduler_worker.errors import (
    ClusterLockTimeout,
    Conflict,
    DeadlineExceeded,
    NoValidHost,
    SchedulerWorkerError,
    StateUnavailable,
)
from scheduler_worker.model.claims import Claim
from scheduler_worker.model.decisions import Decision, Diagnosis, Ranked, Selection
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.hosts import AskingTime
from scheduler_worker.model.policy_references import PolicyReference
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.pipeline import NOT_ENOUGH_HOSTS, Request, with_group_host
from scheduler_worker.service.requests.dependencies import PlacementDependencies
from scheduler_worker.service.requests.lease import ClusterView, Lease
from scheduler_worker.service.state.attempt import PlacementAttempt
from scheduler_worker.service.state.intents import DecidedElsewhere, Intent
from scheduler_worker.service.state.replica import ClusterReplica


def place(
    deps: PlacementDependencies,
    replicas: Sequence[ClusterReplica],
    attempt: PlacementAttempt,
    *,
    deadline_s: float,
) -> Decision:
    """Reserve hosts in all of these clusters at once, under all of their locks.

    Raises:
        NoValidHost: not every instance has a host, even over all clusters together.
        DecidedElsewhere: another copy of the request was faster.
        DeadlineExceeded: the caller no longer waits; nothing is reserved.
        ClusterLockTimeout, Conflict, StateUnavailable: try again. ``attempt.reserved`` has what is
            to be taken back.
    """
    attempt.queued(None, deps.clock.monotonic_s())
    with contextlib.ExitStack() as held:
        # Every worker takes the locks in the order of names, so no two wait for each other.
        leases = _acquire(deps, sorted(replicas, key=lambda each: each.scope), held, deadline_s)
        # All of the store's locks first, then those of the replicas, in the order of names as well:
        # whoever holds a replica's lock waits for none of the store's.
        for lease in leases:
            held.enter_context(lease.replica.lock)
            lease.open()
        now_s = deps.clock.monotonic_s()
        attempt.attempted(leases[-1].grant.token.number, now_s)
        # The units of all clusters share half of what is left of the first lease at the least.
        first = leases[0]
        until_s = (first.half_over_at_s + first.grant.ends_at_s) / 2
        asking = AskingTime(min(until_s, attempt.half_time_s(now_s)))
        for lease in leases:
            lease.view.table.asking = asking
        _check_that_none_moved(leases, attempt)
        # Copies declare a cluster under its lock, and all of these locks are held by now.
        homes = deps.placement_intents.read(attempt.request.instance_uuids, attempt.declared)
        try:
            decision = decide([each.view for each in leases], attempt.request, homes)
        except NoValidHost:
            attempt.refused_at.update(
                {each.replica.scope: each.replica.capacity_version for each in leases}
            )
            raise
        if deps.clock.monotonic_s() >= attempt.caller_deadline_s:
            give_back([each.view for each in leases], decision.claims)
            raise DeadlineExceeded("The request was decided when its caller no longer waited.")
        # Before the commit: a copy in another cluster then finds that it is decided here.
        _declare(deps, leases, attempt, decision)
        begun_s = deps.clock.monotonic_s()
        attempt.cluster = _commit(leases, attempt, decision)
        attempt.committed(begun_s, deps.clock.monotonic_s(), leases[0].held_s())
        return decision


def decide(
    views: Sequence[ClusterView], request: Request, homes: Mapping[str, str] | None = None
) -> Decision:
    """Choose hosts over all of these clusters and consume them; nothing on an error.

    An instance in ``homes`` (instance uuid -> cluster) goes to no other cluster.

    Raises NoValidHost: not every instance has a host, even over all clusters together.
    """
    if len(views) == 1:
        return views[0].decide(request)
    spec, claims, selections = request.spec, list[Claim](), list[tuple[Selection, ...]]()
    diagnosis, ranked, records = Diagnosis(), Ranked(), dict[str, HostRecord]()
    kept = [view.reserved(request) for view in views]
    bound = {
        uuid: at
        for uuid, home in (homes or {}).items()
        for at, view in enumerate(views)
        if view.replica.scope == home
    }
    try:
        for uuid in request.instance_uuids:
            at = next((n for n, rows in enumerate(kept) if uuid in rows), bound.get(uuid))
            if at is None:
                at = next(iter(in_order(views, spec)), None)
            if at is None:
                raise NoValidHost(NOT_ENOUGH_HOSTS, Diagnosis())
            one = msgspec.structs.replace(request, spec=spec, instance_uuids=(uuid,))
            part = views[at].decide(one)
            claims += part.claims
            selections += part.selections
            diagnosis, ranked = part.diagnosis, part.ranked
            records.update(part.records)
            spec = with_group_host(spec, part.selections[0][0].service_host)
    except BaseException:
        give_back(views, claims)
        raise
    return Decision(
        selections=tuple(selections),
        claims=tuple(claims),
        diagnosis=diagnosis,
        ranked=ranked,
        records=records,
    )


def give_back(views: Iterable[ClusterView], claims: Sequence[Claim]) -> None:
    """Give claims back, each in its cluster."""
    for view in views:
        view.give_back(_of(view, claims))


def _acquire(
    deps: PlacementDependencies,
    replicas: Sequence[ClusterReplica],
    held: contextlib.ExitStack,
    deadline_s: float,
) -> list[Lease]:
    """Acquire the locks of all clusters; ``held`` releases them.

    A lease runs out while its holder waits for the next cluster's lock, and blocks that cluster for
    nothing. So once half of the first lease is over, all are released and acquired again.

    Raises ClusterLockTimeout: at the deadline; no lock is held.
    """
    while True:
        leases: list[Lease] = []
        with contextlib.ExitStack() as acquired:
            until_s = deadline_s
            try:
                for replica in replicas:
                    leases.append(Lease.acquire(deps, replica, until_s=until_s))
                    acquired.callback(leases[-1].release_quietly)
                    until_s = min(until_s, leases[0].half_over_at_s)
            except ClusterLockTimeout:
                # Otherwise half of the first lease was over, not the caller's time.
                if until_s == deadline_s:
                    raise
                continue
            held.push(acquired.pop_all())
            return leases


def _check_that_none_moved(leases: Sequence[Lease], attempt: PlacementAttempt) -> None:
    """Raise DecidedElsewhere if an instance with a reservation may have left with its host."""
    kept = {uuid for lease in leases for uuid in lease.view.reserved(attempt.request)}
    missing = [uuid for uuid in attempt.request.instance_uuids if uuid not in kept]
    if any(lease.replica.has_lost(missing, attempt.moves_seen) for lease in leases):
        raise DecidedElsewhere


def _declare(
    deps: PlacementDependencies,
    leases: Sequence[Lease],
    attempt: PlacementAttempt,
    decision: Decision,
) -> None:
    """Declare where the instances go; gives the claims back when another copy was faster."""
    views = [lease.view for lease in leases]
    homes = {
        claim.instance_uuid: view.replica.scope
        for view in views
        for claim in _of(view, decision.claims)
    }
    is_declared = False
    try:
        [is_declared] = deps.placement_intents.declare(
            [Intent(attempt.declared, homes)], views[0].table.now_s
        )
    finally:
        if not is_declared:
            give_back(views, decision.claims)
    if not is_declared:
        raise DecidedElsewhere


def _commit(leases: Sequence[Lease], attempt: PlacementAttempt, decision: Decision) -> str:
    """Reserve the claims in every cluster and return the clusters' names, joined by ``+``.

    Clusters may be on different servers, so there is no commit over several: when one refuses,
    whoever asked takes back the reservations in those before it, which the attempt has.
    """
    parts = [
        (lease, commit)
        for lease in leases
        if any(commit := lease.planned(attempt.request, _of(lease.view, decision.claims)))
    ]
    for at, (lease, commit) in enumerate(parts):
        applied, failure = False, None
        try:
            [applied] = lease.commit([commit])
        except SchedulerWorkerError as error:
            failure = error
        finally:
            if not applied:
                for other, unwritten in parts[at + 1 :]:
                    other.view.give_back(unwritten.claims)
        if isinstance(failure, StateUnavailable):
            raise failure
        if not applied:
            raise Conflict("A host changed while several clusters were decided; try again.")
        attempt.reserved[lease.replica.scope] = lease.made(commit.claims)
    return "+".join(lease.replica.scope for lease, _ in parts)


def _of(view: ClusterView, claims: Iterable[Claim]) -> list[Claim]:
    return [claim for claim in claims if view.table.row_of(claim.host_uuid) is not None]


def in_order(views: Sequence[ClusterView], spec: RequestSpec) -> list[int]:
    """The positions of clusters that have a host, best first. The caller holds their locks.

    Clusters under the same version of the same policy are ranked together, as if they were one: by
    the best total weight of their hosts, scored over the hosts of all. Totals of different policies
    are not comparable. So each policy ranks its own clusters. Policies are ordered by the share of
    their hosts that passes all filters, the largest first: a request goes where its choice is
    widest. Equal shares are ordered by the policy's name.
    """
    by_policy: dict[PolicyReference, list[int]] = {}
    for at, view in enumerate(views):
        by_policy.setdefault(view.pipeline.policy, []).append(at)
    ranked = (_ranked(views, members, spec) for members in by_policy.values())
    groups = [group for group in ranked if group]
    if len(groups) > 1:
        groups.sort(key=lambda group: _group_key(views, group, spec))
    return [at for group in groups for at in group]


def _ranked(views: Sequence[ClusterView], members: Sequence[int], spec: RequestSpec) -> list[int]:
    """The clusters of one policy that have a host, by their best hosts."""
    totals = views[members[0]].pipeline.best_totals([views[at].table for at in members], spec)
    fitting = [(-total, at) for at, total in zip(members, totals, strict=True) if total is not None]
    return [at for _, at in sorted(fitting)]


def _group_key(
    views: Sequence[ClusterView], group: Sequence[int], spec: RequestSpec
) -> tuple[float, str]:
    hosts = sum(len(views[at].table) for at in group)
    passing = sum(views[at].pipeline.passing(views[at].table, spec) for at in group)
    return -passing / hosts, views[group[0]].pipeline.policy.name
