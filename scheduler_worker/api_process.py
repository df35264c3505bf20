"""Builds a process that serves the REST API: beside the workers, or with a worker inside.

::

    with api_process.build(conf.load(["--config-file", path])).running() as api:
        print(api.url)
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scheduler_worker import app, factories
from scheduler_worker import conf as configuration
from scheduler_worker.api.access import Access
from scheduler_worker.api.application import Application, nobody
from scheduler_worker.api.console import console
from scheduler_worker.api.console.console import Console, LogIn
from scheduler_worker.api.console.sessions import ConsoleSessions
from scheduler_worker.api.ovirt import OvirtApi
from scheduler_worker.api.rates import RateLimits
from scheduler_worker.api.rights import Rights
from scheduler_worker.api.server import ApiServer
from scheduler_worker.api.sessions import Sessions
from scheduler_worker.api.settings import ApiSettings
from scheduler_worker.api.users import Users, UsersFile
from scheduler_worker.api.v1.audit import AuditOperations
from scheduler_worker.api.v1.balancing import BalancingOperations
from scheduler_worker.api.v1.capacity import CapacityOperations, CapacityRequest
from scheduler_worker.api.v1.decisions import DecisionOperations
from scheduler_worker.api.v1.dispatch import V1
from scheduler_worker.api.v1.explain import ExplainOperations, ExplainRequest
from scheduler_worker.api.v1.fleet import FleetOperations
from scheduler_worker.api.v1.health import POLICY_STORE, STATE, HealthOperations, Problems
from scheduler_worker.api.v1.inventory import InventoryOperations
from scheduler_worker.api.v1.policies import PolicyOperations
from scheduler_worker.api.v1.rehearsals import RehearsalOperations, Rehearse
from scheduler_worker.api.v1.reservations import ReservationOperations
from scheduler_worker.api.v1.tuned_hosts import TunedHostOperations
from scheduler_worker.api.v1.tuning import TuningOperations
from scheduler_worker.backends.cage.pool import Cages
from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.watched import WatchedState
from scheduler_worker.conf import Configuration, Settings
from scheduler_worker.errors import ConfigError, PolicyStoreUnavailable
from scheduler_worker.factories import FILTERS, WEIGHERS, registered
from scheduler_worker.monitoring.api import ApiMonitor
from scheduler_worker.monitoring.health import Dependencies
from scheduler_worker.policy_store import PolicyStore
from scheduler_worker.ports import ApiTokens, Clock
from scheduler_worker.rehearsals import Rehearsals
from scheduler_worker.rpc import codec
from scheduler_worker.rpc.capacity import capacity_of
from scheduler_worker.rpc.contract import Context
from scheduler_worker.rpc.explanations import explanation
from scheduler_worker.scheduling.catalogue import Catalogue
from scheduler_worker.service.balancing.administration import BalancingAdministration
from scheduler_worker.service.decisions.kept import KeptDecisions
from scheduler_worker.service.health.reported import ReportedWorkers
from scheduler_worker.service.inventory.inventory import Inventory
from scheduler_worker.service.placement.capacity import Capacity
from scheduler_worker.service.placement.scheduler import Scheduler
from scheduler_worker.service.policies.administration import PolicyAdministration
from scheduler_worker.service.policies.api_tokens import SharedApiTokens
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies
from scheduler_worker.service.policies.external_units import watch
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.policies.reconciler import Reconciler
from scheduler_worker.service.policies.trust import Trust
from scheduler_worker.service.state.replica import Fleet
from scheduler_worker.service.tuning.policies import TuningPolicies
from scheduler_worker.service.tuning.tuned_hosts import TunedHosts

if TYPE_CHECKING:
    from scheduler_worker.api.keystone import KeystoneTokens

LOG = logging.getLogger(__name__)


Closing = WatchedState | Cages | KeptDecisions
"""What has connections or processes, and is closed in the end."""


class UseCases(NamedTuple):
    """What the API does beside administration: those of the worker inside, or its own."""

    scheduler: Scheduler
    inventory: Inventory
    tuning: TuningPolicies
    balancing: BalancingAdministration
    decisions: KeptDecisions | None = None
    """None: no records of decisions are kept."""


def build_v1(
    fleet: Fleet,
    use_cases: UseCases,
    *,
    access: Access,
    administration: PolicyAdministration,
    rehearsals: Rehearse,
    clusters: Callable[[], Iterable[str]],
    pipelines: Callable[[], Pipelines],
    problems: Problems,
    down_after_s: float,
) -> V1:
    """Build our own API, ``/v1``."""

    def explain(request_id: str, asked: ExplainRequest) -> dict[str, Any]:
        return explanation(
            use_cases.scheduler,
            Context(request_id=request_id),
            asked.spec_obj,
            asked.instance_uuids,
            asked.hosts,
            asked.limit,
            asked.request,
        )

    audit = administration.audit_log
    capacity = Capacity(fleet, pipelines)

    def count(asked: CapacityRequest) -> list[dict[str, Any]]:
        return capacity_of(capacity, asked.flavors, asked.setting)

    inventory = InventoryOperations(
        access=access,
        fleet=fleet,
        clusters=clusters,
        nova_policy=lambda: pipelines().nova_policy,
        down_after_s=down_after_s,
    )
    return V1(
        [
            *inventory.operations(),
            *FleetOperations(access, fleet, down_after_s).operations(),
            *ReservationOperations(access, audit, fleet, use_cases.inventory).operations(),
            *ExplainOperations(access, explain).operations(),
            *DecisionOperations(
                access, use_cases.decisions, codec.encode_kept_decision
            ).operations(),
            *CapacityOperations(access, count).operations(),
            *RehearsalOperations(
                access, rehearsals, administration.check_trial, codec.decode_host_reports
            ).operations(),
            *TuningOperations(access, audit, use_cases.tuning).operations(),
            *TunedHostOperations(access, TunedHosts(fleet, use_cases.tuning)).operations(),
            *BalancingOperations(access, audit, use_cases.balancing).operations(),
            *PolicyOperations(access, administration, clusters).operations(),
            *AuditOperations(access, audit).operations(),
            *HealthOperations(access, ReportedWorkers(fleet.store), problems).operations(),
        ]
    )


def build_console(
    settings: ApiSettings, sessions: Sessions, tokens: ApiTokens, rights: Rights, clock: Clock
) -> Console | None:
    """Build the console; None where it is switched off."""
    if not settings.console:
        return None
    ways: dict[str, Sequence[LogIn]] = {
        "local": ["password"],
        "keystone": ["keystone"],
        "both": ["password", "keystone"],
    }
    return Console(
        sessions,
        ConsoleSessions(
            sessions,
            tokens,
            clock,
            idle_timeout_s=settings.console_idle_timeout_s,
            ttl_s=settings.console_session_ttl_s,
        ),
        rights,
        ways[settings.auth],
    )


class ApiProcess:
    """The use cases of administration behind an HTTP server, and a worker where one is inside."""

    def __init__(
        self,
        settings: Settings,
        *,
        fleet: Fleet,
        use_cases: UseCases,
        pipelines: Callable[[], Pipelines],
        store: PolicyStore,
        state: WatchedState,
        clock: Clock,
        close: Callable[[], object],
        keystone: KeystoneTokens | None = None,
        worker: app.Worker | None = None,
        trust: Trust | None = None,
        refresh_units: Callable[[], object] = lambda: None,
    ) -> None:
        """``close`` closes the shared state; a worker does so itself, and has its own monitor.

        Binds the port.

        ``trust`` is polled, for explanations, and ``refresh_units`` called to read changed files of
        external units; a worker inside does both itself.
        """
        self._pipelines = pipelines
        self._refresh_units = refresh_units
        self._registered: Catalogue | None = None
        self._unit_files = watch(self._units_changed, self._register_units)
        self._settings = settings
        self._fleet = fleet
        self._store = store
        self._close = close
        self._guard = threading.Lock()
        self._is_stopped = False
        self.worker = worker
        self.use_cases = use_cases
        self._trust = trust
        self.administration = factories.build_administration(
            store, pipelines, ClusterPolicies(fleet, pipelines), clock
        )
        self._rehearsals = Rehearsals(settings, fleet, use_cases.decisions)
        self._reconciler = Reconciler(
            self.administration,
            report=LOG.warning,
            audit_retention_days=settings.policy_store.audit_retention_days,
        )
        api = settings.api
        rights = Rights(api.policy_file)
        tokens = SharedApiTokens(fleet.store)
        self.sessions = Sessions(_users(api), tokens, clock, token_ttl_s=api.token_ttl_s)
        self.console = build_console(api, self.sessions, tokens, rights, clock)
        self._needed = Dependencies({STATE: state.problem, POLICY_STORE: self._store_problem})
        self.monitor = None if worker else self._build_monitor()
        application = self._build_application(pipelines, rights, clock, keystone)
        protected = application if keystone is None else keystone.protect(application)
        self._server = ApiServer(api, protected)

    def _build_application(
        self,
        pipelines: Callable[[], Pipelines],
        rights: Rights,
        clock: Clock,
        keystone: KeystoneTokens | None,
    ) -> Application:
        api = self._settings.api
        return Application(
            OvirtApi(self.administration, rights, self._clusters, clock),
            build_v1(
                self._fleet,
                self.use_cases,
                access=Access(rights, self.administration.audit_log),
                administration=self.administration,
                rehearsals=self._rehearsals,
                clusters=self._clusters,
                pipelines=pipelines,
                problems=self._needed.problems,
                down_after_s=self._settings.tuning.silent_after_s,
            ),
            self.sessions,
            rates=RateLimits(clock, requests_per_second=api.requests_per_second, burst=api.burst),
            max_body=api.max_body,
            foreign_caller=nobody if keystone is None else keystone.caller,
            console=self.console,
            observer=self.monitor,
        )

    def _build_monitor(self) -> ApiMonitor:
        return ApiMonitor(self._needed, failure=self.failure, settings=self._settings.monitoring)

    def _store_problem(self) -> str | None:
        try:
            self._store.attachment("")  # the cheapest question: no cluster has this name
        except PolicyStoreUnavailable as error:
            return str(error)
        return None

    @property
    def url(self) -> str:
        """The entry of the API."""
        return f"{self._server.url}/ovirt-engine/api"

    @property
    def console_url(self) -> str:
        """The console's page."""
        return f"{self._server.url}{console.ROOT}"

    def _clusters(self) -> list[str]:
        """All clusters, and the one for hosts that name none, which need not have hosts yet."""
        return sorted({*self.administration.attachments.clusters(), self._fleet.default_cluster})

    def _units_changed(self) -> bool:
        self._refresh_units()
        return self._pipelines().catalogue is not self._registered

    def _register_units(self) -> None:
        catalogue = self._pipelines().catalogue
        self.administration.register_units()
        self._registered = catalogue

    def start(self) -> None:
        """Start to serve. Raises BackendError where the policy store cannot be reached."""
        if self.worker is not None:
            self.worker.start()
        if self._trust is not None:
            self._trust.start()
        self._register_units()
        self._unit_files.start()
        self._reconciler.start()
        self._server.start()
        if self.monitor is not None:
            self.monitor.start()
        LOG.info("Serving the REST API at %s", self.url)

    def stop(self, timeout_s: float | None = None) -> None:
        """Finish the requests in hand within the timeout, and close everything."""
        with self._guard:
            if self._is_stopped:
                return
            self._is_stopped = True
        if self.monitor is not None:
            self.monitor.stop()
        bound_s = self._settings.graceful_shutdown_timeout_s if timeout_s is None else timeout_s
        self._server.stop(bound_s)
        self._rehearsals.stop()
        self._unit_files.stop()
        self._reconciler.stop()
        if self._trust is not None:
            self._trust.stop()
        if self.worker is not None:
            self.worker.stop(bound_s)
        else:
            self._close()
        self._store.close()

    def failure(self) -> str | None:
        """Why the process cannot go on and must exit; None if it can."""
        return self._server.failure() or (self.worker.failure() if self.worker else None)

    @contextlib.contextmanager
    def running(self) -> Iterator[ApiProcess]:
        """Start on entry, stop on exit."""
        try:
            self.start()
            yield self
        finally:
            self.stop()


