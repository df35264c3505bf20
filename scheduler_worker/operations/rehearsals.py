"""Rehearsals: what recorded decisions would be under another policy, or on other hosts."""

from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, structs

from scheduler_worker.conversion import convert
from scheduler_worker.errors import Invalid, NotFound, RequestError
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.model.rehearsals import (
    RecordsPage,
    RehearsalProgress,
    RehearsalQuery,
    RehearsalRecord,
    RehearsalSummary,
)
from scheduler_worker.operations.callers import Right
from scheduler_worker.operations.operation import Call, Moment, Page, PageQuery, operation, when
from scheduler_worker.operations.policies import PolicyText

if TYPE_CHECKING:
    from scheduler_worker.model.host_reports import HostReport

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
    """Only decisions of this cluster, in which `policy` is tried; null: of all clusters."""
    project: str | None = None
    policy: PolicyText | None = None
    """The policy that is tried, stored or not; null: those in force."""
    drained: Annotated[list[str], Meta(max_length=MAX_HOSTS)] = []
    """Hosts that take no more instances, each by its name, node name or uuid."""
    added: Annotated[list[dict[str, Any]], Meta(max_length=MAX_HOSTS)] = []
    """Reports of further hosts, as the RPC method `update_hosts` takes them."""


class RehearsalOutline(RehearsalProgress, frozen=True, kw_only=True):
    """A rehearsal, and how far it is."""

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


class RehearsalResult(RehearsalOutline, frozen=True, kw_only=True):
    """A rehearsal with its result; null: it has none, or not yet."""

    result: RehearsalSummary | None


AnyOutline = TypeVar("AnyOutline", bound=RehearsalOutline)


class OneRehearsal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rehearsal."""

    id: Annotated[str, Meta(description="The id of a rehearsal.")]


@operation("GET", "/rehearsals", home="api")
def list_rehearsals(call: Call, query: PageQuery) -> Page[RehearsalOutline]:
    """List the rehearsals of the last day, the latest first."""
    records = call.api.rehearsals.records.all()
    ids = [record.id for record in records]
    begin = ids.index(query.marker) + 1 if query.marker in ids else 0
    shown = records[begin : begin + query.limit]
    is_last = begin + len(shown) == len(records)
    outlines = [_outline(RehearsalOutline, record) for record in shown]
    return Page(outlines, None if is_last else shown[-1].id)


@operation("POST", "/rehearsals", home="api", right=Right.REHEARSE, status=HTTPStatus.ACCEPTED)
def begin_rehearsal(call: Call, asked: RehearsalRequest) -> RehearsalResult:
    """Begin to decide recorded decisions again; ask for the rehearsal until it is done."""
    from scheduler_worker import codec

    policy = None
    if asked.policy is not None:
        policy = ClusterPolicy(id=_DRAFT, version=1, **structs.asdict(asked.policy))
        try:
            call.services.administration.check_trial(policy)
        except Invalid as error:
            raise RequestError(f"policy.{error.field}", error.problem) from None
    added = codec.decode_host_reports(asked.added, "added") if asked.added else ()
    terms = _asked(call, asked, added)
    record = call.api.rehearsals.begin(terms, policy, added, call.caller.name)
    return _outline(RehearsalResult, record, result=None)


@operation("GET", "/rehearsals/{id}", home="api")
def get_rehearsal(call: Call, target: OneRehearsal) -> RehearsalResult:
    """Show a rehearsal: how far it is, and its result."""
    record, result = _find(call, target.id)
    return _outline(RehearsalResult, record, result=result)


@operation("DELETE", "/rehearsals/{id}", home="api", right=Right.REHEARSE)
def remove_rehearsal(call: Call, target: OneRehearsal) -> None:
    """Cancel a rehearsal that runs, or forget one that has ended.

    Of another user, it needs the right in the rehearsal's cluster, or in all where it has none.
    """
    record, _ = _find(call, target.id)
    if record.user != call.caller.name:
        cluster = record.asked.cluster
        call.allow(*([cluster] if cluster is not None else call.services.clusters()))
    call.api.rehearsals.end(target.id, call.caller.name)


def _find(call: Call, id: str) -> tuple[RehearsalRecord, RehearsalSummary | None]:
    rehearsal = call.api.rehearsals.records.find(id)
    if rehearsal is None:
        raise NotFound("rehearsal", id)
    return rehearsal


def _asked(call: Call, asked: RehearsalRequest, added: "Sequence[HostReport]") -> RehearsalQuery:
    now_s = call.api.rehearsals.records.now_s()
    since_s = now_s - DEFAULT_SPAN_S if asked.since is None else asked.since.timestamp()
    until_s = now_s if asked.until is None else asked.until.timestamp()
    if since_s >= until_s:
        raise RequestError("since", "it is not before until")
    policy, names = asked.policy and asked.policy.name, [report.host for report in added]
    own = {"since_s": since_s, "until_s": until_s, "policy": policy, "added": names}
    return convert(structs.asdict(asked) | own, RehearsalQuery)


def _outline(
    form: type[AnyOutline], record: RehearsalRecord, **more: RehearsalSummary | None
) -> AnyOutline:
    asked = record.asked
    times = {"since": when(asked.since_s), "until": when(asked.until_s)}
    times["begun_at"] = when(record.begun_at_s)
    return convert(structs.asdict(record) | structs.asdict(asked) | times | more, form)


# Records of the shared state, for rehearsals elsewhere


class RecordsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which records are read."""

    cluster: Annotated[
        str | None, Meta(description="Records of this cluster; else records of no cluster.")
    ] = None
    marker: Annotated[str | None, Meta(description="The `next` of the page before.")] = None
    limit: Annotated[int, Meta(ge=1, le=1000, description="Records of a page at most.")] = 1000


@operation("GET", None)
def list_records(call: Call, query: RecordsQuery) -> RecordsPage:
    """List records of a cluster, or records of no cluster, by their keys."""
    from scheduler_worker.service.rehearsal.snapshots import page_of

    fleet = call.services.fleet
    if query.cluster is not None:
        fleet.known_cluster(query.cluster)
    return page_of(fleet, query.cluster, query.marker, query.limit)
