"""One worker process: start, wait for signals, drain.

SIGTERM or SIGINT: stop consuming, finish what was taken, give back the rest, exit 0; a second one
exits at once with 1. SIGHUP: read the configuration files again.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from typing import Any

from scheduler_worker import app
from scheduler_worker.cli import signals, systemd
from scheduler_worker.errors import SchedulerWorkerError

LOG = logging.getLogger(__name__)

_TICK_S = 0.5
READY = b"R"


class Daemon:
    """A worker under a process's signals.

    ``lifeline`` ties it to a supervisor: it says when the worker is ready, and its end ends the
    worker.
    """

    def __init__(self, worker: app.Worker, lifeline: socket.socket | None = None) -> None:
        self._worker = worker
        self._lifeline = lifeline
        self._failure: BaseException | None = None
        self._orphaned = threading.Event()

    def run(self) -> int:
        """Serve until told to stop; the exit status."""
        starting = threading.Thread(target=self._start, name="start", daemon=True)
        starting.start()
        if self._lifeline is not None:
            threading.Thread(target=self._watch, name="lifeline", daemon=True).start()
        while not self._orphaned.is_set():
            number = signals.wait(_TICK_S)
            if signals.ends(number):
                break
            if number == signal.SIGHUP:
                self._reload()
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
        systemd.notify("READY=1")
        if self._lifeline is not None:
            self._lifeline.sendall(READY)

    def _watch(self) -> None:
        assert self._lifeline is not None  # noqa: S101
        while self._lifeline.recv(1):
            pass
        LOG.warning("The supervisor is gone; stopping")
        self._orphaned.set()

    def _reload(self) -> None:
        systemd.notify("RELOADING=1")
        self._worker.reload()
        systemd.notify("READY=1")

    def _drain(self) -> int:
        systemd.notify("STOPPING=1")
        LOG.info("Stopping: finishing what was taken")
        impatient = threading.Thread(target=_exit_on_second_signal, name="impatient", daemon=True)
        impatient.start()
        finished = self._worker.stop()
        LOG.info("Stopped" if finished else "Stopped before everything was finished")
        return 0 if finished else 1


def _exit_on_second_signal() -> None:
    while not signals.ends(signals.wait(3600)):
        pass
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
