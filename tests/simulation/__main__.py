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
    parser.add_argument(
        "--scene", choices=SCENES, help="which kind of run; without it all, and placing for a seed"
    )
    parser.add_argument("--seeds", type=int, default=10_000, help="how many to run in all")
    parser.add_argument("--first", type=int, default=0, help="where to begin")
    parser.add_argument("--processes", type=int, default=2)
    outcome = parser.parse_args()
    if outcome.seed is not None:
        return print_history(outcome.scene or "placing", outcome.seed)
    scenes = [outcome.scene] if outcome.scene else list(SCENES)
    each = -(-outcome.seeds // len(scenes))
    return max([soak(name, outcome.first, each, outcome.processes) for name in scenes])


def print_history(name: str, seed: int) -> bool:
    scene = SCENES[name]
    plan = scene.make(str(seed))
    run = scene.play(plan)
    if scene.check(run):
        print(runs.story(name, seed))
        return True
    print(plan, "", *run.history.events, "", f"Seed {seed} is well.", sep="\n")
    return False


def soak(name: str, first: int, count: int, processes: int) -> bool:
    for pace, failed in runs.search(name, first, count, processes=processes):
        outcome = f"{name}: {pace}; failed: {', '.join(map(str, failed)) or 'none'}"
        print(f"\r{outcome}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(outcome)
    if failed:
        print(runs.story(name, min(failed)))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
