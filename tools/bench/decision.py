"""One decision in judgement alone: filters, weighers, choice, consumption."""

import argparse
import random
import time
from collections.abc import Iterable

import fleet
from table import percentile, show

from scheduler_worker.app import registered
from scheduler_worker.model.claims import Claim
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.pipeline import Pipeline, Request
from scheduler_worker.service.units import build_pipeline


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, nargs="+", default=[100, 1000, 10_000, 100_000])
    parser.add_argument("--instances", type=int, nargs="+", default=[1, 10])
    parser.add_argument(
        "--classes", type=int, nargs="+", default=[3, 30], help="how many flavors take turns"
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="for each row of the table")


def run(arguments: argparse.Namespace) -> list[dict]:
    pipeline = build_pipeline(
        Options(), registered("scheduler_worker.filters"), registered("scheduler_worker.weighers")
    )
    rows = []
    for hosts in arguments.hosts:
        table = fleet.table(hosts)
        for name, make in (("plain", fleet.plain), ("constrained", fleet.constrained)):
            for classes in arguments.classes:
                specs = [make(1 + at % 4, 2048 + 512 * at) for at in range(classes)]
                for instances in arguments.instances:
                    row = {"hosts": hosts, "request": name, "classes": classes}
                    row |= {"instances": instances}
                    found = _measured(pipeline, table, specs, instances, arguments.seconds)
                    rows.append(row | found)
    show("Decision (default filters, all weighers; ms)", rows)
    return rows


def _measured(
    pipeline: Pipeline, table: HostTable, plain: list[dict], instances: int, seconds: float
) -> dict:
    """``first_ms`` meets a class of requests for the first time; the others have seen theirs.

    A promise ends after as many decisions as there are classes, so hosts do not fill up.
    """
    dice, times = random.Random(1), []
    specs, live = [fleet.spec_of(each) for each in plain], []
    stop = time.perf_counter() + seconds
    while len(times) < 3 * len(specs) or (time.perf_counter() < stop and len(times) < 2000):
        number = len(times)
        uuids = tuple(f"i{number}-{each}" for each in range(instances))
        request = Request(spec=specs[number % len(specs)], instance_uuids=uuids)
        started = time.perf_counter()
        decided = pipeline.decide(table, request, dice)
        times.append(1000 * (time.perf_counter() - started))
        live.append(decided.claims)
        if len(live) > len(specs):
            _end(table, live.pop(0))
    for claims in live:
        _end(table, claims)
    known = times[len(specs) :]
    return {
        "median_ms": percentile(known, 0.5),
        "p99_ms": percentile(known, 0.99),
        "first_ms": times[0],
        "runs": len(known),
    }


def _end(table: HostTable, claims: Iterable[Claim]) -> None:
    for claim in claims:
        table.end_promise(claim.id)
