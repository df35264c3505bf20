"""Runs Nova's unit tests with answers of ours: ``runner.py RESULTS MODULE ... -- COMMAND ...``.

Nova's filters, weighers and its matching of extra specs first answer themselves, so that mocks are
asked as their tests demand; then COMMAND is asked (``answers.py``), and the test gets its answer.
Where Nova raises, ours has to refuse, and the test gets Nova's exception. RESULTS is a JSON file:
for each test its outcome and why. Run by the interpreter that has Nova.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])

import nova.conf  # noqa: E402
from nova import weights as base_weights  # noqa: E402
from nova.scheduler import filters, weights  # noqa: E402
from nova.scheduler.filters import extra_specs_ops  # noqa: E402
from nova_tests.inside.expressing import Inexpressible, host, request_spec  # noqa: E402

GROUPS = ("filter_scheduler", "metrics", "scheduler")
"""Of the options that units read."""


class Ours:
    """The process that answers, and what became of the questions of the present test."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.forget()

    def forget(self) -> None:
        """A new test begins."""
        self.asked = 0
        self.inexpressible: list[str] = []

    def ask(self, kind: str, question: dict[str, Any]) -> dict[str, Any]:
        """The answer. Raises Inexpressible."""
        print(json.dumps({"kind": kind, **question}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise RuntimeError("the process that answers has ended; its output says why")
        answer: dict[str, Any] = json.loads(line)
        if "inexpressible" in answer:
            raise Inexpressible(answer["inexpressible"])
        self.asked += 1
        return answer

    def close(self) -> None:
        self._process.communicate()


def answered(
    ours: Ours, original: Callable[..., Any], ask: Callable[..., dict[str, Any]]
) -> Callable[..., Any]:
    """Nova's function, whose answer is replaced by that of ``ask``, if it can be asked."""

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        raised: Exception | None = None
        theirs = None
        try:
            theirs = original(*args, **kwargs)
        except Exception as error:
            raised = error
        try:
            answer = ask(theirs, *args, **kwargs)
        except Inexpressible as why:
            ours.inexpressible.append(str(why))
            answer = {"answer": theirs}
        if raised is not None:
            if answer.get("answer"):
                raise AssertionError(f"ours answers {answer}, where Nova raises {raised!r}")
            raise raised
        if "refused" in answer:
            raise AssertionError(f"ours refuses: {answer['refused']}; Nova answers {theirs!r}")
        return answer["answer"]

    return replaced


def replace_filters(ours: Ours) -> None:
    for filter_class in _classes(filters, filters.BaseHostFilter):

        def ask(theirs: object, unit: Any, state: Any, spec: Any) -> dict[str, Any]:
            question = {
                "filter": type(unit).__name__,
                "config": _options(),
                "host": host(state),
                "request_spec": request_spec(spec),
            }
            answer = ours.ask("filter", question)
            if "answer" in answer:
                return {"answer": answer["answer"] is not None}
            return answer

        _replace(ours, filter_class, "host_passes", ask)


def replace_weighers(ours: Ours) -> None:
    def totals(
        theirs: Any, handler: Any, weighers: Any, obj_list: Any, weighing_properties: Any
    ) -> dict[str, Any]:
        units, states, spec = weighers, obj_list, weighing_properties
        if len(states) < 2:  # Nova asks no weigher then
            return {"answer": theirs}
        question = {
            "weighers": [type(each).__name__ for each in units],
            "config": _options(),
            "hosts": [host(each) for each in states],
            "request_spec": request_spec(spec),
        }
        answer = ours.ask("weighers", question)
        if "answer" not in answer:
            return answer
        weighed = [
            handler.object_class(state, weight)
            for state, weight in zip(states, answer["answer"], strict=True)
        ]
        return {"answer": sorted(weighed, key=lambda each: each.weight, reverse=True)}

    _replace(ours, base_weights.BaseWeightHandler, "get_weighed_objects", totals)
    for weigher_class in _classes(weights, weights.BaseHostWeigher):

        def multiplier(theirs: object, unit: Any, state: Any) -> dict[str, Any]:
            question = {
                "weighers": [type(unit).__name__],
                "config": _options(),
                "host": host(state),
            }
            return ours.ask("multiplier", question)

        _replace(ours, weigher_class, "weight_multiplier", multiplier)


def replace_matching(ours: Ours) -> None:
    def match(theirs: object, value: Any, required: Any) -> dict[str, Any]:
        return ours.ask("match", {"value": value, "required": required})

    _replace(ours, extra_specs_ops, "match", match)


def _replace(ours: Ours, owner: Any, name: str, ask: Callable[..., dict[str, Any]]) -> None:
    if name in vars(owner):
        setattr(owner, name, answered(ours, vars(owner)[name], ask))


def _classes(package: Any, kind: type) -> Iterator[type]:
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for _, each in inspect.getmembers(importlib.import_module(found.name), inspect.isclass):
            if issubclass(each, kind) and each.__module__ == found.name:
                yield each


def _options() -> dict[str, Any]:
    """The options that differ from their defaults, as the test has set them."""
    found = {}
    for group in GROUPS:
        for name, option in nova.conf.CONF._groups[group]._opts.items():
            value = getattr(getattr(nova.conf.CONF, group), name)
            if value != option["opt"].default and name in _KNOWN:
                found[f"{group}.{name}"] = value
    return found


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
    texts = [str(err[1])] if err is not None else [each.as_text() for each in details.values()]
    lines = [line for text in texts for line in text.splitlines() if line.strip(" }")]
    return lines[-1][:600] if lines else ""


_KNOWN: set[str] = set()


def main(results: str, *words: str) -> None:
    at = words.index("--")
    ours = Ours(list(words[at + 1 :]))
    _KNOWN.update(ours.ask("options", {})["answer"])
    replace_filters(ours)
    replace_weighers(ours)
    replace_matching(ours)
    found = Results(ours)
    unittest.defaultTestLoader.loadTestsFromNames(words[:at]).run(found)
    ours.close()
    Path(results).write_text(json.dumps(found.found, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
