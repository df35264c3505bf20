"""A plugin of pytest: how to repeat a failing run, and ``--report FILE``, what it cost and skipped.

A test's cost is the CPU time, in seconds, of pytest's process and of all processes below it, from
the start of its fixtures to their end. The first test that asks for a shared fixture, such as a
server of the session, pays for its start.
"""

import json
import os
import shlex
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _USED = 1, slice(11, 15)
"""Fields of ``/proc/PID/stat`` behind the program's name: see proc_pid_stat(5)."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--report",
        type=Path,
        metavar="FILE",
        help="write what tests cost, and which were skipped",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("report"):
        config.pluginmanager.register(Report(config.getoption("report")))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Iterator[None]:
    """End with what repeats a failing order: ``-q`` hides its seed."""
    yield
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == pytest.ExitCode.TESTS_FAILED and terminal:
        terminal.write_line(f"Repeat it: {repeating(session.config)}")


def repeating(config: pytest.Config) -> str:
    """What a shell repeats this run with, in the same order."""
    arguments = list(config.invocation_params.args)
    if (number := config.getoption("randomly_seed", None)) is not None:  # else in the usual order
        seed = f"--randomly-seed={number}"
        arguments = [*(each for each in arguments if each != seed), seed]
    return shlex.join([sys.executable, "-m", "pytest", *arguments])


class Report:
    """Measures around each test, and writes a JSON object when the run ends."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: dict[str, float] = defaultdict(float)
        self._skips: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = cpu_seconds()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] += max(0.0, cpu_seconds() - began)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):  # otherwise an expected failure
            self._skips[report.longrepr[2].removeprefix("Skipped: ")] += 1

    def pytest_sessionfinish(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        costs = {test: round(cost_s, 3) for test, cost_s in self._seconds.items()}
        self._file.write_text(json.dumps({"costs": costs, "skips": self._skips}, indent=0))


def cpu_seconds() -> float:
    """The CPU time of this process, of the children it has waited for, and of all that run."""
    mine = sum(os.times()[:4])
    return mine + (_running_below(os.getpid()) if _has_children() else 0.0)


def _has_children() -> bool:
    with suppress(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    return False


def _running_below(root: int) -> float:
    """Of each process that descends from the given one, with the children it has waited for."""
    used: dict[int, int] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            fields = stat.read_bytes().rpartition(b")")[2].split()
            pid = int(stat.parent.name)
            used[pid] = sum(map(int, fields[_USED]))
            children[int(fields[_PARENT])].append(pid)
    below = list(children[root])
    for pid in below:
        below += children[pid]
    return sum(used[pid] for pid in below) / _TICKS
