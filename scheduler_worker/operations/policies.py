"""Cluster policies: their documents, their history, and their clusters."""

import contextlib
import heapq
import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, structs

from scheduler_worker.conversion import convert
from scheduler_worker.errors import EditConflict, Invalid, NameTaken, NotFound
from scheduler_worker.model.audit import MAX_PAGE, AuditEntry, AuditFilter, marker_number
from scheduler_worker.model.documents import NEW, Attachment
from scheduler_worker.model.policies import (
    DEFAULT_SELECTOR,
    NOVA,
    BalanceUse,
    ClusterPolicy,
    FilterUse,
    Name,
    Parameters,
    SelectorUse,
    WeightUse,
    read_policy,
)
from scheduler_worker.operations.callers import Right
from scheduler_worker.operations.clusters import ClusterName
from scheduler_worker.operations.operation import (
    Call,
    Page,
    PageQuery,
    moment,
    operation,
    page_of,
    when,
)

if TYPE_CHECKING:
    from scheduler_worker.model.documents import StoredPolicy
    from scheduler_worker.service.documents.administration import Condition
    from scheduler_worker.service.documents.library import Library

_CHANGES = ("policy.create", "policy.update", "policy.remove")
_MOVES = ("cluster.attach", "policy.attach", "policy.detach")
"""The actions that change the policy of a cluster; the last two are of earlier releases."""


class PolicyText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one writes of a policy. Units are named; values of parameters are texts."""

    name: str
    description: str = ""
    filters: tuple[FilterUse, ...] = ()
    weights: tuple[WeightUse, ...] = ()
    balance: BalanceUse | None = None
    selector: SelectorUse = DEFAULT_SELECTOR
    parameters: Parameters = {}


class NewPolicy(PolicyText, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy that is to be stored."""

    id: Annotated[Name | None, Meta(description="The id that it gets; null: a new one.")] = None


class PolicyView(PolicyText, frozen=True, kw_only=True):
    """A policy; a locked one is built in, and the default one is that of new clusters."""

    id: str
    version: int
    is_locked: bool
    is_default: bool
    changed_by: str | None
    changed_at: datetime | None
    clusters: list[str]


class PolicyCheck(msgspec.Struct, frozen=True):
    """What is wrong with a policy that was not stored; null: nothing."""

    field: str | None
    problem: str | None


