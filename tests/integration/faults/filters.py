"""Filters that take their time."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import numpy as np

from scheduler_worker.scheduling.plugin import Filter
from tests.support.handlers import SOON_S, in_thread

SLOW_S = 0.05


class SlowFilter(Filter):
    """All hosts, after a while."""

    def passes(self, hosts, spec):
        time.sleep(SLOW_S)
        return np.ones(len(hosts), bool)


class PausingFilter(Filter):
    """All hosts; a request with a :class:`Pause` waits here, once, in the middle of a hold."""

    def passes(self, hosts, spec):
        pause = spec.hint("pause")
        if pause and _first_time(Path(pause)):
            Path(pause, "entered").write_text("!")  # returns when the test reads it
            Path(pause, "go").read_text()  # returns when the test has written it
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
