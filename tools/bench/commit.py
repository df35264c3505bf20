"""Decisions with their durable commits: many requests at a time, a Redis, and no message bus."""

import argparse
import contextlib
import gc
import tempfile
import threading
import time
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from bench import fleet, processes
from bench.processes import RedisServer
from bench.profiling import profiled
from bench.table import middle, percentile, ratio, show
from scheduler_worker.rpc.slots import Slots
from scheduler_worker.waiters import complete

LIVE = 5000
INSTANCES_AT_ONCE = 100
WARM_UP_S = 0.4
LOOK_S = 0.02


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument(
        "--outstanding", type=int, default=64, help="requests on their way in each process"
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="for each measurement")
    parser.add_argument("--repeat", type=int, default=5, help="measurements of each, in turn")
    parser.add_argument("--alternates", type=int, default=0, help="for each request")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")


def run(arguments: argparse.Namespace) -> list[dict]:
    rows = []
    for hosts in arguments.hosts:
        rows += _alone(hosts, arguments)
    if not arguments.profile:
        rows += _together(arguments.hosts[0], arguments)
    show("Decision and commit (of each the middle measurement)", rows)
    return rows


def _alone(hosts: int, arguments: argparse.Namespace) -> list[dict]:
    """One process, in turn without reservations and with many of them."""
    found: dict[int, list[dict]] = {0: [], LIVE: []}
    with processes.redis() as redis, _worker("a", hosts, redis, arguments) as worker:
        for _ in range(arguments.repeat):
            for live, rows in found.items():
                worker.ask(("reserve", live))
                rows.append(_measured(hosts, live, redis, [worker], arguments))
    return _middles(*found.values())


def _together(hosts: int, arguments: argparse.Namespace) -> list[dict]:
    """In turn one process on its cluster, and two on two."""
    found: tuple[list[dict], list[dict]] = ([], [])
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(processes.redis())
        workers = [stack.enter_context(_worker(name, hosts, redis, arguments)) for name in "ab"]
        for _ in range(arguments.repeat):
            for count, rows in enumerate(found, 1):
                rows.append(_measured(hosts, 0, redis, workers[:count], arguments))
    return _middles(*found)


def _middles(first: list[dict], second: list[dict]) -> list[dict]:
    """The middle of each, the second with how many times as fast it is as the first."""
    name = "requests_per_s"
    times = ratio(second, first, name)
    return [middle(first, name) | {"ratio": 1.0}, middle(second, name) | {"ratio": times}]


def _measured(
    hosts: int,
    live: int,
    redis: RedisServer,
    workers: list[processes.Peer],
    arguments: argparse.Namespace,
) -> dict:
    used_s = processes.cpu_s(redis.pid)
    for worker in workers:
        worker.send(("load", arguments.seconds))
    found = [worker.receive() for worker in workers]
    used_s = processes.cpu_s(redis.pid) - used_s
    for worker in workers:
        worker.ask(("release",))
    times = [each for some in found for each in some["times_s"]]
    asked = sum(some["asked"] for some in found)
    return {
        "hosts": hosts,
        "processes": len(workers),
        "clusters": len(workers),
        "live_promises": live,
        "requests_per_s": len(times) / arguments.seconds,
        "batch_mean": asked / sum(some["commits"] for some in found),
        "p50_ms": 1000 * percentile(times, 0.5),
        "p99_ms": 1000 * percentile(times, 0.99),
        "cpu_ms": 1000 * sum(some["cpu_s"] for some in found) / asked,
        "redis_cpu_ms": 1000 * used_s / asked,
    }


@contextlib.contextmanager
def _worker(cluster: str, hosts: int, redis: RedisServer, arguments: argparse.Namespace) -> Any:
    with processes.peer(_serve, cluster, hosts, redis.url, arguments) as worker:
        worker.receive()
        yield worker


def _serve(pipe: Any, cluster: str, hosts: int, url: str, arguments: argparse.Namespace) -> None:
    with profiled(arguments.profile):
        load = Load(cluster, hosts, url, arguments)
        pipe.send("ready")
        while (command := pipe.recv()) is not None:
            name, *parameters = command
            pipe.send(getattr(load, name)(*parameters))
        load.close()


