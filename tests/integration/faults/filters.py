"""Filters that take their time, or all of it."""

from __future__ import annotations

import itertools
import os
import threading
import time
import uuid
from pathlib import Path

import numpy as np

from scheduler_worker.scheduling.plugin import Filter
from tests.support.handlers import in_thread
from tests.support.patience import SOON_S

SLOW_S = 0.05


class SlowFilter(Filter):
    """All hosts, after a while."""

    def passes(self, hosts, spec):
        time.sleep(SLOW_S)
        return np.ones(len(hosts), bool)


HALTS_AFTER = 40
"""So many requests :class:`HaltingFilter` lets through."""


class HaltingFilter(Filter):
    """All hosts; then no request leaves it any more, and whatever the worker has stays in hand."""

    _asked = itertools.count(1)

    def passes(self, hosts, spec):
        if next(self._asked) > HALTS_AFTER:
            threading.Event().wait()
        return np.ones(len(hosts), bool)


class PausingFilter(Filter):
    """Passes all hosts; raises an error with the hint ``fail``.

    A request with a :class:`Pause` waits here, once, while its worker has the lock.
    """

    def passes(self, hosts, spec):
        pause = spec.hint("pause")
        if pause and _first_time(Path(pause)):
            Path(pause, "entered").write_text("!")  # returns when the test reads it
            Path(pause, "go").read_text()  # returns when the test has written it
        if spec.hint("fail"):
            raise ValueError("the request asks for it")
        return np.ones(len(hosts), bool)


class Pause:
    """The test's end of it: two named pipes, on which each side waits for the other."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / uuid.uuid4().hex
        self._directory.mkdir()
        for name in ("entered", "go"):
            os.mkfifo(self._directory / name)
        (self._directory / "new").touch()
        self.hint = {"pause": [str(self._directory)]}
        """A scheduler hint."""

    def wait_until_entered(self) -> None:
        assert in_thread((self._directory / "entered").read_text).get(timeout=SOON_S) == "!"

    def let_go(self) -> None:
        in_thread(lambda: (self._directory / "go").write_text("!")).get(timeout=SOON_S)


def _first_time(pause: Path) -> bool:
    try:
        (pause / "new").unlink()
    except FileNotFoundError:
        return False
    return True
