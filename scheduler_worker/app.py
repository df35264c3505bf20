"""The composition root: builds a worker from a configuration.

The only module that names concrete endpoints, and with ``factories`` the only one that names
engines. ::

    with app.build(conf.load(["--config-file", path])).running() as worker:
        ...

is how programs and tests use the library, and what the daemon does.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from scheduler_worker import conf as configuration
from scheduler_worker import factories, preflight, remedies
from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.watched import WatchedState
from scheduler_worker.components import Component, Components, Hook, Periodic
from scheduler_worker.conf import Configuration, Settings
from scheduler_worker.errors import (
    ConfigError,
    RequestError,
    SchedulerWorkerError,
    StateUnavailable,
)
from scheduler_worker.factories import open_state
from scheduler_worker.model.worker_reports import PartReport, WorkerFacts, WorkerReport
from scheduler_worker.monitoring import Load, Monitor, log_config, stalled
from scheduler_worker.monitoring.advice import Advice
from scheduler_worker.monitoring.reports import report_of
from scheduler_worker.operations import OPERATIONS
from scheduler_worker.operations.rights import Access, Rights
from scheduler_worker.operations.services import UseCases
from scheduler_worker.ports import Clock
from scheduler_worker.rpc import bind, transport
from scheduler_worker.rpc.dispatcher import Endpoint
from scheduler_worker.rpc.nova import CopiedRequests, NovaEndpoint, baseapi
from scheduler_worker.rpc.serving.server import QueueServer
from scheduler_worker.rpc.transport import Bus
from scheduler_worker.rpc.worker import WorkerEndpoint
from scheduler_worker.scheduling.options import Options
from scheduler_worker.service.balancing.balancer import Balancer
from scheduler_worker.service.placement.capacity import Capacity
from scheduler_worker.service.placement.scheduler import Scheduler
from scheduler_worker.service.policies.audit import SharedAudit
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.policies.units import watch
from scheduler_worker.service.simulation.dry_run import DryRun
from scheduler_worker.service.state.presence import Presence
from scheduler_worker.service.state.replica import Fleet
from scheduler_worker.service.tuning.tuner import Tuner

LOG = logging.getLogger(__name__)

_CLAIMS_S = 5.0
"""How long a worker that stops takes claims back."""
_CHECK_S, _DONE_S = 0.5, 3600.0
"""Between two checks whether all hosts are known, and once they are."""


class Worker:
    """One worker: the bus, the state and the use cases between them."""

    def __init__(
        self, conf: Configuration, settings: Settings, state: WatchedState, bus: Bus, clock: Clock
    ) -> None:
        self._conf = conf
        self._built_s = time.monotonic()
        self._warned: frozenset[str] = frozenset()
        self._clock = clock
        self.settings = settings
        self.state = state
        self.bus = bus
        self.monitor = Monitor(self, settings.monitoring, factories.open_tracing(settings))
        state.observer = self.monitor
        self._advice = Advice(state.check)
        self.fleet = Fleet(state, default_cluster=settings.default_cluster, observer=self.monitor)
        self._trust = factories.build_trust(settings, self.fleet, clock)
        self._sandboxes = factories.build_sandboxes(settings, self.monitor)
        self._compiling = threading.Lock()
        self._logging = log_config.LogConfig(conf.log_config_append, debug=conf.debug)
        self.pipelines = self._compile(settings.options)
        """The compiled policies; a reload replaces them."""
        self._in_force: Callable[[], Pipelines] = partial(getattr, self, "pipelines")
        """Asked again for each decision."""
        self._unit_files = (
            watch(self._sandboxes.has_changed, self.read_units_again) if self._sandboxes else None
        )
        self.inventory = factories.build_inventory(settings, self.fleet, self.monitor)
        self._feed = factories.build_feed(
            conf, settings, self.inventory, self.fleet, clock, self.monitor
        )
        self.feeder = self._feed.feeder
        self.decisions = factories.build_decisions(
            settings, self.fleet, self._in_force, clock, self.monitor
        )
        self.scheduler = self._build_scheduler()
        providers = self._feed.providers
        self.capacity = Capacity(
            self.fleet,
            self._in_force,
            providers.sharing if providers else None,
            clock.monotonic_s,
            settings.placement.ask_s,
        )
        self.tuner = self._build_tuner()
        self.balancing = factories.build_balancing(settings, self.fleet, self._in_force)
        self.balancer = self._build_balancer()
        self.services = self._build_services()
        self._presence = Presence(state, factories.worker_facts(settings), self.report)
        self.dry_run = self._build_dry_run()
        self._server = self._build_server()
        self._stop_timeout_s = settings.graceful_shutdown_timeout_s
        self._has_finished = True
        self.components = self._build_components()

    # Building

    def _compile(self, options: Options) -> Pipelines:
        """Raises ConfigError, or ClusterPolicyError for the policy that the options describe."""
        return factories.compile_pipelines(options, self._trust, self._sandboxes)

    def _build_scheduler(self) -> Scheduler:
        conf, settings, providers = self._conf, self.settings, self._feed.providers
        return Scheduler(
            fleet=self.fleet,
            lock=self.state,
            pipelines=self._in_force,
            clock=self._clock,
            observer=self.monitor,
            limits=settings.placement,
            placement=factories.open_placement(conf, settings, providers),
            asking=factories.open_asking(conf, settings, providers),
            barrier=self._feed.barrier,
            verifying=self._feed.verifying,
            keep=self.decisions.recorder.keep if self.decisions else None,
        )

    def _build_services(self) -> UseCases:
        return factories.build_services(
            self.fleet,
            self._in_force,
            down_after_s=self.settings.tuning.silent_after_s,
            scheduler=self.scheduler,
            inventory=self.inventory,
            tuning=self.tuner.policies,
            balancing=self.balancing,
            capacity=self.capacity,
            decisions=self.decisions.kept if self.decisions else None,
            worker=self,
        )

    def _build_balancer(self) -> Balancer:
        return factories.build_balancer(
            self.settings,
            self.fleet,
            self.state,
            self._in_force,
            self.bus,
            self._clock,
            self.monitor,
            factories.open_nova(self._conf, self.settings),
        )

    def _build_tuner(self) -> Tuner:
        settings = self.settings.tuning
        return Tuner(
            self.fleet,
            factories.policy_files(settings),
            self.bus,
            self._clock,
            settings=settings,
            observer=self.monitor,
            name=self.settings.host,
        )

    def _build_dry_run(self) -> DryRun | None:
        """None: the worker serves."""
        settings = self.settings.dry_run
        if settings is None:
            return None
        return DryRun(
            self.scheduler, self.fleet, self._clock, settings=settings, observer=self.monitor
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
            comes_first=self.feeder is None,  # else once all hosts are known
            reach=self.state.reach,
        )

    def _endpoints(self) -> list[Endpoint]:
        settings = self.settings
        access = Access(Rights(settings.api.policy_file), SharedAudit(self.state, self._clock))
        caller_role, roles = settings.rpc.caller_role, settings.api.keystone_roles
        return [
            NovaEndpoint(self.scheduler, self.inventory, self.feeder).endpoint(),
            WorkerEndpoint(self.scheduler, self.inventory, self.balancer, self.bus).endpoint(),
            bind.endpoint(OPERATIONS, self.services, access, caller_role, roles),
            baseapi(),
        ]

    # Start, stop, reload

    def _build_components(self) -> Components:
        """All that runs, from what serves nobody to what serves requests."""
        common: list[Component | None] = [
            self.monitor,
            Hook(stop=self.bus.close),
            Hook(self._warn_of_options),
            Hook(stop=self._sandboxes.close) if self._sandboxes else None,
            Hook(stop=self.state.close),
            self._advice,
            Hook(self._load),
            self._trust,
            self.decisions.recorder if self.decisions else None,
            Hook(stop=self._finish_requests),
            self.dry_run,
            Hook(stop=self._presence.stop),  # while it finishes requests others still see it
            Hook(self._server.start, self._stop_server),
            Hook(self._presence.start),
            Hook(stop=self.scheduler.stop_waiting),
            self.feeder,
            self._feed.providers,
            self._feed.refresher,
        ]
        if self.dry_run is not None:
            return Components(*common)
        taking_over = None
        if self.feeder is not None:
            take_over = partial(self._take_over, self.feeder.unready)
            taking_over = Periodic("taking over", take_over, _CHECK_S)
        return Components(*common, taking_over, self.tuner, self.balancer, self._unit_files)

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
        self.fleet.load(self._clock)
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
            *configuration.unread(self._conf),
            *configuration.notices(self._conf),
            *(
                f"{name} does not declare what it reads of a request, so every request evaluates "
                "it for all hosts that the other units passed; docs/writing-a-filter.md has the "
                "cure"
                for name in self.pipelines.nova.undeclared()
            ),
        ]
        levels = dict.fromkeys(configuration.unused(self._conf), logging.INFO)  # Nova has these
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
        try:
            tried = self._conf.read_anew()
            is_reachable = transport.is_named(self._conf)
            problems = preflight.refusals(tried, embedded=not is_reachable)
            if problems := [*problems, *preflight.unwritable_logs(tried)]:
                raise ConfigError("; ".join(problems))
            self._adopt(tried, log_config.read(tried.log_config_append))
            settings = configuration.settings(self._conf)
            self.tuner.policies.read_from(factories.policy_files(settings.tuning))
        except Exception as error:
            trace = None if isinstance(error, SchedulerWorkerError) else error
            LOG.error("The configuration stays as it was: %s", error, exc_info=trace)  # noqa: TRY400
            return
        LOG.info("The configuration was read again: %s", ", ".join(self._conf.files))
        self._warn_of_options()

    def _adopt(self, tried: Configuration, logging_text: str) -> None:
        """Put what was read in force; all of it, or nothing where an error is raised."""
        with self._compiling, self._conf.adopted(tried):
            pipelines = self._compile(configuration.settings(self._conf).options)
            self._logging.change(
                tried.log_config_append,
                logging_text,
                debug=tried.debug,
                max_line=self.settings.monitoring.max_log_line,
            )
            self.pipelines = pipelines

    def read_units_again(self) -> None:
        """Read the files of external units again where they changed. Raises as a start does."""
        with self._compiling:
            self.pipelines = self._compile(configuration.settings(self._conf).options)

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
        """What this worker says of itself to others."""
        return self._presence.facts

    def drain(self, *, last: bool = False) -> None:
        """Take no more requests off the topic's queue; finish those in hand, and go on otherwise.

        Idempotent; a restart ends it. Without ``last`` another worker must take requests, which
        asks the state. Raises RequestError in a dry run and for the last one, StateUnavailable.
        """
        self._check_takes_requests()
        if not self.facts.is_drained:
            if last:
                self._presence.set_drained(True)
            else:
                self._presence.drain()
            LOG.warning(
                "Drained: no more requests are taken until the worker is resumed or restarted"
            )
        self._server.take_requests(False)

    def resume(self) -> None:
        """Undo :meth:`drain`. Idempotent."""
        self._check_takes_requests()
        self._server.take_requests(True)
        if self.facts.is_drained:
            self._presence.set_drained(False)
            LOG.warning("Resumed: requests are taken again")

    def _check_takes_requests(self) -> None:
        if self.dry_run is not None:
            raise RequestError("worker", "in a dry run a worker takes no requests")

    def status(self) -> Mapping[str, Any]:
        """Uptime, what is missing as known last, what it holds, the bus, clusters and the feed."""
        clusters = self._describe_clusters()
        leases = [name for name, cluster in clusters.items() if cluster["token"] is not None]
        # What was missing when it was looked at last, up to a drain or resume since.
        missing = [text for text in self.monitor.last_missing() if text != remedies.DRAINED]
        return {
            "uptime_s": round(time.monotonic() - self._built_s, 1),
            "missing": [*missing, remedies.DRAINED] if self.facts.is_drained else missing,
            "holds": {
                "leases": leases,
                "feed": self.feeder is not None and self.feeder.is_leader(),
                "tuning": self.tuner.led(),
                "balancing": self.balancer.led(),
            },
            "bus": self._server.describe(),
            "clusters": clusters,
            "feed_lag_s": {name: part.lag_s for name, part in self.load().feed.items()},
        }

    def report(self) -> WorkerReport:
        """How this worker is, for operators; waits up to two seconds for the state."""
        self.monitor.missing()  # so that what is known last is of now
        known_clusters = None
        with contextlib.suppress(StateUnavailable):
            known_clusters = len(self.fleet.read_names())
        return report_of(
            self.status(),
            self.load(),
            tuning_alarms=[str(alarm) for alarm in self.tuner.policies.alarms],
            unit_alarms=self._unit_alarms(),
            contests=self.balancer.contests(),
            known_clusters=known_clusters,
            lately=self.monitor.lately(),
            lock_times=self.monitor.lock_times(),
        )

    def _unit_alarms(self) -> list[str]:
        return self._sandboxes.alarms if self._sandboxes else []

    # Health, for the monitor

    def is_alive(self) -> str | None:
        """Why the process hangs; None if it does not."""
        return stalled(self._server.tick_age_s(), self.settings.monitoring.stalled_after_s)

    def failure(self) -> str | None:
        """Why the process cannot go on and must exit; None if it can."""
        return self._server.failure()

    def missing(self) -> list[str]:
        """What keeps the worker from serving; asks the state."""
        problem = self._server.problem()
        problems = (
            problem and f"{remedies.ABOUT_THE_BUS}{problem}",
            remedies.DRAINED if self.facts.is_drained else None,
            self.state.problem() or (self.feeder.unready() if self.feeder else None),
        )
        return [problem for problem in problems if problem]

    def load(self) -> Load:
        """Requests in hand, and reservations by cluster."""
        server = self._server.describe()
        return Load(
            running=server["running"],
            waiting=server["waiting"],
            is_drained=self.facts.is_drained,
            waiting_for_pending=self.scheduler.waiting,
            waiting_for_feed=self.scheduler.waiting_for_feed,
            unwritten_decisions=self.decisions.recorder.waiting if self.decisions else 0,
            reservations={
                cluster.scope: len(cluster.reservations) for cluster in self.fleet.clusters()
            },
            tuning_alarms=len(self.tuner.policies.alarms),
            unit_alarms=len(self._unit_alarms()),
            hosts=self.balancer.hosts(),
            feed={
                part.name: PartReport(lag_s=lag_s, is_up=not part.problem, hosts=part.hosts)
                for part, lag_s in (self.feeder.parts() if self.feeder else ())
            },
        )

    def describe(self) -> Mapping[str, Any]:
        """The worker's state for an operator, without secrets; takes no lock that work may hold."""
        return {
            "bus": self._server.describe(),
            "clusters": self._describe_clusters(),
            "tuning": self.tuner.describe(),
            "balancing": self.balancer.describe(),
            **({"feed": self.feeder.describe()} if self.feeder else {}),
        }

    def _describe_clusters(self) -> Mapping[str, Mapping[str, Any]]:
        return {
            cluster.scope: {
                "version": cluster.seen.version,
                "promises": len(cluster.reservations),
                **self.scheduler.describe(cluster.scope),
            }
            for cluster in self.fleet.clusters()
        }

    def dump(self) -> None:
        """Write what this process is doing into the log, and into a file of ``dump_dir``."""
        self.monitor.dump(self._conf, self.settings.monitoring.dump_dir)


def build(conf: Configuration, *, clock: Clock | None = None) -> Worker:
    """Build the configured worker; it is not started.

    Raises ConfigError: options that contradict each other, or unknown filters and weighers.
    """
    settings = configuration.settings(conf)
    clock = clock or SystemClock()
    state = WatchedState(open_state(settings.state, clock), clock)
    bus = Bus(conf, exchange=settings.rpc.exchange)
    try:
        is_alone = bus.url.startswith("local:") or settings.is_dry_run
        if not state.characteristics.spans_processes and not is_alone:
            LOG.warning(
                "[state] url is memory://: another worker on this bus would reserve the same "
                "hosts again, and a restart loses everything; use redis:// in production"
            )
        return Worker(conf, settings, state, bus, clock)
    except BaseException:
        bus.close()
        state.close()
        raise
