"""Runs lanes side by side, the parts of each one after the other, and measures them."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple

from suite.lanes import REPORTS, ROOT, Lane, Part

PROGRESS_S = 60.0
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


def run_lanes(lanes: Mapping[str, Lane]) -> Iterator[Outcome]:
    """Run the lanes; gives each outcome when its part ends, and prints how far the others are."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    ended: SimpleQueue[Outcome] = SimpleQueue()
    running: dict[str, Part] = {}

    def run(name: str) -> None:
        for part in lanes[name].parts:
            running[name] = part
            ended.put(_run(name, part))
        del running[name]

    left = sum(len(lane.parts) for lane in lanes.values())
    with ThreadPoolExecutor(len(lanes)) as pool:
        begun = [pool.submit(run, name) for name in lanes]
        while left:
            try:
                yield ended.get(timeout=PROGRESS_S)
                left -= 1
            except Empty:
                print("running:", ", ".join(map(_progress, list(running.values()))), flush=True)
        for each in begun:
            each.result()


def _run(lane: str, part: Part) -> Outcome:
    part.costs.unlink(missing_ok=True)  # of another run
    began = time.monotonic()
    with part.log.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, _REAPER, *part.command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        _, status, used = os.wait4(process.pid, 0)  # unlike Popen.wait, tells what it has used
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu_s = used.ru_utime + used.ru_stime
    return Outcome(lane, part, process.returncode, cpu_s, time.monotonic() - began)


def _progress(part: Part) -> str:
    """Its name, and how far pytest says that it is."""
    found = _PERCENT.findall(part.log.read_text(errors="replace")) if part.log.exists() else []
    return f"{part.name} {found[-1]} %" if found else part.name
