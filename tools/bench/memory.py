"""Memory of one worker with a fleet: resident size before and after the reports."""

import argparse
import itertools
import multiprocessing
from pathlib import Path

from bench import fleet
from bench.table import show

CHUNK = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, nargs="+", default=[1000, 10_000])


def run(arguments: argparse.Namespace) -> list[dict]:
    # Each size in a process of its own, for the peak of one would hide that of the next.
    context = multiprocessing.get_context("spawn")
    rows = []
    for hosts in arguments.hosts:
        with context.Pool(1) as pool:
            rows.append(pool.apply(_measure, (hosts,)))
    show("Memory of a worker on memory:// (MiB)", rows)
    return rows


def _measure(hosts: int) -> dict:
    from scheduler_worker import conf
    from scheduler_worker.client import SchedulerClient
    from scheduler_worker.compose.worker import build_worker

    with build_worker(conf.load()).running() as worker, SchedulerClient(worker.bus) as client:
        before = _peak_mib()
        reports = fleet.reports(hosts)
        while some := list(itertools.islice(reports, CHUNK)):
            client.update_hosts(some)
        client.select_destinations(fleet.plain(), ["i1"])
        return {"hosts": hosts, "empty_mib": before, "peak_mib": _peak_mib()}


def _peak_mib() -> float:
    """Of this program; what ``getrusage`` says includes the parent's size when it was forked."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024
