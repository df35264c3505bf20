"""Processes and private servers, and the CPU time that they have used."""

import contextlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

STOP_S = 30.0

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.servers import RabbitServer, RedisServer  # noqa: E402 - found by the line above

__all__ = [
    "Peer",
    "RabbitServer",
    "RedisServer",
    "command",
    "cpu_s",
    "family_cpu_s",
    "peer",
    "rabbit",
    "redis",
]


@contextlib.contextmanager
def redis() -> Iterator[RedisServer]:
    """An empty Redis with an append-only file, gone afterwards."""
    with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder)) as server:
        yield server


@contextlib.contextmanager
def rabbit() -> Iterator[RabbitServer]:
    """An empty RabbitMQ, gone afterwards."""
    with tempfile.TemporaryDirectory() as folder, RabbitServer(Path(folder)) as server:
        yield server


def cpu_s(pid: int) -> float:
    """Seconds of a processor that a process has used, its threads and ended children included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def family_cpu_s(pid: int) -> float:
    """The same of a process and all its descendants that live."""
    parents = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            parents[int(each.parent.name)] = int(each.read_text().rpartition(")")[2].split()[1])
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    used_s = 0.0
    for member in family:
        with contextlib.suppress(OSError):
            used_s += cpu_s(member)
    return used_s


class Peer:
    """A process that replies to messages over a pipe."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe

    def send(self, message: object) -> None:
        self._pipe.send(message)

    def receive(self) -> Any:
        """Raises SystemExit when the process has ended without an answer."""
        try:
            return self._pipe.recv()
        except EOFError:
            raise SystemExit("a process failed; its output says why") from None

    def ask(self, message: object) -> Any:
        self.send(message)
        return self.receive()


@contextlib.contextmanager
def peer(work: Callable[..., None], *arguments: object) -> Iterator[Peer]:
    """``work(pipe, *arguments)`` in a fresh interpreter; it has to end when it is sent None."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Peer(ours)
        with contextlib.suppress(OSError):  # it may have ended by itself
            ours.send(None)
        process.join()
    finally:
        process.kill()


@contextlib.contextmanager
def command(*words: str) -> Iterator[int]:
    """A command that runs until SIGTERM; answers its pid."""
    process = subprocess.Popen(words)
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        finally:
            process.kill()
