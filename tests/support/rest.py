"""The REST API over an administration in memory, with units that have oVirt's ids."""

from collections.abc import Mapping, Sequence
from typing import Any

from werkzeug.test import Client, TestResponse

from scheduler_worker.api.settings import ApiSettings
from scheduler_worker.api.users import User, hashed
from scheduler_worker.compose.api import Api
from scheduler_worker.model.host_reports import HostReport
from scheduler_worker.model.policies import BalanceUse, ClusterPolicy, FilterUse, WeightUse
from scheduler_worker.model.rehearsals import RehearsalQuery, RehearsalRecord
from scheduler_worker.observer import Observer
from scheduler_worker.operations.callers import Grant
from scheduler_worker.operations.operation import Operation
from scheduler_worker.operations.services import ApiUseCases
from scheduler_worker.scheduling.catalogue import entry
from scheduler_worker.scheduling.ovirt.balances import EvenDistributionBalance
from scheduler_worker.scheduling.ovirt.resources import CpuFilter, MemoryFilter
from scheduler_worker.scheduling.ovirt.weights import EvenCpuWeight
from scheduler_worker.service.rehearsal.records import RehearsalRecords
from tests.support.decisions import Records
from tests.support.office import Office
from tests.support.services import Answer, World, host
from tests.support.web import PASSWORD, basic

CPU = "6d636bf6-a35c-4f9d-b68d-0731f720cddc"
MEMORY = "c9ddbb34-0e1d-4061-a8d7-b0893fa80932"
CPU_WEIGHT = "7db4ab05-81ab-42e8-868a-aee2df483edb"
BALANCE = "7db4ab05-81ab-42e8-868a-aee2df483ed2"
NONE = "b4ed2332-a7ac-4d5f-9596-99a439cb2812"
API = "/ovirt-engine/api"
HASH = hashed(PASSWORD)
IDLE_S, TTL_S = 600.0, 3600.0
"""Of sessions of the console."""


UNITS = [
    entry("CPU", CpuFilter),
    entry("Memory", MemoryFilter),
    entry("OptimalForCpuEvenDistribution", EvenCpuWeight),
    entry("OptimalForEvenDistribution", EvenDistributionBalance),
]
DEFAULT = ClusterPolicy(
    id=NONE,
    name="none",
    version=1,
    filters=(FilterUse(unit="CPU", position="first"), FilterUse(unit="Memory")),
    weights=(WeightUse(unit="OptimalForCpuEvenDistribution", factor=2.0),),
    balance=BalanceUse(unit="OptimalForEvenDistribution"),
    parameters={"HighUtilization": "80", "CpuOverCommitDurationMinutes": "2"},
)


class FakeRehearsals:
    """Stores what begins and what ends; nothing is decided again."""

    def __init__(self, world: World) -> None:
        self.records = RehearsalRecords(world.fleet.store)
        self.tried: list[tuple[ClusterPolicy | None, Sequence[HostReport]]] = []

    def begin(
        self,
        asked: RehearsalQuery,
        policy: ClusterPolicy | None,
        added: Sequence[HostReport],
        user: str,
    ) -> RehearsalRecord:
        record = RehearsalRecord(
            id=f"r{len(self.tried)}", user=user, begun_at_s=self.records.now_s(), asked=asked
        )
        self.tried.append((policy, added))
        self.records.add(record)
        return record

    def end(self, id: str, user: str) -> None:
        self.records.end(id, user)


class Rest:
    """The application, its parts, and requests to it without a server."""

    def __init__(
        self,
        *clusters: str,
        observer: Observer | None = None,
        keeps_records: bool = True,
        **options: Any,
    ) -> None:
        """``options`` are those of ``[api]``."""
        self.world = World()
        self.records = Records(self.world)
        self.office = Office(world=self.world, units=UNITS, default=DEFAULT)
        self.book, self.administration = self.office.book, self.office.desk
        self.world.report(*(host(f"host-{name}", cluster=name) for name in clusters))
        self.clock = self.world.clock
        services = self.world.services._replace(
            decisions=self.records.kept if keeps_records else None
        )
        self.users = {"admin@internal": User(HASH, (Grant("administrator"),))}
        self.rehearsals = FakeRehearsals(self.world)
        self.problems: dict[str, list[str]] = {}
        """Of what an API process needs."""
        self.services = services._replace(
            policies=self.office.in_force,
            administration=self.administration,
            history=self.office.parts.copies,
            clusters=self.administration.clusters,
            api=ApiUseCases(self.rehearsals, lambda: self.problems),
        )
        limits = {"console_idle_timeout_s": IDLE_S, "console_session_ttl_s": TTL_S}
        self.parts = Api(
            ApiSettings(**{"max_body": 100_000, "token_ttl_s": 3600} | limits | options),
            self.services,
            users=lambda: self.users,
            clock=self.clock,
            observer=observer,
        )
        self.v1 = self.parts.v1
        self.sessions, self.console = self.parts.sessions, self.parts.console
        self.tuning, self.balancing = services.tuning, services.balancing
        self.client = Client(self.parts.application)

    def add_user(self, name: str, *grants: Grant) -> None:
        """A user with the common password."""
        self.users[name] = User(HASH, grants)

    def request(
        self,
        method: str,
        path: str,
        body: str | bytes = b"",
        *,
        user: str | None = "admin@internal",
        headers: Mapping[str, str] | None = None,
        **named: Any,
    ) -> TestResponse:
        """The answer to a request below the API's root, or to one with a full path."""
        found = dict(headers or {})
        if user is not None:
            found = basic(user) | found
        if body:
            found.setdefault("Content-Type", "application/xml")
        full = path if path.startswith(("/ovirt", "/v1", "/console")) else API + path
        address = {"REMOTE_ADDR": "127.0.0.1"}
        return self.client.open(
            full, method=method, data=body, headers=found, environ_base=address, **named
        )

    def call(self, operation: Operation[Any, Answer], **parameters: Any) -> Answer:
        """The answer of an operation without HTTP, as :meth:`World.call` has it."""
        return self.world.call(operation, services=self.services, **parameters)

    def state(self) -> object:
        """Everything that a request could change."""
        return (
            self.book.documents(),
            self.world.reserved(),
            {each.name: each.text for each in self.tuning.current()},
            [self.balancing.mode(each) for each in self.services.policies.clusters()],
            self.rehearsals.records.all(),
            [each for each in self.book.audit() if each.result == "done"],
        )
