"""The policies and units that there are, which cluster has which, and what is put in force.

The policy store is the system of record. After each write the document in force is put into the
shared state, in the same call; ``reconciler.py`` repairs what a crash between both has left.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import structs

from scheduler_worker.conversion import convert
from scheduler_worker.errors import (
    ClusterPolicyError,
    Conflict,
    EditConflict,
    Invalid,
    NotFound,
    StateUnavailable,
)
from scheduler_worker.model.host_records import ClusterName
from scheduler_worker.model.policies import NOVA, ClusterPolicy
from scheduler_worker.policy_store import NEW, Attachment, PolicyStore, StoredPolicy, StoredUnit
from scheduler_worker.ports import Clock
from scheduler_worker.scheduling.catalogue import Catalogue, UnitKind
from scheduler_worker.service.policies.audit import Actor, AuditLog
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies
from scheduler_worker.service.policies.policy_rules import (
    check_parameters,
    cluster_parameters,
    declarations,
)
from scheduler_worker.service.policies.policy_units import PolicyUnit, PolicyUnits
from scheduler_worker.wording import cut


class PolicyLibrary:
    """Finds policies and units. Every method raises PolicyStoreUnavailable when the store fails."""

    def __init__(
        self,
        store: PolicyStore,
        *,
        catalogue: Callable[[], Catalogue],
        built_in: Callable[[], Sequence[StoredPolicy]],
        compile_on_trial: Callable[[ClusterPolicy], object],
    ) -> None:
        """``built_in`` are the locked policies, among them ``nova`` and exactly one default."""
        self._store = store
        self._catalogue = catalogue
        self._built_in = built_in
        self._compile_on_trial = compile_on_trial
        self._listed: tuple[tuple[Catalogue, list[StoredUnit]], PolicyUnits] | None = None
        """What the units were listed of last, and the units. Replaced as a whole, by any thread."""

    def policies(self) -> list[StoredPolicy]:
        """All policies, the built-in ones first."""
        return [*self._built_in(), *self._store.policies()]

    def policy(self, policy_id: str) -> StoredPolicy:
        """The policy with this id. Raises NotFound."""
        policy = self.locked(policy_id) or self._store.policy(policy_id)
        if policy is None:
            raise NotFound("policy", policy_id)
        return policy

    def policy_called(self, name: str) -> StoredPolicy:
        """The policy with this id, else with this name in any letter case. Raises NotFound."""
        policies = self.policies()
        for policy in policies:
            if policy.document.id == name:
                return policy
        for policy in policies:
            if policy.document.name.casefold() == name.casefold():
                return policy
        raise NotFound("policy", name)

    def locked(self, policy_id: str) -> StoredPolicy | None:
        """The built-in policy with this id."""
        return next((each for each in self._built_in() if each.document.id == policy_id), None)

    def units(self, stored: Iterable[StoredUnit] | None = None) -> PolicyUnits:
        """All units; ``stored`` are the store's, if the caller has read them.

        They are listed again where the catalogue or the store's units have changed.
        """
        made_of = self._catalogue(), list(self._store.units() if stored is None else stored)
        listed = self._listed
        if listed is None or listed[0] != made_of:
            self._listed = listed = made_of, PolicyUnits(*made_of)
        return listed[1]

    def unit(self, unit_id: str) -> PolicyUnit:
        """The unit with this id. Raises NotFound."""
        unit = self.units().find(unit_id)
        if unit is None:
            raise NotFound("unit", unit_id)
        return unit

    def unit_as(self, unit_id: str, kind: UnitKind) -> PolicyUnit:
        """The unit with this id. Raises Invalid where there is none, or it is of another kind."""
        unit = self.units().find(unit_id)
        if unit is None:
            raise Invalid("unit", f"there is no unit {unit_id!r}")
        if unit.kind != kind:
            raise Invalid("unit", f"{unit.name} ({unit_id}) is a {unit.kind}, not a {kind}")
        return unit

    def compile(self, document: ClusterPolicy) -> None:
        """Compile a document on trial. Raises Invalid where that fails."""
        try:
            self._compile_on_trial(document)
        except ClusterPolicyError as error:
            raise Invalid("policy", str(error)) from None

    def for_cluster(
        self, document: ClusterPolicy, own: Mapping[str, str], units: PolicyUnits
    ) -> ClusterPolicy:
        """A document with a cluster's ``own`` parameters, checked and compiled. Raises Invalid."""
        parameters = cluster_parameters(document, own, units)
        check_parameters(document, parameters, units, known=document.parameters)
        document = structs.replace(document, parameters=parameters)
        self.compile(document)
        return document


Changed = TypeVar("Changed")
_TRIES = 50
"""How often a change is made whose caller expects no version, each time on what is stored then."""


def editable(policy: StoredPolicy) -> StoredPolicy:
    """The policy itself. Raises Invalid where it is locked."""
    if policy.is_locked:
        raise Invalid("policy", f"{policy.document.name} is locked; copy it and change the copy")
    return policy


