"""``--workers N``: several worker processes of one configuration.

Each is a process of its own from the first instruction (nothing is forked with threads in it), has
a server name of its own (``host.0``, ``host.1``, ...), and is started again when it dies.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from scheduler_worker.cli import signals, systemd
from scheduler_worker.cli.daemon import READY

LOG = logging.getLogger(__name__)

_TICK_S = 0.2
_RESTART_AFTER_S = 1.0
_KILL_GRACE_S = 5.0


class _Child:
    """One worker process and the line that ties it to us."""

    def __init__(self, number: int, arguments: Sequence[str]) -> None:
        self.number = number
        self.ready = False
        self.started_s = time.monotonic()
        self._line, theirs = socket.socketpair()
        self._line.setblocking(False)
        command = [
            sys.executable, "-m", "scheduler_worker", *arguments,
            "--workers", "1", "--instance", str(number), "--lifeline", str(theirs.fileno()),
        ]  # fmt: skip
        environment = {k: v for k, v in os.environ.items() if k != "NOTIFY_SOCKET"}
        self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, pass_fds=[theirs.fileno()], env=environment
        )
        theirs.close()

    def poll_ready(self) -> bool:
        """Whether the worker consumes."""
        if not self.ready:
            with contextlib.suppress(BlockingIOError):
                self.ready = self._line.recv(1) == READY
        return self.ready

    def close(self) -> None:
        self._line.close()


class Supervisor:
    """Keeps ``count`` workers running until told to stop."""

    def __init__(self, arguments: Sequence[str], count: int, *, stop_timeout_s: float) -> None:
        self._arguments = list(arguments)
        self._stop_timeout_s = stop_timeout_s
        self._children = [_Child(number, self._arguments) for number in range(count)]

    def run(self) -> int:
        """Serve until told to stop; the exit status."""
        announced = False
        while True:
            number = signals.wait(_TICK_S)
            if signals.ends(number):
                return self._stop()
            if number == signal.SIGHUP:
                self._send(signal.SIGHUP)
            ready = [child.poll_ready() for child in self._children]
            if not announced and all(ready):
                announced = True
                systemd.notify("READY=1")
                LOG.info("All %d workers are ready", len(self._children))
            if not self._restart_dead(give_up=not announced):
                self._stop()
                return 1

    def _restart_dead(self, *, give_up: bool) -> bool:
        """False when a worker died before all were ever ready: the configuration is at fault."""
        for at, child in enumerate(self._children):
            status = child.process.poll()
            if status is None:
                continue
            if give_up:
                LOG.error("Worker %d ended with %d before it was ready", child.number, status)
                return False
            if time.monotonic() - child.started_s >= _RESTART_AFTER_S:
                LOG.warning("Worker %d ended with %d; starting it again", child.number, status)
                child.close()
                self._children[at] = _Child(child.number, self._arguments)
        return True

    def _send(self, number: signal.Signals) -> None:
        for child in self._children:
            if child.process.poll() is None:
                child.process.send_signal(number)

    def _stop(self) -> int:
        systemd.notify("STOPPING=1")
        self._send(signal.SIGTERM)
        deadline_s = time.monotonic() + self._stop_timeout_s + _KILL_GRACE_S
        statuses = [self._await(child, deadline_s) for child in self._children]
        return 0 if not any(statuses) else 1

    @staticmethod
    def _await(child: _Child, deadline_s: float) -> int:
        try:
            return child.process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            LOG.error("Worker %d did not stop in time and is killed", child.number)  # noqa: TRY400
            child.process.kill()
            return child.process.wait()
        finally:
            child.close()
