"""What administrators do with policies and units: create, change, enable and remove them.

Each edit reads the stored policy with its version, makes a changed copy, checks it, and writes it
if the version is still the same. The attached clusters get the changed policy in the same call
(``attachments.py``).
"""

import uuid
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import structs

from scheduler_worker.errors import Conflict, Incomplete, Invalid, NotFound, StateUnavailable
from scheduler_worker.model.policies import (
    NORMALIZED_SUM,
    BalanceUse,
    ClusterPolicy,
    FilterUse,
    Position,
    SelectorUse,
    WeightUse,
    write_policy,
)
from scheduler_worker.policy_store import (
    Attachment,
    AuditEntry,
    PolicyStore,
    StoredPolicy,
    StoredUnit,
)
from scheduler_worker.ports import Clock
from scheduler_worker.scheduling.catalogue import UnitKind
from scheduler_worker.service.policies.attachments import (
    Attachments,
    PolicyLibrary,
    editable,
    retried,
)
from scheduler_worker.service.policies.audit import Actor, AuditLog
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies
from scheduler_worker.service.policies.policy_rules import check_policy, check_unused, switchable
from scheduler_worker.service.policies.policy_units import PolicyUnit, PolicyUnits, installed_units


class PolicyFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a policy that an administrator sets; None leaves one unchanged."""

    name: str | None = None
    description: str | None = None
    parameters: Mapping[str, str] | None = None
    """All parameters: those not named are removed."""
    selector: SelectorUse | None = None


class PolicyAdministration:
    """Changes policies and units; ``library`` reads them, ``attachments`` has their clusters.

    Every method raises PolicyStoreUnavailable when the store fails. Changes that are refused raise
    an AdministrationError and change nothing.
    """

    def __init__(
        self,
        store: PolicyStore,
        library: PolicyLibrary,
        *,
        in_force: ClusterPolicies,
        clock: Clock,
        default_selector: str = NORMALIZED_SUM,
    ) -> None:
        """``default_selector`` is the unit of new policies that name no selector."""
        self._store = store
        self._in_force = in_force
        self._clock = clock
        self._default_selector = SelectorUse(unit=default_selector)
        self.library = library
        self.audit_log = AuditLog(store, clock)
        """Every change, and every attempt that was refused."""
        self.attachments = Attachments(store, library, in_force, self.audit_log, clock)

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
        made = self._stored(structs.replace(document, version=1), actor)
        self.check(made.document)
        self._store.add(made, self._entry(actor, "policy.create", None, made.document))
        return made

    def update(self, policy_id: str, fields: PolicyFields, actor: Actor) -> StoredPolicy:
        """Change name, description, parameters or selector.

        Raises:
            NotFound: there is no such policy.
            Invalid: it is locked, or would break a rule.
            NameTaken: another policy has the name.
            EditConflict: every try of many came second.
            Forbidden: the actor may not change a cluster that has it, also since a moment ago.
        """
        return self._edit(policy_id, lambda now: _with_fields(now, fields), actor)

    def put(
        self,
        document: ClusterPolicy,
        actor: Actor,
        before: StoredPolicy,
        attached: Sequence[Attachment],
    ) -> StoredPolicy:
        """Replace a policy, which the caller has read with its clusters, by a document.

        Raises as :meth:`update`; EditConflict: it has another version by now, or more clusters.
        """
        return self._edited(editable(before), attached, document, actor)

    def check(self, document: ClusterPolicy) -> None:
        """Check a document and change nothing; raises as :meth:`add` and :meth:`put` do."""
        if self.library.locked(document.id) is not None:
            raise Invalid("id", f"{document.id} is the id of a built-in policy; choose another one")
        self._check(document, self.attachments.of(document.id))

    def check_trial(self, document: ClusterPolicy) -> None:
        """Check one that is tried and not stored: its name may be taken. Raises Invalid."""
        check_policy(document, self.library.units(), {})
        self.library.compile(document)

    def remove(self, policy_id: str, actor: Actor, *, expected_version: int | None = None) -> None:
        """Remove a policy. Raises as :meth:`update`, and InUse, which names its clusters."""
        before = editable(self.library.policy(policy_id)).document
        entry = self._entry(actor, "policy.remove", before, None)
        self._store.remove(policy_id, expected_version=expected_version, audit=entry)

    # Units of a policy

    def add_filter(
        self, policy_id: str, unit_id: str, actor: Actor, *, position: Position = "none"
    ) -> StoredPolicy:
        """Add a filter. Raises as :meth:`update`."""
        use = FilterUse(unit=self.library.unit_as(unit_id, UnitKind.FILTER).name, position=position)
        return self._edit(
            policy_id, lambda now: structs.replace(now, filters=(*now.filters, use)), actor
        )

    def add_weight(
        self, policy_id: str, unit_id: str, actor: Actor, *, factor: float = 1.0
    ) -> StoredPolicy:
        """Add a weight. Raises as :meth:`update`."""
        use = WeightUse(unit=self.library.unit_as(unit_id, UnitKind.WEIGHT).name, factor=factor)
        return self._edit(
            policy_id, lambda now: structs.replace(now, weights=(*now.weights, use)), actor
        )

    def set_balance(self, policy_id: str, unit_id: str, actor: Actor) -> StoredPolicy:
        """Set the balance, in place of any other. Raises as :meth:`update`."""
        use = BalanceUse(unit=self.library.unit_as(unit_id, UnitKind.BALANCE).name)
        return self._edit(policy_id, lambda now: structs.replace(now, balance=use), actor)

    def remove_unit_use(
        self, policy_id: str, kind: UnitKind, unit_id: str, actor: Actor
    ) -> StoredPolicy:
        """Remove a filter, weight or balance; one that the policy does not use is no error.

        Raises as :meth:`update`: a parameter that only this unit declares must be removed first.
        NotFound also where no unit of the kind has the id.
        """
        unit = self.library.units().find(unit_id)
        if unit is None or unit.kind != kind:
            editable(self.library.policy(policy_id))
            raise NotFound(kind, unit_id)

        def without(now: ClusterPolicy) -> ClusterPolicy:
            if kind is UnitKind.FILTER:
                filters = tuple(use for use in now.filters if use.unit != unit.name)
                return structs.replace(now, filters=filters)
            if kind is UnitKind.WEIGHT:
                weights = tuple(use for use in now.weights if use.unit != unit.name)
                return structs.replace(now, weights=weights)
            is_used = now.balance is not None and now.balance.unit == unit.name
            return structs.replace(now, balance=None) if is_used else now

        return self._edit(policy_id, without, actor)

    # Units

    def register_units(self) -> tuple[PolicyUnits, dict[str, StoredUnit]]:
        """Store the user units that are installed; others that are stored count as disabled.

        Returns all units, and the stored units by their ids.
        """
        known = {unit.id: unit for unit in self._store.units()}
        catalogue = self.library.units(known.values()).catalogue
        installed = {unit.id: unit for unit in installed_units(catalogue)}
        if changed := [unit for key, unit in installed.items() if known.get(key) != unit]:
            self._store.put_units(changed)
        known |= installed
        return self.library.units(known.values()), known

    def switch_unit(self, name: str, actor: Actor, *, is_enabled: bool) -> list[PolicyUnit]:
        """Enable or disable a unit from a file: the one with this id, or all kinds of this name.

        Raises:
            NotFound: there is no such unit.
            Invalid: it does not need to be enabled, or cannot be used.
            InUse: it is to be disabled, and policies use it; names them, or the clusters that have
                such a policy over RPC.
            StateUnavailable, Conflict: it is stored, and not in force yet for policies over RPC.
        """
        units, stored = self.register_units()
        named = switchable(units, name)
        if not is_enabled:
            self._check_unused(named)
        for unit in named:
            if stored[unit.id].is_enabled != is_enabled:
                self._store.put_units([structs.replace(stored[unit.id], is_enabled=is_enabled)])
                action = "unit.enable" if is_enabled else "unit.disable"
                self._store.record(self.audit_log.entry(actor, action, unit.id, None, None))
        self._settle_units_now()
        units = self.library.units()
        return [switched for unit in named if (switched := units.find(unit.id)) is not None]

    def remove_unit(self, unit_id: str, actor: Actor) -> None:
        """Remove a user unit.

        Raises:
            NotFound: there is no such unit.
            Invalid: it comes with the worker.
            InUse, StateUnavailable, Conflict: as :meth:`switch_unit`.
        """
        unit = self.library.unit(unit_id)
        if unit.is_internal:
            raise Invalid("unit", f"{unit.name} comes with the worker and cannot be removed")
        self._check_unused([unit])
        before = msgspec.json.encode({"name": unit.name, "kind": unit.kind}).decode()
        entry = self.audit_log.entry(actor, "unit.remove", unit_id, before, None)
        self._store.remove_unit(unit_id, entry)
        self._settle_units_now()

    def settle_units(self) -> bool:
        """Put in force which units policies over RPC may use; whether that was not so already.

        Raises StateUnavailable, Conflict: the shared state cannot be written now.
        """
        return self._in_force.settle_units(
            lambda: {unit.id for unit in self._store.units() if unit.is_enabled}
        )

    # Parts

    def _settle_units_now(self) -> None:
        try:
            self.settle_units()
        except (StateUnavailable, Conflict) as error:
            raise type(error)(
                "The change is stored, and takes effect for policies over RPC within a minute "
                f"after the shared state can be written: {error}"
            ) from None

    def _check_unused(self, units: Sequence[PolicyUnit]) -> None:
        """Raises InUse, and StateUnavailable: policies over RPC are in the shared state alone."""
        stored = [policy.document for policy in self._store.policies()]
        check_unused(units, {document.name: document for document in stored})
        clusters = self._in_force.clusters()
        check_unused(units, {f"cluster {name}": self._in_force.in_force(name) for name in clusters})

    def _edit(
        self, policy_id: str, change: Callable[[ClusterPolicy], ClusterPolicy], actor: Actor
    ) -> StoredPolicy:
        def edit() -> StoredPolicy:
            before = editable(self.library.policy(policy_id))
            attached = self.attachments.of(policy_id)
            actor.check([attachment.cluster for attachment in attached])
            return self._edited(before, attached, change(before.document), actor)

        return retried(edit)

    def _edited(
        self,
        before: StoredPolicy,
        attached: Sequence[Attachment],
        document: ClusterPolicy,
        actor: Actor,
    ) -> StoredPolicy:
        """Check and store a document in place of what was read, and put it in force."""
        now = before.document
        document = structs.replace(document, id=now.id, version=now.version)
        if document == now:
            return before
        after = self._stored(structs.replace(document, version=now.version + 1), actor)
        self._check(after.document, attached)
        entry = self._entry(actor, "policy.update", now, after.document)
        clusters = [attachment.cluster for attachment in attached]
        self._store.replace(after, expected_version=now.version, clusters=clusters, audit=entry)
        # Read again: a cluster that was attached meanwhile may have the document of before.
        self.attachments.settle(attachment.cluster for attachment in self.attachments.of(now.id))
        return after

    def _check(self, document: ClusterPolicy, attached: Sequence[Attachment]) -> None:
        units = self.library.units()
        names = {policy.document.id: policy.document.name for policy in self.library.policies()}
        check_policy(document, units, names)
        self.library.compile(document)
        for attachment in attached:
            try:
                self.library.for_cluster(document, attachment.parameters, units)
            except Invalid as error:
                raise Invalid(
                    f"cluster {attachment.cluster}: {error.field}", error.problem
                ) from None

    def _entry(
        self, actor: Actor, action: str, before: ClusterPolicy | None, after: ClusterPolicy | None
    ) -> AuditEntry:
        [subject, *_] = {document.id for document in (before, after) if document is not None}
        return self.audit_log.entry(actor, action, subject, _json(before), _json(after))

    def _stored(self, document: ClusterPolicy, actor: Actor) -> StoredPolicy:
        now_s = self._clock.time_s()
        return StoredPolicy(document=document, changed_by=actor.user, changed_at_s=now_s)


def _with_fields(policy: ClusterPolicy, fields: PolicyFields) -> ClusterPolicy:
    changes = {name: value for name, value in structs.asdict(fields).items() if value is not None}
    return structs.replace(policy, **changes)


def _json(document: ClusterPolicy | None) -> str | None:
    return None if document is None else write_policy(document).decode()
