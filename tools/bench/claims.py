"""Decisions claimed in a real Placement: many in one request, beside one request for each.

Installs a Placement; needs the extras ``test``.
"""

import argparse
import contextlib
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench import fleet, processes
from bench.table import percentile, ratio, show

SPEC = {"flavor": {"vcpus": 1, "memory_mb": 512}, "num_instances": 1}
WAYS = (("one by one", 1, 16), ("in batches", 50, 2))
"""Name, ``[nova_claims] batch`` and ``workers``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10.0)


def run(arguments: argparse.Namespace) -> list[dict]:
    from nova_cloud.installation import default_installation

    from tests.support.databases import MariaServer
    from tests.support.placement_server import Cloud, PlacementServer

    python = default_installation().ensure().python

    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory.chmod(0o711)
        maria = stack.enter_context(MariaServer(directory / "maria"))
        placement = stack.enter_context(
            PlacementServer(directory / "placement", python, maria.create_database())
        )
        cloud = Cloud(placement)
        uuids = [
            cloud.add(f"h{number}", VCPU=10**6, MEMORY_MB=2**30)
            for number in range(arguments.hosts)
        ]
        rows = [_measured(way, uuids, directory, maria, placement, arguments) for way in WAYS]
    times = ratio(rows[1:], rows[:1], "claims_per_s")
    rows = [rows[0] | {"ratio": 1.0}, rows[1] | {"ratio": times}]
    show(f"Decisions claimed in Placement by {arguments.clients} clients", rows)
    return rows


def _measured(
    way: tuple[str, int, int],
    uuids: list[str],
    directory: Path,
    maria: Any,
    placement: Any,
    arguments: argparse.Namespace,
) -> dict:
    name, batch, workers = way
    pids = {"placement": placement.pid, "database": maria.pid}
    with _worker(directory, placement, uuids, batch, workers) as (scheduler, posts):
        load(scheduler, arguments.clients, 1.0)
        posts.clear()
        before = {each: processes.cpu_s(pid) for each, pid in pids.items()}
        own_s = time.process_time()
        times_s, took_s = load(scheduler, arguments.clients, arguments.seconds)
        own_s = time.process_time() - own_s
        used = {each: processes.cpu_s(pid) - before[each] for each, pid in pids.items()}
        made = sum(posts)
    count = len(times_s)
    return {
        "way": name,
        "claims_per_s": count / took_s,
        "in_one_request": made / max(1, len(posts)),
        "p50_ms": 1000 * percentile(times_s, 0.5),
        "p99_ms": 1000 * percentile(times_s, 0.99),
        "placement_cpu_ms": 1000 * used["placement"] / count,
        "database_cpu_ms": 1000 * used["database"] / count,
        "own_cpu_ms": 1000 * own_s / count,
    }


@contextlib.contextmanager
def _worker(
    directory: Path, placement: Any, uuids: list[str], batch: int, workers: int
) -> Iterator[tuple[Any, list[int]]]:
    """A worker's scheduler on hosts that are never full, and the sizes of its writes."""
    from scheduler_worker import conf
    from scheduler_worker.codec import decode_host_reports
    from scheduler_worker.compose.worker import build_worker
    from scheduler_worker.events import CLAIM_CONSUMERS, Count

    file = directory / "worker.conf"
    options = "".join(f"{name} = {value}\n" for name, value in placement.options().items())
    file.write_text(
        "[DEFAULT]\nservice_down_time = 3600\n[state]\nurl = memory://\n"
        f"[nova_claims]\nenabled = true\nbatch = {batch}\nworkers = {workers}\n"
        f"[placement]\n{options}"
    )
    worker = build_worker(conf.load(["--config-file", str(file)]))
    posts: list[int] = []

    def count(event: Count, *labels: str, by: float = 1) -> None:
        if event is CLAIM_CONSUMERS:
            posts.append(int(by))

    worker.monitor.count = count  # type: ignore[method-assign]
    reports = [
        report | {"uuid": each, "vcpus": 10**6, "memory_mb": 2**30}
        for report, each in zip(fleet.reports(len(uuids)), uuids, strict=True)
    ]
    worker.inventory.update_hosts(decode_host_reports(reports))
    try:
        yield worker.scheduler, posts
    finally:
        worker.scheduler.close(60.0)
        worker.state.close()
        worker.bus.close()


def load(
    scheduler: Any,
    clients: int,
    seconds: float,
    spec: Mapping[str, Any] = SPEC,
    alternates: int = 0,
) -> tuple[list[float], float]:
    """Ask from so many threads; the seconds of each answer, and of all."""
    times_s: list[float] = []
    begun_s = time.perf_counter()
    end_s = begun_s + seconds

    def ask() -> None:
        while time.perf_counter() < end_s:
            since_s = time.perf_counter()
            scheduler.answered(scheduler.select(_request(spec, alternates)))
            times_s.append(time.perf_counter() - since_s)

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times_s, time.perf_counter() - begun_s


def _request(spec: Mapping[str, Any], alternates: int) -> Any:
    import msgspec

    from scheduler_worker.model.providers import Owner
    from scheduler_worker.model.requests import RequestSpec
    from scheduler_worker.scheduling.pipeline import Request

    return Request(
        spec=msgspec.convert(spec, RequestSpec),
        instance_uuids=(str(uuid.uuid4()),),
        request_id=f"req-{uuid.uuid4()}",
        num_alternates=alternates,
        owner=Owner("project", "user"),
    )
