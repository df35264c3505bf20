"""What a worker should cost: the figures that have goals, in one table, in some minutes."""

import argparse
import contextlib
import io
import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench import anywhere, decision, fleet, memory, processes, rpc
from bench.table import percentile, show

_ROOT = Path(__file__).resolve().parents[2]
_HOSTS = 10_000
_FLEET = 20_000


class Goal(NamedTuple):
    """A figure, and what it should be at most; with ``at_least`` what it should reach."""

    what: str
    figure: float
    goal: float
    at_least: bool = False

    @property
    def is_met(self) -> bool:
        return self.figure >= self.goal if self.at_least else self.figure <= self.goal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", nargs="+", choices=_PARTS, help="parts of the table; all but huge"
    )


def run(arguments: argparse.Namespace) -> list[dict]:
    parts = arguments.only or [name for name in _PARTS if name != "huge"]
    goals = [goal for name in parts for goal in _PARTS[name]()]
    rows = [
        {
            "what": goal.what,
            "figure": goal.figure,
            "goal": goal.goal,
            "is": "met" if goal.is_met else "-",
        }
        for goal in goals
    ]
    show("What a worker costs, and its goals (ms of CPU where nothing else is said)", rows)
    return rows


def _calls() -> Iterator[Goal]:
    names = ["oslo/empty/1", "amqp/empty/1", "amqp/select_destinations/1"]
    rows = _run(rpc, ["--only", *names, f"{names[-1]}/no-records"])
    oslo, empty, call, plain = rows
    yield Goal("a call, 1,000 hosts, 16 in flight", call["server_cpu_ms"], 0.30)
    yield Goal("an empty call", empty["server_cpu_ms"], 0.09)
    yield Goal("calls/s beside oslo's empty", call["calls_per_s"] / oslo["calls_per_s"], 2, True)
    kept = 1 - plain["server_cpu_ms"] / call["server_cpu_ms"]
    yield Goal("kept records, share of a call's CPU", kept, 0.04)
    yield Goal(
        "kept records, share of calls/s", 1 - call["calls_per_s"] / plain["calls_per_s"], 0.04
    )


def _decisions() -> Iterator[Goal]:
    goals = {(_HOSTS, 3): 0.15, (_HOSTS, 30): 0.4, (100_000, 3): 0.5, (100_000, 30): 1.0}
    for hosts in (_HOSTS, 100_000):
        words = ["--requests", "plain", "--instances", "1", "--hosts", str(hosts)]
        for row in _run(decision, words):
            name = f"a decision, {hosts:,} hosts, {row['classes']} classes"
            yield Goal(name, row["median_ms"], goals[hosts, row["classes"]])
            if hosts == _HOSTS and row["classes"] == 3:
                yield Goal(f"a new class, {hosts:,} hosts", row["new_ms"], 0.6)
    words = ["--requests", "numa", "--instances", "1", "--classes", "3", "--hosts", str(_HOSTS)]
    [row] = _run(decision, words)
    yield Goal(f"a new class with NUMA cells, {_HOSTS:,} hosts", row["new_ms"], 10)


def _huge() -> Iterator[Goal]:
    """Takes two minutes and 4 GB."""
    for hosts, goal in ((300_000, 2), (1_000_000, 5)):
        words = ["--requests", "plain", "--instances", "1", "--classes", "3"]
        [row] = _run(decision, [*words, "--hosts", str(hosts)])
        yield Goal(f"a decision, {hosts:,} hosts, 3 classes", row["median_ms"], goal)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield Goal("MiB, peak, 1,000,000 hosts and their reports", peak_mib, 4096)


def _clusters() -> Iterator[Goal]:
    goals = {1: 0.25, 10: 0.5, 100: 2.0}
    for row in _run(anywhere, []):
        yield Goal(
            f"no cluster named, {row['clusters']} clusters", row["cpu_ms"], goals[row["clusters"]]
        )


