"""``python -m tests.simulation 42`` runs a seed and prints its history; without one, runs many."""

import argparse
import sys

from tests.simulation import runs
from tests.simulation.checker import check
from tests.simulation.plan import make
from tests.simulation.simulation import play


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument(
        "seed", nargs="?", type=int, help="print the history of the run of this seed"
    )
    parser.add_argument("--seeds", type=int, default=10_000, help="how many to run")
    parser.add_argument("--first", type=int, default=0, help="where to begin")
    parser.add_argument("--processes", type=int, default=2)
    outcome = parser.parse_args()
    if outcome.seed is not None:
        return print_history(outcome.seed)
    return soak(outcome.first, outcome.seeds, outcome.processes)


def print_history(seed: int) -> int:
    plan = make(str(seed))
    simulation = play(plan)
    if check(simulation):
        print(runs.story(seed))
        return 1
    print(plan, "", *simulation.history.events, "", f"Seed {seed} is well.", sep="\n")
    return 0


def soak(first: int, count: int, processes: int) -> int:
    for pace, failed in runs.search(first, count, processes=processes):
        outcome = f"{pace}; failed: {', '.join(map(str, failed)) or 'none'}"
        print(f"\r{outcome}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(outcome)
    if failed:
        print(runs.story(min(failed)))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
