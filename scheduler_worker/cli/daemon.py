"""One worker process: start, wait for signals, show signs of life, drain.

SIGTERM or SIGINT: stop consuming, finish what was taken, give back the rest, exit 0; a second one
exits at once with 1. SIGHUP: read the configuration files again. SIGUSR1: dump what it is doing.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import socket
import threading
import time
from typing import Any

from scheduler_worker import app
from scheduler_worker.cli import signals, systemd
from scheduler_worker.errors import SchedulerWorkerError

LOG = logging.getLogger(__name__)

_TICK_S = 0.5
_STATUS_S = 5.0
READY = b"R"
ALIVE = b"."


class Daemon:
    """A worker under a process's signals.

    ``lifeline`` ties it to a supervisor: it says when the worker is ready, that it is alive, and
    its end ends the worker.
    """

    def __init__(self, worker: app.Worker, lifeline: socket.socket | None = None) -> None:
        self._worker = worker
        self._lifeline = lifeline
        self._failure: BaseException | None = None
        self._orphaned = threading.Event()
        self._serves = threading.Event()
        self._watchdog = systemd.Watchdog()
        self._tick_s = min(_TICK_S, self._watchdog.interval_s)
        self._hung: str | None = None
        self._status_due_s = 0.0

    def run(self) -> int:
        """Serve until told to stop; the exit status."""
        systemd.notify("STATUS=Starting")
        threading.Thread(target=self._start, name="start", daemon=True).start()
        if self._lifeline is not None:
            threading.Thread(target=self._watch, name="lifeline", daemon=True).start()
        while not self._orphaned.is_set():
            number = signals.wait(self._tick_s)
            if signals.ends(number):
                break
            self._heed(number)
            self._show_life()
            if self._failure is not None:
                LOG.error("The worker cannot start: %s", self._failure)
                return 1
        return self._drain()

    def _start(self) -> None:
        try:
            self._worker.start()
        except SchedulerWorkerError as error:
            self._failure = error
            return
        except BaseException as error:
            LOG.exception("The worker cannot start")
            self._failure = error
            return
        gc.freeze()  # all that is there now stays; to look through it would take 50 ms every time
        self._serves.set()
        systemd.notify("READY=1", "STATUS=Serving")
        self._tell_supervisor(READY)

    def _watch(self) -> None:
        assert self._lifeline is not None  # noqa: S101
        while self._lifeline.recv(1):
            pass
        LOG.warning("The supervisor is gone; stopping")
        self._orphaned.set()

    def _tell_supervisor(self, what: bytes) -> None:
        if self._lifeline is not None:
            with contextlib.suppress(OSError):  # it reads late, or is gone, which _watch sees
                self._lifeline.send(what, socket.MSG_DONTWAIT)

    def _heed(self, number: int | None) -> None:
        if number == signal.SIGHUP:
            self._reload()
        elif number == signal.SIGUSR1:
            threading.Thread(target=self._worker.dump, name="dump", daemon=True).start()

    def _reload(self) -> None:
        if not self._serves.is_set():
            self._worker.reload()
            return
        systemd.reloading()
        self._worker.reload()
        systemd.notify("READY=1")

    # Signs of life

    def _show_life(self) -> None:
        """Feed who watches us, unless the worker hangs."""
        hung = self._worker.is_alive() if self._serves.is_set() else None
        if hung and not self._hung:
            LOG.error("The worker hangs: %s", hung)
            systemd.notify(f"STATUS=Hangs: {hung}")
        self._hung = hung
        if not hung:
            self._feed()
            self._tell_status()

    def _feed(self) -> None:
        self._watchdog.feed()
        self._tell_supervisor(ALIVE)

    def _tell_status(self) -> None:
        now_s = time.monotonic()
        if self._serves.is_set() and now_s >= self._status_due_s:
            self._status_due_s = now_s + _STATUS_S
            missing = self._worker.monitor.last_missing()
            systemd.notify(
                f"STATUS=Not ready: {'; '.join(missing)}" if missing else "STATUS=Serving"
            )

    # The end

    def _drain(self) -> int:
        systemd.notify("STOPPING=1", "STATUS=Finishing what was taken")
        LOG.info("Stopping: finishing what was taken")
        threading.Thread(target=self._attend, name="attend", daemon=True).start()
        finished = self._worker.stop()
        LOG.info("Stopped" if finished else "Stopped before everything was finished")
        return 0 if finished else 1

    def _attend(self) -> None:
        """While the worker stops, which has a bound of its own, nobody shall take us for dead."""
        while not signals.ends(number := signals.wait(self._tick_s)):
            if number == signal.SIGUSR1:
                self._heed(number)
            self._feed()
        LOG.warning("Told to stop twice; leaving at once")
        os._exit(1)


def run(conf: Any, *, lifeline_fd: int | None = None) -> int:
    """Build the configured worker and serve; the exit status."""
    lifeline = socket.socket(fileno=lifeline_fd) if lifeline_fd is not None else None
    status = Daemon(app.build(conf), lifeline).run()
    if status:
        # Threads that did not finish would be waited for at an ordinary exit.
        logging.shutdown()
        os._exit(status)
    return status
