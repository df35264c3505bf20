"""A worker's health, and how to query it without being blocked by a worker that hangs."""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol, TypeVar

from scheduler_worker.model.host_records import HostCounts
from scheduler_worker.model.worker_reports import RequestsInHand
from scheduler_worker.redaction import redacted

T = TypeVar("T")


class Load(RequestsInHand, frozen=True, kw_only=True):
    """Gauges of a worker: requests in hand, and reservations."""

    is_drained: bool = False
    """Whether no more requests are taken, by an operator's command."""
    reservations: Mapping[str, int] = {}
    """The number of reservations of each cluster, as this process knows them."""
    tuning_alarms: int = 0
    """Problems with tuning policies because of which older ones stay in force."""
    unit_alarms: int = 0
    """Files of external units that are not loaded."""
    hosts: Mapping[str, HostCounts] | None = None
    """Of the clusters that this process balances; None: it has counted none yet."""

    def most_down(self, clusters: int) -> dict[str, HostCounts]:
        """The hosts of so many clusters, of those with most hosts down."""
        ranked = sorted((self.hosts or {}).items(), key=lambda item: item[1].down, reverse=True)
        return dict(ranked[:clusters])


class Health(Protocol):
    """What the monitor asks of a worker; no method may take a lock that requests may hold."""

    def is_alive(self) -> str | None:
        """Why the process hangs; None if it does not. Does not block."""

    def missing(self) -> list[str]:
        """What keeps the worker from serving; asks the state, and may block."""

    def load(self) -> Load:
        """The gauges. Does not block."""

    def describe(self) -> Mapping[str, Any]:
        """The worker's state for an operator, in plain values and without secrets."""


def call_in_thread(function: Callable[[], T]) -> Future[T]:
    """Call the function in a thread of its own, since it may hang."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(function())
        except Exception as error:
            result.set_exception(error)

    threading.Thread(target=run, name="health", daemon=True).start()
    return result


class Readiness:
    """Caches ``missing()`` for ``fresh_s`` and never calls it twice at the same time."""

    def __init__(
        self,
        missing: Callable[[], list[str]],
        *,
        asked: str = "the state",
        fresh_s: float = 1.0,
        timeout_s: float = 2.0,
    ) -> None:
        """``asked`` is named where the answer does not come within the timeout."""
        self._missing = missing
        self._asked = asked
        self._fresh_s = fresh_s
        self._remaining_s = timeout_s
        self._guard = threading.Lock()
        self._answer: Future[list[str]] | None = None
        self._asked_s = 0.0
        self._last: list[str] = []

    def missing(self) -> list[str]:
        """What keeps the worker from serving; waits at most ``timeout_s``."""
        try:
            return self._latest().result(self._remaining_s)
        except TimeoutError:
            return [f"{self._asked} does not answer within {self._remaining_s:g} s"]

    def last(self) -> list[str]:
        """The last result; starts a call if that is old, and does not wait for it."""
        self._latest()
        return self._last

    def _latest(self) -> Future[list[str]]:
        with self._guard:
            now_s = time.monotonic()
            answer = self._answer
            if answer is None or (answer.done() and now_s - self._asked_s > self._fresh_s):
                answer = self._answer = call_in_thread(self._ask)
                self._asked_s = now_s
            return answer

    def _ask(self) -> list[str]:
        try:
            problems = self._missing()
        except Exception as error:
            problems = [f"{type(error).__name__}: {error}"]
        self._last = [redacted(problem) for problem in problems]
        return self._last


class Dependencies:
    """What requests need, by name, such as ``state``, and whether it can be used."""

    def __init__(
        self, probes: Mapping[str, Callable[[], str | None]], *, dispensable: Collection[str] = ()
    ) -> None:
        """Each says why something cannot be used; None if it can. May block, and may raise.

        Most requests do without what is ``dispensable``.
        """
        self._dispensable = dispensable
        self._answers = {
            name: Readiness(partial(_listed, probe), asked=f"the {name}")
            for name, probe in probes.items()
        }

    def problems(self) -> dict[str, list[str]]:
        """Why each cannot be used, if so; asks all at a time, and waits two seconds at most."""
        for answer in self._answers.values():
            answer.last()  # begins to ask, and does not wait
        return {name: answer.missing() for name, answer in self._answers.items()}

    def missing(self) -> list[str]:
        """Why most requests cannot be answered, if so; as :meth:`problems`."""
        problems = self.problems().items()
        return [text for name, texts in problems if name not in self._dispensable for text in texts]


def _listed(probe: Callable[[], str | None]) -> list[str]:
    problem = probe()
    return [problem] if problem else []
