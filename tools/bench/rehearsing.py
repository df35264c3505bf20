"""Kept decisions decided again under a stricter policy, as `rehearse` does it from copies."""

import argparse
import tempfile
import time
from pathlib import Path

from msgspec import structs

from bench import fleet
from bench.table import show
from scheduler_worker import codec
from scheduler_worker import conf as configuration
from scheduler_worker.backends.clock import StandingClock
from scheduler_worker.compose.parts import Parts
from scheduler_worker.compose.rehearsal import rehearse
from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.decision_history import KeptDecision
from scheduler_worker.model.policies import ClusterPolicy, FilterUse, WeightUse
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.service.decisions.kept import DecisionQuery
from scheduler_worker.service.rehearsal import snapshots
from scheduler_worker.service.rehearsal.replay import RehearsalOverrides
from scheduler_worker.service.requests.dependencies import PlacementLimits

FOR_EVER_S = 1e9
MOST = 15
"""How many instances the stricter policy allows on a host; some 20 come to each."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, nargs="+", default=[1000])
    parser.add_argument("--decisions", type=int, default=20_000)


def run(arguments: argparse.Namespace) -> list[dict]:
    rows = [_row(hosts, arguments.decisions) for hosts in arguments.hosts]
    show("Rehearsal (default filters; s)", rows)
    return rows


def _row(hosts: int, count: int) -> dict:
    settings = configuration.settings(configuration.load([]))
    snapshot, decisions = _made(settings, hosts, count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "copies"
        snapshots.write(path, snapshot, decisions)
        begun_s = time.perf_counter()
        snapshot, decisions = snapshots.read(path)
        read_s = time.perf_counter()
        times_s: list[float] = []
        tried = RehearsalOverrides(_strict(settings), "default")
        found = rehearse(
            settings,
            snapshot,
            decisions,
            tried,
            lambda *_: times_s.append(time.perf_counter()),
        )
        ended_s = time.perf_counter()
    return {
        "hosts": hosts,
        "decisions": found.rehearsed,
        "placed_before": found.placed.before,
        "placed": found.placed.after,
        "refused": found.counts["refused"],
        "read_s": read_s - begun_s,
        "planned_s": times_s[0] - read_s,
        "decided_s": ended_s - times_s[0],
        "all_s": ended_s - begun_s,
    }


def _made(
    settings: configuration.Settings, hosts: int, count: int
) -> tuple[snapshots.Snapshot, list[KeptDecision]]:
    """Decisions of a worker of its own, whose instances all have their reservations still."""
    if settings.decisions is None:
        raise AssertionError
    bounds = structs.replace(settings.decisions.bounds, number=count)
    parts = Parts(
        structs.replace(
            settings,
            placement=PlacementLimits(
                hold_timeout_s=FOR_EVER_S,
                reservation_ttl_s=FOR_EVER_S,
                wait_timeout_s=0.0,
                max_reservations=count,
                max_attempts=1,
            ),
            decisions=structs.replace(settings.decisions, bounds=bounds, max_waiting=count),
        ),
        clock=StandingClock(time.time()),
    )
    scheduler, recorder, kept = parts.scheduler, parts.recorder, parts.decisions
    if recorder is None or kept is None:
        raise AssertionError
    parts.inventory.update_hosts(codec.decode_host_reports(list(fleet.reports(hosts, room=8))))
    for number in range(count):
        size = 1 + number % 8
        spec = fleet.spec_of(fleet.plain(size, 2048 * size))
        request = Request(spec=spec, instance_uuids=(f"instance-{number}",))
        try:
            scheduler.answered(scheduler.select(request))
        except NoValidHost:
            continue
    recorder.write()
    return snapshots.snapshot_of(parts.fleet), list(kept.with_details(DecisionQuery()))


def _strict(settings: configuration.Settings) -> ClusterPolicy:
    filters = [FilterUse(unit=name) for name in settings.options.enabled_filters]
    return ClusterPolicy(
        id="strict",
        name="strict",
        version=1,
        filters=(*filters, FilterUse(unit="NumInstancesFilter")),
        weights=(WeightUse(unit="RAMWeigher"),),
        parameters={"max_instances_per_host": str(MOST)},
    )
