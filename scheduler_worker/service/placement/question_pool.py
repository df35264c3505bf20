"""Asks questions in a bounded number of threads; those of one key that wait together are one.

While Placement is away questions wait until their deadlines.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

from scheduler_worker.errors import PlacementUnavailable, WorkerStops
from scheduler_worker.ports import Clock
from scheduler_worker.waiters import Waiter

LOG = logging.getLogger(__name__)

_SHORTEST_S, _LONGEST_S = 1.0, 10.0
"""Bounds of how long one attempt may take."""
_PAUSE_S = 0.5
"""From one attempt to the next while Placement is away."""
Answer = TypeVar("Answer")


class Question(Generic[Answer]):
    """What a request waits for.

    ``ask`` gets the seconds that an attempt may take, and what all questions of the ``key`` that
    are asked together are about.
    """

    def __init__(
        self,
        key: Hashable,
        ask: Callable[[float, Collection[str]], Answer],
        deadline_s: float,
        about: Collection[str] = (),
    ) -> None:
        self.key = key
        self.deadline_s = deadline_s
        self.about = about
        self.done = Waiter()
        self._ask = ask
        self._answer: Answer | None = None
        self._error: Exception | None = None
        self._trouble: Exception | None = None

    def attempt(self, timeout_s: float, about: Collection[str]) -> Answer:
        """Ask, in this thread."""
        return self._ask(timeout_s, about)

    def hinder(self, error: Exception) -> None:
        """Note why there is no answer yet."""
        self._trouble = error

    def end(self, answer: Answer | None = None, error: Exception | None = None) -> None:
        """Resume the request."""
        self._answer, self._error = answer, error
        self.done.end()

    def end_late(self) -> None:
        """Its time is over."""
        late = PlacementUnavailable("it was too slow for the caller")
        self.end(error=self._trouble or late)

    def result(self) -> Answer | None:
        """The answer, once it is there. Raises what asking raised."""
        if self._error is not None:
            raise self._error
        return self._answer


class QuestionPool(Generic[Answer]):
    """The threads, and the questions that wait for them."""

    def __init__(self, clock: Clock, *, name: str, workers: int) -> None:
        """``name`` is that of the threads."""
        self._clock = clock
        self._name = name
        self._workers = workers
        self._changed = threading.Condition()
        self._waiting: deque[Question[Answer]] = deque()
        self._asked: set[Hashable] = set()
        """The keys of which a question is under way: others wait for its end, and go together."""
        self._threads = self._idle = self._started = 0
        self._closing = False
        self._hurrying = threading.Event()

    def submit(self, question: Question[Answer]) -> None:
        """Ask it as soon as a thread is free; its waiter is ended when it is settled."""
        with self._changed:
            if not self._closing:
                self._waiting.append(question)
                self._wake()
                return
        question.end(error=_stops())

    def stop_waiting(self) -> None:
        """From now on fail questions for which Placement is away."""
        self._hurrying.set()

    def close(self) -> None:
        """Ask nothing any more; what is under way ends by its timeout."""
        self.stop_waiting()
        with self._changed:
            self._closing = True
            left = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        for each in left:
            each.end(error=_stops())

    def _wake(self) -> None:
        if self._idle:
            self._changed.notify()
        elif self._threads < self._workers:
            self._threads += 1
            self._started += 1
            name = f"{self._name}-{self._started}"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._closing or any(map(self._may_ask, self._waiting))):
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
                if self._closing:
                    self._threads -= 1
                    return
                alike, late = self._take()
            for each in late:
                each.end_late()
            if alike:
                self._settle(alike)
                with self._changed:
                    self._asked.discard(alike[0].key)
                    if self._idle:
                        self._changed.notify()  # one that waits may have this key

    def _may_ask(self, question: Question[Answer]) -> bool:
        return question.key not in self._asked

    def _take(self) -> tuple[list[Question[Answer]], list[Question[Answer]]]:
        """The next question and those of its key; and those whose time is over."""
        now_s = self._clock.monotonic_s()
        late = [each for each in self._waiting if each.deadline_s <= now_s]
        left = [each for each in self._waiting if each.deadline_s > now_s]
        key = next((each.key for each in left if self._may_ask(each)), None)
        alike = [each for each in left if each.key == key]
        self._waiting = deque(each for each in left if each.key != key)
        self._asked.update(each.key for each in alike)
        return alike, late

    def _settle(self, alike: list[Question[Answer]]) -> None:
        left_s = max(each.deadline_s for each in alike) - self._clock.monotonic_s()
        about = {each for one in alike for each in one.about}
        try:
            answer = alike[0].attempt(min(max(left_s, _SHORTEST_S), _LONGEST_S), about)
        except PlacementUnavailable as error:
            self._try_again(alike, error)
        except Exception as error:
            for each in alike:
                each.end(error=error)
        else:
            for each in alike:
                each.end(answer)

    def _try_again(self, alike: list[Question[Answer]], error: PlacementUnavailable) -> None:
        if self._hurrying.is_set():
            for each in alike:
                each.end(error=_stops())
            return
        for each in alike:
            each.hinder(error)
        next_s = min(each.deadline_s for each in alike) - self._clock.monotonic_s()
        self._hurrying.wait(max(0.0, min(_PAUSE_S, next_s)))
        with self._changed:
            closing = self._closing
            if not closing:
                self._waiting.extend(alike)
                return
        for each in alike:
            each.end(error=_stops())


def _stops() -> WorkerStops:
    return WorkerStops("The worker stops; try again.")
