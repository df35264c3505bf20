"""Requests that name no cluster, beside few clusters and beside many: CPU time of a decision."""

import argparse
import itertools
import time
import uuid

import msgspec

from bench import fleet
from bench.table import percentile, show
from scheduler_worker import conf
from scheduler_worker.codec import decode_host_reports
from scheduler_worker.compose.worker import build_worker
from scheduler_worker.scheduling.pipeline import Request

_WARM_UP = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clusters", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--hosts", type=int, default=100, help="in each cluster")
    parser.add_argument("--requests", type=int, default=150)


def run(arguments: argparse.Namespace) -> list[dict]:
    rows = [_row(clusters, arguments) for clusters in arguments.clusters]
    show("Requests without a cluster, decided and reserved (memory://; ms of CPU)", rows)
    return rows


def _row(clusters: int, arguments: argparse.Namespace) -> dict:
    worker = build_worker(conf.load(["--config-file", "/dev/null"]))
    for number in range(clusters):
        reports = fleet.reports(arguments.hosts, room=100, cluster=f"c{number}")
        worker.inventory.update_hosts(decode_host_reports(list(reports)))
    specs = itertools.cycle([fleet.spec_of(fleet.plain(n, 2048 * n)) for n in (1, 2, 4)])
    times_ms = []
    for number in range(_WARM_UP + arguments.requests):
        instance = str(uuid.uuid4())
        spec = msgspec.structs.replace(next(specs), instance_uuid=instance)
        request = Request(spec=spec, instance_uuids=(instance,), request_id=f"req-{number}")
        begun_s = time.thread_time()
        worker.scheduler.select(request)
        times_ms.append(1000 * (time.thread_time() - begun_s))
    worker.state.close()
    worker.bus.close()
    return {
        "clusters": clusters,
        "hosts": arguments.hosts,
        "cpu_ms": percentile(times_ms[_WARM_UP:], 0.5),
        "p99_ms": percentile(times_ms[_WARM_UP:], 0.99),
    }
