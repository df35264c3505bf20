"""What a command does while it takes long, how far it is and how long yet: on stderr.

A terminal shows one line that changes. Elsewhere a line comes every some seconds, for logs.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import TypeVar

from scheduler_worker.wording import duration, one_line

TERMINAL_S, LINES_S = 0.5, 5.0
"""How long nothing is said, on a terminal and elsewhere."""

Item = TypeVar("Item")
Clock = Callable[[], float]


class Activity:
    """Something that may take long, and how far it is."""

    def __init__(self, what: str, clock: Clock) -> None:
        self._what = what
        self._clock = clock
        self._far = ""
        self.begun_s = clock()

    def far(self, done: int, total: int | None = None, unit: str = "") -> None:
        """So many are done, of so many where that is known; ``unit`` follows the numbers."""
        self._far = f"{done:,}{unit}" if total is None else f"{done:,} of {total:,}{unit}"
        if done and total:
            left_s = (self._clock() - self.begun_s) * (total - done) / done
            self._far += f", {duration(left_s)} left"

    def __str__(self) -> str:
        return f"{self._what}: {self._far or duration(self._clock() - self.begun_s)}"


class ProgressReport:
    """Says what a program does; :func:`doing` tells it, in one thread."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._activities: list[Activity] = []
        """What is done, the outermost first: it knows most of how far all is."""
        self._guard = threading.Lock()
        self._said_s = float("-inf")
        self._width = 0
        self._ended = threading.Event()

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Say it from a thread of its own, for as long as the block lasts."""
        thread = threading.Thread(target=self._run, name="progress", daemon=True)
        thread.start()
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)
            self._ended.set()
            thread.join()

    @contextlib.contextmanager
    def doing(self, what: str, *, at_once: bool = False) -> Iterator[Activity]:
        """The activity of the block; one that Ctrl-C ends is said, with how far it was."""
        activity = Activity(what, self._clock)
        with self._guard:
            self._activities.append(activity)
        if at_once:
            self._say(what)
        try:
            yield activity
        except KeyboardInterrupt:
            if self._activities[0] is activity:
                self._say(f"Ctrl-C ended it. {activity}", stays=True)
            raise
        finally:
            with self._guard:
                self._activities.remove(activity)
            self._say("", stays=True)

    def look(self) -> None:
        """Say what is done if it has lasted, and nothing was said for long."""
        with self._guard:
            activity = self._activities[0] if self._activities else None
        silent_s = TERMINAL_S if sys.stderr.isatty() else LINES_S
        if activity and self._clock() - max(self._said_s, activity.begun_s) >= silent_s:
            self._say(str(activity))

    def _run(self) -> None:
        while not self._ended.wait(TERMINAL_S):
            self.look()

    def _say(self, text: str, *, stays: bool = False) -> None:
        """Write a text over the one before; one that stays, and all that is no terminal's, ends."""
        text = one_line(text)
        with self._guard:
            is_line = stays or not sys.stderr.isatty()
            if self._width:
                sys.stderr.write(f"\r{'':<{self._width}}\r")
            sys.stderr.write(f"{text}\n" if text and is_line else text)
            sys.stderr.flush()
            self._width = 0 if is_line else len(text)
            if text:
                self._said_s = self._clock()


_CURRENT: ContextVar[ProgressReport] = ContextVar("progress")


@contextlib.contextmanager
def doing(what: str, *, at_once: bool = False) -> Iterator[Activity]:
    """Something that may take long; a person learns of it if a program shows its progress."""
    progress = _CURRENT.get(None) or ProgressReport()
    with progress.doing(what, at_once=at_once) as activity:
        yield activity


def awaited(items: Iterable[Item], what: str) -> Iterator[Item]:
    """The items, of which each may take long to come; between two of them nothing is said."""
    remaining = iter(items)
    while True:
        with doing(what):
            try:
                item = next(remaining)
            except StopIteration:
                return
        yield item


def counted(items: Iterable[Item], what: str, total: int | None = None) -> Iterator[Item]:
    """The items, as one activity that says how many there were, of how many; asks no person."""
    with doing(what) as activity:
        for number, item in enumerate(items, 1):
            activity.far(number, total)
            yield item
