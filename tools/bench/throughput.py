"""Requests per second from client to client, beside an empty endpoint on the same transport."""

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import fleet
from table import percentile, show

from scheduler_worker import conf
from scheduler_worker.client import SchedulerClient
from scheduler_worker.rpc.contract import Endpoint
from scheduler_worker.rpc.server import Server
from scheduler_worker.rpc.transport import Bus, Client
from scheduler_worker.rpc.wire_errors import to_wire

EMPTY_TOPIC = "empty"
WARM_UP_S = 1.0
SLOTS = conf.settings(conf.load()).slots
"""The worker's default, for the empty endpoint too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, nargs="+", default=[1000])
    parser.add_argument("--outstanding", type=int, default=16, help="client threads")
    parser.add_argument("--seconds", type=float, default=6.0, help="for each row of the table")
    parser.add_argument("--transports", nargs="+", default=["memory", "rabbit+redis"])
    parser.add_argument("--serve-empty", metavar="URL", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> list[dict]:
    if arguments.serve_empty:
        _serve_empty(arguments.serve_empty)
        return []
    rows: list[dict] = []
    for transport in arguments.transports:
        for hosts in arguments.hosts:
            rows += _rows(transport, hosts, arguments)
    show("Requests from client to client", rows)
    return rows


def _rows(transport: str, hosts: int, arguments: argparse.Namespace) -> list[dict]:
    with _served(transport) as (bus, empty), SchedulerClient(bus) as client:
        for start in range(0, hosts, 1000):
            client.update_hosts(list(fleet.reports(hosts, room=100))[start : start + 1000])
        client.update_aggregates(fleet.aggregates(hosts))
        asked = {"spec_obj": fleet.plain(), "return_objects": True, "return_alternates": True}
        worker = bus.client("scheduler", version="4.5", timeout_s=60)

        def caller(of: Client) -> Callable[[], None]:
            """The same light call to either: what differs is what the server does."""
            return lambda: of.call(
                "select_destinations", {}, instance_uuids=[str(uuid.uuid4())], **asked
            )

        calls = (("empty", caller(empty)), ("select_destinations", caller(worker)))
        rows = []
        # Three times each, in turn, for these machines are noisy; the best of each counts.
        for name, call in calls * 3:
            row = {"transport": transport, "hosts": hosts, "endpoint": name}
            rows.append(row | _load(call, arguments.outstanding, arguments.seconds / 3))
    best = {row["endpoint"]: row for row in sorted(rows, key=lambda row: row["calls_per_s"])}
    share = best["select_destinations"]["calls_per_s"] / best["empty"]["calls_per_s"]
    return [row | {"share_of_empty": share if row is best["select_destinations"] else 1.0}
            for row in best.values()]  # fmt: skip


def _load(call: Callable[[], None], threads: int, seconds: float) -> dict:
    """Closed loop: each thread calls again as soon as it has its answer."""
    stop = time.perf_counter() + seconds + WARM_UP_S
    counting_from = time.perf_counter() + WARM_UP_S
    times: list[float] = []
    failures: list[str] = []

    def work() -> None:
        while (started := time.perf_counter()) < stop:
            try:
                call()
            except Exception as error:
                failures.append(str(error))
                return
            if started >= counting_from:
                times.append(time.perf_counter() - started)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    if failures:
        raise SystemExit(f"{len(failures)} threads failed, the first with: {failures[0]}")
    return {
        "outstanding": threads,
        "calls_per_s": len(times) / seconds,
        "p50_ms": 1000 * percentile(times, 0.5),
        "p99_ms": 1000 * percentile(times, 0.99),
    }


@contextlib.contextmanager
def _served(transport: str) -> Iterator[tuple[Bus, Client]]:
    """A bus on which a worker and an empty endpoint are served, and a client of the latter."""
    with contextlib.ExitStack() as stack:
        if transport == "memory":
            from scheduler_worker import app

            worker = stack.enter_context(app.build(conf.load()).running())
            bus = worker.bus
            server = _empty_server(bus)
            server.start()
            stack.callback(server.stop, 5.0)
        else:
            bus = stack.enter_context(_processes(stack))
        yield bus, bus.client(EMPTY_TOPIC, version="4.5", timeout_s=60)


def _processes(stack: contextlib.ExitStack) -> Bus:
    """RabbitMQ, Redis, a worker and an empty server, each a process of its own."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tests.support.servers import RabbitServer, RedisServer

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    redis = stack.enter_context(RedisServer(folder / "redis"))
    rabbit = stack.enter_context(RabbitServer(folder / "rabbit"))
    file = folder / "worker.conf"
    file.write_text(
        f"[DEFAULT]\ntransport_url = {rabbit.url}\nservice_down_time = 3600\n"
        f"[state]\nurl = {redis.url}\n"
    )
    worker = [sys.executable, "-m", "scheduler_worker", "--config-file", str(file)]
    empty = [sys.executable, str(Path(__file__).parent), "requests", "--serve-empty", rabbit.url]
    for command in (worker, empty):
        process = subprocess.Popen(command)
        stack.callback(process.wait, 30)
        stack.callback(process.send_signal, signal.SIGTERM)
    bus = Bus(conf.load(), url=rabbit.url)
    for topic in ("scheduler", EMPTY_TOPIC):
        _await(bus, topic)
    return bus


def _await(bus: Bus, topic: str) -> None:
    """Until the topic answers."""
    client = bus.client(topic, namespace="baseapi", timeout_s=5)
    deadline = time.monotonic() + 30
    while True:
        try:
            client.call("ping", {}, arg=1)
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _empty_server(bus: Bus) -> Server:
    endpoints = [
        Endpoint(None, "4.5", {"select_destinations": lambda context, **arguments: []}),
        Endpoint("baseapi", "1.1", {"ping": lambda context, arg: arg}),
    ]
    return bus.server(EMPTY_TOPIC, "empty", endpoints, translate=to_wire, slots=SLOTS)


def _serve_empty(url: str) -> None:
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    with Bus(conf.load(), url=url) as bus:
        server = _empty_server(bus)
        server.start()
        signal.sigwait(signals)
        server.stop(5.0)
