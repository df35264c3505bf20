"""Runs lanes side by side, the parts of each one after the other, and measures them."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple

from suite.lanes import REPORTS, ROOT, Lane, Part
from suite.reaper import CANNOT_START

PROGRESS_S = 60.0
_USAGE_ERROR = 4
"""pytest's status if an option, a folder or a conftest is wrong: it has run nothing."""
_REAPER = str(Path(__file__).with_name("reaper.py"))
_PERCENT = re.compile(r"\[ *(\d+)%\]")


class Outcome(NamedTuple):
    """How a part ended."""

    lane: str
    part: Part
    status: int
    cpu_s: float
    """Of all its processes."""
    elapsed_s: float

    @property
    def has_started(self) -> bool:
        return self.status not in (CANNOT_START, _USAGE_ERROR)


class _Lanes:
    """Lanes that run side by side until all parts have ended, or one cannot start."""

    def __init__(self, lanes: Mapping[str, Lane]) -> None:
        self._lanes = lanes
        self._running: dict[str, tuple[Part, int]] = {}
        self._ended: SimpleQueue[Outcome | OSError | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_over = False

    def run(self) -> Iterator[Outcome]:
        left = len(self._lanes)
        with ThreadPoolExecutor(left) as pool:
            try:
                begun = [pool.submit(self._run_lane, name) for name in self._lanes]
                while left:
                    match self._next():
                        case None:
                            left -= 1
                        case OSError() as error:
                            raise error
                        case Outcome() as outcome:
                            yield outcome
                            if not outcome.has_started:
                                return
            finally:
                self._end()
        for each in begun:
            each.result()

    def _next(self) -> Outcome | OSError | None:
        while True:
            try:
                return self._ended.get(timeout=PROGRESS_S)
            except Empty:
                print("running:", ", ".join(self._progress()), flush=True)

    def _run_lane(self, name: str) -> None:
        try:
            for part in self._lanes[name].parts:
                if (outcome := self._run_part(name, part)) is None:
                    break
                self._ended.put(outcome)
        except OSError as error:
            self._ended.put(error)
        finally:
            self._ended.put(None)

    def _run_part(self, lane: str, part: Part) -> Outcome | None:
        """None: all are to end."""
        part.report.unlink(missing_ok=True)  # of another run
        began = time.monotonic()
        with self._lock:
            if self._is_over:
                return None
            with part.log.open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, _REAPER, *part.command],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            self._running[lane] = part, process.pid
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            del self._running[lane]  # whose number may be another's from now on
        _, status, used = os.wait4(process.pid, 0)  # unlike Popen.wait, tells what it has used
        process.returncode = os.waitstatus_to_exitcode(status)
        cpu_s = used.ru_utime + used.ru_stime
        return Outcome(lane, part, process.returncode, cpu_s, time.monotonic() - began)

    def _end(self) -> None:
        """Let what still runs end its servers, and go."""
        with self._lock:
            self._is_over = True
            for _, pid in self._running.values():
                os.kill(pid, signal.SIGTERM)

    def _progress(self) -> Iterator[str]:
        """Of each part its name, and how far pytest says that it is."""
        for part, _ in list(self._running.values()):
            found = _PERCENT.findall(part.log.read_text(errors="replace"))
            yield f"{part.name} {found[-1]} %" if found else part.name


def run_lanes(lanes: Mapping[str, Lane]) -> Iterator[Outcome]:
    """Run the lanes; gives each outcome when its part ends, and prints how far the others are.

    An outcome of a part that cannot start is the last one: the others are ended.
    """
    REPORTS.mkdir(parents=True, exist_ok=True)
    return _Lanes(lanes).run()
