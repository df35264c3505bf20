"""The events of a run in their order, for the checker and for people."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from scheduler_worker.model.claims import FencingToken
from scheduler_worker.ports import Change, LockGrant, Transaction, Written
from tests.simulation.machine import Machine

Blame = Callable[[str], None]
"""How the checkers report violations."""
NOT_PRINTED = {"known", "of"}
"""Facts that are not printed, for the checker alone."""


class Event(NamedTuple):
    time_s: float
    who: str
    what: str
    facts: dict[str, Any]

    def __str__(self) -> str:
        facts = [
            f"{name}={_short(value)}"
            for name, value in self.facts.items()
            if value is not None and name not in NOT_PRINTED
        ]
        return f"{self.time_s:8.3f}  {self.who:<8} {self.what:<14} {'  '.join(facts)}".rstrip()


class Violation(NamedTuple):
    """What a checker found, and when."""

    time_s: float
    what: str

    def __str__(self) -> str:
        return f"{self.time_s:8.3f}  {self.what}"


class Findings:
    """What the checkers of a run find, each with the time of the event that shows it."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.now_s = 0.0

    def read(self, events: Iterable[Event], *checkers: Callable[[Event], object]) -> None:
        """Show each event to the checkers, in their order."""
        for event in events:
            self.now_s = event.time_s
            for see in checkers:
                see(event)

    def blame(self, what: str) -> None:
        self.violations.append(Violation(self.now_s, what))


class Auditor:
    """Tracks a run by its events, independently of the workers."""

    def __init__(self, blame: Blame) -> None:
        self._blame = blame
        self._now_s = 0.0
        self._rules: dict[str, Callable[[Event], None]] = {}
        """What to do with which events."""

    def see(self, event: Event) -> None:
        self._now_s = event.time_s
        rule = self._rules.get(event.what)
        if rule is not None:
            rule(event)


class History:
    """Everything of one run."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.events: list[Event] = []
        self._ambushes: list[tuple[str | None, str, Callable[[], object]]] = []

    def add(self, who: str, what: str, **facts: Any) -> None:
        self.events.append(Event(self._machine.now_s, who, what, facts))
        for ambush in [each for each in self._ambushes if each[1] == what]:
            if ambush[0] in {None, who}:
                self._ambushes.remove(ambush)
                self._machine.at(0.0, ambush[2])

    def await_(self, who: str | None, what: str, deed: Callable[[], object]) -> None:
        self._ambushes.append((who, what, deed))

    def await_nothing(self) -> None:
        self._ambushes.clear()


def _short(value: Any) -> str:
    match value:
        case LockGrant():
            return f"{value.scope}#{value.token.number}"
        case FencingToken():
            return str(value.number)
        case Written():
            applied = "".join("+" if each else "-" for each in value.applied)
            return f"{applied}@{value.version}{' kept' if value.kept else ''}"
        case Transaction():
            keys = sorted((put.key, put.value is None) for put in value.puts)
            return _list(f"no {key}" if is_gone else key for key, is_gone in keys)
        case Change():
            return f"{value.key}@{value.version}" if value.value is not None else f"no {value.key}"
        case float():
            return f"{value:.3f}"
        case list() | tuple():
            return _list(_short(each) for each in value)
        case dict():
            return "{" + ", ".join(f"{key}: {_short(each)}" for key, each in value.items()) + "}"
    return str(value)


def _list(texts: Iterable[str]) -> str:
    return "[" + ", ".join(texts) + "]"
