"""What replicas cost, as a table and as a model, and what the model says of large clouds.

Each row is a number of workers that share a topic and its clusters, with so many calls in flight.
The model is fitted to the rows. With --simulate it is compared with virtual workers on virtual
cores, as many as no machine here has.
"""

import argparse
import contextlib
import os

from bench import growth, processes, rpc
from bench.growth import Load
from bench.raw_client import RawClient
from bench.rpc import SELECT, Case
from bench.table import middle, ratio, show
from scheduler_worker.rpc.defaults import SLOTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--clusters", type=int, nargs="+", default=[1, 8], help="all of them busy")
    parser.add_argument("--outstanding", type=int, nargs="+", default=[4, 32, 128, 512])
    parser.add_argument("--hosts", type=int, nargs="+", default=[1000], help="in each cluster")
    parser.add_argument("--seconds", type=float, default=1.5, help="for each measurement")
    parser.add_argument("--repeat", type=int, default=3, help="measurements of each, in turn")
    parser.add_argument("--slots", type=int, default=SLOTS, help="of each worker")
    parser.add_argument("--simulate", action="store_true", help="check the model at 64 workers")
    parser.add_argument("--profile", action="store_true", help="print where the workers' time goes")


def run(arguments: argparse.Namespace) -> list[dict]:
    rows = [
        row
        for hosts in arguments.hosts
        for clusters in arguments.clusters
        for row in _measured(hosts, clusters, arguments)
    ]
    show("Calls to workers that share a topic (of each the middle measurement)", rows)
    model = growth.fitted([(_load(row, arguments.slots), row) for row in rows])
    show(f"The model: CPU ms; workers' rows differ by up to {model.error:.0%}", model.terms())
    show("What a load needs by the model", [growth.needs(model, load) for load in growth.CLOUDS])
    if arguments.simulate:
        show("The model beside virtual workers", growth.compared(model))
    return rows


def _load(row: dict, slots: int) -> Load:
    leaders = min(row["workers"], -(-row["outstanding"] // slots))
    return Load(leaders, row["clusters"], row["hosts"], row["outstanding"])


def _measured(hosts: int, clusters: int, arguments: argparse.Namespace) -> list[dict]:
    cases = [Case("amqp", SELECT, count, clusters) for count in arguments.workers]
    found: dict[tuple[int, Case], list[dict]] = {
        (outstanding, case): [] for outstanding in arguments.outstanding for case in cases
    }
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(processes.redis())
        rabbit = stack.enter_context(processes.rabbit())
        running = {
            case: stack.enter_context(rpc.serving(case, redis, rabbit, arguments)) for case in cases
        }
        client = RawClient(rabbit.url)
        stack.callback(client.close)
        others = {"client": [os.getpid()], "redis": [redis.pid], "rabbit": [rabbit.pid]}
        for case in cases:
            rpc.await_consumers(client, case)
            rpc.report(client, case, hosts)
        for _ in range(arguments.repeat):
            for (outstanding, case), rows in found.items():
                turn = argparse.Namespace(
                    **{**vars(arguments), "outstanding": outstanding, "hosts": hosts}
                )
                pids = {"server": running[case], **others}
                rows.append(rpc.measured(client, case, pids, turn))
    return [
        {
            "workers": case.processes,
            "clusters": clusters,
            **{name: middle(rows, "server_cpu_ms")[name] for name in _SHOWN},
            **{f"{name}_of_one": ratio(rows, found[outstanding, cases[0]], name) for name in _OF},
        }
        for (outstanding, case), rows in found.items()
    ]


_SHOWN = ("hosts", "outstanding", "calls_per_s", "p50_ms", "p99_ms", *growth.OF_PART.values())
_OF = ("server_cpu_ms", "p50_ms", "p99_ms")
