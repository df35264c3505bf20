"""A request for several instances that no single cluster can take whole.

The locks of all candidate clusters are taken in the order of their names, so that two such requests
never wait for each other; then each instance goes where the best host is, whichever cluster that
is in. All instances are promised, or none stays promised.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scheduler_worker.errors import Conflict, NoValidHost, SchedulerWorkerError
from scheduler_worker.model.claims import Claim
from scheduler_worker.model.decisions import Decision, Diagnosis, Selection
from scheduler_worker.ports import Store, Transaction
from scheduler_worker.scheduling.pipeline import (
    NOT_ENOUGH_HOSTS,
    Pipeline,
    Request,
    with_group_host,
)
from scheduler_worker.scheduling.ranking import Dice
from scheduler_worker.service import records
from scheduler_worker.service.hold import Hold
from scheduler_worker.service.promised import promised_rows


def decide(holds: Sequence[Hold], pipeline: Pipeline, request: Request, dice: Dice) -> Decision:
    """Choose and consume over all held clusters; nothing stays consumed when it fails.

    Raises:
        NoValidHost: not every instance has a host, even over all clusters together.
    """
    spec, claims, selections = request.spec, list[Claim](), list[tuple[Selection, ...]]()
    diagnosis = Diagnosis()
    kept = [promised_rows(hold.replica, hold.table, request) for hold in holds]
    try:
        for uuid in request.instance_uuids:
            at = next((n for n, rows in enumerate(kept) if uuid in rows), None)
            if at is None:
                at = _best(pipeline.best_weights([hold.table for hold in holds], spec))
            one = msgspec.structs.replace(request, spec=spec, instance_uuids=(uuid,))
            part = pipeline.decide(holds[at].table, one, dice, kept[at])
            claims += part.claims
            selections += part.selections
            diagnosis = part.diagnosis
            spec = with_group_host(spec, part.selections[0][0].service_host)
    except BaseException:
        for hold in holds:
            hold.give_up(_of(hold, claims))
        raise
    return Decision(selections=tuple(selections), claims=tuple(claims), diagnosis=diagnosis)


def commit(holds: Sequence[Hold], decision: Decision, store: Store) -> None:
    """Promise the claims in every cluster; when one refuses, the others' are given back.

    Raises:
        Conflict: a host changed, or a hold ended, in the middle.
    """
    parts = [(hold, claims) for hold in holds if (claims := _of(hold, decision.claims))]
    for at, (hold, claims) in enumerate(parts):
        try:
            [applied], _ = hold.commit([claims])
        except SchedulerWorkerError:
            applied = False
        if not applied:
            for done, promised in parts[:at]:
                puts = [records.gone(records.PROMISE + claim.id) for claim in promised]
                store.write(done.replica.scope, [Transaction(puts)])
            for waiting, wished in parts[at + 1 :]:
                waiting.give_up(wished)
            raise Conflict("A host changed while several clusters were decided; try again.")


def _best(weights: Sequence[float | None]) -> int:
    fitting = [(-weight, at) for at, weight in enumerate(weights) if weight is not None]
    if not fitting:
        raise NoValidHost(NOT_ENOUGH_HOSTS, Diagnosis())
    return min(fitting)[1]


def _of(hold: Hold, claims: Sequence[Claim]) -> list[Claim]:
    return [claim for claim in claims if hold.table.row_of(claim.host_uuid) is not None]
