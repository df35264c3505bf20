"""One worker process: start, wait for signals, send heartbeats, drain.

SIGTERM or SIGINT: stop consuming, finish the requests in hand, requeue the rest, exit 0; a second
one exits at once with 1. A worker that cannot go on exits with 70. SIGHUP: read the configuration
files again, in a thread, for a file system may hang. SIGUSR1: dump the worker's state.
"""

import contextlib
import gc
import logging
import os
import signal
import socket
import threading
import time
from typing import Any

from scheduler_worker.cli import signals, systemd
from scheduler_worker.compose.worker import Worker, build_worker
from scheduler_worker.errors import SchedulerWorkerError

LOG = logging.getLogger(__name__)

_TICK_S = 0.5
_STATUS_S = 5.0
BROKEN = 70
"""The exit status of a worker that cannot go on (EX_SOFTWARE); its supervisor restarts it."""
READY = b"R"
ALIVE = b"."


class Daemon:
    """Runs a worker under a process's signals.

    ``lifeline`` is a socket to the supervisor: it carries readiness and heartbeats, and the worker
    stops when it is closed.
    """

    def __init__(self, worker: Worker, lifeline: socket.socket | None = None) -> None:
        self._worker = worker
        self._lifeline = lifeline
        self._failure: BaseException | None = None
        self._orphaned = threading.Event()
        self._serves = threading.Event()
        self._reload_wanted = threading.Event()
        self._watchdog = systemd.Watchdog()
        self._tick_s = min(_TICK_S, self._watchdog.interval_s)
        self._hung: str | None = None
        self._status_due_s = 0.0

    def run(self) -> int:
        """Serve until a signal asks to stop; return the exit status."""
        systemd.notify("STATUS=Starting")
        threading.Thread(target=self._start, name="start", daemon=True).start()
        threading.Thread(target=self._reload_if_wanted, name="reload", daemon=True).start()
        if self._lifeline is not None:
            threading.Thread(target=self._watch, name="lifeline", daemon=True).start()
        while not self._orphaned.is_set():
            number = signals.wait(self._tick_s)
            if signals.ends(number):
                break
            self._handle(number)
            self._send_heartbeats()
            if self._failure is not None:
                LOG.error("The worker cannot start: %s", self._failure)
                return 1
            if self._serves.is_set() and (broken := self._worker.failure()) is not None:
                LOG.critical("The worker cannot go on and ends: %s", broken)
                self._drain()
                return BROKEN
        return self._drain()

    def _start(self) -> None:
        try:
            if not self._worker.start():
                return  # a signal stopped it meanwhile
        except SchedulerWorkerError as error:
            self._failure = error
            return
        except BaseException as error:
            LOG.exception("The worker cannot start")
            self._failure = error
            return
        gc.freeze()  # these objects stay; each full collection would spend 50 ms on them
        self._serves.set()
        systemd.notify("READY=1", "STATUS=Serving")
        self._notify_supervisor(READY)

    def _watch(self) -> None:
        assert self._lifeline is not None  # noqa: S101
        # A supervisor that is killed with unread heartbeats resets the connection.
        with contextlib.suppress(OSError):
            while self._lifeline.recv(1):
                pass
        LOG.warning("The supervisor is gone; stopping")
        self._orphaned.set()

    def _notify_supervisor(self, message: bytes) -> None:
        if self._lifeline is not None:
            with contextlib.suppress(OSError):  # it reads late, or is gone, which _watch notices
                self._lifeline.send(message, socket.MSG_DONTWAIT)

    def _handle(self, number: int | None) -> None:
        if number == signal.SIGHUP:
            self._reload_wanted.set()
        elif number == signal.SIGUSR1:
            threading.Thread(target=self._worker.dump, name="dump", daemon=True).start()

    def _reload_if_wanted(self) -> None:
        while self._reload_wanted.wait():
            self._reload_wanted.clear()
            self._reload()

    def _reload(self) -> None:
        if not self._serves.is_set():
            self._worker.reload()
            return
        systemd.notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        self._worker.reload()
        systemd.notify("READY=1")

    # Heartbeats

    def _send_heartbeats(self) -> None:
        """Send heartbeats to systemd and the supervisor, unless the worker hangs."""
        hung = self._worker.vitals.is_alive() if self._serves.is_set() else None
        if hung and not self._hung:
            LOG.error("The worker hangs: %s", hung)
            systemd.notify(f"STATUS=Hangs: {hung}")
        self._hung = hung
        if not hung:
            self._beat()
            self._notify_status()

    def _beat(self) -> None:
        self._watchdog.feed()
        self._notify_supervisor(ALIVE)

    def _notify_status(self) -> None:
        now_s = time.monotonic()
        if self._serves.is_set() and now_s >= self._status_due_s:
            self._status_due_s = now_s + _STATUS_S
            missing = self._worker.monitor.last_missing()
            systemd.notify(
                f"STATUS=Not ready: {'; '.join(missing)}" if missing else "STATUS=Serving"
            )

    # The end

    def _drain(self) -> int:
        systemd.notify("STOPPING=1", "STATUS=Finishing the requests in hand")
        LOG.info("Stopping: finishing the requests in hand")
        threading.Thread(target=self._beat_while_stopping, name="stopping", daemon=True).start()
        finished = self._worker.stop()
        LOG.info("Stopped" if finished else "Stopped before everything was finished")
        return 0 if finished else 1

    def _beat_while_stopping(self) -> None:
        """Send heartbeats while the worker stops, which has a timeout of its own."""
        while not signals.ends(number := signals.wait(self._tick_s)):
            if number == signal.SIGUSR1:
                self._handle(number)
            self._beat()
        LOG.warning("A second signal to stop; exiting at once")
        os._exit(1)


def run(conf: Any, *, lifeline_fd: int | None = None) -> int:
    """Build the configured worker and serve; return the exit status."""
    lifeline = socket.socket(fileno=lifeline_fd) if lifeline_fd is not None else None
    status = Daemon(build_worker(conf), lifeline).run()
    if status:
        # An ordinary exit would wait for threads that did not finish.
        logging.shutdown()
        os._exit(status)
    return status
