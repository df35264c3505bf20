"""An administration of policies, and a world in which the policies are in force."""

from collections.abc import Sequence
from typing import Any

import msgspec

from scheduler_worker.archive import Archive
from scheduler_worker.model.audit import AuditEntry
from scheduler_worker.model.cluster_load import BalanceMemory, BalancePlan, ClusterLoad
from scheduler_worker.model.documents import StoredPolicy
from scheduler_worker.model.hosts import Hosts, Mask
from scheduler_worker.model.policies import ClusterPolicy, FilterUse
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.catalogue import Catalogue, CatalogueEntry, UnitKind, entry
from scheduler_worker.scheduling.filters.capacity import CoreFilter, RamFilter
from scheduler_worker.scheduling.ovirt.weights import EvenCpuWeight
from scheduler_worker.scheduling.plugin import Balance, Filter
from scheduler_worker.service.documents.administration import PolicyFields
from scheduler_worker.service.documents.audit import Actor
from scheduler_worker.service.policies.pipelines import Pipelines
from tests.support.services import Desk, World, host

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
    """An administration, and a world in which its policies are in force."""

    def __init__(
        self,
        archive: Archive | None = None,
        state: Any = None,
        *,
        world: World | None = None,
        units: Sequence[CatalogueEntry] = UNITS,
        default: ClusterPolicy = DEFAULT,
    ) -> None:
        self.world = world or World(state=state, filters=(CoreFilter, RamFilter))
        known = self.world.pipelines
        self.use(Catalogue([*known.catalogue, *units]))
        self.built_in = [
            StoredPolicy(document=known.nova_policy, is_locked=True),
            StoredPolicy(document=default, is_locked=True, is_default=True),
        ]
        if world is None:
            self.world.report(host("a", cluster="east"), host("b", cluster="west"))
        self._archive = archive
        self.parts = self.another()
        self.desk, self.book, self.in_force = (
            self.parts.administration, self.parts.book, self.parts.in_force
        )  # fmt: skip
        self.desk.register_units()
        self.parts.publisher.publish_all()

    def use(self, catalogue: Catalogue) -> None:
        """From now on there are these units."""
        nova = self.world.pipelines.nova_policy
        self.world.pipelines = Pipelines(catalogue, nova, self.world.options)

    def another(self) -> Desk:
        """What another process has."""
        desk = Desk(self.world, self._archive)
        desk.built_in = self.built_in
        return desk

    def unit_id(self, name: str, kind: UnitKind = UnitKind.FILTER) -> str:
        found = self.desk.library().units.used(name, kind)
        assert found is not None
        return found.id

    def change(self, policy_id: str, **fields: Any) -> StoredPolicy:
        return self.desk.update(policy_id, PolicyFields(**fields), ANNA)

    def made(self, name: str = "packing", **fields: Any) -> StoredPolicy:
        return self.desk.create(PolicyFields(name=name, **fields), ANNA)

    def stored(self) -> list[StoredPolicy]:
        return [policy for policy in self.desk.library().policies() if not policy.is_locked]

    def audited(self) -> list[AuditEntry]:
        """What administrators did, without what the workers did themselves."""
        return [each for each in self.book.audit() if each.user != "scheduler_worker"]