class Load:
    """A worker's use cases in its slots, which decide request after request.

    The hosts have a hundred times the usual capacity, and all reservations are released after each
    measurement: no host is ever full, and the state does not grow.
    """

    def __init__(self, cluster: str, hosts: int, url: str, arguments: argparse.Namespace) -> None:
        from scheduler_worker import conf
        from scheduler_worker.codec import decode_host_reports
        from scheduler_worker.compose.worker import build_worker

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "worker.conf"
            file.write_text(f"[DEFAULT]\nservice_down_time = 3600\n[state]\nurl = {url}\n")
            self._worker = build_worker(conf.load(["--config-file", str(file)]))
        reports = list(fleet.reports(hosts, room=100, cluster=cluster))
        for start in range(0, hosts, 1000):
            self._worker.inventory.update_hosts(decode_host_reports(reports[start : start + 1000]))
        gc.freeze()  # as the daemon does
        self._arguments = arguments
        hint = {"scheduler_hints": {"cluster": [cluster]}}
        self._specs = [fleet.spec_of(fleet.plain(n, 2048 * n) | hint) for n in (1, 2, 4)]
        self._slots = Slots(self._worker.settings.rpc.slots, "bench")
        self._reserved: list[str] = []
        self._commits = 0
        self._count_commits()

    def reserve(self, count: int) -> None:
        """Make reservations that stay during the measurement."""
        for _ in range(0, count, INSTANCES_AT_ONCE):
            complete(self._asking(0, INSTANCES_AT_ONCE))

    def release(self) -> None:
        """Release all reservations."""
        for start in range(0, len(self._reserved), 1000):
            self._worker.inventory.release(self._reserved[start : start + 1000])
        self._reserved.clear()

    def load(self, seconds: float) -> dict:
        """Send requests, as many at a time as configured. Raises the first error."""
        times: list[float] = []
        asked, commits, used_s = len(self._reserved), self._commits, time.process_time()
        begins_s = time.perf_counter() + WARM_UP_S
        ends_s = begins_s + seconds

        async def work() -> None:
            number = 0
            while (began_s := time.perf_counter()) < ends_s:
                await self._asking(number, 1)
                number += 1
                if begins_s <= (ended_s := time.perf_counter()) < ends_s:
                    times.append(ended_s - began_s)

        self._serve([work() for _ in range(self._arguments.outstanding)])
        return {
            "times_s": times,
            "asked": len(self._reserved) - asked,
            "commits": self._commits - commits,
            "cpu_s": time.process_time() - used_s,
        }

    def close(self) -> None:
        self._slots.shutdown(wait=False)
        self._worker.state.close()
        self._worker.bus.close()

    def _serve(self, some: list[Coroutine[Any, Any, None]]) -> None:
        """Run them in the slots, whose periodic method is called, as the server does."""
        ended, errors = threading.Event(), list[BaseException]()
        left = iter(range(len(some) - 1, -1, -1))

        async def ending(work: Coroutine[Any, Any, None]) -> None:
            try:
                await work
            except BaseException as error:
                errors.append(error)
            if next(left) == 0:
                ended.set()

        for each in some:
            self._slots.submit(ending, each)
        while not ended.wait(LOOK_S):
            self._slots.ensure_progress()
        for error in errors:
            raise error

    async def _asking(self, number: int, instances: int) -> None:
        from scheduler_worker.scheduling.pipeline import Request

        uuids = tuple(str(uuid.uuid4()) for _ in range(instances))
        request = Request(
            spec=self._specs[number % len(self._specs)],
            instance_uuids=uuids,
            request_id=uuids[0],
            num_alternates=self._arguments.alternates,
        )
        self._worker.scheduler.answered(await self._worker.scheduler.selecting(request))
        self._reserved += uuids

    def _count_commits(self) -> None:
        commit = self._worker.state.commit

        def counted(*positional: Any, **named: Any) -> Any:
            self._commits += 1
            return commit(*positional, **named)

        self._worker.state.commit = counted  # type: ignore[method-assign]
