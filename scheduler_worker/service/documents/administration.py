"""What administrators do with policies and units: create, change, attach, enable and remove them.

Each edit is one function of the documents: it checks rights, versions and rules on what is stored,
and says what is stored then. The book writes that with its entry of the audit, and calls it again
where another edit came first. What it changed is put in force in the same call.
"""

import uuid
from collections.abc import Callable, Collection, Mapping

import msgspec
from msgspec import structs

from scheduler_worker.conversion import convert
from scheduler_worker.errors import Conflict, EditConflict, Incomplete, Invalid, NotFound
from scheduler_worker.model.audit import AuditEntry
from scheduler_worker.model.documents import (
    NEW,
    Attachment,
    Documents,
    StoredPolicy,
)
from scheduler_worker.model.host_records import ClusterName
from scheduler_worker.model.policies import (
    NORMALIZED_SUM,
    NOVA,
    BalanceUse,
    ClusterPolicy,
    FilterUse,
    Position,
    SelectorUse,
    WeightUse,
    write_policy,
)
from scheduler_worker.scheduling.catalogue import Catalogue, UnitKind
from scheduler_worker.service.documents import rules
from scheduler_worker.service.documents.audit import Actor, Audit, log
from scheduler_worker.service.documents.book import Book, Edited, Revision
from scheduler_worker.service.documents.library import Libraries, Library
from scheduler_worker.service.documents.policy_rules import (
    check_enabled,
    check_name,
    check_policy,
    cluster_parameters,
    switchable,
)
from scheduler_worker.service.documents.policy_units import PolicyUnit, installed_units
from scheduler_worker.wording import cut

Condition = Callable[[Library], object]
"""Raises where the caller has seen something else than is there when the edit is written."""


class PolicyFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a policy that an administrator sets; None leaves one unchanged."""

    name: str | None = None
    description: str | None = None
    parameters: Mapping[str, str] | None = None
    """All parameters: those not named are removed."""
    selector: SelectorUse | None = None


def anything(_: Library) -> None:
    """Of a caller who takes what is there."""


class PolicyAdministration:
    """Changes policies, units and attachments; safe for threads.

    Changes that are refused raise an AdministrationError and change nothing. Every method raises
    StateUnavailable. An edit raises it also where the change is stored and not in force yet.
    """

    def __init__(
        self,
        book: Book,
        libraries: Libraries,
        audit: Audit,
        *,
        clusters: Callable[[], Collection[str]],
        edited: Callable[[Revision, Collection[str]], None] = lambda _revision, _clusters: None,
        default_selector: str = NORMALIZED_SUM,
    ) -> None:
        """``clusters`` has the names of clusters with hosts.

        ``edited`` hears of each edit once it is in the book, and of clusters that it is about.
        ``default_selector`` is the unit of new policies that name no selector.
        """
        self._book = book
        self._libraries = libraries
        self._clusters = clusters
        self._edited = edited
        self._known: Catalogue | None = None
        self._default_selector = SelectorUse(unit=default_selector)
        self.audit = audit
        """Every change, and every attempt that was refused."""

    def library(self) -> Library:
        """What there is now: one round trip. What a caller does once, it does with one of these."""
        return self._libraries.of(self._book.documents())

    def clusters(self) -> list[str]:
        """The names of all clusters: with hosts, or attached before."""
        return sorted({*self._clusters(), *self._book.documents().attachments})

    def edit(self, change: Callable[[Library], Edited], *clusters: str) -> Revision:
        """Make a change, which also may be about ``clusters`` that it leaves as they are."""
        entries: list[AuditEntry] = []

        def edited(now: Documents) -> Edited:
            made = change(self._libraries.of(now))
            entries[:] = made.entries
            return made

        done = self._book.edit(edited)
        log(entries)
        self._edited(done, clusters)
        return done

    # Policies

    def create(self, fields: PolicyFields, actor: Actor) -> StoredPolicy:
        """Create a policy without units. Raises Incomplete without a name, and as :meth:`add`."""
        if fields.name is None:
            raise Incomplete("A policy", ["name"])
        empty = ClusterPolicy(
            id=str(uuid.uuid4()), name=fields.name, version=1, selector=self._default_selector
        )
        return self.add(_with_fields(empty, fields), actor)

    def add(self, document: ClusterPolicy, actor: Actor) -> StoredPolicy:
        """Store a whole document as a new policy; its version becomes 1.

        Raises:
            Invalid: it breaks a rule, or its id is a built-in policy's.
            NameTaken, EditConflict: its name or its id is taken.
        """
        policy_id, document = document.id, structs.replace(document, version=1)

        def added(library: Library) -> Edited:
            if (stored := library.documents.policies.get(policy_id)) is not None:
                now = stored.document
                raise EditConflict(f"Policy {now.name}", stored.changed_by, now.version)
            _check(library, document)
            return self._added(library, document, actor)

        done = self.edit(added)
        return done.after.policies[policy_id]

    def update(self, policy_id: str, fields: PolicyFields, actor: Actor) -> StoredPolicy:
        """Change name, description, parameters or selector.

        Raises:
            NotFound: there is no such policy.
            Invalid: it is locked, or would break a rule.
            NameTaken: another policy has the name.
            EditConflict: every try of many came second.
            Forbidden: the actor may not change a cluster that has it.
        """
        changed = self._change(policy_id, lambda _, now: _with_fields(now, fields), actor)
        return changed.policy(policy_id)

    def put(
        self, document: ClusterPolicy, actor: Actor, condition: Condition = anything
    ) -> Library:
        """Replace a policy by a document; returns what there is then.

        Raises as :meth:`update`, and what ``condition`` does.
        """
        return self._change(document.id, lambda _, __: document, actor, condition)

    def check(self, document: ClusterPolicy) -> None:
        """Check a document and change nothing; raises as :meth:`add` and :meth:`put` do."""
        _check(self.library(), document)

    def check_trial(self, document: ClusterPolicy) -> None:
        """Check one that is tried and not stored: its name may be taken. Raises Invalid."""
        library = self.library()
        check_policy(document, library.units, {})
        library.compile(document)

    def remove(self, policy_id: str, actor: Actor, condition: Condition = anything) -> None:
        """Remove a policy. Raises as :meth:`put`, and InUse, which names its clusters."""

        def without(library: Library) -> Edited:
            actor.check(library.documents.clusters_of(policy_id))
            before = library.editable(policy_id).document
            condition(library)
            entry = self._entry(actor, "policy.remove", policy_id, before, None)
            return Edited(rules.removed(library.documents, policy_id), [entry])

        self.edit(without)

    # Units of a policy

    def add_filter(
        self, policy_id: str, unit_id: str, actor: Actor, *, position: Position = "none"
    ) -> StoredPolicy:
        """Add a filter. Raises as :meth:`update`."""

        def added(library: Library, now: ClusterPolicy) -> ClusterPolicy:
            name = library.unit_as(unit_id, UnitKind.FILTER).name
            use = FilterUse(unit=name, position=position)
            return structs.replace(now, filters=(*now.filters, use))

        return self._change(policy_id, added, actor).policy(policy_id)

    def add_weight(
        self, policy_id: str, unit_id: str, actor: Actor, *, factor: float = 1.0
    ) -> StoredPolicy:
        """Add a weight. Raises as :meth:`update`."""

        def added(library: Library, now: ClusterPolicy) -> ClusterPolicy:
            use = WeightUse(unit=library.unit_as(unit_id, UnitKind.WEIGHT).name, factor=factor)
            return structs.replace(now, weights=(*now.weights, use))

        return self._change(policy_id, added, actor).policy(policy_id)

    def set_balance(self, policy_id: str, unit_id: str, actor: Actor) -> StoredPolicy:
        """Set the balance, in place of any other. Raises as :meth:`update`."""

        def balanced(library: Library, now: ClusterPolicy) -> ClusterPolicy:
            use = BalanceUse(unit=library.unit_as(unit_id, UnitKind.BALANCE).name)
            return structs.replace(now, balance=use)

        return self._change(policy_id, balanced, actor).policy(policy_id)

    def remove_unit_use(
        self, policy_id: str, kind: UnitKind, unit_id: str, actor: Actor
    ) -> StoredPolicy:
        """Remove a filter, weight or balance; one that the policy does not use is no error.

        Raises as :meth:`update`: a parameter that only this unit declares must be removed first.
        NotFound also where no unit of the kind has the id.
        """

        def without(library: Library, now: ClusterPolicy) -> ClusterPolicy:
            unit = library.units.find(unit_id)
            if unit is None or unit.kind != kind:
                raise NotFound(kind, unit_id)
            if kind is UnitKind.FILTER:
                filters = tuple(use for use in now.filters if use.unit != unit.name)
                return structs.replace(now, filters=filters)
            if kind is UnitKind.WEIGHT:
                weights = tuple(use for use in now.weights if use.unit != unit.name)
                return structs.replace(now, weights=weights)
            is_used = now.balance is not None and now.balance.unit == unit.name
            return structs.replace(now, balance=None) if is_used else now

        return self._change(policy_id, without, actor).policy(policy_id)

    # Clusters

    def attach(
        self,
        cluster: str,
        actor: Actor,
        *,
        policy: str | None = None,
        parameters: Mapping[str, str] | None = None,
        condition: Condition = anything,
        is_new: bool = False,
    ) -> Attachment:
        """Attach a cluster to the policy with this id, or name in any letter case.

        Without ``policy`` the cluster keeps its policy. ``parameters`` are the cluster's own;
        without them it keeps its own under the same policy, and has the policy's under another.
        Parameters that only the policy before knows are dropped. A cluster that ``is_new`` need not
        have hosts yet.

        Raises:
            NotFound: there is no such policy, or no such cluster.
            Invalid: neither policy knows a parameter, its value does not fit, or the policy cannot
                be compiled.
            EditConflict: every try of many came second.
        """
        has_hosts = is_new or cluster in self._clusters()

        def attached(library: Library) -> Edited:
            actor.check([cluster])
            condition(library)
            now = library.documents.attachments.get(cluster)
            if now is None and not has_hosts:
                raise NotFound("cluster", cluster)
            chosen = library.policy_called(policy or (now.policy_id if now else NOVA))
            kept = now.parameters if now and now.policy_id == chosen.document.id else {}
            own = kept if parameters is None else parameters
            own = library.own_parameters(chosen.document, own, now)
            return self._attached(library, cluster, chosen, own, actor)

        done = self.edit(attached, cluster)
        return done.after.attachments[cluster]

    def attach_document(self, cluster: str, document: ClusterPolicy, actor: Actor) -> None:
        """Attach a cluster to the policy that this document is, with the document's parameters.

        It is stored where there is none of its id. One of a later version than the stored one
        replaces it, for all clusters that have it. The same document again changes nothing.

        Raises:
            NotFound: there is no such cluster.
            Invalid, NameTaken, Forbidden: as :meth:`add` and :meth:`put`.
            Conflict: another document has this id and version, or a later version is stored.
        """
        has_hosts = cluster in self._clusters()

        def attached(library: Library) -> Edited:
            actor.check([cluster])
            if not has_hosts and cluster not in library.documents.attachments:
                raise NotFound("cluster", cluster)
            stored = self._put(library, document, actor)
            library = self._libraries.of(stored.documents)
            chosen = library.policy(document.id)
            after = self._attached(library, cluster, chosen, document.parameters, actor)
            return Edited(after.documents, [*stored.entries, *after.entries])

        self.edit(attached, cluster)

    def _put(self, library: Library, document: ClusterPolicy, actor: Actor) -> Edited:
        """Have a document with its own version stored.

        Programs that write documents need not keep to what oVirt's forms can show.
        """
        stored = library.find(document.id)
        if stored is not None:
            now = stored.document
            if now == document:
                return Edited(library.documents, ())
            if now.version >= document.version and not stored.is_locked:
                raise Conflict(
                    f"There is policy {now.reference} already; a changed policy needs a version "
                    f"above {now.version}."
                )
            actor.check(library.documents.clusters_of(document.id))
        _check_usable(library, document)
        if stored is None:
            return self._added(library, document, actor)
        return self._changed(library, stored, document, actor)

    def _attached(
        self,
        library: Library,
        cluster: str,
        chosen: StoredPolicy,
        own: Mapping[str, str],
        actor: Actor,
    ) -> Edited:
        _check_cluster(cluster)
        now = library.documents.attachments.get(cluster)
        policy_id = chosen.document.id
        if now and (now.policy_id, dict(now.parameters)) == (policy_id, dict(own)):
            return Edited(library.documents, ())
        attachment = Attachment(
            cluster=cluster,
            policy_id=policy_id,
            is_built_in=chosen.is_locked,
            parameters=own,
            version=(now.version if now else NEW) + 1,
            changed_by=actor.user,
            changed_at_s=self.audit.now_s(),
        )
        entry = self._entry(actor, "cluster.attach", cluster, now, attachment)
        return Edited(rules.attached(library.documents, attachment), [entry])

    # Units

    def register_units(self) -> None:
        """Store the user units that are installed here; others that are stored count as disabled.

        It is done once with each catalogue, so that a unit that is removed then stays so.
        """
        if (catalogue := self._libraries.catalogue()) is self._known:
            return
        actor = Actor("scheduler_worker", "the files of units")

        def registered(library: Library) -> Edited:
            documents, known = self._registered(library), library.documents.units
            new = rules.differing(known, documents.units)
            was, now = known.get, documents.units.get
            entries = [
                self._entry(actor, "unit.register", unit, was(unit), now(unit)) for unit in new
            ]
            return Edited(documents, entries)

        self.edit(registered)
        self._known = catalogue

    def _registered(self, library: Library) -> Documents:
        known = library.documents.units
        installed = installed_units(library.units.catalogue)
        new = [unit for unit in installed if known.get(unit.id) != unit]
        return rules.with_units(library.documents, new) if new else library.documents

    def switch_unit(
        self, name: str, actor: Actor, condition: Condition = anything, *, is_enabled: bool
    ) -> list[PolicyUnit]:
        """Enable or disable a unit from a file: the one with this id, or all kinds of this name.

        Raises:
            NotFound: there is no such unit.
            Invalid: it does not need to be enabled, or cannot be used.
            InUse: it is to be disabled, and policies use it; names them.
        """
        action = "unit.enable" if is_enabled else "unit.disable"
        named: list[PolicyUnit] = []

        def switched(library: Library) -> Edited:
            library = self._libraries.of(self._registered(library))
            named[:] = switchable(library.units, name)
            condition(library)
            documents = library.documents
            stored = [documents.units[unit.id] for unit in named]
            if not is_enabled:
                rules.check_unused(documents, stored)
            changing = [unit for unit in stored if unit.is_enabled != is_enabled]
            after = [structs.replace(unit, is_enabled=is_enabled) for unit in changing]
            return Edited(
                rules.with_units(documents, after) if after else documents,
                [self._entry(actor, action, unit.id, None, None) for unit in changing],
            )

        units = self._libraries.of(self.edit(switched).after).units
        return [now for unit in named if (now := units.find(unit.id)) is not None]

    def remove_unit(self, unit_id: str, actor: Actor, condition: Condition = anything) -> None:
        """Remove a user unit.

        Raises:
            NotFound: there is no such unit.
            Invalid: it comes with the worker.
            InUse: as :meth:`switch_unit`.
        """

        def without(library: Library) -> Edited:
            unit = library.unit(unit_id)
            condition(library)
            if unit.is_internal:
                raise Invalid("unit", f"{unit.name} comes with the worker and cannot be removed")
            before = {"name": unit.name, "kind": unit.kind}
            entry = self._entry(actor, "unit.remove", unit_id, before, None)
            return Edited(rules.without_unit(library.documents, unit_id), [entry])

        self.edit(without)

    # Parts

    def _change(
        self,
        policy_id: str,
        change: Callable[[Library, ClusterPolicy], ClusterPolicy],
        actor: Actor,
        condition: Condition = anything,
    ) -> Library:
        def changed(library: Library) -> Edited:
            actor.check(library.documents.clusters_of(policy_id))
            before = library.editable(policy_id)
            condition(library)
            now = before.document
            document = structs.replace(change(library, now), id=now.id, version=now.version)
            if document == now:
                return Edited(library.documents, ())
            document = structs.replace(document, version=now.version + 1)
            _check(library, document)
            return self._changed(library, before, document, actor)

        return self._libraries.of(self.edit(changed).after)

    def _changed(
        self, library: Library, before: StoredPolicy, document: ClusterPolicy, actor: Actor
    ) -> Edited:
        """A document with its new version, in place of what is stored."""
        after = self._stored(document, actor)
        entry = self._entry(actor, "policy.update", document.id, before.document, document)
        return Edited(rules.with_policy(library.documents, after), [entry])

    def _added(self, library: Library, document: ClusterPolicy, actor: Actor) -> Edited:
        made = self._stored(document, actor)
        entry = self._entry(actor, "policy.create", document.id, None, document)
        return Edited(rules.with_policy(library.documents, made), [entry])

    def _stored(self, document: ClusterPolicy, actor: Actor) -> StoredPolicy:
        now_s = self.audit.now_s()
        return StoredPolicy(document=document, changed_by=actor.user, changed_at_s=now_s)

    def _entry(
        self, actor: Actor, action: str, subject: str, before: object, after: object
    ) -> AuditEntry:
        return self.audit.entry(actor, action, subject, _text(before), _text(after))


def _check_usable(library: Library, document: ClusterPolicy) -> None:
    """Check that clusters can decide under a document. Raises Invalid, NameTaken."""
    _check_own_id(library, document)
    check_name(document, library.names())
    check_enabled(document, library.units)
    library.compile(document)


def _check(library: Library, document: ClusterPolicy) -> None:
    """Check a document that is to be stored, also as its clusters will have it."""
    _check_own_id(library, document)
    check_policy(document, library.units, library.names())
    library.compile(document)
    for attachment in library.attachments_to(document.id):
        own = cluster_parameters(document, attachment.parameters, library.units)
        if own == document.parameters:
            continue
        try:
            library.for_cluster(document, own)
        except Invalid as error:
            field = f"cluster {attachment.cluster}: {error.field}"
            raise Invalid(field, error.problem) from None


def _check_own_id(library: Library, document: ClusterPolicy) -> None:
    if document.id in library.built_in:
        raise Invalid("id", f"{document.id} is the id of a built-in policy; choose another one")


def _check_cluster(name: str) -> None:
    try:
        convert(name, ClusterName)
    except msgspec.ValidationError:
        raise Invalid(
            "cluster",
            f"{cut(name)!r} is no name of a cluster: those begin with a letter or digit and "
            "consist of up to 128 letters, digits and _ . : -",
        ) from None


def _with_fields(policy: ClusterPolicy, fields: PolicyFields) -> ClusterPolicy:
    changes = {name: value for name, value in structs.asdict(fields).items() if value is not None}
    return structs.replace(policy, **changes)


def _text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, ClusterPolicy):
        return write_policy(value).decode()
    return msgspec.json.encode(value, order="sorted").decode()
