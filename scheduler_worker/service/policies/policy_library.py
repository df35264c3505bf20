"""The policies and units that there are, built in and stored, for all who read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import structs

from scheduler_worker.errors import ClusterPolicyError, Invalid, NotFound
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.policy_store import PolicyStore, StoredPolicy
from scheduler_worker.scheduling.catalogue import Catalogue, UnitKind
from scheduler_worker.service.policies.policy_rules import check_parameters, cluster_parameters
from scheduler_worker.service.policies.policy_units import PolicyUnit, PolicyUnits


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

    def policies(self) -> list[StoredPolicy]:
        """All policies, the built-in ones first."""
        return [*self._built_in(), *self._store.policies()]

    def policy(self, policy_id: str) -> StoredPolicy:
        """The policy with this id. Raises NotFound."""
        found = self.locked(policy_id) or self._store.policy(policy_id)
        if found is None:
            raise NotFound("policy", policy_id)
        return found

    def policy_called(self, name: str) -> StoredPolicy:
        """The policy with this id, else with this name in any letter case. Raises NotFound."""
        known = self.policies()
        for each in known:
            if each.document.id == name:
                return each
        for each in known:
            if each.document.name.casefold() == name.casefold():
                return each
        raise NotFound("policy", name)

    def locked(self, policy_id: str) -> StoredPolicy | None:
        """The built-in policy with this id."""
        return next((each for each in self._built_in() if each.document.id == policy_id), None)

    def editable(self, policy_id: str) -> StoredPolicy:
        """The policy with this id. Raises NotFound, and Invalid where it is locked."""
        found = self.policy(policy_id)
        if found.is_locked:
            raise Invalid("policy", f"{found.document.name} is locked; copy it and change the copy")
        return found

    def units(self) -> PolicyUnits:
        """All units."""
        return PolicyUnits(self._catalogue(), self._store.units())

    def unit(self, unit_id: str) -> PolicyUnit:
        """The unit with this id. Raises NotFound."""
        found = self.units().find(unit_id)
        if found is None:
            raise NotFound("unit", unit_id)
        return found

    def unit_as(self, unit_id: str, kind: UnitKind) -> PolicyUnit:
        """The unit with this id. Raises Invalid where there is none, or it is of another kind."""
        found = self.units().find(unit_id)
        if found is None:
            raise Invalid("unit", f"there is no unit {unit_id!r}")
        if found.kind != kind:
            raise Invalid("unit", f"{found.name} ({unit_id}) is a {found.kind}, not a {kind}")
        return found

    def compile(self, document: ClusterPolicy) -> None:
        """Compile a document on trial. Raises Invalid where that fails."""
        try:
            self._compile_on_trial(document)
        except ClusterPolicyError as error:
            raise Invalid("policy", str(error)) from None

    def for_cluster(
        self, document: ClusterPolicy, own: Mapping[str, str], units: PolicyUnits
    ) -> ClusterPolicy:
        """The document with a cluster's ``own`` parameters, checked and compiled on trial.

        Raises Invalid.
        """
        parameters = cluster_parameters(document, own, units)
        check_parameters(document, parameters, units, known=document.parameters)
        found = structs.replace(document, parameters=parameters)
        self.compile(found)
        return found
