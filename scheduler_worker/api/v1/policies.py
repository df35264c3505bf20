"""Cluster policies: the units that they use, their documents, their history, and their clusters."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Literal

import msgspec
from msgspec import structs

from scheduler_worker.api.access import Access
from scheduler_worker.api.rights import Action
from scheduler_worker.api.v1.operations import (
    Answer,
    Call,
    Operation,
    Page,
    PageQuery,
    given,
    moment,
)
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
from scheduler_worker.policy_store import (
    MAX_PAGE,
    NEW,
    Attachment,
    AuditEntry,
    AuditFilter,
    StoredPolicy,
)
from scheduler_worker.scheduling.catalogue import Parameter, UnitKind
from scheduler_worker.service.policies.administration import PolicyAdministration
from scheduler_worker.service.policies.policy_units import PolicyUnit, PolicyUnits

_CONDITIONS = (
    HTTPStatus.CONFLICT,
    HTTPStatus.PRECONDITION_FAILED,
    HTTPStatus.PRECONDITION_REQUIRED,
)
_CHANGES = frozenset({"policy.create", "policy.update", "policy.remove"})


class UnitParameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter that a unit declares. A value matches the `regex` as a whole."""

    name: str
    type: str
    default: str
    """As text, like every value."""
    regex: str | None


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """A unit in one of its kinds."""

    id: str
    name: str
    kind: Literal["filter", "weight", "balance", "selector"]
    description: str
    is_internal: bool
    """Whether it comes with the worker."""
    is_enabled: bool
    can_be_switched: bool
    """Whether administrators enable and disable it: it comes from a file."""
    is_cost: bool
    """Of a weight: whether low scores are better, so that its factor is 0 or above."""
    parameters: list[UnitParameter]


class UnitSwitch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether policies may use a unit."""

    is_enabled: bool


class PolicyText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one writes of a policy. Units are named; values of parameters are texts."""

    name: str
    description: str = ""
    filters: tuple[FilterUse, ...] = ()
    weights: tuple[WeightUse, ...] = ()
    balance: BalanceUse | None = None
    selector: SelectorUse = DEFAULT_SELECTOR
    parameters: Parameters = {}

    def document(self, policy_id: str, version: int = 1) -> ClusterPolicy:
        """The policy of this id."""
        return ClusterPolicy(id=policy_id, version=version, **structs.asdict(self))


class Policy(PolicyText, frozen=True, kw_only=True):
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


class PolicyChange(msgspec.Struct, frozen=True, kw_only=True):
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


class AttachmentText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The policy of a cluster, by id or name. Without `parameters` it has the policy's."""

    policy: str
    parameters: Parameters = {}


