"""The shared state, and what is kept there: hosts, reservations, records of decisions."""

from collections.abc import Callable
from typing import NamedTuple

from scheduler_worker import __version__
from scheduler_worker.backends.decision_log import MemoryDecisionLog
from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.backends.redis.decision_log import RedisDecisionLog
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.backends.settings import StateSettings
from scheduler_worker.conf import Settings
from scheduler_worker.decision_log import Bounds, DecisionLog
from scheduler_worker.errors import ConfigError
from scheduler_worker.model.worker_reports import WorkerFacts
from scheduler_worker.observer import Observer
from scheduler_worker.ports import GLOBAL, Clock, State
from scheduler_worker.service.decisions.kept import KeptDecisions
from scheduler_worker.service.decisions.recorder import Recorder
from scheduler_worker.service.inventory.inventory import Inventory
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.state.replica import Fleet

_REDIS = {"redis", "rediss", "unix"} | {
    f"{base}+{kind}" for base in ("redis", "rediss") for kind in ("sentinel", "cluster")
}


def open_state(settings: StateSettings, clock: Clock) -> State:
    """Open the engine that ``[state] url`` names. Raises ConfigError where there is none."""
    scheme = settings.url.partition(":")[0]
    if scheme == "memory":
        return MemoryState(clock, hold_timeout_s=settings.hold_timeout_s)
    if scheme in _REDIS:
        return RedisState(
            settings.url,
            clock=clock,
            prefix=settings.prefix,
            hold_timeout_s=settings.hold_timeout_s,
            offer_s=settings.offer_timeout_s,
            wait_replicas=settings.wait_replicas,
        )
    raise ConfigError(
        f"[state] url: no engine serves {scheme!r}; use memory://, redis://, rediss://, "
        "redis+sentinel:// or redis+cluster://"
    )


class Decisions(NamedTuple):
    """The records of decisions: who makes them, and who reads them."""

    recorder: Recorder
    kept: KeptDecisions


def build_decisions(
    settings: Settings,
    fleet: Fleet,
    pipelines: Callable[[], Pipelines],
    clock: Clock,
    observer: Observer,
) -> Decisions | None:
    """The records of decisions, connected to nothing yet; None: none are kept.

    A worker in a dry run makes none.
    """
    if settings.decisions is None:
        return None
    log = _open_decision_log(settings.state, settings.decisions.bounds, clock)
    recorder = Recorder(
        log,
        clock,
        worker=settings.host,
        clusters=fleet.names,
        pipeline_of=lambda cluster: pipelines().of_cluster(fleet, cluster),
        max_waiting=settings.decisions.max_waiting,
        observer=observer,
    )
    return Decisions(recorder, _kept_in(log, fleet))


def open_decision_history(settings: Settings, fleet: Fleet, clock: Clock) -> KeptDecisions | None:
    """The records that workers make, for reading; None: none are kept."""
    if settings.decisions is None:
        return None
    return _kept_in(_open_decision_log(settings.state, settings.decisions.bounds, clock), fleet)


def _kept_in(log: DecisionLog, fleet: Fleet) -> KeptDecisions:
    return KeptDecisions(log, lambda: [GLOBAL, *fleet.names()])


def _open_decision_log(settings: StateSettings, bounds: Bounds, clock: Clock) -> DecisionLog:
    """The store of decision records: in the same place as the state, connected apart."""
    if settings.url.startswith("memory:"):
        return MemoryDecisionLog(bounds, clock)
    return RedisDecisionLog(settings.url, prefix=settings.prefix, bounds=bounds)


def worker_facts(settings: Settings) -> WorkerFacts:
    """What a worker with these settings says of itself to others."""
    return WorkerFacts(
        name=settings.host,
        version=__version__,
        topic=settings.rpc.topic,
        is_claiming=settings.claims is not None,
        is_feeding=settings.nova_feed is not None,
        is_dry_run=settings.is_dry_run,
    )


def build_inventory(
    settings: Settings, fleet: Fleet, observer: Observer | None = None
) -> Inventory:
    """The use cases of hosts, instances and reservations."""
    inventory = settings.inventory
    return Inventory(
        fleet=fleet,
        ratios=inventory.ratios,
        reservation_ttl_s=settings.placement.reservation_ttl_s,
        remember_answers_s=settings.placement.remember_answers_s,
        clusters=inventory.clusters,
        observer=observer,
    )
