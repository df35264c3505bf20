"""Decisions: what was asked, what was decided, and why."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, structs

from scheduler_worker.conversion import convert
from scheduler_worker.errors import Disabled, NotFound, RequestError
from scheduler_worker.model.decision_history import (
    DecisionFacts,
    DecisionId,
    KeptDecision,
    Result,
    Waits,
)
from scheduler_worker.model.decisions import FilterStep, RankedHost
from scheduler_worker.operations.hosts import called
from scheduler_worker.operations.operation import (
    Call,
    Moment,
    Page,
    PageQuery,
    operation,
    seconds_of,
    when,
)

if TYPE_CHECKING:
    from scheduler_worker.service.decisions.kept import DecisionQuery, KeptDecisions


class DecisionOutline(DecisionFacts, frozen=True, kw_only=True):
    """How a request ended.

    placed: all instances got a host. refused: no host passed. failed: any other error was answered.
    """

    id: str
    decided_at: datetime
    instances: list[str]
    hosts: list[str]


class ChosenNode(msgspec.Struct, frozen=True):
    """A compute node."""

    host: str
    nodename: str


class DecisionWaits(Waits, frozen=True, omit_defaults=False):
    """What the request waited for, in seconds."""


class DecisionView(DecisionOutline, frozen=True, kw_only=True):
    """A decision with its request, and what was known of the hosts."""

    spec: dict[str, Any]
    num_alternates: int
    priority: int
    candidates: int
    filters: list[FilterStep]
    ranked: list[RankedHost]
    selections: list[list[ChosenNode]]
    repeated: int
    attempts: int
    token: int | None
    waits: DecisionWaits


class StoredDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision as it is stored, in a form that only programs of the same release read."""

    id: str
    outline: Any
    details: str | None


class DecisionsQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which decisions are listed."""

    cluster: Annotated[str | None, Meta(description="Only decisions of this cluster.")] = None
    instance: Annotated[str | None, Meta(description="Only decisions of this instance.")] = None
    project: Annotated[str | None, Meta(description="Only decisions of this project.")] = None
    result: Annotated[Result | None, Meta(description="Only decisions that ended so.")] = None
    host: Annotated[
        str | None,
        Meta(description="Only decisions that chose this host: name, node name or uuid."),
    ] = None
    since: Annotated[Moment | None, Meta(description="Those from this time on.")] = None
    until: Annotated[Moment | None, Meta(description="Those before this time.")] = None


class OneDecision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decision."""

    id: Annotated[
        str, Meta(description="Its id, or the uuid of an instance: the newest of its decisions.")
    ]


@operation(
    "GET",
    "/decisions",
    command="decision list",
    most=100,
    columns={
        "Time": "decided_at",
        "Result": "result",
        "Instances": "instances",
        "Hosts": "hosts",
        "Cluster": "cluster",
        "Flavor": "flavor",
        "Duration": "duration_s",
        "Id": "id",
    },
    long={
        "Project": "project_id",
        "Request": "request_id",
        "Zone": "availability_zone",
        "Policy": "policy",
        "Worker": "worker",
        "Error": "error",
        "Reason": "reason",
    },
)
def list_decisions(call: Call, query: DecisionsQuery) -> Page[DecisionOutline]:
    """List decisions, the newest first; a page may be short, or empty, and yet have a next.

    `decision show` says why.
    """
    page = _kept(call).page(_query(call, query), query.limit)
    outlines = list(map(_outline, page.decisions))
    items = convert(outlines, list[DecisionOutline])
    return Page(items, None if page.next is None else str(page.next))


@operation("GET", "/decisions/{id}", command="decision show")
def get_decision(call: Call, target: OneDecision) -> DecisionView:
    """Show a decision: why in one sentence, its request, filters, ranking and waits."""
    from scheduler_worker.service.decisions.kept import DecisionQuery

    kept = _kept(call)
    if "@" in target.id:
        decision = kept.get(_id(target.id, "id"))
    else:
        newest = kept.page(DecisionQuery(instance=target.id), 1).decisions
        decision = kept.get(newest[0].id) if newest else None
    if decision is None or decision.details is None:
        raise NotFound("recorded decision", target.id)
    details = decision.details
    own = {
        "spec": _set_fields(details.spec),
        "filters": list(details.filters),
        "ranked": list(details.ranked.hosts),
    }
    plain = structs.asdict(details) | _outline(decision) | own
    return convert(plain, DecisionView, from_attributes=True)


@operation("GET", None)
def list_stored_decisions(call: Call, query: DecisionsQuery) -> Page[StoredDecision]:
    """List decisions as they are stored, for rehearsals elsewhere."""
    kept = _kept(call)
    page = kept.page(_query(call, query), query.limit)
    details = kept.stored_details([decision.id for decision in page.decisions])
    items = [
        StoredDecision(
            id=str(decision.id),
            outline=msgspec.to_builtins(decision.outline),
            details=None if stored is None else stored.decode(),
        )
        for decision, stored in zip(page.decisions, details, strict=True)
    ]
    return Page(items, None if page.next is None else str(page.next))


def _kept(call: Call) -> KeptDecisions:
    if call.services.decisions is None:
        raise Disabled("No decisions are kept: [decisions] enabled is false.")
    return call.services.decisions


def _query(call: Call, query: DecisionsQuery) -> DecisionQuery:
    from scheduler_worker.service.decisions.kept import DecisionQuery

    same = ("cluster", "instance", "project", "result")
    # Records have the names of hosts, also of those that are gone.
    known = called(call.services, query.host) if query.host is not None else []
    return DecisionQuery(
        **{name: getattr(query, name) for name in same},
        host=known[0].host if known else query.host,
        since_s=seconds_of(query.since),
        until_s=seconds_of(query.until),
        before=None if query.marker is None else _id(query.marker, "marker"),
    )


def _id(text: str, field: str) -> DecisionId:
    try:
        return DecisionId.parse(text)
    except ValueError as error:
        raise RequestError(field, str(error)) from None


def _outline(decision: KeptDecision) -> dict[str, Any]:
    own = {"id": str(decision.id), "decided_at": when(decision.outline.decided_at_s)}
    return structs.asdict(decision.outline) | own


def _set_fields(value: Any) -> Any:
    """A struct as a dict of its fields that differ from their defaults, also of those in it."""
    if isinstance(value, (list, tuple)):
        return [_set_fields(member) for member in value]
    if not isinstance(value, msgspec.Struct):
        return value
    return {
        field.encode_name: _set_fields(item)
        for field in structs.fields(value)
        if (item := getattr(value, field.name)) != field.default
        and (field.default_factory is msgspec.NODEFAULT or item != field.default_factory())
    }
