"""Clocks that stand still until a test moves them."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler_worker.backends.memory import POLL_S


class ManualClock:
    """Both of its times move together, by hand."""

    def __init__(self, time_s: float = 1_700_000_000.0) -> None:
        self._time_s = time_s
        self._monotonic_s = 1_000.0

    def time_s(self) -> float:
        return self._time_s

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        self._time_s += seconds
        self._monotonic_s += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock; the monotonic one does not change."""
        self._time_s += seconds


class _PolledCondition(threading.Condition):
    """Looks at the clock often, as nobody says that a test has moved it."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(POLL_S if timeout is None else min(timeout, POLL_S))


def follow(patch: pytest.MonkeyPatch, module: Any) -> None:
    """Let the conditions of a module follow a clock that a test moves."""
    stand_in = SimpleNamespace(**vars(threading) | {"Condition": _PolledCondition})
    patch.setattr(module, "threading", stand_in)


class ManualLoop:
    """The timers of a loop, and the module ``time`` that they follow."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._timers: list[tuple[float, Callable[[], Any]]] = []

    def monotonic(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[[], Any]) -> None:
        self._timers.append((self.now_s + delay_s, callback))

    def pass_s(self, seconds: float) -> None:
        """Let time pass; call what is due in it."""
        ends_s = self.now_s + seconds
        while self._timers and min(self._timers, key=lambda each: each[0])[0] <= ends_s:
            due = min(self._timers, key=lambda each: each[0])
            self._timers.remove(due)
            self.now_s = due[0]
            due[1]()
        self.now_s = ends_s