class PolicyOperations:
    """Serves policies, units, and which cluster has which policy."""

    def __init__(
        self, access: Access, admin: PolicyAdministration, clusters: Callable[[], Iterable[str]]
    ) -> None:
        """``clusters`` has the names of the clusters that may be attached."""
        self._access = access
        self._admin = admin
        self._clusters = clusters

    def operations(self) -> Sequence[Operation]:
        """What is served."""
        return [*self._of_units(), *self._of_policies(), *self._of_clusters()]

    def _of_units(self) -> Sequence[Operation]:
        return [
            Operation(
                "GET", "/units", "list_units", "Units that policies may use, by id.",
                self.list_units, answer=Page[Unit], query=PageQuery,
            ),
            Operation("GET", "/units/{id}", "get_unit", "A unit.", self.get_unit, answer=Unit),
            Operation(
                "PUT", "/units/{id}", "switch_unit", "Enable or disable a unit from a file.",
                self.switch_unit, answer=Unit, body=UnitSwitch, conditions=("If-Match",),
                errors=_CONDITIONS,
            ),
        ]  # fmt: skip

    def _of_policies(self) -> Sequence[Operation]:
        one, taken = "/policies/{id}", (HTTPStatus.CONFLICT,)
        return [
            Operation(
                "GET", "/policies", "list_policies", "Cluster policies by id.",
                self.list_policies, answer=Page[Policy], query=PageQuery,
            ),
            Operation(
                "POST", "/policies", "create_policy", "Store a new cluster policy.",
                self.create_policy, answer=Policy, body=PolicyText, status=HTTPStatus.CREATED,
                errors=taken,
            ),
            Operation(
                "GET", one, "get_policy", "A cluster policy.", self.get_policy, answer=Policy
            ),
            Operation(
                "PUT", one, "put_policy",
                "Replace a cluster policy; its clusters get it in the same call.",
                self.put_policy, answer=Policy, body=PolicyText, conditions=("If-Match",),
                errors=_CONDITIONS,
            ),
            Operation(
                "DELETE", one, "remove_policy", "Remove a cluster policy that no cluster has.",
                self.remove_policy, conditions=("If-Match",), status=HTTPStatus.NO_CONTENT,
                errors=_CONDITIONS,
            ),
            Operation(
                "POST", f"{one}/check", "check_policy",
                "Check a text for a policy of this id, new or not, and change nothing.",
                self.check_policy, answer=PolicyCheck, body=PolicyText,
            ),
            Operation(
                "GET", f"{one}/history", "list_policy_history",
                "Changes of a policy, oldest first, as far back as the audit goes.",
                self.list_history, answer=Page[PolicyChange], query=PageQuery,
            ),
        ]  # fmt: skip

    def _of_clusters(self) -> Sequence[Operation]:
        one = "/clusters/{name}/policy"
        return [
            Operation(
                "GET", one, "get_cluster_policy", "The policy that a cluster is attached to.",
                self.get_attachment, answer=ClusterAttachment,
            ),
            Operation(
                "PUT", one, "attach_cluster", "Attach a cluster to a policy.", self.put_attachment,
                answer=ClusterAttachment, body=AttachmentText, conditions=("If-Match",),
                errors=_CONDITIONS,
            ),
        ]  # fmt: skip

    # Units

    def list_units(self, call: Call) -> Answer:
        self._check_reader(call)
        units = self._admin.library.units()
        return _page(call, {each.id: each for each in units}, lambda unit: _unit(unit, units))

    def get_unit(self, call: Call, id: str) -> Answer:
        self._check_reader(call)
        units = self._admin.library.units()
        found = units.find(id)
        if found is None:
            raise NotFound("unit", id)
        return Answer(_unit(found, units))

    def switch_unit(self, call: Call, id: str) -> Answer:
        self._access.check(call.caller, Action.SWITCH_UNIT, id)
        call.check_match(self.get_unit(call, id).body, is_needed=True)
        self._admin.switch_unit(id, call.actor, is_enabled=call.body.is_enabled)
        return self.get_unit(call, id)

    # Policies

    def list_policies(self, call: Call) -> Answer:
        self._check_reader(call)
        found = {each.document.id: each for each in self._admin.library.policies()}
        attached = self._admin.attachments.all()
        return _page(call, found, lambda stored: _policy(stored, attached))

    def get_policy(self, call: Call, id: str) -> Answer:
        self._check_reader(call)
        return Answer(self._shown(id))

    def create_policy(self, call: Call) -> Answer:
        self._access.check(call.caller, Action.CREATE, "")
        made = self._admin.add(call.body.document(str(uuid.uuid4())), call.actor)
        return Answer(_policy(made, []), HTTPStatus.CREATED)

    def put_policy(self, call: Call, id: str) -> Answer:
        now = self._checked(call, id, Action.EDIT)
        document = call.body.document(id, now.version)
        self._admin.put(document, call.actor, expected_version=now.version)
        return Answer(self._shown(id))

    def remove_policy(self, call: Call, id: str) -> Answer:
        now = self._checked(call, id, Action.DELETE)
        self._admin.remove(id, call.actor, expected_version=now.version)
        return Answer()

    def check_policy(self, call: Call, id: str) -> Answer:
        self._check_reader(call)
        try:
            self._admin.check(call.body.document(id))
        except Invalid as error:
            return Answer(PolicyCheck(error.field, error.problem))
        except NameTaken as error:
            return Answer(PolicyCheck("name", str(error)))
        return Answer(PolicyCheck(None, None))

    def list_history(self, call: Call, id: str) -> Answer:
        self._check_reader(call)
        marker, limit = given(call.query.marker), call.query.limit
        found: list[AuditEntry] = []
        wanted = AuditFilter(subject=id, result="done")
        while len(found) <= limit:  # a cluster of this name has entries, too
            entries = self._admin.audit_log.entries(wanted, after=marker, limit=MAX_PAGE)
            found += [each for each in entries if each.action in _CHANGES]
            if len(entries) < MAX_PAGE:
                break
            marker = entries[-1].id
        shown = found[:limit]
        following = shown[-1].id if len(found) > limit else None
        return call.page([_change(each) for each in shown], following)

    def _shown(self, policy_id: str) -> Policy:
        return _policy(self._admin.library.policy(policy_id), self._admin.attachments.all())

    def _checked(self, call: Call, policy_id: str, action: Action) -> Policy:
        """The policy as it is now, which the caller may change. Raises Forbidden, Failed."""
        attached = [each.cluster for each in self._admin.attachments.of(policy_id)]
        self._access.check(call.caller, action, policy_id, attached)
        now = self._shown(policy_id)
        call.check_match(now, is_needed=True)
        return now

    # Clusters

    def get_attachment(self, call: Call, name: str) -> Answer:
        self._check_reader(call)
        return Answer(_attachment(name, self._attached(name)))

    def put_attachment(self, call: Call, name: str) -> Answer:
        self._access.check(call.caller, Action.ATTACH, name, [name])
        now = self._attached(name)
        call.check_match(_attachment(name, now), is_needed=True)
        made = self._admin.attachments.attach(
            name,
            call.actor,
            policy=call.body.policy,
            parameters=call.body.parameters,
            expected_version=now.version if now else NEW,
            is_new=True,  # a listed cluster need not have hosts yet
        )
        return Answer(_attachment(name, made))

    def _attached(self, cluster: str) -> Attachment | None:
        if cluster not in self._clusters():
            raise NotFound("cluster", cluster)
        return next((e for e in self._admin.attachments.all() if e.cluster == cluster), None)

    def _check_reader(self, call: Call) -> None:
        self._access.check(call.caller, Action.READ, "")


