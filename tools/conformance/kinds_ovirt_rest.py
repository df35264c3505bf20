"""Requests to the REST API with the statuses and faults of an oVirt engine.

The cases of a file are one session: each is asked of the API as those before have left it. What a
case needs and none before it has made, such as the policy that its path names, is made first. A
case that comes for the second time begins a new session.
"""

import re
import uuid
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
from werkzeug.test import TestResponse

from conformance import ovirt
from conformance.reading import Malformed
from conformance.rest import CLUSTER, Rest
from scheduler_worker.model.documents import StoredPolicy
from scheduler_worker.model.policies import NOVA
from scheduler_worker.scheduling.catalogue import UnitKind
from scheduler_worker.service.documents.administration import PolicyFields
from scheduler_worker.service.documents.audit import Actor
from scheduler_worker.service.documents.policy_rules import declarations, uses
from scheduler_worker.service.documents.policy_units import PolicyUnit

_ACTOR = Actor("conformance")
_KINDS = {
    "filters": UnitKind.FILTER,
    "weights": UnitKind.WEIGHT,
    "balances": UnitKind.BALANCE,
}
_PLACEHOLDER = re.compile(r"\{([a-z0-9_-]+)\}")
_MEMBER = re.compile(r"/schedulingpolicies/\{(p[0-9]+)\}/(filters|weights|balances)(?:/([^/]+))?\Z")
_POLICY = re.compile(r"/schedulingpolicies/\{(p[0-9]+)\}\Z")
_PARAMETER_IN_BODY = re.compile(r"<property>\s*<name>([^<]+)</name>")
_UNAUTHORIZED = 401
_NOT_FOUND = 404
_CREATED = 201


class Fault(msgspec.Struct, frozen=True):
    """What the fault of an answer says."""

    reason: str | None = None
    detail_contains: str | None = None


class Case(msgspec.Struct, frozen=True):
    """A request and its answer."""

    method: str
    path: str
    status: int
    name: str = ""
    body: str | None = None
    headers: dict[str, str] = {}
    root: str | None = None
    """The name of the answer's element."""
    location: bool | None = None
    """Whether the answer says where something was created."""
    expect_id: str | None = None
    fault: Fault | None = None


