"""oVirt's resources over the use cases of administration: units, policies, clusters.

Each method serves routes of :data:`ROUTES`. It checks the caller's right first; what is refused
is recorded in the audit.
"""

import contextlib
import fnmatch
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from msgspec import structs
from werkzeug.routing import Map, Rule

import scheduler_worker
from scheduler_worker.api import codec
from scheduler_worker.api import resource_types as types
from scheduler_worker.api.calls import COMPLETE, Reply, WebCall
from scheduler_worker.api.presentation import (
    POSITIONS,
    Presentation,
    ShownCluster,
    cluster_id,
    own_parameters,
    parameters_of,
)
from scheduler_worker.api.problems import IMMUTABLE, Refusal, refusal_of
from scheduler_worker.errors import Incomplete, InUse, Invalid, NotFound, SchedulerWorkerError
from scheduler_worker.model.documents import StoredPolicy
from scheduler_worker.model.policies import NOVA
from scheduler_worker.operations.callers import Right
from scheduler_worker.operations.rights import Access, Rights
from scheduler_worker.ports import Clock
from scheduler_worker.scheduling.catalogue import UnitKind
from scheduler_worker.service.documents.administration import PolicyAdministration, PolicyFields
from scheduler_worker.service.documents.audit import Actor
from scheduler_worker.service.documents.library import Library
from scheduler_worker.service.documents.policy_rules import check_unused

_API_MAJOR, _API_MINOR = 4, 5
_UNIT = "scheduling_policy_unit"
_FIELDS = {
    UnitKind.FILTER: ("filters",),
    UnitKind.WEIGHT: ("weights", "weight"),
    UnitKind.BALANCE: ("balances",),
}
_MEMBER_FIELDS = tuple(field for fields in _FIELDS.values() for field in fields)
_POLICY_LINKS = (*_MEMBER_FIELDS, *(f"{field}.{_UNIT}" for field in _MEMBER_FIELDS))
_NOT_SET = ("policy", "default_policy", "locked", "thresholds", *_MEMBER_FIELDS)
"""What a policy shows, and a client does not set with the policy."""
_MEMBERS: Mapping[UnitKind, type[types.Filter | types.Weight | types.Balance]] = {
    UnitKind.FILTER: types.Filter,
    UnitKind.WEIGHT: types.Weight,
    UnitKind.BALANCE: types.Balance,
}


