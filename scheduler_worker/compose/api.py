"""A process that serves the REST API: beside the workers, or with a worker inside. ::

with build_api(conf.load(["--config-file", path])).running() as api:
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
from scheduler_worker.components import Component, Components, Hook
from scheduler_worker.compose.parts import Parts
from scheduler_worker.compose.rehearsals import Rehearsals
from scheduler_worker.compose.worker import Worker, build_worker
from scheduler_worker.conf import Configuration
from scheduler_worker.errors import ArchiveUnavailable, ConfigError
from scheduler_worker.events import HTTP_ENDED
from scheduler_worker.extras import needing_extra
from scheduler_worker.http_server import HttpServer, Tls
from scheduler_worker.monitoring import ApiMonitor
from scheduler_worker.monitoring.health import Dependencies
from scheduler_worker.observer import Observer
from scheduler_worker.operations import OPERATIONS
from scheduler_worker.operations.reread import RereadFile
from scheduler_worker.operations.rights import Access, Rights
from scheduler_worker.operations.services import ApiUseCases, UseCases
from scheduler_worker.operations.workers import ARCHIVE, STATE
from scheduler_worker.ports import ApiTokens, Clock
from scheduler_worker.service.policies.api_tokens import SharedApiTokens
from scheduler_worker.service.policies.units import watch

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
        """Raises ConfigError."""
        administration = services.administration
        rights = Rights(settings.policy_file)
        tokens = SharedApiTokens(services.fleet.store)
        self.sessions = Sessions(users, tokens, clock, token_ttl_s=settings.token_ttl_s)
        self.console = _console(settings, self.sessions, tokens, rights, clock)
        self.v1 = V1(OPERATIONS, services, Access(rights, administration.audit))
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
        parts: Parts,
        keystone: "KeystoneTokens | None" = None,
        worker: Worker | None = None,
    ) -> None:
        """A ``worker`` shares its parts, closes them, and has its own monitor. Binds the port."""
        settings = parts.settings
        self._parts = parts
        self.worker = worker
        self.administration = parts.administration
        self._rehearsals = Rehearsals(settings, parts.fleet, parts.decisions)
        probes = {STATE: parts.state.problem, ARCHIVE: parts.copies.problem}
        self._needed = Dependencies(probes, dispensable=[ARCHIVE])
        monitor = None if worker else ApiMonitor(self._needed, self.failure, settings.monitoring)
        self.monitor = monitor
        self.services = parts.services._replace(
            api=ApiUseCases(self._rehearsals, self._needed.problems)
        )
        who = users(settings.api)
        self.api = Api(settings.api, self.services, who, parts.clock, keystone, observer=monitor)
        protect = keystone.protect if keystone else lambda application: application
        server = self._server = ApiServer(settings.api, protect(self.api.application), monitor)
        self._stop_timeout_s = settings.graceful_shutdown_timeout_s
        self.components = Components(
            *self._below(),
            watch(self._refresh_units, self.administration.register_units),
            Hook(stop=self._rehearsals.stop),
            Hook(server.start, lambda: server.stop(self._stop_timeout_s)),
            self.monitor,
        )

    def _below(self) -> Iterator[Component | None]:
        """The worker inside, which closes the parts; without one, what explanations need."""
        parts, worker = self._parts, self.worker
        if worker is not None:
            yield Hook(self._open_archive)
            yield Hook(worker.start, lambda: worker.stop(self._stop_timeout_s))
            return
        yield Hook(self._open_archive, parts.close)
        yield parts.trust
        yield Hook(stop=partial(parts.scheduler.close, 0.0))
        yield parts.sharing
        yield parts.upkeep

    @property
    def url(self) -> str:
        """The entry of the API."""
        return f"{self._server.url}/ovirt-engine/api"

    @property
    def console_url(self) -> str:
        return f"{self._server.url}{console.ROOT}"

    def _open_archive(self) -> None:
        """Raises ConfigError for tables of another release, with which nothing must be stored."""
        try:
            self._parts.copies.open()
        except ArchiveUnavailable as error:
            LOG.warning("%s; edits are copied into it later", error)

    def _refresh_units(self) -> bool:
        if self.worker is None:  # which does so itself
            self._parts.refresh_units()
        return True

    def start(self) -> None:
        """Start to serve. Raises ConfigError where the archive's tables are of another release."""
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


def build_api(conf: Configuration) -> ApiProcess:
    """Build an API process beside the workers; it is not started.

    Raises:
        ConfigError: options that contradict each other, or a state that workers cannot share.
    """
    parts = Parts(configuration.settings(conf), conf, only_reads=True)
    try:
        if not parts.state.characteristics.spans_processes:
            raise ConfigError(
                "[state] url is memory://, which no worker can share; use redis://, or --embedded "
                "for a worker inside this process"
            )
        return ApiProcess(parts, _keystone(conf, parts.settings.api))
    except BaseException:
        parts.close()
        raise


def build_embedded(conf: Configuration) -> ApiProcess:
    """Build a worker with the API in one process; raises as :func:`build_api` does."""
    worker = build_worker(conf)
    try:
        return ApiProcess(worker.parts, _keystone(conf, worker.settings.api), worker)
    except BaseException:
        worker.stop()
        raise
