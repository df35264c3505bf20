"""Hosts that change their cluster all the time, while others place, release and report."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.errors import ClusterLockTimeout, Conflict, NoValidHost
from scheduler_worker.ports import State
from tests.support.services import World, host
from tests.support.threads import Threads

HOSTS = [f"h{number}" for number in range(10)]
CLUSTERS = ("one", "two", "three")
VCPUS = 8
MOVERS, PLACERS = 3, 3
MOVES = {"MemoryEngine": 1_000, "RedisEngine": 300}
"""Each over a network takes some milliseconds."""


class Books:
    """What runs where, as those know it who asked for it."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._runs: dict[str, str] = {}
        self._count: Counter[str] = Counter()
        self._lock = threading.Lock()

    def started(self, uuid: str, name: str) -> None:
        with self._lock:
            self._runs[uuid] = name
            self._count[name] += 1
            if self._count[name] > VCPUS:
                self.problems.append(f"{name} runs {self._count[name]} of {VCPUS}")

    def ended(self, uuid: str) -> None:
        with self._lock:
            self._count[self._runs.pop(uuid)] -= 1

    def per_host(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for uuid, name in self._runs.items():
            found.setdefault(name, []).append(uuid)
        return {name: sorted(uuids) for name, uuids in found.items()}


def move(world: World, moves: Iterator[int], seed: int) -> None:
    rng = random.Random(seed)
    for _ in moves:
        name = rng.choice(HOSTS)
        world.report(host(name, vcpus=VCPUS, cluster=rng.choice(CLUSTERS)))


def place(world: World, books: Books, done: threading.Event, seed: int) -> None:
    rng, mine = random.Random(seed), list[str]()
    for number in itertools.count():
        if done.is_set():
            return
        uuid = f"i-{seed}-{number}"
        try:
            [name] = world.place(uuid, request_id=uuid)
        except (NoValidHost, Conflict, ClusterLockTimeout):
            for each in [mine.pop(rng.randrange(len(mine))) for _ in mine[:3]]:
                books.ended(each)
                if world.inventory.release([each]) != 1:
                    books.problems.append(f"{each} had no reservation to release")
            continue
        books.started(uuid, name)
        mine.append(uuid)
        if rng.random() < 0.1 and world.inventory.confirm([uuid]) != 1:
            books.problems.append(f"{uuid} had no reservation to confirm")
        if rng.random() < 0.1 and world.place(uuid, request_id=uuid) != [name]:
            books.problems.append(f"{uuid} got another host when it was asked for again")


def test_moves_lose_no_reservation_and_overcommit_no_host(engine):
    keep_moving(engine.open, MOVES[type(engine).__name__])


def keep_moving(opened: Callable[[], State], count: int) -> None:
    """Move hosts so often between CLUSTERS, while others place, confirm, repeat and release."""
    worlds = [
        World(state=opened(), clock=SystemClock(), acquire_timeout_s=20.0)
        for _ in range(MOVERS + PLACERS)
    ]
    worlds[0].report(
        *(host(name, vcpus=VCPUS, cluster=CLUSTERS[at % 3]) for at, name in enumerate(HOSTS))
    )
    books, done, moves = Books(), threading.Event(), iter(range(count))
    with Threads(MOVERS + PLACERS) as pool:
        moving = [pool.submit(move, world, moves, at) for at, world in enumerate(worlds[:MOVERS])]
        placing = [
            pool.submit(place, world, books, done, at) for at, world in enumerate(worlds[MOVERS:])
        ]
        try:
            for each in moving:
                each.result()
        finally:
            done.set()
        for each in placing:
            each.result()

    assert books.problems == []
    looking = worlds[0]
    found = looking.hosts()
    assert sorted(each["host"] for each in found) == HOSTS, "each is in one cluster"
    reserved = {name: sorted(uuids) for name, uuids in looking.reserved().items()}
    assert reserved == books.per_host()
