"""What a worker tells of itself, and how to ask without being held up by a worker that hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

import msgspec

from scheduler_worker.redaction import redacted

T = TypeVar("T")


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is to do, and how much is promised."""

    running: int = 0
    """Requests that have a slot, or stepped aside from one."""
    backlog: int = 0
    """Requests that this process has taken and not begun."""
    waiting_for_pending: int = 0
    """Requests that wait for promised resources to be given back."""
    promises: Mapping[str, int] = {}
    """The live promises of each cluster, as far as this process has looked."""
    tuning_alarms: int = 0
    """What is wrong with the tuning policies, so that older ones stay in force."""


class Health(Protocol):
    """What a worker must be able to tell; nothing of it may take a lock that work may hold."""

    def is_alive(self) -> str | None:
        """Why the process is beyond help, if it is; answers at once."""

    def missing(self) -> list[str]:
        """What keeps the worker from serving; may ask the state, and wait for it."""

    def load(self) -> Load:
        """Figures for a scrape; answers at once."""

    def describe(self) -> Mapping[str, Any]:
        """What an operator may want to see, in plain values and without secrets."""


def ask(question: Callable[[], T]) -> Future[T]:
    """Ask in a thread of its own: who answers may hang."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(question())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="health", daemon=True).start()
    return answer


class Readiness:
    """What is missing, asked at most once in ``fresh_s`` and never by two at a time."""

    def __init__(
        self, missing: Callable[[], list[str]], *, fresh_s: float = 1.0, patience_s: float = 2.0
    ) -> None:
        self._missing = missing
        self._fresh_s = fresh_s
        self._patience_s = patience_s
        self._guard = threading.Lock()
        self._answer: Future[list[str]] | None = None
        self._asked_s = 0.0
        self._last: list[str] = []

    def missing(self) -> list[str]:
        """What keeps the worker from serving; waits at most ``patience_s``."""
        try:
            return self._latest().result(self._patience_s)
        except TimeoutError:
            return [f"the state does not answer within {self._patience_s:g} s"]

    def last(self) -> list[str]:
        """What the last answer said; does not wait for the one it asks for."""
        self._latest()
        return self._last

    def _latest(self) -> Future[list[str]]:
        with self._guard:
            now_s = time.monotonic()
            answer = self._answer
            if answer is None or (answer.done() and now_s - self._asked_s > self._fresh_s):
                answer = self._answer = ask(self._question)
                self._asked_s = now_s
            return answer

    def _question(self) -> list[str]:
        try:
            found = self._missing()
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
        self._last = [redacted(each) for each in found]
        return self._last
