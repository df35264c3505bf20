"""How many more instances of many flavors fit: without and with NUMA cells."""

import argparse
import itertools
import time
from collections.abc import Callable, Iterable

from bench import fleet
from bench.table import percentile, show
from scheduler_worker.compose.packages import FILTERS, POLICY_UNITS, WEIGHERS, registered
from scheduler_worker.model.capacity import ClusterCapacity
from scheduler_worker.scheduling.capacity import MOST_STEPS, Measurement, of_cluster
from scheduler_worker.scheduling.compiler import compile_policy
from scheduler_worker.scheduling.options import DEFAULT_FILTERS, Options
from scheduler_worker.service.policies.units import load_units

KINDS: dict[str, tuple[Callable[[int, int], dict], Callable[[int], Iterable[dict]]]] = {
    "plain": (fleet.plain, fleet.reports),
    "inventories": (fleet.plain, fleet.reports_with_inventories),
    "numa": (fleet.pinned, fleet.reports_with_cells),
}
_TIMES = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--flavors", type=int, default=30, help="how many; default: %(default)s")
    parser.add_argument("--requests", nargs="+", choices=KINDS, help="default: plain, inventories")


def run(arguments: argparse.Namespace) -> list[dict]:
    kinds = arguments.requests or ["plain", "inventories"]
    rows = [
        {"hosts": hosts, "request": kind, "flavors": arguments.flavors}
        | _row(kind, hosts, arguments.flavors)
        for hosts, kind in itertools.product(arguments.hosts, kinds)
    ]
    show("Capacity (default filters, all instances counted exactly; s for all flavors)", rows)
    return rows


def _row(kind: str, hosts: int, flavors: int) -> dict:
    spec_of, reports = KINDS[kind]
    table = fleet.table(list(reports(hosts)), fleet.aggregates(hosts))
    inside = fleet.INSIDE if kind == "numa" else ()
    options = Options(enabled_filters=DEFAULT_FILTERS + inside)
    catalogue, policy = load_units(options, *map(registered, (FILTERS, WEIGHERS, *POLICY_UNITS)))
    pipeline = compile_policy(policy, catalogue, options)
    specs = [fleet.spec_of(spec_of(1 + at % 8, 1024 * (1 + at))) for at in range(flavors)]

    def counted() -> list[ClusterCapacity]:
        each = (Measurement(pipeline, table, spec) for spec in specs)
        rooms = (measurement.finish(iter(range(MOST_STEPS))) for measurement in each)
        return [of_cluster("default", policy.reference, room) for room in rooms]

    times: list[float] = []
    for _ in range(_TIMES):
        begun_s = time.perf_counter()
        found = counted()
        times.append(time.perf_counter() - begun_s)
    return {
        "first_s": times[0],
        "median_s": percentile(times, 0.5),
        "instances": sum(each.instances or 0 for each in found),
        "exact": all(each.is_exact for each in found),
    }