def _page(call: Call, found: dict[str, Any], shown: Callable[[Any], Any]) -> Answer:
    """A page of what is found by id."""
    marker = given(call.query.marker) or ""
    ids = sorted(each for each in found if each > marker)
    here = ids[: call.query.limit]
    return call.page(
        [shown(found[each]) for each in here], here[-1] if len(ids) > len(here) else None
    )


def _unit(unit: PolicyUnit, units: PolicyUnits) -> Unit:
    entry = units.catalogue.find(unit.name, unit.kind)
    code = None if entry is None or entry.problem is not None else entry.unit
    return Unit(
        id=unit.id,
        name=unit.name,
        kind=unit.kind.value,
        description=unit.description,
        is_internal=unit.is_internal,
        is_enabled=unit.is_enabled,
        can_be_switched=code is not None and code.needs_enabling,
        is_cost=unit.kind is UnitKind.WEIGHT and bool(getattr(code, "lower_is_better", False)),
        parameters=[
            UnitParameter(name=each.name, type=each.type, default=_text(each), regex=each.regex)
            for each in unit.parameters
        ],
    )


def _text(parameter: Parameter) -> str:
    """The default as a policy would write it."""
    value = parameter.default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def _policy(stored: StoredPolicy, attached: Sequence[Attachment]) -> Policy:
    document = stored.document
    return Policy(
        **{name: getattr(document, name) for name in document.__struct_fields__},
        is_locked=stored.is_locked,
        is_default=stored.is_default,
        changed_by=stored.changed_by or None,
        changed_at=moment(stored.changed_at_s),
        clusters=[each.cluster for each in attached if each.policy_id == document.id],
    )


def _change(entry: AuditEntry) -> PolicyChange:
    document = None if entry.after is None else read_policy(entry.after)
    text = None
    if document is not None:
        fields = PolicyText.__struct_fields__
        text = PolicyText(**{name: getattr(document, name) for name in fields})
    action: Any = entry.action.removeprefix("policy.")
    return PolicyChange(
        at=datetime.fromtimestamp(entry.at_s, UTC),
        user=entry.user,
        action=action,
        version=document.version if document else None,
        policy=text,
    )


def _attachment(cluster: str, found: Attachment | None) -> ClusterAttachment:
    return ClusterAttachment(
        cluster=cluster,
        policy=found.policy_id if found else NOVA,
        parameters=dict(found.parameters) if found else {},
        changed_by=found.changed_by or None if found else None,
        changed_at=moment(found.changed_at_s) if found else None,
    )
