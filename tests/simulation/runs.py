"""Many seeds, one after the other or in several processes; and the story of one that failed."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable, Iterator

from tests.simulation.checker import Violation, check
from tests.simulation.plan import Plan, make
from tests.simulation.shrink import shortest
from tests.simulation.simulation import play

SHARD = 50
SHARDS = 10
"""After so many a process ends: threads that wait for ever keep their runs in memory, 1 MB each."""


def violations(plan: Plan) -> list[Violation]:
    return check(play(plan))


def failing(seeds: Iterable[int]) -> Iterator[int]:
    """The seeds whose runs violate an invariant."""
    return (seed for seed in seeds if violations(make(str(seed))))


def story(seed: int) -> str:
    """The shortest failing plan of a failing seed, its history and its violations."""
    plan = make(str(seed))
    plan = shortest(plan, lambda each: bool(violations(each)))
    simulation = play(plan)
    found = check(simulation)
    if not found:
        return f"Seed {seed} failed, and its shortest plan does not fail each time:\n\n{plan}"
    ends_s = found[-1].time_s
    lines = [
        f"Seed {seed} fails; its shortest plan that does:",
        *("", str(plan), "", "History:", ""),
        *(str(each) for each in simulation.history.events if each.time_s <= ends_s),
        *("", "Violations:", ""),
        *map(str, found),
        *("", f"Again: python -m tests.simulation {seed}"),
    ]
    return "\n".join(lines)


def failing_among(first: int, count: int, *, processes: int) -> Iterator[tuple[int, list[int]]]:
    """Run seeds in shards; after each shard how many are done, and which of them failed."""
    shards = [
        range(start, min(start + SHARD, first + count))
        for start in range(first, first + count, SHARD)
    ]
    if processes == 1:
        for shard in shards:
            yield len(shard), list(failing(shard))
        return
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=SHARDS) as pool:
        yield from pool.imap_unordered(_run_shard, shards)


def _run_shard(shard: range) -> tuple[int, list[int]]:
    return len(shard), list(failing(shard))


class Pace:
    """How fast it goes."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()
        self.done = 0

    def __str__(self) -> str:
        seconds = time.perf_counter() - self._began_s
        return f"{self.done} seeds in {seconds:.0f} s, {self.done / seconds:.0f} seeds/s"
