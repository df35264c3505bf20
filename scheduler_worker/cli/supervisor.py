"""``--workers N``: several worker processes of one configuration.

Each is started by exec (a process that has threads must not be forked), has a server name of its
own (``host.0``, ``host.1``, ...), and is restarted when it dies. Systemd's watchdog gets a
heartbeat while all of them send theirs.
"""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from scheduler_worker.cli import UNUSABLE, signals, systemd
from scheduler_worker.cli.daemon import READY

LOG = logging.getLogger(__name__)

_TICK_S = 0.2
_RESTART_AFTER_S = 1.0
_KILL_GRACE_S = 5.0


class _Child:
    """A worker process, and the socket (its lifeline) over which it sends heartbeats."""

    def __init__(self, number: int, arguments: Sequence[str]) -> None:
        self.number = number
        self.ready = False
        self.started_s = time.monotonic()
        self._heard_s = self.started_s
        self._lifeline, peer = socket.socketpair()
        self._lifeline.setblocking(False)
        command = [
            sys.executable, "-m", "scheduler_worker", *arguments,
            "--instance", str(number), "--lifeline", str(peer.fileno()),
        ]  # fmt: skip
        environment = {k: v for k, v in os.environ.items() if k != "NOTIFY_SOCKET"}
        self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, pass_fds=[peer.fileno()], env=environment
        )
        peer.close()

    def receive(self) -> None:
        """Read the worker's messages: that it is ready, and heartbeats."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            if received := self._lifeline.recv(4096):
                self.ready = self.ready or READY in received
                self._heard_s = time.monotonic()

    def silence_s(self) -> float:
        """Seconds since the worker's last heartbeat."""
        return time.monotonic() - self._heard_s

    def close(self) -> None:
        self._lifeline.close()


class Supervisor:
    """Keeps ``count`` workers running until a signal stops it."""

    def __init__(self, arguments: Sequence[str], count: int, *, stop_timeout_s: float) -> None:
        self._arguments = list(arguments)
        self._stop_timeout_s = stop_timeout_s
        self._watchdog = systemd.Watchdog()
        self._tick_s = min(_TICK_S, self._watchdog.interval_s)
        self._announced = False
        self._children = [_Child(number, self._arguments) for number in range(count)]

    def run(self) -> int:
        """Supervise until a signal asks to stop; return the exit status."""
        while True:
            number = signals.wait(self._tick_s)
            if signals.ends(number):
                return self._stop()
            if number is not None:
                self._send(number)
            self._check_children()
            failed = self._restart_dead()
            if failed is not None:
                self._stop()
                return failed

    def _check_children(self) -> None:
        """Read the workers' messages, and notify systemd."""
        for child in self._children:
            child.receive()
        if not self._announced and all(child.ready for child in self._children):
            self._announced = True
            systemd.notify("READY=1", f"STATUS=All {len(self._children)} workers are ready")
            LOG.info("All %d workers are ready", len(self._children))
        if all(child.silence_s() <= self._watchdog.interval_s for child in self._children):
            self._watchdog.feed()

    def _restart_dead(self) -> int | None:
        """Restart dead workers.

        Before all were ready return an exit status instead: 2 if the worker's was 2, else 1.
        """
        for at, child in enumerate(self._children):
            status = child.process.poll()
            if status is None:
                continue
            if not self._announced:
                LOG.error("Worker %d ended with %d before it was ready", child.number, status)
                return UNUSABLE if status == UNUSABLE else 1
            if time.monotonic() - child.started_s >= _RESTART_AFTER_S:
                LOG.warning("Worker %d ended with %d; starting it again", child.number, status)
                child.close()
                self._children[at] = _Child(child.number, self._arguments)
        return None

    def _send(self, number: int) -> None:
        for child in self._children:
            if child.process.poll() is None:
                child.process.send_signal(number)

    def _stop(self) -> int:
        systemd.notify("STOPPING=1", "STATUS=Waiting for the workers to finish")
        self._send(signal.SIGTERM)
        deadline_s = time.monotonic() + self._stop_timeout_s + _KILL_GRACE_S
        statuses = [self._await(child, deadline_s) for child in self._children]
        return 0 if not any(statuses) else 1

    def _await(self, child: _Child, deadline_s: float) -> int:
        while time.monotonic() < deadline_s:
            self._watchdog.feed()
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = child.process.wait(self._tick_s)
                child.close()
                return status
            if (number := signals.wait(0)) is not None:  # a second signal makes them exit at once
                self._send(number)
        LOG.error("Worker %d did not stop in time and is killed", child.number)
        child.process.kill()
        child.close()
        return child.process.wait()
