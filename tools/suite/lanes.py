"""Which parts of the suite run side by side, and what they may cost.

A budget is in CPU seconds of an idle core, as :mod:`suite.yardstick` counts them. A lane above its
budget is named. One above :data:`LIMIT` times its budget fails: that much is no noise, and a lane
that got so dear is noticed by the change that made it so.
"""

import random
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
REPORTS = ROOT / ".run" / "suite"
"""Of each part: ``NAME.log``, its output, and ``NAME.json``, what its tests cost, and which were
skipped."""
SEED = random.SystemRandom().getrandbits(32)
"""Of the order of the tests, of their random numbers, and of Hypothesis."""
LIMIT = 1.5


class Part(NamedTuple):
    """One process of a lane."""

    name: str
    command: tuple[str, ...]

    @property
    def log(self) -> Path:
        return REPORTS / f"{self.name}.log"

    @property
    def report(self) -> Path:
        return REPORTS / f"{self.name}.json"

    @property
    def repeat(self) -> str:
        """What a shell repeats it with, in the same order."""
        return shlex.join(self.command)


class Lane(NamedTuple):
    """Parts that run one after the other."""

    parts: Sequence[Part]
    budget_s: float | None = None
    """CPU seconds that the lane may take on idle cores."""


def _tests(name: str, *arguments: str) -> Part:
    seeds = f"--randomly-seed={SEED}", f"--hypothesis-seed={SEED}"
    report = f"--report={REPORTS / name}.json"
    return Part(name, (sys.executable, "-m", "pytest", report, *seeds, *arguments))


def _gate(name: str, *folders: str) -> Part:
    return _tests(name, "-m", "not deep", *(f"tests/{folder}" for folder in folders))


def _deep(name: str, *arguments: str) -> Part:
    return _tests(f"deep-{name}", "-m", "deep", *arguments)


GATE: Mapping[str, Lane] = {
    "quick": Lane(
        [
            Part("lint", ("make", "--no-print-directory", "lint")),
            _gate("unit", "unit", "architecture"),
            _gate("properties", "properties"),
        ],
        budget_s=195,
    ),
    # Both of these wait for most of their time, so side by side they take hardly longer.
    "servers": Lane([_gate("integration", "integration")], budget_s=130),
    "processes": Lane([_gate("processes", "processes"), _gate("console", "console")], budget_s=190),
    "edges": Lane(
        [
            _gate("contract", "contract"),
            # In a process of its own: the simulator would preempt threads that other tests left.
            _gate("simulation", "simulation"),
            _gate("examples", "examples"),
        ],
        budget_s=160,
    ),
}
"""What decides whether a change lands."""

DEEP: Mapping[str, Lane] = {
    "deep-servers": Lane([_deep("integration", "tests/integration", "tests/processes")]),
    "deep-edges": Lane(
        [
            _deep("console", "tests/console"),
            _deep("examples", "tests/examples", "tests/contract"),
            _deep("nova", "tests/nova", "--nova-paths=few"),
        ]
    ),
    "deep-search": Lane(
        [
            _deep("simulation", "tests/simulation"),
            _tests("deep-properties", "tests/properties", "--hypothesis-profile=deep"),
        ]
    ),
}
"""What ``make test-all`` runs beside the gate: dear tests, more examples, a real cloud."""
