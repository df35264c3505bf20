"""A small world: the use cases on the memory engine, under a clock that a test moves."""

import math
import uuid
from collections.abc import Collection
from functools import partial
from typing import Any, TypeVar

import msgspec

from scheduler_worker.archive import Archive
from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.model.audit import AuditEntry
from scheduler_worker.model.decisions import Decision
from scheduler_worker.model.documents import StoredPolicy
from scheduler_worker.model.host_records import state_of
from scheduler_worker.model.host_reports import HostReport
from scheduler_worker.model.providers import Owner
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.operations.callers import Caller, Grant
from scheduler_worker.operations.forms import parsed
from scheduler_worker.operations.operation import Call, Operation
from scheduler_worker.operations.rights import Access, Rights
from scheduler_worker.operations.services import UseCases
from scheduler_worker.scheduling.compiler import nova_policy
from scheduler_worker.scheduling.filters.affinity import ServerGroupAntiAffinityFilter
from scheduler_worker.scheduling.filters.capacity import CoreFilter, DiskFilter, RamFilter
from scheduler_worker.scheduling.filters.compute import ComputeFilter
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.scheduling.plugin import Filter, Weigher
from scheduler_worker.scheduling.weighers.resources import CPUWeigher, RAMWeigher
from scheduler_worker.service.balancing.administration import BalancingAdministration
from scheduler_worker.service.documents import founding
from scheduler_worker.service.documents.administration import PolicyAdministration
from scheduler_worker.service.documents.audit import Actor, Audit
from scheduler_worker.service.documents.book import Book, Revision
from scheduler_worker.service.documents.copies import Copies
from scheduler_worker.service.documents.in_force import PolicyPublisher
from scheduler_worker.service.documents.library import Libraries
from scheduler_worker.service.documents.upkeep import Upkeep
from scheduler_worker.service.feed.refreshes import RefreshBarrier
from scheduler_worker.service.inventory import listing
from scheduler_worker.service.inventory.inventory import Inventory
from scheduler_worker.service.inventory.reports import InventorySettings
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.policies.units import unit_catalogue
from scheduler_worker.service.requests.allocation_candidates import CandidatesPorts
from scheduler_worker.service.requests.capacity import Capacity
from scheduler_worker.service.requests.claims import PlacementPorts
from scheduler_worker.service.requests.dependencies import PlacementLimits
from scheduler_worker.service.requests.scheduler import Scheduler
from scheduler_worker.service.requests.verifier import VerifierPorts
from scheduler_worker.service.state.presence import ReportedWorkers
from scheduler_worker.service.state.replica import ClusterReplica, Fleet
from scheduler_worker.service.tuning.policies import TuningPolicies
from scheduler_worker.service.tuning.tuned_hosts import TunedHosts
from tests.support.clock import ManualClock
from tests.support.observers import Recorder
from tests.support.patience import eventually
from tests.support.tuning import FakePolicySource

Answer = TypeVar("Answer")
ADMINISTRATOR = Caller("anna", (Grant("administrator"),), "127.0.0.1")

FILTERS: tuple[type[Filter], ...] = (
    ComputeFilter,
    CoreFilter,
    RamFilter,
    DiskFilter,
    ServerGroupAntiAffinityFilter,
)
WEIGHERS: tuple[type[Weigher], ...] = (RAMWeigher, CPUWeigher)


class Desk:
    """What administrators have: the book of a world, its archive if there is one, and the rest."""

    def __init__(self, world: "World", archive: Archive | None = None) -> None:
        self.said: list[str] = []
        self.built_in = [StoredPolicy(document=world.pipelines.nova_policy, is_locked=True)]
        self.in_force = ClusterPolicies(world.fleet, lambda: world.pipelines)
        self.libraries = Libraries(
            catalogue=lambda: world.pipelines.catalogue,
            built_in=lambda: self.built_in,
            compile_on_trial=lambda document: world.pipelines.compile(document),
        )
        self.book = Book(world.fleet.store)
        self.audit = Audit(self.book, world.clock)
        self.publisher = PolicyPublisher(self.book, self.libraries.of, self.in_force)
        self.copies = Copies(
            self.book,
            self.audit,
            None if archive is None else lambda: archive,
            by=Actor("scheduler_worker", "w1"),
            report=self.said.append,
            before=partial(founding.read, world.fleet, self.libraries),
        )
        self.book.found = self.copies.found
        self.administration = PolicyAdministration(
            self.book,
            self.libraries,
            self.audit,
            clusters=world.fleet.read_names,
            edited=self._edited,
        )
        self.store = world.fleet.store

    def _edited(self, revision: Revision, clusters: Collection[str]) -> None:
        try:
            self.publisher.publish(revision, *clusters)
        finally:
            self.copies.copy_edit()

    def upkeep(self, **settings: Any) -> Upkeep:
        parts = self.administration, self.publisher, self.copies
        return Upkeep(self.store, *parts, name="w1", report=self.said.append, **settings)