class OvirtApi:
    """Serves oVirt's resources."""

    def __init__(
        self,
        administration: PolicyAdministration,
        rights: Rights,
        clusters: Callable[[], Collection[str]],
        clock: Clock,
    ) -> None:
        """``clusters`` has the names of the clusters that may be attached."""
        self._admin = administration
        self._access = Access(rights, administration.audit)
        self._clusters = clusters
        self._clock = clock

    def root(self, call: WebCall) -> Reply:
        """The entry: links to the collections, and what serves them."""
        names = ("clusters", "schedulingpolicyunits", "schedulingpolicies")
        now = datetime.fromtimestamp(self._clock.time_s(), UTC)
        full = f"{_API_MAJOR}.{_API_MINOR} (scheduler_worker {scheduler_worker.__version__})"
        version = types.Version(
            major=_API_MAJOR, minor=_API_MINOR, build=0, revision=0, full_version=full
        )
        product = types.ProductInfo(
            name="scheduler_worker", vendor="scheduler_worker", version=version
        )
        root = types.Root(
            link=tuple(types.Link(href=f"{call.base}/{name}", rel=name) for name in names),
            product_info=product,
            time=now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        )
        return Reply(root)

    # Units

    def list_units(self, call: WebCall) -> Reply:
        self._access.check(call.caller, Right.READ, "")
        library = self._admin.library()
        present = _presentation(call, library)
        units = [present.unit(unit) for unit in library.units]
        return Reply(call.page(codec.Collection(types.Unit, units)))

    def get_unit(self, call: WebCall, unit_id: str) -> Reply:
        self._access.check(call.caller, Right.READ, "")
        library = self._admin.library()
        return Reply(_presentation(call, library).unit(library.unit(unit_id)))

    def remove_unit(self, call: WebCall, unit_id: str) -> Reply:
        self._access.check(call.caller, Right.DELETE_UNIT, unit_id)
        library = self._admin.library()
        unit = library.unit(unit_id)
        policies = [policy.document for policy in library.policies()]
        with _doing("Cannot remove Policy Unit."):
            check_unused([unit], {policy.name: policy for policy in policies})
            self._admin.remove_unit(unit_id, call.caller.actor)
        return Reply(COMPLETE)

    # Policies

    def list_policies(self, call: WebCall) -> Reply:
        self._access.check(call.caller, Right.READ, "")
        library = self._admin.library()
        policies = [_policy(call, library, policy) for policy in library.policies()]
        return Reply(call.page(codec.Collection(types.Policy, policies)))

    def get_policy(self, call: WebCall, policy_id: str) -> Reply:
        self._access.check(call.caller, Right.READ, "")
        library = self._admin.library()
        return Reply(_policy(call, library, library.policy(policy_id)))

    def add_policy(self, call: WebCall) -> Reply:
        self._access.check(call.caller, Right.CREATE, "")
        body = call.read(types.Policy)
        if not body.name:
            raise Incomplete("SchedulingPolicy", ["name"])
        _check_unchanged(body, types.Policy(locked=False, default_policy=False), _NOT_SET)
        with _doing("Cannot add Scheduling Policy."):
            made = self._admin.create(_fields(body), call.caller.actor)
        policy = _presentation(call, self._admin.library()).policy(made)
        return Reply(policy, status=201, location=policy.href)

    def clone_policy(self, call: WebCall, policy_id: str) -> Reply:
        """A copy under another name, also of a locked policy."""
        self._access.check(call.caller, Right.CREATE, policy_id)
        body = call.read(types.Action).scheduling_policy or types.Policy()
        if not body.name:
            raise Incomplete("Right", ["schedulingPolicy.name"])
        library = self._admin.library()
        stored = library.policy(policy_id)
        _check_unchanged(
            body, _full(call, library, stored), ("description", "properties", *_NOT_SET)
        )
        source = stored.document
        with _doing("Cannot add Scheduling Policy."):
            copy = structs.replace(source, id=str(uuid.uuid4()), name=body.name, version=1)
            made = self._admin.add(copy, call.caller.actor)
        copied = _presentation(call, library).policy(made)
        action = types.Action(status="complete", scheduling_policy=copied)
        return Reply(action, location=copied.href)

    def update_policy(self, call: WebCall, policy_id: str) -> Reply:
        library = self._admin.library()
        editor = self._editor(call, Right.EDIT, library, policy_id)
        body = call.read(types.Policy)
        _check_same_id(body, policy_id)
        _check_unchanged(body, _full(call, library, library.policy(policy_id)), _NOT_SET)
        with _doing("Cannot edit Scheduling Policy."):
            changed = self._admin.update(policy_id, _fields(body), editor)
        return Reply(_policy(call, library, changed))

    def remove_policy(self, call: WebCall, policy_id: str) -> Reply:
        editor = self._editor(call, Right.DELETE, self._admin.library(), policy_id)
        with _doing("Cannot remove Scheduling Policy."):
            try:
                self._admin.remove(policy_id, editor)
            except InUse as error:
                raise Refusal(  # in oVirt's words, and with its status
                    400,
                    "[Cannot remove Scheduling Policy. Scheduling Policy is attached to "
                    f"cluster(s): {', '.join(error.users)}, please unassign cluster(s).]",
                ) from None
        return Reply(COMPLETE)

    # Filters, weights and balances of a policy

    def list_members(self, call: WebCall, policy_id: str, kind: UnitKind) -> Reply:
        self._access.check(call.caller, Right.READ, "")
        library = self._admin.library()
        members = _members(call, library, library.policy(policy_id), kind)
        return Reply(call.page(codec.Collection(_MEMBERS[kind], members)))

    def get_member(self, call: WebCall, policy_id: str, kind: UnitKind, unit_id: str) -> Reply:
        self._access.check(call.caller, Right.READ, "")
        library = self._admin.library()
        return Reply(_member(call, library, library.policy(policy_id), kind, unit_id))

    def add_member(self, call: WebCall, policy_id: str, kind: UnitKind) -> Reply:
        library = self._admin.library()
        actor = self._editor(call, Right.EDIT, library, policy_id)
        body = call.read(_MEMBERS[kind])
        unit = body.scheduling_policy_unit
        if unit is None or not unit.id:
            raise Incomplete(kind.capitalize(), ["schedulingPolicyUnit.id"])
        with _doing("Cannot edit Scheduling Policy."):
            if isinstance(body, types.Filter):
                position = POSITIONS.get(body.position or 0)
                if position is None:
                    raise Invalid("position", f"{body.position} is not -1 (first), 0 or 1 (last)")
                made = self._admin.add_filter(policy_id, unit.id, actor, position=position)
            elif isinstance(body, types.Weight):
                factor = 1.0 if body.factor is None else body.factor
                made = self._admin.add_weight(policy_id, unit.id, actor, factor=factor)
            else:
                made = self._admin.set_balance(policy_id, unit.id, actor)
        return Reply(_member(call, library, made, kind, unit.id))

    def remove_member(self, call: WebCall, policy_id: str, kind: UnitKind, unit_id: str) -> Reply:
        actor = self._editor(call, Right.EDIT, self._admin.library(), policy_id)
        with _doing("Cannot edit Scheduling Policy."):
            self._admin.remove_unit_use(policy_id, kind, unit_id, actor)
        return Reply(COMPLETE)

    # Clusters

    def list_clusters(self, call: WebCall) -> Reply:
        self._access.check(call.caller, Right.READ, "")
        search = call.query.get("search", "")
        library = self._admin.library()
        views = [view for view in self._views(library) if _matches(view.name, search)]
        return _listed(call, library, views)

    def list_clusters_of(self, call: WebCall, policy_id: str) -> Reply:
        """The clusters that are attached to a policy."""
        self._access.check(call.caller, Right.READ, "")
        library = self._admin.library()
        library.policy(policy_id)
        views = [view for view in self._views(library) if view.policy.document.id == policy_id]
        return _listed(call, library, views)

    def get_cluster(self, call: WebCall, cluster: str) -> Reply:
        self._access.check(call.caller, Right.READ, "")
        library = self._admin.library()
        return Reply(_cluster(call, library, self._view(library, cluster)))

    def add_cluster(self, call: WebCall) -> Reply:
        """Clusters are made by the reports of their hosts."""
        body = call.read(types.Cluster)
        self._access.check(call.caller, Right.ATTACH, body.name or "", [body.name or ""])
        raise Refusal(
            409, "[Cannot add Cluster. A cluster appears with the first report of one of its hosts]"
        )

    def update_cluster(self, call: WebCall, cluster: str) -> Reply:
        view = self._view(self._admin.library(), cluster)
        self._access.check(call.caller, Right.ATTACH, view.name, [view.name])
        body = call.read(types.Cluster)
        _check_same_id(body, view.id)
        _check_unchanged(body, types.Cluster(name=view.name), ("name",))
        with _doing("Cannot edit Cluster."):
            self._attach(call, view, body)
        library = self._admin.library()
        return Reply(_cluster(call, library, self._view(library, cluster)))

    def _attach(self, call: WebCall, view: ShownCluster, body: types.Cluster) -> None:
        parameters, sent = own_parameters(body), body.scheduling_policy
        policy = None if sent is None else sent.id or sent.name or sent.policy or None
        if policy is None and parameters is None:
            return
        if parameters is None and view.attachment is not None:
            # As in oVirt, a cluster keeps its own values where the next policy knows them.
            parameters = dict(view.attachment.parameters)
        try:
            # A listed cluster need not have hosts yet.
            self._admin.attach(
                view.name, call.caller.actor, policy=policy, parameters=parameters, is_new=True
            )
        except NotFound as error:
            raise Invalid("scheduling_policy", f"there is no policy {error.name!r}") from None

    def _views(self, library: Library) -> list[ShownCluster]:
        views = []
        for name in sorted(self._clusters()):
            attachment = library.documents.attachments.get(name)
            policy = library.find(attachment.policy_id) if attachment else None
            shown = policy or library.policy(NOVA)
            views.append(ShownCluster(cluster_id(name), name, shown, attachment))
        return views

    def _view(self, library: Library, cluster: str) -> ShownCluster:
        for view in self._views(library):
            if view.id == cluster:
                return view
        raise NotFound("cluster", cluster)

    def _editor(self, call: WebCall, action: Right, library: Library, policy_id: str) -> Actor:
        """The caller, who may do it to a policy in all of its clusters. Raises Forbidden."""
        check = partial(self._access.check, call.caller, action, policy_id)
        check(library.documents.clusters_of(policy_id))
        return structs.replace(call.caller.actor, check=check)