class PolicyEdit(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a policy, or of the policy of a cluster: who made it when, and from where."""

    at: datetime
    user: str
    origin: str
    """An address, or the name of a command."""
    action: Literal["create", "update", "remove", "attach", "detach"]
    id: str
    """Of the policy."""
    cluster: str | None = None
    """Which one was attached to the policy, or detached from it."""
    version: int | None = None
    policy: PolicyText | None = None
    """What it was changed to; null: it was removed, or stayed as it was."""


class ClusterAttachment(msgspec.Struct, frozen=True, kw_only=True):
    """Which policy a cluster has, with its own values of the policy's parameters."""

    cluster: str
    policy: str
    """Its id."""
    parameters: dict[str, str]
    version: int
    """Grows with each change of these; 0: it was never attached."""
    changed_by: str | None
    changed_at: datetime | None


class OnePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy."""

    id: Annotated[str, Meta(description="The id of a policy.")]


Version = Annotated[
    int | None, Meta(description="The version that the caller has seen; null: whichever it is.")
]


class SeenPolicy(OnePolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy, in a version."""

    version: Version = None


class ChangedText(PolicyText, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The text of a policy of this id."""

    id: Annotated[str, Meta(description="The id of a policy.")]
    version: Version = None

    def document(self) -> ClusterPolicy:
        return ClusterPolicy(**structs.asdict(self) | {"version": 1})


class HistoryQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose changes are listed."""

    id: Annotated[str, Meta(description="The id or the name of a policy.")]


class ClusterHistoryQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose policies are listed."""

    name: Annotated[str, Meta(description="The name of a cluster.")]


class NewAttachment(ClusterName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The policy of a cluster, by id or name. Without `parameters` it has the policy's."""

    policy: str
    parameters: Parameters = {}  # noqa: RUF012 - msgspec copies it
    version: Annotated[
        int | None,
        Meta(description="Of the attachment that the caller has seen; null: whichever it is."),
    ] = None


@operation(
    "GET",
    "/policies",
    command="policy list",
    columns={
        "Name": "name",
        "Version": "version",
        "Locked": "is_locked",
        "Changed By": "changed_by",
        "Clusters": "clusters",
        "Id": "id",
    },
    long={"Changed": "changed_at", "Description": "description"},
)
def list_policies(call: Call, query: PageQuery) -> Page[PolicyView]:
    """List the cluster policies by id.

    A locked one is built in. Clusters that are attached to none have the policy `nova`.
    """
    library = call.services.administration.library()
    rows = ((policy.document.id, policy) for policy in library.policies())
    return page_of(rows, query, lambda stored: _policy(library, stored))


@operation("GET", "/policies/{id}")
def get_policy(call: Call, target: OnePolicy) -> PolicyView:
    """Show a cluster policy."""
    library = call.services.administration.library()
    return _policy(library, library.policy(target.id))


@operation("POST", "/policies", right=Right.CREATE, status=HTTPStatus.CREATED)
def create_policy(call: Call, text: NewPolicy) -> PolicyView:
    """Store a new cluster policy."""
    administration = call.services.administration
    fields = structs.asdict(text) | {"id": text.id or str(uuid.uuid4())}
    policy = ClusterPolicy(version=1, **fields)
    made = administration.add(policy, call.actor)
    return _policy(administration.library(), made)


@operation("PUT", "/policies/{id}", right=Right.EDIT, has_condition=True)
def put_policy(call: Call, text: ChangedText) -> PolicyView:
    """Replace a cluster policy; its clusters get it in the same call."""
    seen = _seen(call, text.id, text.version)
    library = call.services.administration.put(text.document(), call.actor, seen)
    return _policy(library, library.documents.policies[text.id])


@operation("DELETE", "/policies/{id}", right=Right.DELETE, has_condition=True)
def remove_policy(call: Call, target: SeenPolicy) -> None:
    """Remove a cluster policy that no cluster has."""
    seen = _seen(call, target.id, target.version)
    call.services.administration.remove(target.id, call.actor, seen)


@operation("POST", "/policies/{id}/check")
def check_policy(call: Call, text: ChangedText) -> PolicyCheck:
    """Check a text for a policy of this id, new or not, and change nothing."""
    try:
        call.services.administration.check(text.document())
    except Invalid as error:
        return PolicyCheck(error.field, error.problem)
    except NameTaken as error:
        return PolicyCheck("name", str(error))
    return PolicyCheck(None, None)


@operation(
    "GET",
    "/policies/{id}/history",
    command="policy history",
    columns={
        "Time": "at",
        "Action": "action",
        "Version": "version",
        "Cluster": "cluster",
        "By": "user",
        "From": "origin",
    },
)
def list_policy_history(call: Call, query: HistoryQuery) -> Page[PolicyEdit]:
    """List the changes of a policy, and of which clusters have it, oldest first.

    It goes as far back as the audit does.
    """
    id = query.id
    with contextlib.suppress(NotFound):  # one that was removed has its id alone
        id = call.services.administration.library().policy_called(id).document.id

    def edit(entry: AuditEntry) -> PolicyEdit | None:
        if entry.action in _CHANGES:
            return _change(entry)
        if id == _policy_of(entry.after):
            return _move(entry, "attach", id)
        return _move(entry, "detach", id) if id == _policy_of(entry.before) else None

    changes = [AuditFilter(subject=id, action=action, result="done") for action in _CHANGES]
    moves = [AuditFilter(action=action, result="done") for action in _MOVES]
    return _history(call, query, [*changes, *moves], edit)


@operation(
    "GET",
    "/clusters/{name}/history",
    command="cluster history",
    columns={"Time": "at", "Policy": "id", "By": "user", "From": "origin"},
)
def list_cluster_history(call: Call, query: ClusterHistoryQuery) -> Page[PolicyEdit]:
    """List which policies a cluster was given, oldest first, as far back as the audit goes."""
    criteria = [AuditFilter(subject=query.name, action=action, result="done") for action in _MOVES]
    return _history(
        call, query, criteria, lambda entry: _move(entry, "attach", _policy_of(entry.after))
    )


@operation("GET", "/clusters/{name}/policy")
def get_attachment(call: Call, target: ClusterName) -> ClusterAttachment:
    """Show the policy that a cluster is attached to."""
    _check_known(call, target.name)
    return _attachment(_attached(call.services.administration.library(), target.name))


@operation("PUT", "/clusters/{name}/policy", right=Right.ATTACH, has_condition=True)
def attach_cluster(call: Call, asked: NewAttachment) -> ClusterAttachment:
    """Attach a cluster to a policy."""
    call.allow(asked.name)
    _check_known(call, asked.name)

    def seen(library: "Library") -> None:
        now = _attached(library, asked.name)
        if asked.version not in {None, now.version}:
            raise EditConflict(f"The policy of cluster {asked.name}", now.changed_by, now.version)
        call.check_match(_attachment(now))

    made = call.services.administration.attach(
        asked.name,
        call.actor,
        policy=asked.policy,
        parameters=asked.parameters,
        condition=seen,
        is_new=True,  # a listed cluster need not have hosts yet
    )
    return _attachment(made)


def _seen(call: Call, id: str, version: int | None) -> "Condition":
    """That the caller has seen the policy as it is when it is changed."""

    def seen(library: "Library") -> None:
        stored = library.documents.policies[id]  # an edit asks for what it has found
        now = stored.document
        if version not in {None, now.version}:
            raise EditConflict(f"Policy {now.name}", stored.changed_by, now.version)
        call.check_match(_policy(library, stored))

    return seen


def _check_known(call: Call, cluster: str) -> None:
    if cluster not in call.services.clusters():
        raise NotFound("cluster", cluster)


def _attached(library: "Library", cluster: str) -> Attachment:
    never = Attachment(cluster=cluster, policy_id=NOVA, version=NEW)
    return library.documents.attachments.get(cluster, never)


def _policy(library: "Library", stored: "StoredPolicy") -> PolicyView:
    document = stored.document
    return PolicyView(
        **{name: getattr(document, name) for name in document.__struct_fields__},
        is_locked=stored.is_locked,
        is_default=stored.is_default,
        changed_by=stored.changed_by or None,
        changed_at=moment(stored.changed_at_s),
        clusters=library.documents.clusters_of(document.id),
    )


def _history(
    call: Call,
    query: PageQuery,
    criteria: Sequence[AuditFilter],
    edit: Callable[[AuditEntry], PolicyEdit | None],
) -> Page[PolicyEdit]:
    """The page of the entries that meet one of the criteria and are an edit."""
    history = call.services.history

    def entries(wanted: AuditFilter) -> Iterator[AuditEntry]:
        marker = query.marker
        while True:
            found = history.entries(wanted, after=marker, limit=MAX_PAGE)
            yield from found
            if len(found) < MAX_PAGE:
                return
            marker = found[-1].id

    merged = heapq.merge(*map(entries, criteria), key=lambda entry: marker_number(entry.id))
    edits = ((entry.id, made) for entry in merged if (made := edit(entry)) is not None)
    shown = list(itertools.islice(edits, query.limit + 1))
    is_more = len(shown) > query.limit
    shown = shown[: query.limit]
    return Page([made for _, made in shown], shown[-1][0] if is_more else None)


def _policy_of(text: str | None) -> str:
    """The id of the policy in what an entry says of a cluster: an attachment, or a document."""
    plain = msgspec.json.decode(text) if text else {}
    return str(plain.get("policy_id") or plain.get("id") or NOVA)


def _move(entry: AuditEntry, action: Literal["attach", "detach"], id: str) -> PolicyEdit:
    return PolicyEdit(
        at=when(entry.at_s),
        user=entry.user,
        origin=entry.origin,
        action=action,
        id=id,
        cluster=entry.subject,
    )


def _change(entry: AuditEntry) -> PolicyEdit:
    document = None if entry.after is None else read_policy(entry.after)
    action: Any = entry.action.removeprefix("policy.")
    return PolicyEdit(
        at=when(entry.at_s),
        user=entry.user,
        origin=entry.origin,
        action=action,
        id=entry.subject,
        version=document.version if document else None,
        policy=convert(document, PolicyText | None, from_attributes=True),
    )


def _attachment(attachment: Attachment) -> ClusterAttachment:
    return ClusterAttachment(
        cluster=attachment.cluster,
        policy=attachment.policy_id,
        parameters=dict(attachment.parameters),
        version=attachment.version,
        changed_by=attachment.changed_by or None,
        changed_at=moment(attachment.changed_at_s),
    )