class World:
    """One worker's use cases; ``beside`` makes another worker on the same state."""

    def __init__(
        self,
        *,
        state: Any = None,
        clock: Any = None,
        options: Options | None = None,
        filters: tuple[type[Filter], ...] = FILTERS,
        placement: PlacementPorts | None = None,
        asking: CandidatesPorts | None = None,
        **limits: Any,
    ) -> None:
        self.clock = clock or ManualClock()
        self.limits = PlacementLimits(
            **{"wait_timeout_s": 0.0, "reservation_ttl_s": 300.0} | limits
        )
        self.state = state or MemoryState(self.clock, hold_timeout_s=self.limits.hold_timeout_s)
        self.options = options or Options.of(
            claims_in_placement=placement is not None, ranked_hosts=5
        )
        self.placement = placement
        self.asking = asking
        self.filters = filters
        units = {each.__name__: each for each in (*filters, *WEIGHERS)}
        catalogue = unit_catalogue(units)
        nova = nova_policy(
            [each.__name__ for each in filters],
            [each.__name__ for each in WEIGHERS],
            self.options,
            catalogue,
        )
        self.pipelines = Pipelines(catalogue, nova, self.options)
        self.pipeline = self.pipelines.nova
        self.observed = Recorder()
        self.fleet = Fleet(self.state, default_cluster="default", observer=self.observed)
        self.scheduler = self._scheduler()
        self.inventory = Inventory(
            fleet=self.fleet,
            ratios=InventorySettings(initial_cpu_allocation_ratio=1.0).ratios,
            reservation_ttl_s=self.limits.reservation_ttl_s,
            remember_answers_s=self.limits.remember_answers_s,
            observer=self.observed,
        )
        self.tuning_files = FakePolicySource()
        self.use(Desk(self))
        self._audited: str | None = None

    def use(self, desk: Desk) -> None:
        """From now on edit with this desk."""
        self.desk = desk
        self.services = self._services()

    def beside(self) -> "World":
        return World(
            state=self.state,
            clock=self.clock,
            options=self.options,
            filters=self.filters,
            placement=self.placement,
            asking=self.asking,
            **msgspec.structs.asdict(self.limits),
        )

    def feed(
        self, barrier: RefreshBarrier | None = None, verifying: VerifierPorts | None = None
    ) -> None:
        """From now on decide by a scheduler whose hosts come from a feed."""
        self.scheduler = self._scheduler(barrier=barrier, verifying=verifying)

    def _scheduler(self, **ports: Any) -> Scheduler:
        return Scheduler(
            fleet=self.fleet,
            lock=self.state,
            pipelines=lambda: self.pipelines,
            clock=self.clock,
            limits=self.limits,
            observer=self.observed,
            placement=self.placement,
            asking=self.asking,
            **ports,
        )

    def _services(self) -> UseCases:
        """What operations are served with; decisions are not kept."""
        tuning = TuningPolicies(self.fleet.store, self.tuning_files)
        return UseCases(
            fleet=self.fleet,
            scheduler=self.scheduler,
            inventory=self.inventory,
            capacity=Capacity(self.fleet, lambda: self.pipelines),
            tuning=tuning,
            tuned_hosts=TunedHosts(self.fleet, tuning),
            balancing=BalancingAdministration(
                self.fleet, lambda: self.pipelines.nova_policy, default_mode="dry_run"
            ),
            policies=self.desk.in_force,
            administration=self.desk.administration,
            history=self.desk.copies,
            workers=ReportedWorkers(self.fleet.store),
            decisions=None,
            clusters=self.fleet.read_names,
            down_after_s=60.0,
        )

    def call(
        self,
        operation: Operation[Any, Answer],
        *,
        caller: Caller = ADMINISTRATOR,
        services: UseCases | None = None,
        **parameters: Any,
    ) -> Answer:
        """The answer of an operation, as every edge gets it."""
        access = Access(Rights(), self.desk.audit)
        call = Call(operation, services or self.services, caller, access)
        call.allow()
        return operation.serve(call, parsed(operation, parameters))

    def audited(self) -> list[AuditEntry]:
        """The entries of the audit that were written by :meth:`call` since the last time."""
        found = self.desk.book.audit(after=self._audited)
        self._audited = found[-1].id if found else self._audited
        return [entry for entry in found if entry.user != "scheduler_worker"]

    def report(self, *hosts: dict[str, Any]) -> dict[str, int]:
        return self.inventory.update_hosts([msgspec.convert(each, HostReport) for each in hosts])

    def ask(self, *uuids: str, remaining_s: float | None = None, **asked: Any) -> Decision:
        return self.scheduler.select(request(*uuids, **asked), remaining_s=remaining_s)

    def place(self, *uuids: str, **spec: Any) -> list[str]:
        """The host of each instance."""
        return [some[0].service_host for some in self.ask(*uuids, **spec).selections]

    def await_queued(self, number: int = 1) -> None:
        """Until so many requests are in the queue of the default cluster."""
        described = self.scheduler.describe
        eventually(lambda: described("default")["in_line"] >= number)  # type: ignore[operator]

    def hosts(self, cluster: str | None = None) -> list[dict[str, Any]]:
        """Records by uuid, with instances, names of aggregates, and what is promised."""

        def row(replica: ClusterReplica, uuid: str) -> dict[str, Any]:
            table, record = self.fleet.prepare(replica), listing.record_of(replica, uuid)
            held = table.reservations_of_host(uuid)
            return {
                **msgspec.to_builtins(msgspec.structs.asdict(record)),
                "state": state_of(record, table.now_s, math.inf),
                "aggregates": [each.name for each in table.aggregates_of(record.host)],
                "instances": sorted(table.reported_instances(record.host)),
                "promised": {
                    "instances": sorted(each.instance_uuid for each in held),
                    "vcpus": sum(each.resources.vcpus for each in held),
                },
            }

        return listing.page(self.fleet, listing.hosts_of, row, limit=100_000, cluster=cluster)[0]

    def reservations(self, cluster: str | None = None) -> list[dict[str, Any]]:
        """Those that are stored, by id."""
        return reservations_of(self.fleet, cluster)

    def reserved(self) -> dict[str, list[str]]:
        """Host -> the instances reserved on it."""
        found: dict[str, list[str]] = {}
        for each in self.reservations():
            found.setdefault(each["host"], []).append(each["instance_uuid"])
        return found


