"""What replicas cost: calls to several workers of one topic, beside one worker.

Each row is a number of workers that share a topic and its clusters, with so many calls in flight.
"""

import argparse
import contextlib
import os

from bench import processes, rpc
from bench.raw_client import RawClient
from bench.rpc import SELECT, Case
from bench.table import middle, ratio, show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--clusters", type=int, nargs="+", default=[1], help="all of them busy")
    parser.add_argument("--outstanding", type=int, nargs="+", default=[4, 32])
    parser.add_argument("--hosts", type=int, default=1000, help="in each cluster")
    parser.add_argument("--seconds", type=float, default=1.5, help="for each measurement")
    parser.add_argument("--repeat", type=int, default=5, help="measurements of each, in turn")
    parser.add_argument(
        "--slots", type=int, help="of each worker; by default the worker's own default"
    )
    parser.add_argument("--profile", action="store_true", help="print where the workers' time goes")


def run(arguments: argparse.Namespace) -> list[dict]:
    rows = []
    for clusters in arguments.clusters:
        rows += _of_clusters(clusters, arguments)
    show("Calls to workers that share a topic (of each the middle measurement)", rows)
    return rows


def _of_clusters(clusters: int, arguments: argparse.Namespace) -> list[dict]:
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
            rpc.report(client, case, arguments.hosts)
        for _ in range(arguments.repeat):
            for (outstanding, case), rows in found.items():
                turn = argparse.Namespace(**{**vars(arguments), "outstanding": outstanding})
                pids = {"server": running[case], **others}
                rows.append(rpc.measured(client, case, pids, turn) | {"clusters": clusters})
    return [
        _row(middle(rows, "server_cpu_ms"))
        | {
            f"{name}_of_one": ratio(rows, found[outstanding, cases[0]], name)
            for name in ("server_cpu_ms", "p50_ms", "p99_ms")
        }
        for (outstanding, _), rows in found.items()
    ]


_SHOWN = {
    "workers": "processes",
    **{name: name for name in ("clusters", "hosts", "outstanding", "calls_per_s")},
    **{name: name for name in ("p50_ms", "p99_ms")},
    **{name: name for name in ("server_cpu_ms", "redis_cpu_ms", "rabbit_cpu_ms")},
}


def _row(measured: dict) -> dict:
    return {name: measured[key] for name, key in _SHOWN.items()}