def _memory() -> Iterator[Goal]:
    rows = _run(memory, ["--hosts", str(_HOSTS), "100000"])
    yield Goal("MiB without hosts", rows[0]["empty_mib"], 75)
    for row, goal in zip(rows, (110, 430), strict=True):
        yield Goal(f"MiB, peak, {row['hosts']:,} hosts on memory://", row["peak_mib"], goal)


def _starts() -> Iterator[Goal]:
    load = "conf.load(['--config-file', '/dev/null'])"
    imports = "import scheduler_worker.cli.worker, scheduler_worker.compose.worker"
    build = "from scheduler_worker import conf; from scheduler_worker.compose import worker"
    yield Goal("import of the worker, s", _process_s(imports), 0.9)
    yield Goal("import and start, s", _process_s(f"{build}; worker.build_worker({load})"), 1.6)
    with processes.redis() as redis, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "worker.conf"
        file.write_text(f"[DEFAULT]\nservice_down_time = 3600\n[state]\nurl = {redis.url}\n")
        _process_s(f"from bench import goals; goals.report({str(file)!r})")
        took_s = _process_s(f"from bench import goals; goals.decide({str(file)!r})")
        alone_s = _process_s(
            f"from bench import goals; goals.decide({str(file)!r}, hint='nowhere')"
        )
        yield Goal(f"{_FLEET:,} hosts from Redis to the first answer, s", took_s - alone_s, 0.8)


def _explanations() -> Iterator[Goal]:
    took_s = []
    with _worker("/dev/null") as worker:
        report_to(worker, _HOSTS)
        for number in range(5):
            request = _request(number)
            begun_s = time.thread_time()
            worker.scheduler.explain(request)
            took_s.append(time.thread_time() - begun_s)
    yield Goal(f"explain, {_HOSTS:,} hosts", 1000 * percentile(took_s, 0.5), 20)


_PARTS = {
    "calls": _calls,
    "decisions": _decisions,
    "huge": _huge,
    "clusters": _clusters,
    "memory": _memory,
    "starts": _starts,
    "explain": _explanations,
}


def _run(kind: Any, words: list[str]) -> list[dict]:
    """The rows of another benchmark, which prints nothing."""
    parser = argparse.ArgumentParser()
    kind.add_arguments(parser)
    with contextlib.redirect_stdout(io.StringIO()):
        return kind.run(parser.parse_args(words))


def _process_s(program: str) -> float:
    """Seconds of a processor that a fresh interpreter takes for it."""
    path = os.pathsep.join([str(_ROOT), str(_ROOT / "tools")])
    environment = {**os.environ, "PYTHONPATH": path}
    before = os.times()
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


@contextlib.contextmanager
def _worker(file: str) -> Iterator[Any]:
    from scheduler_worker import conf
    from scheduler_worker.compose.worker import build_worker

    worker = build_worker(conf.load(["--config-file", file]))
    try:
        yield worker
    finally:
        worker.state.close()
        worker.bus.close()


def report_to(worker: Any, hosts: int) -> None:
    """Report so many hosts."""
    from scheduler_worker.codec import decode_host_reports

    reports = fleet.reports(hosts)
    while some := list(itertools.islice(reports, 1000)):
        worker.inventory.update_hosts(decode_host_reports(some))


def report(file: str) -> None:
    """Put the fleet into the shared state."""
    with _worker(file) as worker:
        report_to(worker, _FLEET)


def decide(file: str, hint: str = "default") -> None:
    """Decide one request on what is there."""
    from scheduler_worker.errors import SchedulerWorkerError

    with _worker(file) as worker, contextlib.suppress(SchedulerWorkerError):
        worker.scheduler.select(_request(0, hint))


def _request(number: int, cluster: str = "default") -> Any:
    from scheduler_worker.scheduling.pipeline import Request

    instance = str(uuid.uuid4())
    spec = fleet.spec_of(fleet.plain(2, 2048) | {"scheduler_hints": {"cluster": [cluster]}})
    spec = msgspec.structs.replace(spec, instance_uuid=instance)
    return Request(spec=spec, instance_uuids=(instance,), request_id=f"req-{number}")