# What is shown


def _presentation(call: WebCall, library: Library) -> Presentation:
    return Presentation(call.base, call.version, library.units)


def _full(call: WebCall, library: Library, stored: StoredPolicy) -> types.Policy:
    """All that a policy says, with its filters, weights and balances."""
    policy = _with_members(call, library, stored, frozenset(_POLICY_LINKS))
    return structs.replace(policy, policy=stored.document.name)


def _policy(call: WebCall, library: Library, stored: StoredPolicy) -> types.Policy:
    return _with_members(call, library, stored, call.follows(_POLICY_LINKS))


def _with_members(
    call: WebCall, library: Library, stored: StoredPolicy, follow: frozenset[str]
) -> types.Policy:
    present = _presentation(call, library)
    policy = present.policy(stored)
    for kind, fields in _FIELDS.items():
        if follow & {*fields}:
            inline = any(f"{field}.{_UNIT}" in follow for field in fields)
            members = present.members(stored, kind, inline=inline)
            policy = structs.replace(policy, **dict.fromkeys(fields, members))
    return policy


def _member(
    call: WebCall, library: Library, stored: StoredPolicy, kind: UnitKind, unit_id: str
) -> types.Identified:
    for member in _members(call, library, stored, kind):
        if member.id == unit_id:
            return member
    raise NotFound(kind, unit_id)


