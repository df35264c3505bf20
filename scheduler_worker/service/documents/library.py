"""The policies and units that there are, and which cluster has which, at one moment. Pure."""

import contextlib
from collections.abc import Callable, Mapping, Sequence

from msgspec import structs

from scheduler_worker.errors import ClusterPolicyError, Invalid, NotFound
from scheduler_worker.model.documents import Attachment, Documents, StoredPolicy, StoredUnit
from scheduler_worker.model.policies import NOVA, ClusterPolicy
from scheduler_worker.scheduling.catalogue import Catalogue, UnitKind
from scheduler_worker.service.documents.policy_rules import (
    check_parameters,
    cluster_parameters,
    declarations,
)
from scheduler_worker.service.documents.policy_units import PolicyUnit, PolicyUnits
from scheduler_worker.wording import cut


class Library:
    """Finds policies and units: the book's documents, and what is code."""

    def __init__(
        self,
        documents: Documents,
        units: PolicyUnits,
        built_in: Mapping[str, StoredPolicy],
        compile_on_trial: Callable[[ClusterPolicy], object],
    ) -> None:
        """``built_in`` are the locked policies by id, among them ``nova`` and one default."""
        self.documents = documents
        self.units = units
        """All units."""
        self.built_in = built_in
        self._compile_on_trial = compile_on_trial

    def policies(self) -> list[StoredPolicy]:
        """All policies, the built-in ones first, the others by name."""
        stored = self.documents.policies.values()
        by_name = sorted(stored, key=lambda policy: policy.document.name.casefold())
        return [*self.built_in.values(), *by_name]

    def names(self) -> dict[str, str]:
        """The names of all policies, by id."""
        return {policy.document.id: policy.document.name for policy in self.policies()}

    def find(self, policy_id: str) -> StoredPolicy | None:
        """The policy with this id."""
        return self.built_in.get(policy_id) or self.documents.policies.get(policy_id)

    def policy(self, policy_id: str) -> StoredPolicy:
        """The policy with this id. Raises NotFound."""
        if (policy := self.find(policy_id)) is None:
            raise NotFound("policy", policy_id)
        return policy

    def policy_called(self, name: str) -> StoredPolicy:
        """The policy with this id, else with this name in any letter case. Raises NotFound."""
        if (policy := self.find(name)) is not None:
            return policy
        for policy in self.policies():
            if policy.document.name.casefold() == name.casefold():
                return policy
        raise NotFound("policy", name)

    def editable(self, policy_id: str) -> StoredPolicy:
        """The policy with this id. Raises NotFound, and Invalid where it is locked."""
        policy = self.policy(policy_id)
        if policy.is_locked:
            name = policy.document.name
            raise Invalid("policy", f"{name} is locked; copy it and change the copy")
        return policy

    def attachments(self) -> list[Attachment]:
        """Which cluster has which policy, by cluster; the others have :data:`NOVA`."""
        return [each for _, each in sorted(self.documents.attachments.items())]

    def attachments_to(self, policy_id: str) -> list[Attachment]:
        """Those to the policy with this id, by cluster."""
        return [each for each in self.attachments() if each.policy_id == policy_id]

    def unit(self, unit_id: str) -> PolicyUnit:
        """The unit with this id. Raises NotFound."""
        if (unit := self.units.find(unit_id)) is None:
            raise NotFound("unit", unit_id)
        return unit

    def unit_as(self, unit_id: str, kind: UnitKind) -> PolicyUnit:
        """The unit with this id. Raises Invalid where there is none, or it is of another kind."""
        unit = self.units.find(unit_id)
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

    def for_cluster(self, document: ClusterPolicy, own: Mapping[str, str]) -> ClusterPolicy:
        """A document with a cluster's ``own`` parameters, checked and compiled. Raises Invalid."""
        parameters = cluster_parameters(document, own, self.units)
        check_parameters(document, parameters, self.units, known=document.parameters)
        document = structs.replace(document, parameters=parameters)
        self.compile(document)
        return document

    def to_be_in_force(self, cluster: str) -> ClusterPolicy | None:
        """What is to be in force in a cluster; None: the policy ``nova``. Raises NotFound."""
        attachment = self.documents.attachments.get(cluster)
        if attachment is None or attachment.policy_id == NOVA:
            return None
        document = self.policy(attachment.policy_id).document
        own = cluster_parameters(document, attachment.parameters, self.units)
        return structs.replace(document, parameters=own)

    def own_parameters(
        self, document: ClusterPolicy, own: Mapping[str, str], now: Attachment | None
    ) -> Mapping[str, str]:
        """A cluster's parameters under a policy, which it had as ``now`` says until now.

        Parameters that only the policy before knows are dropped. Raises Invalid: neither policy
        knows one, its value does not fit, or the policy cannot be compiled.
        """
        known = {*document.parameters, *(now.parameters if now else ())}
        if now is not None and now.policy_id != document.id:
            with contextlib.suppress(NotFound):
                before = self.policy(now.policy_id).document
                known |= {*before.parameters, *declarations(before, self.units)}
        if document.id != NOVA:
            known |= declarations(document, self.units).keys()
        unknown = {name: value for name, value in own.items() if name not in known}
        if unknown and document.id == NOVA:
            name = cut(min(unknown))
            raise Invalid(f"properties.{name}", "the parameters of nova are the workers' options")
        check_parameters(document, unknown, self.units)
        if document.id == NOVA:  # its parameters are the workers' options
            return {}
        return self.for_cluster(document, own).parameters


class Libraries:
    """Makes the library of documents; safe for threads."""

    def __init__(
        self,
        *,
        catalogue: Callable[[], Catalogue],
        built_in: Callable[[], Sequence[StoredPolicy]],
        compile_on_trial: Callable[[ClusterPolicy], object],
    ) -> None:
        self.catalogue = catalogue
        self._built_in = built_in
        self._compile_on_trial = compile_on_trial
        self._listed: tuple[Catalogue, Mapping[str, StoredUnit], PolicyUnits] | None = None
        """What the units were listed of last, and the units. Replaced as a whole, by any thread."""

    def of(self, documents: Documents) -> Library:
        """With the units of this process's catalogue, listed again where that has changed."""
        built_in = {policy.document.id: policy for policy in self._built_in()}
        return Library(documents, self._units(documents.units), built_in, self._compile_on_trial)

    def _units(self, stored: Mapping[str, StoredUnit]) -> PolicyUnits:
        catalogue, listed = self.catalogue(), self._listed
        if listed is None or listed[0] is not catalogue or listed[1] != stored:
            units = PolicyUnits(catalogue, stored.values())
            self._listed = listed = catalogue, stored, units
        return listed[2]
