"""Opens concrete engines: state, decision log, databases, Placement, Nova, sandboxes, traces.

The only module that names them. A heavy library is imported where its engine is opened: a process
loads only what it uses.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

from scheduler_worker import codec
from scheduler_worker.backends.attestation import HttpAttestation
from scheduler_worker.backends.clock import StandingClock, SystemClock
from scheduler_worker.backends.decision_log import MemoryDecisionLog
from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.backends.sandbox import pool
from scheduler_worker.backends.sandbox.pool import Sandboxes
from scheduler_worker.backends.tuning_policy_files import TuningPolicyFiles
from scheduler_worker.backends.watched import WatchedState
from scheduler_worker.errors import ConfigError
from scheduler_worker.extras import needing_extra

if TYPE_CHECKING:
    from scheduler_worker.archive import Archive
    from scheduler_worker.backends.nova.compute_api import ComputeApi
    from scheduler_worker.backends.nova.settings import NovaDatabasesSettings
    from scheduler_worker.backends.nova.source import NovaDatabases
    from scheduler_worker.backends.placement.claiming import (
        AllocationCandidatesSource,
        PlacementAllocations,
    )
    from scheduler_worker.backends.placement.reading import PlacementReader
    from scheduler_worker.backends.placement.session import PlacementSession
    from scheduler_worker.backends.sandbox.settings import SandboxSettings, Wall
    from scheduler_worker.backends.settings import PolicyStoreSettings, StateSettings
    from scheduler_worker.backends.sql.migrate import PolicySchema
    from scheduler_worker.conf import Configuration, Settings
    from scheduler_worker.decision_log import Bounds, DecisionLog
    from scheduler_worker.monitoring.tracing import Tracing
    from scheduler_worker.observer import Observer
    from scheduler_worker.ports import Attestation, Clock, MigrationTarget, State
    from scheduler_worker.service.policies.trust import AttestationService
    from scheduler_worker.service.tuning.cycle import TuningSettings

_REDIS = {"redis", "rediss", "unix"} | {
    f"{base}+{kind}" for base in ("redis", "rediss") for kind in ("sentinel", "cluster")
}


def system_clock() -> Clock:
    """The operating system's time."""
    return SystemClock()


def standing_clock(time_s: float) -> Clock:
    """A moment that lasts, in seconds since the epoch."""
    return StandingClock(time_s)


def open_state(settings: StateSettings, clock: Clock) -> WatchedState:
    """Open the engine that ``[state] url`` names, watched. Raises ConfigError where there is none.

    It connects when it is first asked.
    """
    return WatchedState(_engine(settings, clock), clock)


def _engine(settings: StateSettings, clock: Clock) -> State:
    scheme = settings.url.partition(":")[0]
    if scheme == "memory":
        return MemoryState(clock, hold_timeout_s=settings.hold_timeout_s)
    if scheme in _REDIS:
        # Its client takes 20 MB; programs that keep their state in memory do without.
        from scheduler_worker.backends.redis.engine import RedisState

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


def open_decision_log(settings: StateSettings, bounds: Bounds, clock: Clock) -> DecisionLog:
    """The store of decision records: in the same place as the state, connected apart."""
    if settings.url.startswith("memory:"):
        return MemoryDecisionLog(bounds, clock)
    from scheduler_worker.backends.redis.decision_log import RedisDecisionLog

    return RedisDecisionLog(settings.url, prefix=settings.prefix, bounds=bounds)


def open_attestation(service: AttestationService) -> Attestation:
    """The attestation service behind TrustedFilter. Raises ConfigError for files of TLS."""
    return HttpAttestation(service)


def open_sandboxes(
    settings: SandboxSettings, observer: Observer | None, units: Collection[str] | None
) -> Sandboxes:
    """The processes of units from files; ``units`` limits which, as in :class:`.Sandboxes`.

    Raises ConfigError for a user that they must not run as.
    """
    return Sandboxes(settings, observer, units)


def refused_walls(settings: SandboxSettings) -> Mapping[Wall, str]:
    """The walls that a sandbox of this process lacks, and why; see :func:`.pool.refused_walls`."""
    return pool.refused_walls(settings)


def open_policy_schema(settings: PolicyStoreSettings) -> PolicySchema:
    """The tables of the archive of policies, in whatever version. Raises ConfigError."""
    from scheduler_worker.backends.sql.database import Database
    from scheduler_worker.backends.sql.migrate import PolicySchema

    return PolicySchema(Database(settings))


