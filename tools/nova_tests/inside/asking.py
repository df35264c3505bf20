"""Asks the process of ours, and puts its answers in the place of Nova's.

Run by the interpreter that has Nova.
"""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Callable
from typing import Any

import nova.conf
from nova_tests.inside.expressing import Inexpressible

GROUPS = ("filter_scheduler", "metrics", "scheduler")
"""Of the options that units and request filters read."""

Answer = dict[str, Any]


class Ours:
    """The process that answers, and what became of the questions of the present test."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.forget()
        self._known = frozenset(self.ask("options", {})["answer"])

    def forget(self) -> None:
        """A new test begins."""
        self.asked = 0
        self.inexpressible: list[str] = []
        self.is_inside = False
        """Whether a function of Nova's is answering, which may call others."""

    def ask(self, kind: str, question: dict[str, Any]) -> Answer:
        """The answer. Raises Inexpressible."""
        print(json.dumps({"kind": kind, **question}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise RuntimeError("the process that answers has ended; its output says why")
        answer: Answer = json.loads(line)
        if "inexpressible" in answer:
            raise Inexpressible(answer["inexpressible"])
        self.asked += 1
        return answer

    def options(self) -> dict[str, Any]:
        """The options that differ from their defaults, as the test has set them."""
        found = {}
        for group in GROUPS:
            for name, option in nova.conf.CONF._groups[group]._opts.items():
                value = getattr(getattr(nova.conf.CONF, group), name)
                if value != option["opt"].default and name in self._known:
                    found[f"{group}.{name}"] = value
        return found

    def close(self) -> None:
        self._process.communicate()


def answered(
    ours: Ours, original: Callable[..., Any], ask: Callable[..., Answer]
) -> Callable[..., Any]:
    """Nova's function, whose answer is replaced by that of ``ask``, if it can be asked.

    ``ask`` gets Nova's answer, or the exception that it raised, and then the arguments.
    Where one of these functions calls another, the outer one alone is replaced.
    """

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        if ours.is_inside:
            return original(*args, **kwargs)
        ours.is_inside = True
        try:
            return _answer(ours, original, ask, args, kwargs)
        finally:
            ours.is_inside = False

    return replaced


def _answer(
    ours: Ours, original: Callable[..., Any], ask: Callable[..., Answer], args: Any, kwargs: Any
) -> Any:
    try:
        theirs = original(*args, **kwargs)
    except Exception as error:
        theirs = error
    answer: Answer = {}
    try:
        answer = ask(theirs, *args, **kwargs)
    except Inexpressible as why:
        ours.inexpressible.append(str(why))
    if isinstance(theirs, Exception):
        if answer.get("answer"):
            raise AssertionError(f"ours answers {answer}, where Nova raises {theirs!r}")
        raise theirs
    if "refused" in answer:
        raise AssertionError(f"ours refuses: {answer['refused']}; Nova answers {theirs!r}")
    return answer.get("answer", theirs)


def replace(ours: Ours, owner: Any, name: str, ask: Callable[..., Answer]) -> None:
    """Put the answers of ours in the place of those of ``owner.name``, if it has one of its own."""
    found = vars(owner).get(name)
    if isinstance(found, classmethod):
        setattr(owner, name, classmethod(answered(ours, found.__func__, ask)))
    elif found is not None:
        setattr(owner, name, answered(ours, found, ask))
