"""``tools/suite gate`` and ``tools/suite all``: run the lanes, and print what they cost."""

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from suite.lanes import DEEP, GATE, REPORTS, ROOT, Lane
from suite.running import Outcome, run_lanes

_CLOSING = re.compile(r"^\d+ passed.* in [\d.]+s")
DEAREST = 5
"""How many tests of a part are listed; its ``.json`` has all of them."""
_ADVICE = "if idle cores show that too, make its dearest tests cheaper, or mark them `deep`"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the lanes; 0 if everything passed."""
    parser = argparse.ArgumentParser(
        prog="tools/suite",
        description="Run the tests in lanes side by side, and print the CPU seconds of each part, "
        "of its dearest tests and of each lane.",
        epilog=f"{REPORTS.relative_to(ROOT)} has the output of each part, and what its tests cost.",
    )
    parser.add_argument(
        "scope",
        choices=["gate", "all"],
        help="gate: what decides whether a change lands; "
        "all: the gate, and everything that is marked `deep`",
    )
    is_gate = parser.parse_args(arguments).scope == "gate"
    began = time.monotonic()
    gate = _reported(GATE)
    deep = [] if is_gate else _reported(DEEP)
    problems = [f"{each.part.name} failed" for each in gate + deep if each.status]
    cpu_s = sum(each.cpu_s for each in gate + deep)
    print(f"All of it: {cpu_s:.0f} CPU s in {time.monotonic() - began:.0f} s")
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    return 1 if problems else 0


def _reported(lanes: Mapping[str, Lane]) -> list[Outcome]:
    outcomes = []
    for run_lane in run_lanes(lanes):
        outcomes.append(run_lane)
        print(*_described(run_lane), sep="\n", flush=True)
    spent = _spent(outcomes)
    for name, lane in lanes.items():
        budget_s = lane.budget_s
        budget = f" of {budget_s:.0f}" if budget_s else ""
        # Other load inflates CPU seconds, so that only idle cores tell what a lane costs.
        advice = f", above its budget; {_ADVICE}" if budget_s and spent[name] > budget_s else ""
        print(f"Lane {name}: {spent[name]:.0f}{budget} CPU s{advice}")
    return outcomes


def _described(outcome: Outcome) -> Iterator[str]:
    """What it cost, its dearest tests, and pytest's last line or, if it failed, all its output."""
    part = outcome.part
    yield f"{part.name}: {outcome.cpu_s:.0f} CPU s in {outcome.elapsed_s:.0f} s"
    if part.costs.exists():
        costs = json.loads(part.costs.read_text())
        for test in sorted(costs, key=costs.get, reverse=True)[:DEAREST]:
            yield f"  {costs[test]:6.1f}  {test}"
    lines = part.log.read_text(errors="replace").splitlines()
    yield from lines if outcome.status else filter(_CLOSING.search, lines)


def _spent(outcomes: Sequence[Outcome]) -> Mapping[str, float]:
    spent: Counter[str] = Counter()
    for outcome in outcomes:
        spent[outcome.lane] += outcome.cpu_s  # type: ignore[assignment]
    return spent
