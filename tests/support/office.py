"""An administration of policies, its store, and a world in which the policies are in force."""

from collections.abc import Sequence
from typing import Any

import msgspec

from scheduler_worker.model.cluster_load import BalanceMemory, BalancePlan, ClusterLoad
from scheduler_worker.model.hosts import Hosts, Mask
from scheduler_worker.model.policies import ClusterPolicy, FilterUse
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.policy_store import PolicyStore, StoredPolicy
from scheduler_worker.scheduling.catalogue import Catalogue, CatalogueEntry, UnitKind, entry
from scheduler_worker.scheduling.filters.capacity import CoreFilter, RamFilter
from scheduler_worker.scheduling.ovirt.weights import EvenCpuWeight
from scheduler_worker.scheduling.plugin import Balance, Filter
from scheduler_worker.service.policies.administration import PolicyAdministration, PolicyFields
from scheduler_worker.service.policies.attachments import PolicyLibrary
from scheduler_worker.service.policies.audit import Actor
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies
from scheduler_worker.service.policies.pipelines import Pipelines
from tests.support.policy_store import MemoryPolicyStore
from tests.support.services import World, host

ANNA, BERT = Actor("anna", "10.0.0.1"), Actor("bert")


class Threshold(msgspec.Struct, frozen=True):
    threshold: float = 1.0


class Bought(Filter):
    """Comes from a vendor."""

    parameters_type = Threshold

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        return hosts.free_ram_mb >= self.parameters.threshold


class Overloaded(Bought):
    """Keeps hosts that are not overloaded."""

    @classmethod
    def is_internal(cls) -> bool:
        return True


class Balancing(Balance):
    """Moves instances apart."""

    parameters_type = Threshold

    def plan(self, cluster: ClusterLoad, memory: BalanceMemory, now_s: float) -> BalancePlan:
        raise NotImplementedError

    @classmethod
    def is_internal(cls) -> bool:
        return True


UNITS = [
    entry("Overloaded", Overloaded),
    entry("Bought", Bought),
    entry("EvenCpu", EvenCpuWeight),
    entry("Spread", Balancing),
]
DEFAULT = ClusterPolicy(
    id="b4ed2332",
    name="none",
    version=1,
    filters=(FilterUse(unit="Overloaded"),),
    parameters={"threshold": "1"},
)


class Office:
    """An administration with its store, and a world in which its policies are in force."""

    def __init__(
        self,
        store: PolicyStore | None = None,
        state: Any = None,
        *,
        world: World | None = None,
        units: Sequence[CatalogueEntry] = UNITS,
        default: ClusterPolicy = DEFAULT,
    ) -> None:
        self.world = world or World(state=state, filters=(CoreFilter, RamFilter))
        known = self.world.pipelines
        self.catalogue = Catalogue([*known.catalogue, *units])
        self.pipelines = Pipelines(self.catalogue, known.nova_policy, self.world.options)
        self.world.pipelines = self.pipelines
        self.in_force = ClusterPolicies(self.world.fleet, lambda: self.pipelines)
        self.store = store or MemoryPolicyStore()
        self.built_in = [
            StoredPolicy(document=known.nova_policy, is_locked=True),
            StoredPolicy(document=default, is_locked=True, is_default=True),
        ]
        if world is None:
            self.world.report(host("a", cluster="east"), host("b", cluster="west"))
        self.desk = self.another()
        self.desk.register_units()
        self.desk.settle_units()

    def another(self) -> PolicyAdministration:
        library = PolicyLibrary(
            self.store,
            catalogue=lambda: self.catalogue,
            built_in=lambda: self.built_in,
            compile_on_trial=self.pipelines.compile,
        )
        return PolicyAdministration(
            self.store, library, in_force=self.in_force, clock=self.world.clock
        )

    def unit_id(self, name: str, kind: UnitKind = UnitKind.FILTER) -> str:
        found = self.desk.library.units().used(name, kind)
        assert found is not None
        return found.id

    def change(self, policy_id: str, **fields: Any) -> StoredPolicy:
        return self.desk.update(policy_id, PolicyFields(**fields), ANNA)

    def made(self, name: str = "packing", **fields: Any) -> StoredPolicy:
        return self.desk.create(PolicyFields(name=name, **fields), ANNA)
