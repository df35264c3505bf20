"""The composition root: a configuration in, a worker out.

The only file that names concrete engines and doors. ::

    with app.build(conf.load(["--config-file", path])).running() as worker:
        ...

is the library use, the test use, and what the daemon does.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any

from scheduler_worker import conf as configuration
from scheduler_worker.backends.attestation import HttpAttestation
from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.backends.policy_files import Files
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.conf import Settings
from scheduler_worker.errors import ConfigError, SchedulerWorkerError
from scheduler_worker.monitoring import Load, Monitor, stalled
from scheduler_worker.ports import Clock, State
from scheduler_worker.rpc.amqp.settings import DeliveryLimits
from scheduler_worker.rpc.nova import NovaDoor, baseapi
from scheduler_worker.rpc.transport import Bus
from scheduler_worker.rpc.tuning import TuningDoor
from scheduler_worker.rpc.wire_errors import to_wire
from scheduler_worker.rpc.worker import WorkerDoor
from scheduler_worker.scheduling.pipeline import Pipeline
from scheduler_worker.service.hold import Limits
from scheduler_worker.service.inventory import Inventory, Ratios
from scheduler_worker.service.listing import Listing
from scheduler_worker.service.replica import Fleet
from scheduler_worker.service.scheduler import Scheduler
from scheduler_worker.service.trust import AttestationService, Trust
from scheduler_worker.service.tuner import Tuner
from scheduler_worker.service.units import Registered, build_pipeline

LOG = logging.getLogger(__name__)

EMBEDDED_BUS = "local:/"
_REDIS = {"redis", "rediss", "unix"} | {
    f"{base}+{kind}" for base in ("redis", "rediss") for kind in ("sentinel", "cluster")
}


class Worker:
    """One worker: the bus, the state and the use cases between them."""

    def __init__(
        self, conf: Any, settings: Settings, *, state: State, bus: Bus, clock: Clock
    ) -> None:
        self._conf = conf
        self.settings = settings
        self.state = state
        self.bus = bus
        self.monitor = Monitor(
            self, address=settings.monitoring_address, port=settings.monitoring_port
        )
        self._filters = dict(registered("scheduler_worker.filters"))
        self._weighers = registered("scheduler_worker.weighers")
        self.fleet = Fleet(state, default_cluster=settings.default_cluster, observer=self.monitor)
        self._trust = self._trusting(settings.attestation, clock)
        self._pipeline = build_pipeline(settings.options, self._filters, self._weighers)
        self.scheduler = Scheduler(
            fleet=self.fleet,
            lock=state,
            pipeline=lambda: self._pipeline,
            clock=clock,
            observer=self.monitor,
            limits=Limits(
                acquire_timeout_s=settings.acquire_timeout_s,
                hold_timeout_s=settings.hold_timeout_s,
                max_batch=settings.max_batch,
                promise_ttl_s=settings.promise_ttl_s,
                ordering=settings.ordering,
                max_head_start_s=settings.max_head_start_s,
                wait_timeout_s=settings.wait_timeout_s,
                max_waiting=settings.max_waiting,
                max_promises=settings.max_promises,
                globals_max_age_s=settings.refresh_interval_s,
            ),
        )
        self.inventory = Inventory(
            fleet=self.fleet,
            ratios=Ratios(
                settings.cpu_allocation_ratio,
                settings.ram_allocation_ratio,
                settings.disk_allocation_ratio,
            ),
            promise_ttl_s=settings.promise_ttl_s,
            remember_answers_s=settings.remember_answers_s,
            clusters=settings.clusters,
            observer=self.monitor,
        )
        self.listing = Listing(self.fleet)
        self.tuner = Tuner(
            self.fleet,
            _policy_files(settings),
            bus,
            clock,
            settings=settings.tuning,
            observer=self.monitor,
            name=settings.host,
        )
        worker_door = WorkerDoor(self.scheduler, self.inventory, self.listing, bus)
        self._server = bus.server(
            settings.topic,
            settings.host,
            [
                NovaDoor(self.scheduler, self.inventory).endpoint(),
                worker_door.endpoint(),
                TuningDoor(self.tuner).endpoint(),
                baseapi(),
            ],
            slots=settings.slots,
            kind=settings.server,
            limits=DeliveryLimits(
                max_deliveries=settings.max_deliveries,
                max_message_bytes=settings.max_message_bytes,
            ),
            translate=to_wire,
            observer=self.monitor,
        )

    @property
    def pipeline(self) -> Pipeline:
        """The filters and weighers in force."""
        return self._pipeline

    def start(self) -> None:
        """Consume. Raises StateUnavailable when the state cannot be reached."""
        self.monitor.start()
        for warning in (*configuration.notices(self._conf), *self.state.check()):
            LOG.warning(warning)
        self.fleet.refresh_globals()
        if self._trust is not None:
            self._trust.start()
        self._server.start()
        self.tuner.start()
        LOG.info(
            "Serving topic %s as %s with %d slots",
            self.settings.topic,
            self.settings.host,
            self.settings.slots,
        )

    def stop(self, timeout_s: float | None = None) -> bool:
        """Stop consuming, finish what was taken, give back what was not answered.

        Returns False when not everything was finished within the bound.
        """
        bound_s = self.settings.graceful_shutdown_timeout_s if timeout_s is None else timeout_s
        self.tuner.stop()
        self.scheduler.stop_waiting()
        finished = self._server.stop(bound_s)
        if not self._server.characteristics.at_least_once:
            # Otherwise another worker gets the request, and finds the promises.
            self._give_back()
        if self._trust is not None:
            self._trust.stop()
        self.state.close()
        self.bus.close()
        self.monitor.stop()
        return finished

    def _trusting(self, service: AttestationService | None, clock: Clock) -> Trust | None:
        """Let TrustedFilter believe the attestation service, if there is one."""
        if service is None:
            return None
        trust = Trust(
            HttpAttestation(service), self.fleet, clock, lasts_s=service.lasts_s, report=LOG.warning
        )
        self._filters["TrustedFilter"] = trust.filter()
        return trust

    def _give_back(self) -> None:
        left = self.scheduler.unanswered()
        if left:
            with contextlib.suppress(SchedulerWorkerError):
                self.inventory.release(left)
            LOG.warning("Gave back the promises of %d instances that were not answered", len(left))

    def reload(self) -> None:
        """Read the configuration files again; options that may change take effect.

        A configuration that does not work leaves the old one in force and is logged.
        """
        try:
            self._conf.mutate_config_files()
            settings = configuration.settings(self._conf)
            self._pipeline = build_pipeline(settings.options, self._filters, self._weighers)
            self.tuner.policies.read_from(_policy_files(settings))
        except (SchedulerWorkerError, ValueError) as error:
            LOG.error("The configuration stays as it was: %s", error)  # noqa: TRY400
        else:
            LOG.info("The configuration was read again")

    # For the monitor

    def is_alive(self) -> str | None:
        """Why the process is beyond help, if it is."""
        return stalled(self._server.tick_age_s(), self.settings.stalled_after_s)

    def missing(self) -> list[str]:
        """What keeps the worker from serving; asks the state."""
        found = [f"the bus {problem}"] if (problem := self._server.problem()) else []
        try:
            self.state.ping()
        except SchedulerWorkerError as error:
            found.append(str(error))
        return found

    def load(self) -> Load:
        """How much there is to do, and how much is promised."""
        server = self._server.describe()
        return Load(
            running=server["running"],
            backlog=server["waiting"],
            waiting_for_pending=self.scheduler.waiting,
            promises={each.scope: len(each.promises) for each in self.fleet.clusters()},
            tuning_alarms=len(self.tuner.policies.alarms),
        )

    def describe(self) -> Mapping[str, Any]:
        """What an operator may want to see, without secrets; takes no lock that work may hold."""
        clusters = {
            each.scope: {
                "version": each.seen.version,
                "promises": len(each.promises),
                **self.scheduler.describe(each.scope),
            }
            for each in self.fleet.clusters()
        }
        return {
            "bus": self._server.describe(),
            "clusters": clusters,
            "tuning": self.tuner.describe(),
        }

    def dump(self) -> None:
        """Write what this process is doing into the log, and into a file of ``dump_dir``."""
        self.monitor.dump(self._conf, self.settings.dump_dir)

    @contextlib.contextmanager
    def running(self) -> Iterator[Worker]:
        """Started inside, stopped afterwards."""
        try:
            self.start()
            yield self
        finally:
            self.stop()


def build(conf: Any, *, clock: Clock | None = None) -> Worker:
    """A worker as the configuration wants it, not yet started.

    Raises:
        ConfigError: options that cannot work together, or unknown filters and weighers.
    """
    settings = configuration.settings(conf)
    clock = clock or SystemClock()
    state = open_state(settings, clock)
    bus = Bus(conf, exchange=settings.exchange, default_url=EMBEDDED_BUS)
    try:
        if not state.characteristics.spans_processes and not bus.url.startswith("local:"):
            LOG.warning(
                "[state] url is memory://: another worker on this bus would promise the same "
                "hosts again, and a restart forgets everything; use redis:// in production"
            )
        return Worker(conf, settings, state=state, bus=bus, clock=clock)
    except BaseException:
        bus.close()
        state.close()
        raise


def check_processes(settings: Settings, processes: int) -> None:
    """Raise ConfigError where several processes cannot keep what one promises."""
    state = open_state(settings, SystemClock())
    try:
        if processes > 1 and not state.characteristics.spans_processes:
            raise ConfigError(
                f"--workers {processes}: processes cannot share [state] url = "
                f"{settings.state_url}; use redis://, or run one worker"
            )
    finally:
        state.close()


def open_state(settings: Settings, clock: Clock) -> State:
    """The engine that ``[state] url`` names."""
    scheme = settings.state_url.partition(":")[0]
    if scheme == "memory":
        return MemoryState(
            clock, hold_timeout_s=settings.hold_timeout_s, offer_s=settings.offer_timeout_s
        )
    if scheme in _REDIS:
        return RedisState(
            settings.state_url,
            clock=clock,
            prefix=settings.state_prefix,
            hold_timeout_s=settings.hold_timeout_s,
            offer_s=settings.offer_timeout_s,
            wait_replicas=settings.wait_replicas,
        )
    raise ConfigError(
        f"[state] url: nothing serves {scheme!r}; use memory://, redis://, rediss://, "
        "redis+sentinel:// or redis+cluster://"
    )


def _policy_files(settings: Settings) -> Files:
    return Files(settings.tuning.policy_files, settings.tuning.clusters_file)


def registered(group: str) -> Registered:
    """The units that installed packages register; a broken one is skipped with an error."""
    found = {}
    for entry in entry_points(group=group):
        try:
            found[entry.name] = entry.load()
        except Exception:
            LOG.exception("%s %s cannot be loaded and is left out", group, entry.name)
    return found
