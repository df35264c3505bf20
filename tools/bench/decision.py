"""One decision in judgement alone: filters, weighers, choice, consumption."""

import argparse
import random
import time
from collections.abc import Callable

import fleet
from table import percentile, show

from scheduler_worker.app import registered
from scheduler_worker.model.hosts import HostTable
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.pipeline import Pipeline, Request
from scheduler_worker.service.units import build_pipeline


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, nargs="+", default=[100, 1000, 10_000, 100_000])
    parser.add_argument("--instances", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row of the table")


def run(arguments: argparse.Namespace) -> list[dict]:
    pipeline = build_pipeline(
        Options(), registered("scheduler_worker.filters"), registered("scheduler_worker.weighers")
    )
    rows = []
    for hosts in arguments.hosts:
        table = fleet.table(hosts)
        for name, make in (("plain", fleet.plain), ("constrained", fleet.constrained)):
            for instances in arguments.instances:
                row = {"hosts": hosts, "instances": instances, "request": name}
                rows.append(row | _measure(pipeline, table, make, instances, arguments.seconds))
    show("Decision (default filters, all weighers; ms)", rows)
    return rows


def _measure(
    pipeline: Pipeline, table: HostTable, make: Callable, instances: int, seconds: float
) -> dict:
    """``first_ms`` meets a request class for the first time; the others have seen it before."""
    dice, times = random.Random(1), []
    stop = time.perf_counter() + seconds
    number = 0
    while len(times) < 3 or (time.perf_counter() < stop and len(times) < 2000):
        vcpus = (1, 2, 4)[number % 3]
        uuids = tuple(f"i{number}-{each}" for each in range(instances))
        request = Request(spec=fleet.spec_of(make(vcpus, vcpus * 2048)), instance_uuids=uuids)
        started = time.perf_counter()
        decided = pipeline.decide(table, request, dice)
        times.append(1000 * (time.perf_counter() - started))
        for claim in decided.claims:
            table.end_promise(claim.id)
        number += 1
    return {
        "median_ms": percentile(times[1:], 0.5),
        "p99_ms": percentile(times[1:], 0.99),
        "first_ms": times[0],
        "runs": len(times),
    }