def reservations_of(fleet: Fleet, cluster: str | None = None) -> list[dict[str, Any]]:
    """The reservations of a fleet as they are stored, by id."""

    def row(replica: ClusterReplica, key: str) -> dict[str, Any]:
        found = msgspec.structs.asdict(replica.reservations[key])
        return {"cluster": replica.scope, "id": key, **msgspec.to_builtins(found)}

    return listing.page(
        fleet, lambda replica: replica.reservations, row, limit=100_000, cluster=cluster
    )[0]


def host(name: str, **facts: Any) -> dict[str, Any]:
    """A first report: 4 vCPUs, 8 GiB, 100 GiB, nothing used."""
    known = {"uuid": f"uuid-{name}", "host": name, "vcpus": 4, "memory_mb": 8192, "local_gb": 100}
    return known | facts


def request(
    *uuids: str,
    vcpus: int = 1,
    memory_mb: int = 1024,
    alternates: int = 0,
    priority: int = 0,
    request_id: str | None = None,
    global_request_id: str | None = None,
    **spec: Any,
) -> Request:
    plain = {"flavor": {"vcpus": vcpus, "memory_mb": memory_mb}, "num_instances": len(uuids)} | spec
    return Request(
        spec=msgspec.convert(plain, RequestSpec),
        instance_uuids=uuids,
        request_id=f"req-{uuid.uuid4()}" if request_id is None else request_id,
        global_request_id=global_request_id,
        num_alternates=alternates,
        owner=Owner("project", "user"),
        priority=priority,
    )