class _Compiled:
    """The compiled policies of a process without a worker."""

    def __init__(self, settings: Settings, trust: Trust | None, cages: Cages | None) -> None:
        """Raises as :func:`.factories.compile_pipelines` does."""
        self._options = settings.options
        self._trust = trust
        self._cages = cages
        self.pipelines = self._compile()

    def refresh(self) -> None:
        """Compile anew where files of external units have changed."""
        if self._cages is not None and self._cages.has_changed():
            self.pipelines = self._compile()

    def _compile(self) -> Pipelines:
        return factories.compile_pipelines(
            self._options, registered(FILTERS), registered(WEIGHERS), self._trust, self._cages
        )


def _close_all(parts: Iterable[Closing]) -> None:
    for each in parts:
        each.close()


def _users(settings: ApiSettings) -> Callable[[], Users]:
    """The local users; nobody where Keystone alone has users."""
    if settings.auth == "keystone":
        return dict
    return UsersFile(Path(settings.users_file), LOG.error).users


def _keystone(conf: Configuration, settings: ApiSettings) -> KeystoneTokens | None:
    """Raises ConfigError where Keystone is to be asked and its library is missing."""
    if settings.auth == "local":
        return None
    with factories.needing_extra("keystone", f"[api] auth = {settings.auth}"):
        from scheduler_worker.api.keystone import KeystoneTokens
    return KeystoneTokens(conf, settings.keystone_roles)


