"""Runs Nova's unit tests with answers of ours: ``runner.py RESULTS MODULE ... -- COMMAND ...``.

Nova's functions (``units.py``, ``queries.py``) first answer themselves, so that mocks are asked as
their tests demand; then COMMAND is asked (``answers.py``), and the test gets its answer. Where Nova
raises, ours has to refuse, and the test gets Nova's exception. RESULTS is a JSON file: for each
test its outcome and why. Run by the interpreter that has Nova.
"""

from __future__ import annotations

import json
import sys
import unittest
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])

from nova_tests.inside import queries, units  # noqa: E402 - the line above makes it importable
from nova_tests.inside.asking import Ours  # noqa: E402


class Results(unittest.TestResult):
    """What became of each test."""

    def __init__(self, ours: Ours) -> None:
        super().__init__()
        self._ours = ours
        self.found: dict[str, dict[str, Any]] = {}

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._ours.forget()

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self._add(test, "passed")

    def addFailure(self, test: unittest.TestCase, err: Any, details: Any = None) -> None:
        self._add(test, "failed", _why(err, details))

    def addError(self, test: unittest.TestCase, err: Any, details: Any = None) -> None:
        self._add(test, "failed", _why(err, details))

    def addSkip(self, test: unittest.TestCase, reason: str, details: Any = None) -> None:
        self._add(test, "skipped", reason)

    def _add(self, test: unittest.TestCase, outcome: str, why: str = "") -> None:
        self.found[test.id().partition(".unit.scheduler.")[2] or test.id()] = {
            "outcome": outcome,
            "why": why,
            "asked": self._ours.asked,
            "inexpressible": self._ours.inexpressible,
        }


def _why(err: Any, details: Any) -> str:
    """The last line of the traceback: the exception."""
    texts = [str(err[1])] if err is not None else [detail.as_text() for detail in details.values()]
    lines = [line for text in texts for line in text.splitlines() if line.strip(" }")]
    return lines[-1][:600] if lines else ""


def main(results: str, *words: str) -> None:
    at = words.index("--")
    ours = Ours(list(words[at + 1 :]))
    units.replace_all(ours)
    queries.replace_all(ours)
    found = Results(ours)
    unittest.defaultTestLoader.loadTestsFromNames(words[:at]).run(found)
    ours.close()
    Path(results).write_text(json.dumps(found.found, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
