"""Decisions: what was asked, what was decided, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from scheduler_worker.api.access import Access
from scheduler_worker.api.rights import Action
from scheduler_worker.api.v1.operations import Answer, Call, Operation, Page, PageQuery, given
from scheduler_worker.api.v1.problems import Failed, FieldError
from scheduler_worker.model.decisions import FilterStep
from scheduler_worker.model.kept_decisions import DecisionId, KeptDecision, Result
from scheduler_worker.service.decisions.kept import DecisionQuery, KeptDecisions

Moment = Annotated[datetime, Meta(tz=True)]


class DecisionOutline(msgspec.Struct, frozen=True, kw_only=True):
    """How a request ended."""

    id: str
    decided_at: datetime
    worker: str
    result: Result
    request_id: str
    global_request_id: str | None
    project_id: str | None
    cluster: str | None
    instances: list[str]
    hosts: list[str]
    flavor: str | None
    availability_zone: str | None
    policy: str | None
    error: str | None
    reason: str
    duration_s: float


class Place(msgspec.Struct, frozen=True):
    """A compute node."""

    host: str
    nodename: str


class RankedHost(msgspec.Struct, frozen=True):
    """A host that passed all filters; `shares` is what each weigher added to its total.

    Null: not a finite number.
    """

    host: str
    nodename: str
    total: float | None
    shares: dict[str, float | None]


class Waits(msgspec.Struct, frozen=True):
    """What the request waited for, in seconds."""

    lock_s: float
    hold_s: float
    look_s: float
    pending_s: float
    claim_s: float


class Decision(DecisionOutline, frozen=True, kw_only=True):
    """A decision with its request, and what was known of the hosts."""

    spec: dict[str, Any]
    num_alternates: int
    priority: int
    candidates: int
    filters: list[FilterStep]
    ranked: list[RankedHost]
    selections: list[list[Place]]
    repeated: int
    attempts: int
    token: int | None
    waits: Waits


class DecisionsQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which decisions are listed: those from `since` on and before `until`."""

    cluster: str | UnsetType = UNSET
    instance: str | UnsetType = UNSET
    project: str | UnsetType = UNSET
    result: Result | UnsetType = UNSET
    host: str | UnsetType = UNSET
    since: Moment | UnsetType = UNSET
    until: Moment | UnsetType = UNSET


class DecisionOperations:
    """Serves records of decisions."""

    def __init__(
        self,
        access: Access,
        kept: KeptDecisions | None,
        encode: Callable[[KeptDecision], dict[str, Any]],
    ) -> None:
        """``encode`` makes the form that RPC answers; ``kept`` is None where nothing is kept."""
        self._access = access
        self._kept = kept
        self._encode = encode

    def operations(self) -> Sequence[Operation]:
        """What is served."""
        return [
            Operation(
                "GET", "/decisions", "list_decisions",
                "Decisions, the newest first; a page may be short, or empty, and yet have a next.",
                self.list_decisions, answer=Page[DecisionOutline], query=DecisionsQuery,
            ),
            Operation(
                "GET", "/decisions/{id}", "get_decision",
                "A decision with its request, filters, ranking and waits.",
                self.get_decision, answer=Decision,
            ),
        ]  # fmt: skip

    def list_decisions(self, call: Call) -> Answer:
        self._access.check(call.caller, Action.READ, "")
        query: DecisionsQuery = call.query
        since, until, marker = given(query.since), given(query.until), given(query.marker)
        wanted = DecisionQuery(
            cluster=given(query.cluster),
            instance=given(query.instance),
            project=given(query.project),
            result=given(query.result),
            host=given(query.host),
            since_s=None if since is None else since.timestamp(),
            until_s=None if until is None else until.timestamp(),
            before=None if marker is None else _marker(marker),
        )
        found = self._reader().page(wanted, query.limit)
        items = [msgspec.convert(self._plain(each), DecisionOutline) for each in found.decisions]
        return call.page(items, None if found.next is None else str(found.next))

    def get_decision(self, call: Call, id: str) -> Answer:
        self._access.check(call.caller, Action.READ, "")
        try:
            found = self._reader().get(DecisionId.parse(id))
        except ValueError:
            found = None
        if found is None:
            raise Failed(HTTPStatus.NOT_FOUND, "No decision of this id is kept (any more).")
        return Answer(msgspec.convert(self._plain(found), Decision))

    def _plain(self, kept: KeptDecision) -> dict[str, Any]:
        decided_at = datetime.fromtimestamp(kept.outline.decided_at_s, UTC)
        return {**self._encode(kept), "decided_at": decided_at}

    def _reader(self) -> KeptDecisions:
        if self._kept is None:
            raise Failed(
                HTTPStatus.NOT_FOUND, "No decisions are kept: [decisions] enabled is false."
            )
        return self._kept


def _marker(text: str) -> DecisionId:
    try:
        return DecisionId.parse(text)
    except ValueError as error:
        problem = FieldError(str(error), parameter="marker")
        raise Failed(HTTPStatus.BAD_REQUEST, f"marker: {error}.", errors=[problem]) from None