def build(conf: Configuration) -> ApiProcess:
    """Build an API process beside the workers; it is not started.

    Raises:
        ConfigError: options that contradict each other, or a state that workers cannot share.
        BackendError: the policy store cannot be reached.
    """
    settings = configuration.settings(conf)
    clock = SystemClock()
    state = WatchedState(factories.open_state(settings.state, clock), clock)
    with contextlib.ExitStack() as opened:
        opened.callback(state.close)
        if not state.characteristics.spans_processes:
            raise ConfigError(
                "[state] url is memory://, which no worker can share; use redis://, or --embedded "
                "for a worker inside this process"
            )
        fleet = Fleet(state, default_cluster=settings.default_cluster)
        trust = factories.build_trust(settings, fleet, clock)
        cages = factories.build_cages(settings)
        kept = factories.open_kept_decisions(settings, fleet, clock)
        parts: list[Closing] = [state, *(each for each in (cages, kept) if each is not None)]
        opened.callback(_close_all, parts[1:])
        compiled = _Compiled(settings, trust, cages)
        store = factories.open_policy_store(settings.policy_store)
        opened.callback(store.close)
        use_cases = UseCases(
            Scheduler(
                fleet=fleet,
                lock=state,
                pipelines=lambda: compiled.pipelines,
                clock=clock,
                limits=settings.placement,
            ),
            factories.build_inventory(settings, fleet),
            TuningPolicies(state, factories.policy_files(settings.tuning)),
            factories.build_balancing(settings, fleet, lambda: compiled.pipelines),
            kept,
        )
        found = ApiProcess(
            settings,
            fleet=fleet,
            use_cases=use_cases,
            pipelines=lambda: compiled.pipelines,
            store=store,
            state=state,
            clock=clock,
            close=lambda: _close_all(parts),
            keystone=_keystone(conf, settings.api),
            trust=trust,
            refresh_units=compiled.refresh,
        )
        opened.pop_all()
        return found


def build_embedded(conf: Configuration) -> ApiProcess:
    """Build a worker with the API in one process; raises as :func:`build` and ``app.build``."""
    settings = configuration.settings(conf)
    clock = SystemClock()
    worker = app.build(conf, clock=clock)
    with contextlib.ExitStack() as opened:
        opened.callback(worker.stop)
        store = factories.open_policy_store(settings.policy_store)
        opened.callback(store.close)
        found = ApiProcess(
            settings,
            fleet=worker.fleet,
            use_cases=UseCases(
                worker.scheduler,
                worker.inventory,
                worker.tuner.policies,
                worker.balancing,
                worker.decisions and worker.decisions.kept,
            ),
            pipelines=lambda: worker.pipelines,
            store=store,
            state=worker.state,
            clock=clock,
            close=worker.state.close,
            keystone=_keystone(conf, settings.api),
            worker=worker,
        )
        opened.pop_all()
        return found