class Session:
    """An API, the cases that it has seen by name, and the policies that they made."""

    def __init__(self) -> None:
        self.rest = Rest()
        self._desk = self.rest.administration
        self.seen: set[str] = set()
        self._policies: dict[str, str] = {}

    def ask(self, case: Case) -> TestResponse:
        """The answer to a case. A case that expects 401 sends no password of its own."""
        headers = dict(case.headers)
        if case.status != _UNAUTHORIZED:
            headers = self.rest.credentials | headers
        if case.body:
            headers.setdefault("Content-Type", "application/xml")
        body = self._filled(case.body) if case.body else None
        answer = self.rest.client.open(
            self._filled(case.path), method=case.method, data=body, headers=headers
        )
        if case.path.endswith("/schedulingpolicies") and answer.status_code == _CREATED:
            made = answer.headers["Location"].rpartition("/")[2]
            self._policies[f"p{len(self._policies) + 1}"] = made
        return answer

    def prepare(self, case: Case) -> None:
        """Make what the case is about."""
        if found := _POLICY.search(case.path):
            self._prepare_policy(case, self.policy(found[1]))
        if found := _MEMBER.search(case.path):
            self._prepare_member(case, self.policy(found[1]), _KINDS[found[2]], found[3])

    def _prepare_policy(self, case: Case, policy: str) -> None:
        """A removal finds it attached if it is to be refused; a parameter finds a unit."""
        if case.method == "DELETE":
            wanted = NOVA if case.fault is None else policy
            self._desk.attach(CLUSTER, _ACTOR, policy=wanted, parameters={}, is_new=True)
        elif case.method == "PUT" and case.fault is None:
            for name in _PARAMETER_IN_BODY.findall(case.body or ""):
                self._declare(policy, name)

    def _prepare_member(self, case: Case, policy: str, kind: UnitKind, unit_id: str | None) -> None:
        """A unit that is read or removed is one of the policy, and has a parameter if it stays."""
        unit = self._desk.library().units.find(unit_id or "")
        if unit is not None and unit.kind is kind and case.status != _NOT_FOUND:
            self._use(policy, unit)
            if case.method == "DELETE" and case.fault is not None:
                self._set_parameter(policy, unit)

    def policy(self, name: str) -> str:
        """The id of the policy that cases call so; it is made where there is none."""
        known = {each.document.id for each in self._desk.library().policies()}
        if self._policies.get(name) not in known:
            made = self._desk.create(PolicyFields(name=f"conformance-{name}"), _ACTOR)
            self._policies[name] = made.document.id
        return self._policies[name]

    def _filled(self, text: str) -> str:
        return _PLACEHOLDER.sub(lambda found: self._value(found[1]), text)

    def _value(self, name: str) -> str:
        if name == "new-uuid":
            return str(uuid.uuid4())
        if re.fullmatch(r"c(luster)?[0-9]*([-_]id)?", name):
            return self.rest.cluster_id
        if re.fullmatch(r"p[0-9]+", name):
            return self.policy(name)
        raise Malformed(f"{{{name}}} means nothing here")

    def _use(self, policy: str, unit: PolicyUnit) -> None:
        """Let the policy use a unit, if it does not yet."""
        used = {
            (kind, each.unit) for kind, each in uses(self._desk.library().policy(policy).document)
        }
        if (unit.kind, unit.name) in used:
            return
        if unit.kind is UnitKind.FILTER:
            self._desk.add_filter(policy, unit.id, _ACTOR)
        elif unit.kind is UnitKind.WEIGHT:
            self._desk.add_weight(policy, unit.id, _ACTOR)
        elif unit.kind is UnitKind.BALANCE:
            self._desk.set_balance(policy, unit.id, _ACTOR)

    def _declare(self, policy: str, parameter: str) -> None:
        """Let the policy use a unit with this parameter, if it does not yet."""
        units = self._desk.library().units
        if parameter in declarations(self._desk.library().policy(policy).document, units):
            return
        for unit in units:
            if parameter in {each.name for each in unit.parameters}:
                self._use(policy, unit)
                return

    def _set_parameter(self, policy: str, unit: PolicyUnit) -> None:
        """Set a parameter that the unit declares, to a value of a built-in policy."""
        declared = {parameter.name for parameter in unit.parameters}
        values = _values(self._desk.library().policies())
        if usable := sorted(declared & values.keys()):
            fields = PolicyFields(parameters={usable[0]: values[usable[0]]})
            self._desk.update(policy, fields, _ACTOR)


def _values(policies: list[StoredPolicy]) -> dict[str, str]:
    found: dict[str, str] = {}
    for policy in policies:
        if policy.is_locked:
            found |= policy.document.parameters
    return found


_sessions: list[Session] = []
"""The session that goes on, if there is one."""


def recognise(document: Any) -> bool:
    return ovirt.is_case(document, "method", "path", "status")


def run(document: Any) -> Iterator[str]:
    case = msgspec.convert(document, Case)
    session = _session(case)
    session.prepare(case)
    answer = session.ask(case)
    if answer.status_code != case.status:
        yield f"status is {answer.status_code}; expected is {case.status}: {answer.text.strip()}"
        return
    yield from _differences(case, answer)


def _session(case: Case) -> Session:
    if _sessions and case.name in _sessions[-1].seen:
        _sessions.pop().rest.close()
    if not _sessions:
        _sessions.append(Session())
    _sessions[-1].seen.add(case.name)
    return _sessions[-1]


def _differences(case: Case, answer: TestResponse) -> Iterator[str]:
    if case.location is not None and ("Location" in answer.headers) != case.location:
        yield f"Location is {answer.headers.get('Location')}; one is expected: {case.location}"
    if case.root is None and case.expect_id is None and case.fault is None:
        return
    root = ET.fromstring(answer.text)  # noqa: S314 - an answer of our own
    if case.root is not None and root.tag != case.root:
        yield f"the answer is a <{root.tag}>; expected is <{case.root}>"
    if case.expect_id is not None and root.get("id") != case.expect_id:
        yield f"the id is {root.get('id')}; expected is {case.expect_id}"
    if case.fault is not None:
        reason, detail = root.findtext("reason"), root.findtext("detail") or ""
        if case.fault.reason not in {None, reason}:
            yield f"the fault's reason is {reason!r}; expected is {case.fault.reason!r}"
        if (case.fault.detail_contains or "") not in detail:
            yield f"the fault's detail is {detail!r}; it lacks {case.fault.detail_contains!r}"
