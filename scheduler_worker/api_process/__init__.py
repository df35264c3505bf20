"""Builds a process that serves the REST API: beside the workers, or with a worker inside.

::

    with api_process.build(conf.load(["--config-file", path])).running() as api:
        print(api.url)
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from wsgiref.types import WSGIApplication

from werkzeug.middleware.proxy_fix import ProxyFix

from scheduler_worker import app, factories
from scheduler_worker import conf as configuration
from scheduler_worker.api import console
from scheduler_worker.api.application import Application
from scheduler_worker.api.bind import V1
from scheduler_worker.api.console import Console, ConsoleSessions, LogIn
from scheduler_worker.api.ovirt import OvirtApi
from scheduler_worker.api.rates import RateLimits
from scheduler_worker.api.sessions import Sessions
from scheduler_worker.api.settings import ApiSettings
from scheduler_worker.api.users import Users, users_of
from scheduler_worker.api_process.simulations import Simulations
from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.sandbox.pool import Sandboxes
from scheduler_worker.backends.watched import WatchedState
from scheduler_worker.components import Components, Hook
from scheduler_worker.conf import Configuration, Settings
from scheduler_worker.errors import ConfigError, PolicyStoreUnavailable
from scheduler_worker.events import HTTP_ENDED
from scheduler_worker.extras import needing_extra
from scheduler_worker.http_server import HttpServer, Tls
from scheduler_worker.monitoring import ApiMonitor
from scheduler_worker.monitoring.health import Dependencies
from scheduler_worker.observer import Observer
from scheduler_worker.operations import OPERATIONS
from scheduler_worker.operations.reread import RereadFile
from scheduler_worker.operations.rights import Access, Rights
from scheduler_worker.operations.services import StoreUseCases, UseCases
from scheduler_worker.operations.workers import POLICY_STORE, STATE
from scheduler_worker.policy_store import PolicyStore
from scheduler_worker.ports import ApiTokens, Clock
from scheduler_worker.scheduling.catalogue import Catalogue
from scheduler_worker.service.placement.scheduler import Scheduler
from scheduler_worker.service.policies.api_tokens import SharedApiTokens
from scheduler_worker.service.policies.audit import SharedAudit
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.policies.reconciler import Reconciler
from scheduler_worker.service.policies.trust import Trust
from scheduler_worker.service.policies.units import watch
from scheduler_worker.service.state.replica import Fleet
from scheduler_worker.service.tuning.policies import TuningPolicies

if TYPE_CHECKING:
    from scheduler_worker.api.keystone import KeystoneTokens

LOG = logging.getLogger(__name__)


class ApiServer(HttpServer):
    """Serves the API from ``start`` until ``stop``."""

    def __init__(
        self,
        settings: ApiSettings,
        application: WSGIApplication,
        observer: Observer | None = None,
    ) -> None:
        """Binds the port. Raises ConfigError where that or the certificate fails."""
        most = settings.connections
        if settings.proxies:
            n = settings.proxies
            application = ProxyFix(application, x_for=n, x_proto=n, x_host=n)
        super().__init__(
            application,
            settings.address,
            settings.port,
            option="[api] port",
            threads=settings.threads,
            read_timeout_s=settings.read_timeout_s,
            connections=most,
            connections_per_address=most if settings.proxies else settings.connections_per_address,
            ended=partial((observer or Observer()).count, HTTP_ENDED),
            max_body=settings.max_body,
            reuse_port=settings.reuse_port,
            tls=tls_of(settings),
        )


def tls_of(settings: ApiSettings) -> Tls | None:
    """What encrypts; None for plain HTTP. Raises ConfigError where the files cannot be used."""
    certificate = settings.certificate_file
    if certificate is None:
        if settings.key_file or settings.chain_file:
            raise ConfigError("[api] key_file, chain_file: certificate_file is not set; set it too")
        return None
    try:
        return Tls(certificate, settings.key_file or certificate, settings.chain_file)
    except OSError as error:  # also what OpenSSL says of files that hold something else
        raise ConfigError(
            f"[api] certificate_file, key_file, chain_file: {certificate}: "
            f"{error.strerror or error}"
        ) from None


class Api:
    """The application, and who is logged in."""

    def __init__(
        self,
        settings: ApiSettings,
        services: UseCases,
        users: Callable[[], Users],
        clock: Clock,
        keystone: "KeystoneTokens | None" = None,
        *,
        observer: Observer | None = None,
    ) -> None:
        """The services of a process with a store. Raises ConfigError."""
        assert services.store is not None  # noqa: S101
        administration = services.store.administration
        rights = Rights(settings.policy_file)
        tokens = SharedApiTokens(services.fleet.store)
        self.sessions = Sessions(users, tokens, clock, token_ttl_s=settings.token_ttl_s)
        self.console = _console(settings, self.sessions, tokens, rights, clock)
        self.v1 = V1(OPERATIONS, services, Access(rights, administration.audit_log))
        self.application = Application(
            OvirtApi(administration, rights, services.clusters, clock),
            self.v1,
            self.sessions,
            rates=RateLimits(
                clock, requests_per_second=settings.requests_per_second, burst=settings.burst
            ),
            max_body=settings.max_body,
            foreign_caller=keystone.caller if keystone else lambda _: None,
            console=self.console,
            observer=observer,
        )


class ApiProcess:
    """The use cases of administration behind an HTTP server, and a worker where one is inside."""

    def __init__(
        self,
        settings: Settings,
        *,
        services: UseCases,
        pipelines: Callable[[], Pipelines],
        store: PolicyStore,
        state: WatchedState,
        clock: Clock,
        close: Callable[[], object],
        keystone: "KeystoneTokens | None" = None,
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
        self._fleet = services.fleet
        self._store = store
        self.worker = worker
        self.administration = factories.build_administration(
            store, pipelines, services.policies, clock
        )
        self._simulations = Simulations(settings, services.fleet, services.decisions)
        self._needed = Dependencies({STATE: state.problem, POLICY_STORE: self._store_problem})
        monitor = None if worker else ApiMonitor(self._needed, self.failure, settings.monitoring)
        self.monitor = monitor
        self.services = services._replace(
            clusters=self._clusters,
            store=StoreUseCases(self.administration, self._simulations, self._needed.problems),
        )
        who = users(settings.api)
        self.api = Api(settings.api, self.services, who, clock, keystone, observer=monitor)
        protect = keystone.protect if keystone else lambda application: application
        server = self._server = ApiServer(settings.api, protect(self.api.application), monitor)
        self._stop_timeout_s = settings.graceful_shutdown_timeout_s
        self.components = Components(
            Hook(stop=store.close),
            Hook(stop=close)
            if worker is None
            else Hook(worker.start, lambda: worker.stop(self._stop_timeout_s)),
            trust,
            Hook(self._register_units),
            watch(self._units_changed, self._register_units),
            Reconciler(
                self.administration,
                report=LOG.warning,
                audit_retention_days=settings.policy_store.audit_retention_days,
                shared_entries=SharedAudit(services.fleet.store, clock),
            ),
            Hook(stop=self._simulations.stop),
            Hook(server.start, lambda: server.stop(self._stop_timeout_s)),
            self.monitor,
        )

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
        if self.components.start():
            LOG.info("Serving the REST API at %s", self.url)

    def stop(self, timeout_s: float | None = None) -> None:
        """Finish the requests in hand within the timeout, and close everything."""
        if timeout_s is not None:
            self._stop_timeout_s = timeout_s
        self.components.stop()

    def failure(self) -> str | None:
        """Why the process cannot go on and must exit; None if it can."""
        return self._server.failure() or (self.worker.failure() if self.worker else None)

    @contextlib.contextmanager
    def running(self) -> "Iterator[ApiProcess]":
        """Start on entry, stop on exit."""
        try:
            self.start()
            yield self
        finally:
            self.stop()


def users(settings: ApiSettings) -> Callable[[], Users]:
    """The local users; nobody where Keystone alone has users. Raises ConfigError."""
    if settings.auth == "keystone":
        return dict
    return RereadFile(Path(settings.users_file), users_of).current


def _console(
    settings: ApiSettings, sessions: Sessions, tokens: ApiTokens, rights: Rights, clock: Clock
) -> Console | None:
    """None: it is switched off."""
    if not settings.console:
        return None
    ways: dict[LogIn, str] = {"password": "local", "keystone": "keystone"}
    log_in = [way for way, auth in ways.items() if settings.auth in {auth, "both"}]
    return Console(sessions, ConsoleSessions(sessions, tokens, clock, settings), rights, log_in)


# How it is built


class _Compiled:
    """The compiled policies of a process without a worker."""

    def __init__(
        self, settings: Settings, trust: Trust | None, sandboxes: Sandboxes | None
    ) -> None:
        """Raises as :func:`.factories.compile_pipelines` does."""
        self._compile = partial(factories.compile_pipelines, settings.options, trust, sandboxes)
        self._sandboxes = sandboxes
        self.pipelines = self._compile()

    def refresh(self) -> None:
        """Compile again if files of external units have changed."""
        if self._sandboxes is not None and self._sandboxes.has_changed():
            self.pipelines = self._compile()


def _keystone(conf: Configuration, settings: ApiSettings) -> "KeystoneTokens | None":
    """Raises ConfigError where Keystone is to be asked and its library is missing."""
    if settings.auth == "local":
        return None
    with needing_extra("keystone", f"[api] auth = {settings.auth}"):
        from scheduler_worker.api.keystone import KeystoneTokens
    return KeystoneTokens(conf, settings.keystone_roles)


def refusals(conf: Configuration) -> Iterator[str]:
    """Each option of ``[api]`` with which no process would start here. Opens no connection."""
    settings = configuration.settings(conf).api
    for attempt in (
        lambda: tls_of(settings),
        lambda: users(settings),
        lambda: Rights(settings.policy_file),
        lambda: _keystone(conf, settings),
    ):
        try:
            attempt()
        except ConfigError as error:
            yield str(error)


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
        closing = opened.enter_context(contextlib.ExitStack())
        closing.callback(state.close)
        if not state.characteristics.spans_processes:
            raise ConfigError(
                "[state] url is memory://, which no worker can share; use redis://, or --embedded "
                "for a worker inside this process"
            )
        fleet = Fleet(state, default_cluster=settings.default_cluster)
        trust = factories.build_trust(settings, fleet, clock)
        sandboxes = factories.build_sandboxes(settings)
        kept = factories.open_decision_history(settings, fleet, clock)
        for part in (sandboxes, kept):
            if part is not None:
                closing.callback(part.close)
        compiled = _Compiled(settings, trust, sandboxes)
        store = factories.open_policy_store(settings.policy_store)
        opened.callback(store.close)
        services = factories.build_services(
            fleet,
            lambda: compiled.pipelines,
            down_after_s=settings.tuning.silent_after_s,
            scheduler=Scheduler(
                fleet=fleet,
                lock=state,
                pipelines=lambda: compiled.pipelines,
                clock=clock,
                limits=settings.placement,
            ),
            inventory=factories.build_inventory(settings, fleet),
            tuning=TuningPolicies(state, factories.policy_files(settings.tuning)),
            balancing=factories.build_balancing(settings, fleet, lambda: compiled.pipelines),
            decisions=kept,
        )
        process = ApiProcess(
            settings,
            services=services,
            pipelines=lambda: compiled.pipelines,
            store=store,
            state=state,
            clock=clock,
            close=closing.close,
            keystone=_keystone(conf, settings.api),
            trust=trust,
            refresh_units=compiled.refresh,
        )
        opened.pop_all()
        return process


def build_embedded(conf: Configuration) -> ApiProcess:
    """Build a worker with the API in one process; raises as :func:`build` and ``app.build``."""
    settings = configuration.settings(conf)
    clock = SystemClock()
    worker = app.build(conf, clock=clock)
    with contextlib.ExitStack() as opened:
        opened.callback(worker.stop)
        store = factories.open_policy_store(settings.policy_store)
        opened.callback(store.close)
        process = ApiProcess(
            settings,
            services=worker.services,
            pipelines=lambda: worker.pipelines,
            store=store,
            state=worker.state,
            clock=clock,
            close=worker.state.close,
            keystone=_keystone(conf, settings.api),
            worker=worker,
        )
        opened.pop_all()
        return process
