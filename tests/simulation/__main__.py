"""``python -m tests.simulation 42`` runs a seed and prints its history; without one, runs many."""

import argparse
import sys

from tests.simulation import runs
from tests.simulation.scenes import SCENES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument(
        "seed", nargs="?", type=int, help="print the history of the run of this seed"
    )
    parser.add_argument("--scene", choices=SCENES, default="placing", help="which kind of run")
    parser.add_argument("--seeds", type=int, default=10_000, help="how many to run")
    parser.add_argument("--first", type=int, default=0, help="where to begin")
    parser.add_argument("--processes", type=int, default=2)
    outcome = parser.parse_args()
    if outcome.seed is not None:
        return print_history(outcome.scene, outcome.seed)
    return soak(outcome.scene, outcome.first, outcome.seeds, outcome.processes)


def print_history(name: str, seed: int) -> int:
    scene = SCENES[name]
    plan = scene.make(str(seed))
    run = scene.play(plan)
    if scene.check(run):
        print(runs.story(name, seed))
        return 1
    print(plan, "", *run.history.events, "", f"Seed {seed} is well.", sep="\n")
    return 0


def soak(name: str, first: int, count: int, processes: int) -> int:
    for pace, failed in runs.search(name, first, count, processes=processes):
        outcome = f"{pace}; failed: {', '.join(map(str, failed)) or 'none'}"
        print(f"\r{outcome}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(outcome)
    if failed:
        print(runs.story(name, min(failed)))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
