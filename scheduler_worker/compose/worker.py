"""A worker: the bus, the state and the use cases between them. ::

    with build_worker(conf.load(["--config-file", path])).running() as worker:
        ...

is how programs and tests use the library, and what the daemon does. The only module that names
concrete endpoints.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from scheduler_worker import conf as configuration
from scheduler_worker.components import Component, Components, Hook, Periodic
from scheduler_worker.compose import checks, engines
from scheduler_worker.compose.parts import Parts
from scheduler_worker.compose.vitals import WorkerVitals
from scheduler_worker.conf import Configuration
from scheduler_worker.errors import (
    ConfigError,
    RequestError,
    SchedulerWorkerError,
    StateUnavailable,
)
from scheduler_worker.model.worker_reports import WorkerFacts
from scheduler_worker.monitoring import Monitor, log_config
from scheduler_worker.monitoring.advice import Advice
from scheduler_worker.operations import OPERATIONS
from scheduler_worker.operations.rights import Access, Rights
from scheduler_worker.ports import Clock
from scheduler_worker.rpc import bind, transport
from scheduler_worker.rpc.dispatcher import Endpoint
from scheduler_worker.rpc.nova import CopiedRequests, NovaEndpoint, baseapi
from scheduler_worker.rpc.serving.server import QueueServer
from scheduler_worker.rpc.worker import WorkerEndpoint
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.policies.units import watch
from scheduler_worker.service.requests.dry_run import DryRun
from scheduler_worker.service.tuning.tuner import Tuner

LOG = logging.getLogger(__name__)

_CLAIMS_S = 5.0
"""How long a worker that stops takes claims back."""
_CHECK_S, _DONE_S = 0.5, 3600.0
"""Between two checks whether all hosts are known, and once they are."""


class Worker:
    """One worker, made of its parts; implements ``OneWorker``."""

    def __init__(self, parts: Parts, monitor: Monitor) -> None:
        parts.worker = self
        self.parts = parts
        self.monitor = monitor
        self.settings = parts.settings
        self.state, self.bus, self.fleet = parts.state, parts.bus, parts.fleet
        self._warned: frozenset[str] = frozenset()
        self._logging = log_config.LogConfig(parts.conf.log_config_append, debug=parts.conf.debug)
        parts.pipelines()
        self.inventory, self.scheduler = parts.inventory, parts.scheduler
        self.services = parts.services
        self.dry_run = self._build_dry_run()
        self._server = self._build_server()
        self.vitals = WorkerVitals(parts, monitor, self._server)
        monitor.watch(self.vitals)
        self._stop_timeout_s = self.settings.graceful_shutdown_timeout_s
        self._has_finished = True
        self.components = self._build_components()

    @property
    def pipelines(self) -> Pipelines:
        """The compiled policies; a reload replaces them."""
        return self.parts.pipelines()

    @property
    def tuner(self) -> Tuner:
        return self.parts.tuner

    # Building

    def _build_dry_run(self) -> DryRun | None:
        """None: the worker serves."""
        settings = self.settings.dry_run
        if settings is None:
            return None
        return DryRun(
            self.scheduler, self.fleet, self.parts.clock, settings=settings, observer=self.monitor
        )

    def _build_server(self) -> QueueServer:
        settings = self.settings.rpc
        if self.dry_run is not None and self.settings.dry_run is not None:
            return self.bus.copies(
                settings.topic,
                self.settings.host,
                CopiedRequests(self.dry_run),
                max_messages=self.settings.dry_run.max_requests,
                limits=settings.deliveries,
                observer=self.monitor,
            )
        limits = self.settings.placement
        waits_s = limits.acquire_timeout_s + limits.hold_timeout_s + limits.wait_timeout_s
        return self.bus.server(
            settings.topic,
            self.settings.host,
            self._endpoints(),
            slots=settings.slots,
            limits=settings.deliveries,
            observer=self.monitor,
            stuck_after_s=60.0 + 2 * waits_s,
            comes_first=self.parts.readiness is None,  # else once all hosts are known
            reach=self.state.reach,
        )

    def _endpoints(self) -> list[Endpoint]:
        settings, parts = self.settings, self.parts
        access = Access(Rights(settings.api.policy_file), parts.audit)
        caller_role, roles = settings.rpc.caller_role, settings.api.keystone_roles
        return [
            NovaEndpoint(self.scheduler, self.inventory, parts.feeder).endpoint(),
            WorkerEndpoint(self.scheduler, self.inventory, parts.balancer, self.bus).endpoint(),
            bind.endpoint(OPERATIONS, self.services, access, caller_role, roles),
            baseapi(),
        ]

    # Start, stop, reload

    def _build_components(self) -> Components:
        """All that runs, from what serves nobody to what serves requests."""
        parts, presence = self.parts, self.vitals.presence
        common: list[Component | None] = [
            self.monitor,
            Hook(stop=parts.close),
            Hook(self._warn_of_options),
            Advice(self.state.check),
            Hook(self._load),
            parts.trust,
            parts.recorder,
            Hook(stop=self._finish_requests),
            self.dry_run,
            Hook(stop=presence.stop),  # while it finishes requests others still see it
            Hook(self._server.start, self._stop_server),
            Hook(presence.start),
            Hook(stop=self.scheduler.stop_waiting),
            parts.sharing,
            parts.feeder,
            parts.providers,
            parts.refresher,
        ]
        tuner, balancer = parts.tuner, parts.balancer  # a dry run describes them, too
        if self.dry_run is not None:
            return Components(*common)
        taking_over = unit_files = None
        if parts.readiness is not None:
            take_over = partial(self._take_over, parts.readiness.unready)
            taking_over = Periodic("taking over", take_over, _CHECK_S)
        if parts.sandboxes is not None:
            unit_files = watch(parts.sandboxes.has_changed, self.read_units_again)
        return Components(*common, taking_over, tuner, balancer, unit_files, parts.upkeep)

    def _take_over(self, unready: Callable[[], str | None]) -> float:
        """Come first once all hosts are known; returns the seconds until the next check.

        A nova-scheduler that serves the same topic loses some of the requests that it gets while it
        stops, so it is to get none by then. And a worker that does not know the hosts yet is to get
        no more than the other leaves.
        """
        with contextlib.suppress(StateUnavailable):
            if unready() is None:
                self._server.come_first()
                return _DONE_S
        return _CHECK_S

    def start(self) -> bool:
        """Start to consume; False if :meth:`stop` was called before that.

        Raises StateUnavailable when the state cannot be reached.
        """
        if not self.components.start():
            return False
        rpc = self.settings.rpc
        if self.dry_run is not None:
            LOG.info("Dry run: serving nobody on topic %s", rpc.topic)
        else:
            LOG.info(
                "Serving topic %s as %s with %d slots", rpc.topic, self.settings.host, rpc.slots
            )
        return True

    def _load(self) -> None:
        """Read all clusters before the first request, which would pay for it."""
        self.fleet.load(self.parts.clock)
        self.state.problem()  # writes, and so logs a state that can only be read

    def stop(self, timeout_s: float | None = None) -> bool:
        """Stop consuming, finish the requests in hand, give back reservations without an answer.

        Ends a start that is under way in another thread. Returns False when the timeout ended
        before all requests were finished.
        """
        if timeout_s is not None:
            self._stop_timeout_s = timeout_s
        self.components.stop()
        return self._has_finished

    def _stop_server(self) -> None:
        self._has_finished = self._server.stop(self._stop_timeout_s)

    def _finish_requests(self) -> None:
        # Elsewhere the request is redelivered to another worker, which finds the reservations.
        if self.bus.is_embedded and (instances := self.scheduler.take_back_unanswered()):
            LOG.warning(
                "Gave back the reservations of %d instances that were not answered", instances
            )
        if claims := self.scheduler.close(_CLAIMS_S):
            LOG.warning("%d claims in Placement were not taken back", claims)

    def _warn_of_options(self) -> None:
        """Log, once each, options without effect and units that slow down every decision."""
        warnings = [
            *configuration.unread(self.parts.conf),
            *configuration.notices(self.parts.conf),
            *(
                f"{name} does not declare what it reads of a request, so every request evaluates "
                "it for all hosts that the other units passed; docs/writing-a-filter.md has the "
                "cure"
                for name in self.pipelines.nova.undeclared()
            ),
        ]
        levels = dict.fromkeys(
            configuration.unused(self.parts.conf), logging.INFO
        )  # Nova has these
        levels |= dict.fromkeys(warnings, logging.WARNING)
        for sentence, level in levels.items():
            if sentence not in self._warned:
                LOG.log(level, sentence)
        self._warned = frozenset(levels)

    def reload(self) -> None:
        """Read the configuration files again and apply the options that may change.

        Files that a worker could not start with are logged, and change nothing. It may hang with
        the file system, and :meth:`stop` does not wait for it.
        """
        conf = self.parts.conf
        try:
            tried = conf.read_anew()
            is_reachable = transport.is_named(conf)
            problems = checks.refusals(tried, embedded=not is_reachable)
            if problems := [*problems, *checks.unwritable_logs(tried)]:
                raise ConfigError("; ".join(problems))
            self._adopt(tried, log_config.read(tried.log_config_append))
            settings = configuration.settings(conf)
            self.parts.tuning.read_from(engines.policy_files(settings.tuning))
        except Exception as error:
            trace = None if isinstance(error, SchedulerWorkerError) else error
            LOG.error("The configuration stays as it was: %s", error, exc_info=trace)  # noqa: TRY400
            return
        LOG.info("The configuration was read again: %s", ", ".join(conf.files))
        self._warn_of_options()

    def _adopt(self, tried: Configuration, logging_text: str) -> None:
        """Put what was read in force; all of it, or nothing where an error is raised."""
        parts = self.parts
        with parts.compiling, parts.conf.adopted(tried):
            pipelines = parts.compiled(configuration.settings(parts.conf).options)
            self._logging.change(
                tried.log_config_append,
                logging_text,
                debug=tried.debug,
                max_line=self.settings.monitoring.max_log_line,
            )
            parts.put_in_force(pipelines)

    def read_units_again(self) -> None:
        """Read the files of external units again where they changed. Raises as a start does."""
        parts = self.parts
        with parts.compiling:
            options = configuration.settings(parts.conf).options
            parts.put_in_force(parts.compiled(options))
        parts.administration.register_units()

    @contextlib.contextmanager
    def running(self) -> "Iterator[Worker]":
        """Start on entry, stop on exit."""
        try:
            self.start()
            yield self
        finally:
            self.stop()

    # Drain and resume, by RPC

    @property
    def facts(self) -> WorkerFacts:
        return self.vitals.facts

    def drain(self, *, last: bool = False) -> None:
        """Take no more requests off the topic's queue; finish those in hand, and go on otherwise.

        Idempotent; a restart ends it. Without ``last`` another worker must take requests, which
        asks the state. Raises RequestError in a dry run and for the last one, StateUnavailable.
        """
        self._check_takes_requests()
        if not self.facts.is_drained:
            if last:
                self.vitals.presence.set_drained(True)
            else:
                self.vitals.presence.drain()
            LOG.warning(
                "Drained: no more requests are taken until the worker is resumed or restarted"
            )
        self._server.take_requests(False)

    def resume(self) -> None:
        """Undo :meth:`drain`. Idempotent."""
        self._check_takes_requests()
        self._server.take_requests(True)
        if self.facts.is_drained:
            self.vitals.presence.set_drained(False)
            LOG.warning("Resumed: requests are taken again")

    def _check_takes_requests(self) -> None:
        if self.dry_run is not None:
            raise RequestError("worker", "in a dry run a worker takes no requests")

    def status(self) -> Mapping[str, Any]:
        return self.vitals.status()

    def missing(self) -> list[str]:
        """What keeps the worker from serving; asks the state."""
        return self.vitals.missing()

    def failure(self) -> str | None:
        """Why the process cannot go on and must exit; None if it can."""
        return self._server.failure()

    def dump(self) -> None:
        """Write what this process is doing into the log, and into a file of ``dump_dir``."""
        self.monitor.dump(self.parts.conf, self.settings.monitoring.dump_dir)


def build_worker(conf: Configuration, *, clock: Clock | None = None) -> Worker:
    """Build the configured worker; it is not started.

    Raises ConfigError: options that contradict each other, or unknown filters and weighers.
    """
    settings = configuration.settings(conf)
    monitor = Monitor(settings.monitoring, engines.open_tracing(settings))
    parts = Parts(settings, conf, clock=clock, observer=monitor)
    try:
        is_alone = parts.bus.url.startswith("local:") or settings.is_dry_run
        if not parts.state.characteristics.spans_processes and not is_alone:
            LOG.warning(
                "[state] url is memory://: another worker on this bus would reserve the same "
                "hosts again, and a restart loses everything; use redis:// in production"
            )
        return Worker(parts, monitor)
    except BaseException:
        parts.close()
        raise