def _members(
    call: WebCall, library: Library, stored: StoredPolicy, kind: UnitKind
) -> Sequence[types.Identified]:
    inline = bool(call.follows([_UNIT]))
    return _presentation(call, library).members(stored, kind, inline=inline)


def _listed(call: WebCall, library: Library, views: Iterable[ShownCluster]) -> Reply:
    clusters = [_cluster(call, library, view) for view in views]
    return Reply(call.page(codec.Collection(types.Cluster, clusters)))


def _cluster(call: WebCall, library: Library, view: ShownCluster) -> types.Cluster:
    present = _presentation(call, library)
    cluster = present.cluster(view)
    if "scheduling_policy" in call.follows(["scheduling_policy"]) and call.version != 3:
        return structs.replace(cluster, scheduling_policy=present.policy(view.policy))
    return cluster


@contextlib.contextmanager
def _doing(what: str) -> Iterator[None]:
    """Inside, errors of the use cases become faults that say what was being done."""
    try:
        yield
    except SchedulerWorkerError as error:
        refusal = refusal_of(error, what)
        if refusal is None:
            raise
        raise refusal from error


def _fields(body: types.Policy) -> PolicyFields:
    return PolicyFields(
        name=body.name,
        description=body.description,
        parameters=parameters_of("properties", body.properties),
    )


