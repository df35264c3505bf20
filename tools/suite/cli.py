"""``tools/suite gate`` and ``tools/suite all``: run the lanes, and print what they cost."""

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from suite.lanes import DEEP, GATE, LIMIT, REPORTS, ROOT, Lane, Part
from suite.running import Outcome, run_lanes
from suite.yardstick import Yardstick

_CLOSING = re.compile(r"^\d+ passed.* in [\d.]+s")
DEAREST = 5
"""How many tests of a part are listed; its ``.json`` has all of them."""
_ADVICE = "make its dearest tests cheaper, or mark them `deep`"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the lanes; 0 if everything passed, within its budget."""
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
    outcomes: list[Outcome] = []
    problems: list[str] = []
    try:
        for lanes in [GATE] if is_gate else [GATE, DEEP]:
            problems += _run(lanes, outcomes)
            if any(not each.has_started for each in outcomes):
                break
    except OSError as error:
        problems.append(f"the suite cannot go on: {error}")
    cpu_s = sum(each.cpu_s for each in outcomes)
    print(f"All of it: {cpu_s:.0f} CPU s in {time.monotonic() - began:.0f} s")
    print(*_skips(each.part for each in outcomes), sep="\n", flush=True)
    for each in outcomes:
        if each.status:
            how = "failed" if each.has_started else "could not start, so everything was ended"
            problems.append(f"{each.part.name} {how}: {each.part.log}\n  {each.part.repeat}")
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    return 1 if problems else 0


def _run(lanes: Mapping[str, Lane], outcomes: list[Outcome]) -> Iterator[str]:
    """Run them, add what came of it, and give the lanes that are far above their budget."""
    spent: Counter[str] = Counter()
    with Yardstick() as yardstick:
        for outcome in run_lanes(lanes):
            outcomes.append(outcome)
            spent[outcome.lane] += outcome.cpu_s  # type: ignore[assignment]
            print(*_described(outcome), sep="\n", flush=True)
    print(f"A CPU s did the work of {1 / yardstick.inflation:.2f} s of an idle core")
    for name, lane in lanes.items():
        cost_s = spent[name] / yardstick.inflation
        said = f"Lane {name}: {spent[name]:.0f} CPU s, {cost_s:.0f} of an idle core"
        if lane.budget_s is None:
            print(said)
            continue
        is_above = cost_s > lane.budget_s
        print(f"{said}, of {lane.budget_s:.0f}{f': {_ADVICE}' if is_above else ''}")
        if cost_s > LIMIT * lane.budget_s:
            yield f"lane {name} is more than {LIMIT:g} times its budget: {_ADVICE}"


def _described(outcome: Outcome) -> Iterator[str]:
    """What it cost, its dearest tests, and pytest's last line or, if it failed, all its output."""
    part = outcome.part
    yield f"{part.name}: {outcome.cpu_s:.0f} CPU s in {outcome.elapsed_s:.0f} s"
    costs = _reported(part, "costs")
    for test in sorted(costs, key=costs.__getitem__, reverse=True)[:DEAREST]:
        yield f"  {costs[test]:6.1f}  {test}"
    lines = part.log.read_text(errors="replace").splitlines()
    yield from lines if outcome.status else filter(_CLOSING.search, lines)


def _skips(parts: Iterator[Part]) -> Iterator[str]:
    """How many tests were skipped for each reason."""
    skips: Counter[str] = Counter()
    for part in parts:
        skips.update({why: int(number) for why, number in _reported(part, "skips").items()})
    for why, number in skips.most_common():
        yield f"Skipped {number}: {why}"
    if not skips:
        yield "No test was skipped"


def _reported(part: Part, what: str) -> Mapping[str, float]:
    """What the part's plugin reported; nothing if its process ended before."""
    if not part.report.exists():
        return {}
    found: Mapping[str, float] = json.loads(part.report.read_text())[what]
    return found