def open_archive(settings: PolicyStoreSettings) -> Archive:
    """Open the archive of policies, whose schema must be the newest.

    A SQLite file has one host and is upgraded here; other databases by their operator.

    Raises:
        ConfigError: the connection cannot be used, or the schema is not the newest.
        ArchiveUnavailable: the database cannot be reached.
    """
    # SQL's libraries are loaded by programs that use them, not by every worker.
    from scheduler_worker.backends.sql.archive import SqlArchive
    from scheduler_worker.backends.sql.migrate import PolicySchema

    archive = SqlArchive(settings)
    schema = PolicySchema(archive.database)
    try:
        if schema.makes_itself():
            schema.upgrade()
        schema.check()
    except BaseException:
        archive.close()
        raise
    return archive


def check_archive(settings: PolicyStoreSettings) -> str | None:
    """What :func:`open_archive` would make, checked without making it. Raises as it does."""
    from scheduler_worker.backends.sql.database import file_to_make

    if (path := file_to_make(settings)) is not None:
        return f"file {path}" if path.parent.exists() else f"directory {path.parent}"
    with contextlib.closing(open_policy_schema(settings)) as schema:
        if schema.makes_itself():
            return f"table in {schema.name}"
        schema.check()
    return None


def policy_files(settings: TuningSettings) -> TuningPolicyFiles:
    """The reader of the operator's tuning policies."""
    return TuningPolicyFiles(settings.policy_files, settings.clusters_file)


_EXPORT_S = 10.0
"""For how long a batch of traces is tried to be sent."""


def open_tracing(settings: Settings) -> Callable[[Callable[[str, int], None]], Tracing] | None:
    """What makes the traces of requests, given what counts them; None: there are none.

    Raises ConfigError where OpenTelemetry is not installed.
    """
    if settings.tracing is None:
        return None
    with needing_extra("tracing", "[tracing] enabled"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        from scheduler_worker.monitoring.tracing import Tracing
    exporter = OTLPSpanExporter(endpoint=settings.tracing.endpoint, timeout=_EXPORT_S)
    return partial(Tracing, exporter, worker=settings.host, ratio=settings.tracing.ratio)


def open_placement_session(conf: Configuration, *, connections: int) -> PlacementSession:
    """A client of ``[placement]``, with so many connections; connects to nothing yet.

    Raises ConfigError where the options do not suffice, or keystoneauth is not installed.
    """
    with needing_extra("nova", "[placement]"):
        from scheduler_worker.backends.placement.session import open_session
    return open_session(conf, connections=connections)


def open_placement_reader(conf: Configuration, *, connections: int) -> PlacementReader:
    """Reads providers, with so many connections; raises as :func:`open_placement_session`."""
    session = open_placement_session(conf, connections=connections)
    from scheduler_worker.backends.placement.reading import PlacementReader

    return PlacementReader(session, concurrency=connections)


def open_allocations(session: PlacementSession) -> PlacementAllocations:
    """Claims in Placement, through this session."""
    from scheduler_worker.backends.placement.claiming import PlacementAllocations

    return PlacementAllocations(session)


def open_candidates(session: PlacementSession) -> AllocationCandidatesSource:
    """Allocation candidates of Placement, through this session."""
    from scheduler_worker.backends.placement.claiming import AllocationCandidatesSource

    return AllocationCandidatesSource(session)


def open_nova(conf: Configuration) -> ComputeApi:
    """The client of Nova's API, not connected.

    Raises ConfigError where its library or options are missing.
    """
    with needing_extra("nova", "[balancing] target = nova"):
        from scheduler_worker.backends.nova.compute_api import ComputeApi
    return ComputeApi(conf)


def nova_target(nova: ComputeApi) -> MigrationTarget:
    """Migrations by Nova's API."""
    from scheduler_worker.backends.nova.target import NovaTarget

    return NovaTarget(nova)


def open_nova_databases(settings: NovaDatabasesSettings) -> NovaDatabases:
    """Nova's databases, as a source of hosts; connects to nothing. Raises ConfigError."""
    # SQL's libraries are loaded by workers that use them.
    from scheduler_worker.backends.nova.source import NovaDatabases

    return NovaDatabases(settings, codec.decode_host_reports)
