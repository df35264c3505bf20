"""Collects the facts around a worker, check by check; what cannot be reached ends its own check."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from scheduler_worker import conf as configuration
from scheduler_worker import remedies
from scheduler_worker.compose import checks, engines
from scheduler_worker.compose.api import refusals
from scheduler_worker.compose.parts import Parts, worker_facts
from scheduler_worker.conf import Configuration, NovaFeed, Settings
from scheduler_worker.doctor import rules
from scheduler_worker.errors import (
    ArchiveUnavailable,
    BackendError,
    ConfigError,
    ExternalUnitFailed,
    SchedulerWorkerError,
    SourceUnavailable,
)
from scheduler_worker.model.feed import Part
from scheduler_worker.model.findings import Finding, Status, failed, ok, warning
from scheduler_worker.model.worker_reports import WorkerFacts
from scheduler_worker.ports import Seen
from scheduler_worker.rpc.amqp.check import QueueUse
from scheduler_worker.rpc.transport import Bus
from scheduler_worker.service.health import rules as health
from scheduler_worker.service.state import presence

if TYPE_CHECKING:
    from scheduler_worker.backends.nova.source import NovaDatabases
    from scheduler_worker.backends.sandbox.settings import SandboxSettings
    from scheduler_worker.backends.settings import PolicyStoreSettings

_FILES = "the configuration"
_STATE = "the shared state's clock"
_WORKERS = "the workers"
_PLACEMENT = "Placement"
_API = "the REST API"
_ARCHIVE = "the archive of policies"
_UNITS = "external units"
_LOOKS, _BETWEEN_LOOKS_S = 11, 1.0
"""At a queue beside whose workers there seems to be another program."""


def examine(conf: Configuration) -> Iterator[Finding]:
    """Check everything that a worker with this configuration needs; each finding as it comes.

    Without a configuration that a worker can start with, nothing else is looked at.
    """
    findings = list(_configuration(conf))
    yield from findings
    if any(finding.status is Status.FAILED for finding in findings):
        return
    settings = configuration.settings(conf)
    yield from _api(conf)
    yield from _archive(settings.policy_store)
    yield from _external_units(settings.external_units)
    is_connected = True
    for name, problem, notes, fix in checks.connections(conf, settings):
        if problem:
            is_connected = False
            yield failed(name, problem, fix)
        yield from (warning(name, note) for note in notes)
        if not problem and not notes:
            yield ok(name, "connected")
    if not is_connected:
        yield warning("the rest", "not looked at, for what it needs cannot be reached")
        return
    yield from _workers(conf, settings)
    nodes: dict[str, str] | None = None
    if settings.nova_feed is not None:
        nodes = {}
        yield from _nova(settings.nova_feed, nodes)
    if settings.asks_placement:
        yield from _placement(conf, nodes)


def _configuration(conf: Configuration) -> Iterator[Finding]:
    copy = conf.read_anew()  # the check replaces what is invalid
    problems = checks.refusals(copy, embedded=False)
    yield from (failed(_FILES, problem) for problem in problems)
    notes = [*configuration.unread(copy), *configuration.notices(copy)]
    yield from (warning(_FILES, note) for note in notes)
    if problems:
        return
    settings = configuration.settings(conf)
    yield from (warning(_FILES, sentence) for sentence in checks.left_out(settings))
    if settings.nova_feed is None:
        yield warning(
            _FILES,
            "[nova_feed] enabled is off: hosts have to be reported (docs/rpc.md)",
            "In a Nova cloud, turn it on",
        )
    elif settings.claims is None and not settings.is_dry_run:
        yield warning(
            _FILES,
            "[nova_claims] enabled is off: Placement will show an empty cloud",
            "Turn it on in all workers, unless nothing reads Placement",
        )
    yield ok(_FILES, f"read {', '.join(conf.files) or 'no file'}")


def _api(conf: Configuration) -> Iterator[Finding]:
    """What the REST API's process checks at its start, where something is set for it.

    Workers do without it, and have the same files on machines where it does not run.
    """
    if not conf.sets("api"):
        return
    problems = list(refusals(conf.read_anew()))
    for problem in problems:
        yield warning(_API, f"scheduler-worker-api would not start on this machine: {problem}")
    if not problems:
        yield ok(_API, "scheduler-worker-api can start with this")


def _archive(settings: PolicyStoreSettings) -> Iterator[Finding]:
    """Whether processes could copy policies into it; without one there is nothing to look at."""
    if not settings.connection:
        return
    try:
        made = engines.check_archive(settings)
    except ConfigError as error:
        yield failed(_ARCHIVE, str(error))
    except ArchiveUnavailable as error:
        yield warning(_ARCHIVE, str(error), remedies.ARCHIVE)
    else:
        if made is None:
            yield ok(_ARCHIVE, "its tables are of this version")
        else:
            yield warning(
                _ARCHIVE,
                f"there is no {made} yet; the first program that opens the archive makes it",
                "See [policy_store] connection if there are policies already",
            )


def _external_units(settings: SandboxSettings | None) -> Iterator[Finding]:
    """What a sandbox of this process would have, and whether its user can read all it needs."""
    if settings is None:
        return
    try:
        refused = engines.refused_walls(settings)
    except (ExternalUnitFailed, OSError) as error:
        yield failed(_UNITS, str(error), health.UNIT_FILES)
        return
    if refused:
        lacking = ", ".join(f"{wall} ({why})" for wall, why in sorted(refused.items()))
        yield warning(_UNITS, f"a sandbox started here lacks {lacking}", remedies.WALLS)
    else:
        yield ok(_UNITS, "a sandbox started here has every wall; Health says what workers grant it")


def _workers(conf: Configuration, settings: Settings) -> Iterator[Finding]:
    us = worker_facts(settings)
    workers: list[WorkerFacts] = []
    with contextlib.closing(Parts(settings)) as parts:
        state = parts.state
        if state.characteristics.spans_processes:
            before_s = time.time()
            now_s = state.changes(presence.SCOPE, Seen()).now_s
            yield rules.state_clock(_STATE, rules.Moments(before_s, now_s, time.time()))
            reported = presence.ReportedWorkers(state).read()
            workers = [worker.facts for worker in reported if not worker.is_lost]
            yield from rules.workers(_WORKERS, us, workers)
            yield from health.contests(reported)
            yield from health.unit_alarms(reported)
        elif not settings.is_dry_run:
            yield warning(
                _WORKERS,
                "[state] url is memory://, which no other worker sees and no restart survives",
                "Use redis:// to serve",
            )
    with Bus(conf, exchange=settings.rpc.exchange) as bus:
        try:
            serving = sum(not worker.is_drained for worker in workers)
            use = _settled_use(bus, settings.rpc.topic, serving)
        except SchedulerWorkerError as error:
            yield failed(f"the queue {settings.rpc.topic}", str(error))
            return
    if use is not None:
        check = f"the queue {settings.rpc.topic} (RabbitMQ {use.version})"
        yield rules.consumers(check, us, workers, use.consumers, use.messages)


def _settled_use(bus: Bus, topic: str, workers: int) -> QueueUse | None:
    """The use of the queue, once nobody but the workers consumes it, or after ten seconds.

    A worker has more consumers while requests wait without a slot. A nova-scheduler goes on for a
    while when it is to stop.
    """
    for _ in range(_LOOKS):
        use = bus.queue_use(topic)
        if use is None or not workers or use.consumers <= workers:
            break
        time.sleep(_BETWEEN_LOOKS_S)
    return use


def _nova(nova: NovaFeed, nodes: dict[str, str]) -> Iterator[Finding]:
    """Check the databases; ``nodes`` gets uuid -> host of the compute nodes with a mapping."""
    with contextlib.closing(engines.open_nova_databases(nova.databases)) as source:
        try:
            outline = source.outline()
            yield from _database(source, None, "Nova's API database")
        except SourceUnavailable as error:
            yield failed("Nova's API database", str(error))
            return
        if not outline.parts:
            yield failed("the cells", "there is no cell but cell0", "See nova-manage cell_v2")
        for part in outline.parts:
            name = f"the cell {part.name}"
            try:
                yield from _database(source, part, name)
                services = source.services(part.id)
                listing = source.listing(part.id)
            except SourceUnavailable as error:
                yield failed(name, str(error))
                continue
            compute = rules.Compute(part.id, listing.nodes, outline.part_of, services)
            hosts = ((node.uuid, node.host) for node in listing.nodes if node.host is not None)
            nodes |= {uuid: host for uuid, host in hosts if outline.part_of.get(host) == part.id}
            yield from rules.computes(name, compute, nova.feed.silent_after_s)
            before_s = time.time()
            now_s = source.services(part.id).now_s
            beats = [state.last_seen_s for state in services.by_host.values() if state.last_seen_s]
            yield from rules.clocks(
                name,
                rules.Moments(before_s, now_s, time.time()),
                max(beats, default=None),
                nova.feed.overlap_s,
            )


def _database(source: NovaDatabases, part: Part | None, name: str) -> Iterator[Finding]:
    facts = source.facts(part.id if part else None)
    yield rules.database_account(f"{name} at {facts.name} ({facts.version})", facts.writes)


def _placement(conf: Configuration, nodes: dict[str, str] | None) -> Iterator[Finding]:
    with contextlib.closing(engines.open_placement_reader(conf, connections=1)) as reader:
        try:
            oldest, newest = reader.session.versions()
            yield ok(_PLACEMENT, f"it speaks versions {oldest} to {newest}")
            if nodes is not None:
                yield from rules.providers(_PLACEMENT, nodes, reader.listed())
        except BackendError as error:
            yield failed(_PLACEMENT, str(error))
