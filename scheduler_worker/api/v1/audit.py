"""The audit: every change that administrators made, and every attempt that was refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from scheduler_worker.api.access import Access
from scheduler_worker.api.rights import Action
from scheduler_worker.api.v1.operations import Answer, Call, Operation, Page, PageQuery, given
from scheduler_worker.policy_store import AuditEntry, AuditFilter
from scheduler_worker.service.policies.audit import AuditLog

Result = Literal["done", "refused"]
Moment = Annotated[datetime, Meta(tz=True)]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A change, or an attempt that was refused."""

    id: str
    at: datetime
    user: str
    origin: str
    action: str
    resource: str
    result: Result
    reason: str
    before: Any
    after: Any


class AuditQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which entries are listed: those from `since` on and before `until`."""

    user: str | UnsetType = UNSET
    action: str | UnsetType = UNSET
    resource: str | UnsetType = UNSET
    result: Result | UnsetType = UNSET
    since: Moment | UnsetType = UNSET
    until: Moment | UnsetType = UNSET


class AuditOperations:
    """Serves the audit."""

    def __init__(self, access: Access, audit: AuditLog) -> None:
        self._access = access
        self._audit = audit

    def operations(self) -> Sequence[Operation]:
        """What is served."""
        summary = "The audit, oldest first; the page after a full one may be empty."
        return [
            Operation(
                "GET", "/audit", "list_audit", summary, self.list_audit,
                answer=Page[Entry], query=AuditQuery,
            )
        ]  # fmt: skip

    def list_audit(self, call: Call) -> Answer:
        self._access.check(call.caller, Action.READ_AUDIT, "")
        query: AuditQuery = call.query
        since, until = given(query.since), given(query.until)
        wanted = AuditFilter(
            user=given(query.user),
            action=given(query.action),
            subject=given(query.resource),
            result=given(query.result),
            since_s=None if since is None else since.timestamp(),
            until_s=None if until is None else until.timestamp(),
        )
        found = self._audit.entries(wanted, after=given(query.marker), limit=query.limit)
        is_full = len(found) == query.limit
        return call.page([_entry(each) for each in found], found[-1].id if is_full else None)


def _entry(entry: AuditEntry) -> Entry:
    return Entry(
        id=entry.id,
        at=datetime.fromtimestamp(entry.at_s, UTC),
        user=entry.user,
        origin=entry.origin,
        action=entry.action,
        resource=entry.subject,
        result=entry.result,
        reason=entry.reason,
        before=_json(entry.before),
        after=_json(entry.after),
    )


def _json(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