class Attachments:
    """Reads and changes attachments, and puts in force what they say.

    Every method raises PolicyStoreUnavailable when the store fails.
    """

    def __init__(
        self,
        store: PolicyStore,
        library: PolicyLibrary,
        in_force: ClusterPolicies,
        audit_log: AuditLog,
        clock: Clock,
    ) -> None:
        self._store = store
        self._library = library
        self._in_force = in_force
        self._audit_log = audit_log
        self._clock = clock

    def clusters(self) -> list[str]:
        """The names of all clusters: with hosts, or attached before. Raises StateUnavailable."""
        return sorted({*self._in_force.clusters(), *(attached.cluster for attached in self.all())})

    def all(self) -> list[Attachment]:
        """Which cluster has which policy; clusters without one have :data:`NOVA`."""
        return self._store.attachments()

    def of(self, policy_id: str) -> list[Attachment]:
        """Those to the policy with this id."""
        return [attachment for attachment in self.all() if attachment.policy_id == policy_id]

    def attach(
        self,
        cluster: str,
        actor: Actor,
        *,
        policy: str | None = None,
        parameters: Mapping[str, str] | None = None,
        expected_version: int | None = None,
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
            EditConflict: another attachment was first, of all tries if no version is expected.
            StateUnavailable: it is stored, and not in force yet.
        """

        def attach() -> Attachment:
            now = self._store.attachment(cluster)
            if now is None and not is_new and cluster not in self._in_force.clusters():
                raise NotFound("cluster", cluster)
            _check_cluster(cluster)
            version = now.version if now else NEW
            if expected_version not in {None, version}:
                raise EditConflict(
                    f"The policy of cluster {cluster}", now.changed_by if now else "", version
                )
            chosen = self._library.policy_called(policy or (now.policy_id if now else NOVA))
            document, units = chosen.document, self._library.units()
            kept = now.parameters if now and now.policy_id == document.id else {}
            own = kept if parameters is None else parameters
            self._check_known(document, own, now, units)
            if document.id == NOVA:  # its parameters are the workers' options
                own = {}
            else:
                own = self._library.for_cluster(document, own, units).parameters
            if now and (now.policy_id, dict(now.parameters)) == (document.id, dict(own)):
                attachment = now
            else:
                attachment = Attachment(
                    cluster=cluster,
                    policy_id=document.id,
                    is_built_in=chosen.is_locked,
                    parameters=own,
                    version=version + 1,
                    changed_by=actor.user,
                    changed_at_s=self._clock.time_s(),
                )
                texts = _text(now), _text(attachment)
                audit = self._audit_log.entry(actor, "cluster.attach", cluster, *texts)
                self._store.attach(attachment, expected_version=version, audit=audit)
            self.settle([cluster])
            return attachment

        return retried(attach) if expected_version is None else attach()

    def put_in_force(self, cluster: str) -> bool:
        """Bring the shared state in line with the store; whether anything had to be written.

        A cluster that was never attached is left as it is: it may have a document by RPC.

        Raises:
            NotFound: the policy is built in, and this version has none of that id.
            RequestError: the policy cannot be compiled here; the old one stays in force.
            StateUnavailable, Conflict: the shared state cannot be written now.
        """

        def stored(in_force: ClusterPolicy | None) -> ClusterPolicy | None:
            attachment = self._store.attachment(cluster)
            if attachment is None:
                return in_force
            if attachment.policy_id == NOVA:
                return None
            document = self._library.policy(attachment.policy_id).document
            own = cluster_parameters(document, attachment.parameters, self._library.units())
            return structs.replace(document, parameters=own)

        return self._in_force.settle(cluster, stored)

    def settle(self, clusters: Iterable[str]) -> None:
        """Put what was stored just now in force in each cluster.

        What fails in some is raised at the end: StateUnavailable or Conflict.
        """
        failed: StateUnavailable | Conflict | None = None
        for cluster in clusters:
            try:
                self.put_in_force(cluster)
            except (StateUnavailable, Conflict) as error:
                failed = type(error)(
                    f"The change is stored, and takes effect in cluster {cluster} within a minute "
                    f"after the shared state can be written: {error}"
                )
        if failed is not None:
            raise failed

    def _check_known(
        self,
        document: ClusterPolicy,
        own: Mapping[str, str],
        now: Attachment | None,
        units: PolicyUnits,
    ) -> None:
        """Raises Invalid for a parameter that neither the policy nor the one before knows."""
        known = {*document.parameters, *(now.parameters if now else ())}
        if now is not None and now.policy_id != document.id:
            with contextlib.suppress(NotFound):
                before = self._library.policy(now.policy_id).document
                known |= {*before.parameters, *declarations(before, units)}
        if document.id != NOVA:
            known |= declarations(document, units).keys()
        unknown = {name: value for name, value in own.items() if name not in known}
        if unknown and document.id == NOVA:
            name = cut(min(unknown))
            raise Invalid(f"properties.{name}", "the parameters of nova are the workers' options")
        check_parameters(document, unknown, units)


def retried(change: Callable[[], Changed]) -> Changed:
    """Make a change, again where another one was first. Raises EditConflict if all were."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(EditConflict):
            return change()
    return change()


def _check_cluster(name: str) -> None:
    try:
        convert(name, ClusterName)
    except msgspec.ValidationError:
        raise Invalid(
            "cluster",
            f"{cut(name)!r} is no name of a cluster: those begin with a letter or digit and "
            "consist of up to 128 letters, digits and _ . : -",
        ) from None


def _text(value: Attachment | None) -> str | None:
    return None if value is None else msgspec.json.encode(value, order="sorted").decode()
