"""Rehearsals: what kept decisions would be under another policy, or on other hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from scheduler_worker.api.access import Access
from scheduler_worker.api.rights import Action
from scheduler_worker.api.v1.decisions import Moment
from scheduler_worker.api.v1.operations import Answer, Call, Operation, Page, PageQuery, given
from scheduler_worker.api.v1.policies import PolicyText
from scheduler_worker.errors import Invalid, NotFound, RequestError
from scheduler_worker.model.host_records import HostReport
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.service.replay.records import Asked, RehearsalRecord, RehearsalRecords, State
from scheduler_worker.service.replay.summary import RehearsalSummary

DEFAULT_SPAN_S = 86_400.0
MAX_HOSTS = 1000
_DRAFT = "00000000-0000-0000-0000-000000000000"
"""The id of a policy that is tried and not stored."""


class RehearsalRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which decisions are made again, and under what. Nothing that is in force is touched."""

    since: Moment | None = None
    """Those from this time on; null: of the last day."""
    until: Moment | None = None
    """Those before this time; null: all until now."""
    cluster: str | None = None
    """Only those of this cluster, which `policy` is tried in; null: of all, and in all."""
    project: str | None = None
    policy: PolicyText | None = None
    """The policy that is tried, stored or not; null: those in force."""
    drained: Annotated[list[str], Meta(max_length=MAX_HOSTS)] = []
    """Hosts, by name, that take no more instances."""
    added: Annotated[list[dict[str, Any]], Meta(max_length=MAX_HOSTS)] = []
    """Reports of further hosts, as the RPC method `update_hosts` takes them."""


class RehearsalOutline(msgspec.Struct, frozen=True, kw_only=True):
    """A rehearsal, and how far it is."""

    id: str
    user: str
    begun_at: datetime
    since: datetime
    until: datetime
    cluster: str | None
    project: str | None
    policy: str | None
    """The name of the policy that is tried; null: those in force."""
    drained: list[str]
    added: list[str]
    """The names of the further hosts."""
    state: State
    read: int
    """Decisions that were read."""
    done: int
    """Decisions that were made again, of `total`."""
    total: int
    problem: str | None
    """Why it failed, or who cancelled it."""


class RehearsalResult(RehearsalOutline, frozen=True, kw_only=True):
    """A rehearsal with its result; null: it has none, or not yet."""

    result: RehearsalSummary | None


class Rehearse(Protocol):
    """Starts rehearsals and ends them; see :class:`scheduler_worker.rehearsals.Rehearsals`."""

    @property
    def records(self) -> RehearsalRecords: ...

    def begin(
        self, asked: Asked, policy: ClusterPolicy | None, added: Sequence[HostReport], user: str
    ) -> RehearsalRecord: ...

    def end(self, id: str, user: str) -> None: ...


class RehearsalOperations:
    """Serves rehearsals."""

    def __init__(
        self,
        access: Access,
        rehearsals: Rehearse,
        check_policy: Callable[[ClusterPolicy], object],
        decode_reports: Callable[[Any, str], Sequence[HostReport]],
    ) -> None:
        """``check_policy`` raises Invalid for a policy that cannot be used.

        ``decode_reports`` gets reports and the path of the field; raises RequestError.
        """
        self._access = access
        self._rehearsals = rehearsals
        self._check_policy = check_policy
        self._decode_reports = decode_reports

    def operations(self) -> Sequence[Operation]:
        """What is served."""
        one = "/rehearsals/{id}"
        return [
            Operation(
                "GET", "/rehearsals", "list_rehearsals",
                "Rehearsals of the last day, the latest first.",
                self.list_rehearsals, answer=Page[RehearsalOutline], query=PageQuery,
            ),
            Operation(
                "POST", "/rehearsals", "begin_rehearsal",
                "Begin to decide kept decisions again; ask for the rehearsal until it is done.",
                self.begin, answer=RehearsalResult, body=RehearsalRequest,
                status=HTTPStatus.ACCEPTED, errors=(HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND),
            ),
            Operation(
                "GET", one, "get_rehearsal", "A rehearsal: how far it is, and its result.",
                self.get, answer=RehearsalResult,
            ),
            Operation(
                "DELETE", one, "remove_rehearsal",
                "Cancel a rehearsal that runs, or forget one that has ended.",
                self.remove, status=HTTPStatus.NO_CONTENT,
            ),
        ]  # fmt: skip

    def list_rehearsals(self, call: Call) -> Answer:
        self._access.check(call.caller, Action.READ, "")
        found = self._rehearsals.records.all()
        marker = given(call.query.marker)
        ids = [each.id for each in found]
        begin = ids.index(marker) + 1 if marker in ids else 0
        shown = found[begin : begin + call.query.limit]
        is_last = begin + len(shown) == len(found)
        outlines = [RehearsalOutline(**_fields(each)) for each in shown]
        return call.page(outlines, None if is_last else shown[-1].id)

    def begin(self, call: Call) -> Answer:
        self._access.check(call.caller, Action.REHEARSE, "")
        body: RehearsalRequest = call.body
        policy = None if body.policy is None else body.policy.document(_DRAFT)
        if policy is not None:
            self._check(policy)
        added = self._decode_reports(body.added, "added") if body.added else ()
        record = self._rehearsals.begin(self._asked(body, added), policy, added, call.caller.name)
        return Answer(RehearsalResult(**_fields(record), result=None), HTTPStatus.ACCEPTED)

    def get(self, call: Call, id: str) -> Answer:
        self._access.check(call.caller, Action.READ, "")
        found = self._rehearsals.records.find(id)
        if found is None:
            raise NotFound("rehearsal", id)
        record, result = found
        return Answer(RehearsalResult(**_fields(record), result=result))

    def remove(self, call: Call, id: str) -> Answer:
        self._access.check(call.caller, Action.REHEARSE, id)
        self.get(call, id)
        self._rehearsals.end(id, call.caller.name)
        return Answer()

    def _asked(self, body: RehearsalRequest, added: Sequence[HostReport]) -> Asked:
        now_s = self._rehearsals.records.now_s()
        since_s = now_s - DEFAULT_SPAN_S if body.since is None else body.since.timestamp()
        until_s = now_s if body.until is None else body.until.timestamp()
        if since_s >= until_s:
            raise RequestError("since", "it is not before until")
        return Asked(
            since_s=since_s,
            until_s=until_s,
            cluster=body.cluster,
            project=body.project,
            policy=None if body.policy is None else body.policy.name,
            drained=tuple(body.drained),
            added=tuple(each.host for each in added),
        )

    def _check(self, policy: ClusterPolicy) -> None:
        try:
            self._check_policy(policy)
        except Invalid as error:
            raise RequestError(f"policy.{error.field}", error.problem) from None


def _fields(record: RehearsalRecord) -> dict[str, Any]:
    asked = record.asked
    return {
        "id": record.id,
        "user": record.user,
        "begun_at": _moment(record.begun_at_s),
        "since": _moment(asked.since_s),
        "until": _moment(asked.until_s),
        "cluster": asked.cluster,
        "project": asked.project,
        "policy": asked.policy,
        "drained": list(asked.drained),
        "added": list(asked.added),
        "state": record.state,
        "read": record.read,
        "done": record.done,
        "total": record.total,
        "problem": record.problem,
    }


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
