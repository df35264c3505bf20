"""The cluster's lock handed from contender to contender, beside redis-py's own lock."""

import argparse
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from bench import processes
from bench.processes import RedisServer
from bench.table import jain, middle, percentile, show

LOCKS = ("scheduler_worker", "redis-py", "redis-py sleep 0.01")
LONGEST_WAIT_S = 60.0
WARM_UP_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--threads", type=int, default=8, help="contenders in each process")
    parser.add_argument("--hold-ms", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each run of each lock")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each lock, in turn")


def run(arguments: argparse.Namespace) -> list[dict]:
    runs: dict[str, list[dict]] = {lock: [] for lock in LOCKS}
    for _ in range(arguments.repeat):
        for lock in LOCKS:
            with processes.redis() as redis:
                runs[lock].append(_measured(lock, redis, arguments))
    rows = [middle(runs[lock], "wait_p99_ms") for lock in LOCKS]
    show("Hand-over of a contended lock (of each lock the middle run)", rows)
    return rows


def _measured(lock: str, redis: RedisServer, arguments: argparse.Namespace) -> dict:
    contenders = arguments.processes * arguments.threads
    used_s = processes.cpu_s(redis.pid)
    counted = _contended(lock, redis.url, arguments)
    used_s = processes.cpu_s(redis.pid) - used_s
    waits, counts = [each for some in counted for each in some], list(map(len, counted))
    p99_ms, line_ms = 1000 * percentile(waits, 0.99), contenders * arguments.hold_ms
    return {
        "lock": lock,
        "contenders": contenders,
        "processes": arguments.processes,
        "hold_ms": arguments.hold_ms,
        "locks_per_s": len(waits) / arguments.seconds,
        "wait_p50_ms": 1000 * percentile(waits, 0.5),
        "wait_p99_ms": p99_ms,
        "wait_max_ms": 1000 * max(waits),
        "jain": jain(counts),
        "least": min(counts),
        "most": max(counts),
        "queue_times_hold_ms": line_ms,
        "p99_over_ms": p99_ms - line_ms,
        "redis_cpu_ms": 1000 * used_s / len(waits),
    }


def _contended(lock: str, url: str, arguments: argparse.Namespace) -> list[list[float]]:
    """For each contender the seconds that it waited, each time that it got the lock."""
    parameters = (lock, url, arguments.hold_ms / 1000, arguments.threads, arguments.seconds)
    with contextlib.ExitStack() as stack:
        peers = [
            stack.enter_context(processes.peer(_contend, *parameters))
            for _ in range(arguments.processes)
        ]
        for peer in peers:
            peer.receive()
        for peer in peers:
            peer.send("begin")
        return [waits for peer in peers for waits in peer.receive()]


def _contend(pipe: Any, lock: str, url: str, hold_s: float, threads: int, seconds: float) -> None:
    """Some contenders for the one lock, each a thread."""
    use: Callable[[], float] = (_our_use if lock == LOCKS[0] else _redis_py_use)(lock, url, hold_s)
    pipe.send("ready")
    pipe.recv()
    begins_s = time.monotonic() + WARM_UP_S
    waits: list[list[float]] = [[] for _ in range(threads)]

    def contend(mine: list[float]) -> None:
        while (asked_s := time.monotonic()) < begins_s + seconds:
            got_s = use()
            if begins_s <= got_s < begins_s + seconds:
                mine.append(got_s - asked_s)

    contenders = [threading.Thread(target=contend, args=(mine,)) for mine in waits]
    for contender in contenders:
        contender.start()
    for contender in contenders:
        contender.join()
    pipe.send(waits)


def _our_use(lock: str, url: str, hold_s: float) -> Callable[[], float]:
    """Acquire the lock, hold it and release it; return when it was granted."""
    from scheduler_worker.backends.redis.engine import RedisState
    from scheduler_worker.ports import Seen

    state = RedisState(url, hold_timeout_s=10.0)

    def use() -> float:
        grant = state.acquire(lock, timeout_s=LONGEST_WAIT_S, seen=Seen())
        got_s = time.monotonic()
        time.sleep(hold_s)
        state.release(grant)
        return got_s

    return use


def _redis_py_use(lock: str, url: str, hold_s: float) -> Callable[[], float]:
    """The same; its default is to look again every 0.1 s."""
    from redis import Redis

    sleep_s = 0.01 if lock.endswith("0.01") else 0.1
    client = Redis.from_url(url)

    def use() -> float:
        with client.lock(lock, timeout=10.0, sleep=sleep_s, blocking_timeout=LONGEST_WAIT_S):
            got_s = time.monotonic()
            time.sleep(hold_s)
        return got_s

    return use
