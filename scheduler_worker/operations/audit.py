"""The audit: every change that administrators made, and every attempt that was refused."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, structs

from scheduler_worker.conversion import convert
from scheduler_worker.model.audit import AuditEntry, AuditFilter
from scheduler_worker.operations.callers import Right
from scheduler_worker.operations.operation import (
    Call,
    Moment,
    Page,
    PageQuery,
    operation,
    seconds_of,
    when,
)

AuditResult = Literal["done", "refused"]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A change, or an attempt that was refused."""

    id: str
    at: datetime
    user: str
    origin: str
    action: str
    resource: str
    result: AuditResult
    reason: str
    before: Any
    after: Any


class AuditQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which entries are listed."""

    user: Annotated[str | None, Meta(description="Only entries of this user.")] = None
    action: Annotated[str | None, Meta(description="Only entries of this action.")] = None
    resource: Annotated[str | None, Meta(description="Only those about this.")] = None
    result: Annotated[AuditResult | None, Meta(description="Only actions that ended so.")] = None
    since: Annotated[Moment | None, Meta(description="Those from this time on.")] = None
    until: Annotated[Moment | None, Meta(description="Those before this time.")] = None


@operation(
    "GET",
    "/audit",
    right=Right.READ_AUDIT,
    command="audit list",
    columns={
        "Time": "at",
        "User": "user",
        "From": "origin",
        "Action": "action",
        "Resource": "resource",
        "Result": "result",
        "Reason": "reason",
    },
    long={"Before": "before", "After": "after"},
)
def list_audit(call: Call, query: AuditQuery) -> Page[Entry]:
    """List the audit, oldest first; the page after a full one may be empty."""
    times = {"since_s": seconds_of(query.since), "until_s": seconds_of(query.until)}
    named = structs.asdict(query) | times | {"subject": query.resource}
    criteria = convert(named, AuditFilter)
    entries = call.services.history.entries(criteria, after=query.marker, limit=query.limit)
    is_full = len(entries) == query.limit
    return Page([_entry(entry) for entry in entries], entries[-1].id if is_full else None)


def _entry(entry: AuditEntry) -> Entry:
    before, after = (text and msgspec.json.decode(text) for text in (entry.before, entry.after))
    own = {"at": when(entry.at_s), "resource": entry.subject, "before": before, "after": after}
    return convert(structs.asdict(entry) | own, Entry)
