"""Cluster policies in the SQL store: their documents, their history, and their clusters."""

import uuid
from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, structs

from scheduler_worker.conversion import convert
from scheduler_worker.errors import Invalid, NameTaken, NotFound
from scheduler_worker.model.policies import (
    DEFAULT_SELECTOR,
    NOVA,
    BalanceUse,
    ClusterPolicy,
    FilterUse,
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
from scheduler_worker.policy_store import MAX_PAGE, NEW, Attachment, AuditEntry, AuditFilter

if TYPE_CHECKING:
    from scheduler_worker.policy_store import StoredPolicy

_CHANGES = frozenset({"policy.create", "policy.update", "policy.remove"})


class PolicyText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one writes of a policy. Units are named; values of parameters are texts."""

    name: str
    description: str = ""
    filters: tuple[FilterUse, ...] = ()
    weights: tuple[WeightUse, ...] = ()
    balance: BalanceUse | None = None
    selector: SelectorUse = DEFAULT_SELECTOR
    parameters: Parameters = {}


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
    """A change of a policy; `policy` is what it was changed to, null: it was removed."""

    at: datetime
    user: str
    action: Literal["create", "update", "remove"]
    version: int | None
    policy: PolicyText | None


class ClusterAttachment(msgspec.Struct, frozen=True, kw_only=True):
    """Which policy a cluster has, with its own values of the policy's parameters."""

    cluster: str
    policy: str
    """Its id."""
    parameters: dict[str, str]
    changed_by: str | None
    changed_at: datetime | None


class OnePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy of the store."""

    id: Annotated[str, Meta(description="The id of a policy.")]


class ChangedText(PolicyText, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The text of a policy of this id."""

    id: Annotated[str, Meta(description="The id of a policy.")]

    def document(self, version: int = 1) -> ClusterPolicy:
        return ClusterPolicy(version=version, **structs.asdict(self))


class HistoryQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose changes are listed."""

    id: Annotated[str, Meta(description="The id of a policy.")]


class NewAttachment(ClusterName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The policy of a cluster, by id or name. Without `parameters` it has the policy's."""

    policy: str
    parameters: Parameters = {}  # noqa: RUF012 - msgspec copies it


@operation("GET", "/policies", home="store")
def list_policies(call: Call, query: PageQuery) -> Page[PolicyView]:
    """List the cluster policies by id."""
    administration = call.store.administration
    rows = ((policy.document.id, policy) for policy in administration.library.policies())
    attached = administration.attachments.all()
    return page_of(rows, query, lambda stored: _policy(stored, attached))


@operation("GET", "/policies/{id}", home="store")
def get_policy(call: Call, target: OnePolicy) -> PolicyView:
    """Show a cluster policy."""
    administration = call.store.administration
    return _policy(administration.library.policy(target.id), administration.attachments.all())


@operation("POST", "/policies", home="store", right=Right.CREATE, status=HTTPStatus.CREATED)
def create_policy(call: Call, text: PolicyText) -> PolicyView:
    """Store a new cluster policy."""
    policy = ClusterPolicy(id=str(uuid.uuid4()), version=1, **structs.asdict(text))
    return _policy(call.store.administration.add(policy, call.actor), [])


@operation("PUT", "/policies/{id}", home="store", right=Right.EDIT, has_condition=True)
def put_policy(call: Call, text: ChangedText) -> PolicyView:
    """Replace a cluster policy; its clusters get it in the same call."""
    before, attached = _checked(call, text.id)
    after = call.store.administration.put(text.document(), call.actor, before, attached)
    return _policy(after, attached)


@operation("DELETE", "/policies/{id}", home="store", right=Right.DELETE, has_condition=True)
def remove_policy(call: Call, target: OnePolicy) -> None:
    """Remove a cluster policy that no cluster has."""
    version = _checked(call, target.id)[0].document.version
    call.store.administration.remove(target.id, call.actor, expected_version=version)


@operation("POST", "/policies/{id}/check", home="store")
def check_policy(call: Call, text: ChangedText) -> PolicyCheck:
    """Check a text for a policy of this id, new or not, and change nothing."""
    try:
        call.store.administration.check(text.document())
    except Invalid as error:
        return PolicyCheck(error.field, error.problem)
    except NameTaken as error:
        return PolicyCheck("name", str(error))
    return PolicyCheck(None, None)


@operation("GET", "/policies/{id}/history", home="store")
def list_policy_history(call: Call, query: HistoryQuery) -> Page[PolicyEdit]:
    """List the changes of a policy, oldest first, as far back as the audit goes."""
    marker, limit = query.marker, query.limit
    edits: list[AuditEntry] = []
    criteria = AuditFilter(subject=query.id, result="done")
    while len(edits) <= limit:  # a cluster of this name has entries, too
        log = call.store.administration.audit_log
        entries = log.entries(criteria, after=marker, limit=MAX_PAGE)
        edits += [entry for entry in entries if entry.action in _CHANGES]
        if len(entries) < MAX_PAGE:
            break
        marker = entries[-1].id
    shown = edits[:limit]
    return Page([_change(entry) for entry in shown], shown[-1].id if len(edits) > limit else None)


@operation("GET", "/clusters/{name}/policy", home="store")
def get_attachment(call: Call, target: ClusterName) -> ClusterAttachment:
    """Show the policy that a cluster is attached to."""
    return _attachment(_attached(call, target.name))


@operation("PUT", "/clusters/{name}/policy", home="store", right=Right.ATTACH, has_condition=True)
def attach_cluster(call: Call, asked: NewAttachment) -> ClusterAttachment:
    """Attach a cluster to a policy."""
    call.allow(asked.name)
    now = _attached(call, asked.name)
    call.check_match(_attachment(now))
    made = call.store.administration.attachments.attach(
        asked.name,
        call.actor,
        policy=asked.policy,
        parameters=asked.parameters,
        expected_version=now.version,
        is_new=True,  # a listed cluster need not have hosts yet
    )
    return _attachment(made)


def _checked(call: Call, id: str) -> "tuple[StoredPolicy, Sequence[Attachment]]":
    """The policy as it is now, which the caller may change, and its clusters. Raises Forbidden."""
    administration = call.store.administration
    attached = administration.attachments.of(id)
    call.allow(*(attachment.cluster for attachment in attached))
    stored = administration.library.policy(id)
    call.check_match(_policy(stored, attached))
    return stored, attached


def _attached(call: Call, cluster: str) -> Attachment:
    if cluster not in call.services.clusters():
        raise NotFound("cluster", cluster)
    attachments = call.store.administration.attachments.all()
    own = (attached for attached in attachments if attached.cluster == cluster)
    return next(own, Attachment(cluster=cluster, policy_id=NOVA, version=NEW))


def _policy(stored: "StoredPolicy", attached: Sequence[Attachment]) -> PolicyView:
    document = stored.document
    return PolicyView(
        **{name: getattr(document, name) for name in document.__struct_fields__},
        is_locked=stored.is_locked,
        is_default=stored.is_default,
        changed_by=stored.changed_by or None,
        changed_at=moment(stored.changed_at_s),
        clusters=[own.cluster for own in attached if own.policy_id == document.id],
    )


def _change(entry: AuditEntry) -> PolicyEdit:
    document = None if entry.after is None else read_policy(entry.after)
    action: Any = entry.action.removeprefix("policy.")
    return PolicyEdit(
        at=when(entry.at_s),
        user=entry.user,
        action=action,
        version=document.version if document else None,
        policy=convert(document, PolicyText | None, from_attributes=True),
    )


def _attachment(attachment: Attachment) -> ClusterAttachment:
    return ClusterAttachment(
        cluster=attachment.cluster,
        policy=attachment.policy_id,
        parameters=dict(attachment.parameters),
        changed_by=attachment.changed_by or None,
        changed_at=moment(attachment.changed_at_s),
    )