def _check_same_id(body: types.Identified, expected_id: str) -> None:
    if body.id not in {None, expected_id}:
        raise Refusal(409, "Attempt to set immutable field: id", reason=IMMUTABLE)


def _check_unchanged(body: types.Identified, now: types.Identified, names: Iterable[str]) -> None:
    """Raises Refusal where a client wants another value of what cannot be set this way.

    Clients send back what they have read. They may leave out lists, or send empty ones.
    """
    for name in names:
        sent, current = getattr(body, name), getattr(now, name)
        if isinstance(sent, tuple):
            sent, current = _values(sent), _values(current or ())
        if sent not in (None, set(), current):
            raise Refusal(400, f"[{body.element}: {name} cannot be set here]")


def _values(members: Iterable[types.Resource]) -> set[tuple[object, ...]]:
    """What tells the members of a list from others."""
    values: set[tuple[object, ...]] = set()
    for member in members:
        if isinstance(member, types.Property):
            values.add((member.name, member.value))
        elif isinstance(member, (types.Filter, types.Weight, types.Balance)):
            unit = member.scheduling_policy_unit
            position, factor = getattr(member, "position", None), getattr(member, "factor", None)
            more = position or 0, 1 if factor is None else factor
            values.add((member.id or (unit and unit.id), *more))
    return values


def _matches(name: str, search: str) -> bool:
    """Whether a cluster is meant by a search such as ``name=rack-*``, or a pattern alone.

    Raises Refusal for another search.
    """
    text = search.strip()
    if not text:
        return True
    field, equals, pattern = text.partition("=")
    if not equals:
        pattern = text
    elif field.strip().casefold() != "name":
        raise Refusal(400, f"[search: clusters are found by name=..., not by {field.strip()!r}]")
    return fnmatch.fnmatchcase(name.casefold(), pattern.strip().strip("\"'").casefold())


_POLICY = "/schedulingpolicies/<policy_id>"


def _rule(http: str, path: str, method: str, **arguments: UnitKind) -> Rule:
    """A route to a method of :class:`OvirtApi`, with ``arguments`` that the path does not have."""
    return Rule(path, methods=[http], endpoint=method, defaults=arguments)


def _rules() -> list[Rule]:
    rules = [
        _rule("GET", "/", "root"),
        _rule("GET", "/schedulingpolicyunits", "list_units"),
        _rule("GET", "/schedulingpolicyunits/<unit_id>", "get_unit"),
        _rule("DELETE", "/schedulingpolicyunits/<unit_id>", "remove_unit"),
        _rule("GET", "/schedulingpolicies", "list_policies"),
        _rule("POST", "/schedulingpolicies", "add_policy"),
        _rule("GET", _POLICY, "get_policy"),
        _rule("PUT", _POLICY, "update_policy"),
        _rule("DELETE", _POLICY, "remove_policy"),
        _rule("POST", f"{_POLICY}/clone", "clone_policy"),
        _rule("GET", f"{_POLICY}/clusters", "list_clusters_of"),
        _rule("GET", "/clusters", "list_clusters"),
        _rule("POST", "/clusters", "add_cluster"),
        _rule("GET", "/clusters/<cluster>", "get_cluster"),
        _rule("PUT", "/clusters/<cluster>", "update_cluster"),
    ]
    for kind, member in _MEMBERS.items():
        path = f"{_POLICY}/{member.elements()}"
        rules += [
            _rule("GET", path, "list_members", kind=kind),
            _rule("POST", path, "add_member", kind=kind),
            _rule("GET", f"{path}/<unit_id>", "get_member", kind=kind),
            _rule("DELETE", f"{path}/<unit_id>", "remove_member", kind=kind),
        ]
    return rules


ROUTES = Map(_rules(), strict_slashes=False, redirect_defaults=False, merge_slashes=False)
