"""Many seeds, one after the other or in several processes; and the story of one that failed."""

import multiprocessing
import time
from collections.abc import Iterator

from tests.simulation.scenes import SCENES
from tests.simulation.shrink import shortest

SHARD = 50
SHARDS = 10
"""After so many a process ends: threads that wait for ever keep their runs in memory, 1 MB each."""


def story(name: str, seed: int) -> str:
    """The shortest failing plan of a failing seed of a scene, its history and its violations."""
    scene = SCENES[name]
    plan = shortest(scene.make(str(seed)), lambda each: bool(scene.violations(each)))
    run = scene.play(plan)
    found = scene.check(run)
    if not found:
        return f"Seed {seed} failed, and its shortest plan does not fail each time:\n\n{plan}"
    ends_s = found[-1].time_s
    lines = [
        f"Seed {seed} fails; its shortest plan that does:",
        *("", str(plan), "", "History:", ""),
        *(str(each) for each in run.history.events if each.time_s <= ends_s),
        *("", "Violations:", ""),
        *map(str, found),
        *("", f"Again: python -m tests.simulation --scene {name} {seed}"),
    ]
    return "\n".join(lines)


def _failing_among(
    name: str, first: int, count: int, processes: int
) -> Iterator[tuple[int, list[int]]]:
    """Of each shard how many seeds it has, and which of them failed."""
    shards = [
        (name, range(start, min(start + SHARD, first + count)))
        for start in range(first, first + count, SHARD)
    ]
    if processes == 1:
        for shard in shards:
            yield _run_shard(shard)
        return
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=SHARDS) as pool:
        yield from pool.imap_unordered(_run_shard, shards)


def search(name: str, first: int, count: int, *, processes: int) -> Iterator[tuple[str, list[int]]]:
    """Run seeds of a scene; after each shard how fast it goes, and which have failed so far."""
    began_s, done = time.perf_counter(), 0
    failed: list[int] = []
    for number, bad in _failing_among(name, first, count, processes):
        done, seconds = done + number, time.perf_counter() - began_s
        failed += bad
        yield f"{done} seeds in {seconds:.0f} s, {done / seconds:.0f} seeds/s", sorted(failed)


def _run_shard(shard: tuple[str, range]) -> tuple[int, list[int]]:
    name, seeds = shard
    scene = SCENES[name]
    return len(seeds), [seed for seed in seeds if scene.violations(scene.make(str(seed)))]
