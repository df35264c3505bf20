"""A request for several instances that no single cluster can take whole.

The locks of all candidate clusters are taken in the order of their names, so that two such requests
never wait for each other; then each instance goes where the best host is, whichever cluster that
is in. All instances are promised, or none stays promised.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from scheduler_worker.errors import Conflict, NoValidHost, SchedulerWorkerError
from scheduler_worker.model.claims import Claim
from scheduler_worker.model.decisions import Decision, Diagnosis, Selection
from scheduler_worker.ports import Transaction
from scheduler_worker.scheduling.pipeline import (
    NOT_ENOUGH_HOSTS,
    Pipeline,
    Request,
    with_group_host,
)
from scheduler_worker.service import records
from scheduler_worker.service.ground import Ground
from scheduler_worker.service.hold import Hold, Means
from scheduler_worker.service.replica import ClusterReplica
from scheduler_worker.service.trail import Trail
from scheduler_worker.service.whereabouts import Elsewhere, Wish


def place(
    means: Means, replicas: Sequence[ClusterReplica], trail: Trail, *, deadline_s: float
) -> Decision:
    """Promise hosts in all of these clusters at once, under all of their locks.

    Raises:
        NoValidHost: not every instance has a host, even over all clusters together.
        Elsewhere: another copy of the request was faster.
        ClusterLockTimeout, Conflict, StateUnavailable: nothing stays promised; try again.
    """
    holds: list[Hold] = []
    trail.line_up(None, means.clock.monotonic_s())
    with contextlib.ExitStack() as held:
        for replica in sorted(replicas, key=lambda each: each.scope):
            holds.append(Hold.acquire(means, replica, until_s=deadline_s))
            held.callback(holds[-1].release_quietly)
        for hold in holds:
            held.enter_context(hold.replica.lock)
            hold.open()
        trail.decide(holds[-1].grant.token.number, means.clock.monotonic_s())
        homes = means.whereabouts.ask(means.fleet.store, trail)
        try:
            decision = decide(
                [each.ground for each in holds], means.pipeline(), trail.request, homes
            )
        except NoValidHost:
            trail.refused_at.update({each.replica.scope: each.replica.news for each in holds})
            raise
        _claim(means, holds, trail, decision)
        trail.cluster = _commit(means, holds, decision)
        trail.hold_s = holds[0].held_s()
        return decision


def decide(
    grounds: Sequence[Ground],
    pipeline: Pipeline,
    request: Request,
    homes: Mapping[str, str] | None = None,
) -> Decision:
    """Choose and consume over all of these clusters; nothing stays consumed when it fails.

    An instance that has one of ``homes`` goes to no other cluster.

    Raises:
        NoValidHost: not every instance has a host, even over all clusters together.
    """
    if len(grounds) == 1:
        return grounds[0].decide(request, pipeline)
    spec, claims, selections = request.spec, list[Claim](), list[tuple[Selection, ...]]()
    diagnosis = Diagnosis()
    kept = [ground.promised(request) for ground in grounds]
    bound = {
        uuid: at
        for uuid, home in (homes or {}).items()
        for at, ground in enumerate(grounds)
        if ground.replica.scope == home
    }
    try:
        for uuid in request.instance_uuids:
            at = next((n for n, rows in enumerate(kept) if uuid in rows), bound.get(uuid))
            if at is None:
                at = _best(pipeline.best_weights([each.table for each in grounds], spec))
            one = msgspec.structs.replace(request, spec=spec, instance_uuids=(uuid,))
            part = grounds[at].decide(one, pipeline)
            claims += part.claims
            selections += part.selections
            diagnosis = part.diagnosis
            spec = with_group_host(spec, part.selections[0][0].service_host)
    except BaseException:
        give_up(grounds, claims)
        raise
    return Decision(selections=tuple(selections), claims=tuple(claims), diagnosis=diagnosis)


def give_up(grounds: Iterable[Ground], claims: Sequence[Claim]) -> None:
    """Take claims back, each in its cluster."""
    for ground in grounds:
        ground.give_up(_of(ground, claims))


def _claim(means: Means, holds: Sequence[Hold], trail: Trail, decision: Decision) -> None:
    """Say where the instances go; nothing stays consumed when another copy was faster."""
    grounds = [hold.ground for hold in holds]
    homes = {
        claim.instance_uuid: ground.replica.scope
        for ground in grounds
        for claim in _of(ground, decision.claims)
    }
    may = False
    try:
        [may] = means.claim([Wish(trail, homes)], grounds[0].table.now_s)
    finally:
        if not may:
            give_up(grounds, decision.claims)
    if not may:
        raise Elsewhere


def _commit(means: Means, holds: Sequence[Hold], decision: Decision) -> str:
    """Promise the claims in every cluster, and name these; when one refuses, nothing stays."""
    parts = [(hold, claims) for hold in holds if (claims := _of(hold.ground, decision.claims))]
    for at, (hold, claims) in enumerate(parts):
        applied = False
        try:
            with contextlib.suppress(SchedulerWorkerError):
                [applied] = hold.commit([claims])
        finally:
            if not applied:
                _undo(means, parts[:at], parts[at + 1 :])
        if not applied:
            raise Conflict("A host changed while several clusters were decided; try again.")
    return "+".join(hold.replica.scope for hold, _ in parts)


_Parts = Sequence[tuple[Hold, Sequence[Claim]]]


def _undo(means: Means, promised: _Parts, wished: _Parts) -> None:
    for hold, claims in wished:
        hold.ground.give_up(claims)
    for hold, claims in promised:
        puts = [records.gone(records.PROMISE + claim.id) for claim in claims]
        means.fleet.store.write(hold.replica.scope, [Transaction(puts)])
        means.observer.promises_ended(hold.replica.scope, "released", len(claims))


def _best(weights: Sequence[float | None]) -> int:
    fitting = [(-weight, at) for at, weight in enumerate(weights) if weight is not None]
    if not fitting:
        raise NoValidHost(NOT_ENOUGH_HOSTS, Diagnosis())
    return min(fitting)[1]


def _of(ground: Ground, claims: Iterable[Claim]) -> list[Claim]:
    return [claim for claim in claims if ground.table.row_of(claim.host_uuid) is not None]
