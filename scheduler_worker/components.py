"""What runs in a process: started in the order of one list, stopped in the reverse order."""

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

LOG = logging.getLogger(__name__)

_STOP_S = 5.0


class Component(Protocol):
    """A part of a process that runs.

    A stop may come from another thread while the start is under way, and then once more after it.
    """

    def start(self) -> object:
        """Begin; once stopped, do nothing. Raises what keeps the process from serving."""

    def stop(self) -> object:
        """End all threads and close what is open. Idempotent, also before :meth:`start`."""


class Hook(NamedTuple):
    """A component of two functions, either of which may be left out."""

    start: Callable[[], object] = lambda: None
    stop: Callable[[], object] = lambda: None


class Components:
    """The components of a process, each of which may use those before it."""

    def __init__(self, *components: Component | None) -> None:
        """None stands for a component that this process does not have."""
        self.all = [component for component in components if component is not None]
        """In the order of the start."""
        self._guard = threading.Lock()
        self._is_stopping = False

    def start(self) -> bool:
        """Start all in their order; False if :meth:`stop` came first, from any thread.

        Raises what a component raises, unless the stop has made it fail.
        """
        for component in self.all:
            if self._is_stopping:
                break
            try:
                component.start()
            except Exception:
                if not self._is_stopping:
                    raise
                LOG.debug("The stop ended the start", exc_info=True)
            if self._is_stopping:  # its stop may have come before its start
                component.stop()
        return not self._is_stopping

    def stop(self) -> None:
        """Stop all in the reverse order, whatever one of them raises. Idempotent."""
        with self._guard:
            was_stopping, self._is_stopping = self._is_stopping, True
        if was_stopping:
            return
        for component in reversed(self.all):
            try:
                component.stop()
            except Exception:
                LOG.exception("A part of the process did not stop as it should")


class Periodic:
    """A component with a thread that does what is due.

    ``run_due`` returns the seconds until it is to be called again, which :meth:`wake` cuts short.
    After an error it is called again after ``interval_s``; with an interval of 0 nothing starts.
    """

    def __init__(
        self,
        name: str,
        run_due: Callable[[], float],
        interval_s: float,
        *,
        first_s: float = 0.0,
        finishes: bool = False,
    ) -> None:
        """The first call comes after ``first_s``; ``finishes``: one more when it stops."""
        self._run_due = run_due
        self._interval_s = interval_s
        self._first_s = first_s
        self._finishes = finishes
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._starting = threading.Lock()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    @property
    def is_running(self) -> bool:
        """Whether the thread has started and not ended."""
        return self._thread.is_alive()

    @property
    def is_stopping(self) -> bool:
        """Whether nothing new is to begin."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Start the thread, once, and not after a stop."""
        with self._starting:
            if self._interval_s and self._thread.ident is None and not self.is_stopping:
                self._thread.start()

    def wake(self) -> None:
        """Call ``run_due`` now, or once more after the call that is running."""
        self._woken.set()

    def stop(self) -> None:
        """Begin nothing new; wait for the end of what is running, for some seconds at most."""
        with self._starting:
            self._stopping.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def _work(self) -> None:
        wait_s = self._first_s
        is_last = False
        while not is_last:
            self._woken.wait(wait_s)
            self._woken.clear()
            is_last = self._stopping.is_set()
            if is_last and not self._finishes:
                return
            try:
                wait_s = self._run_due()
            except Exception:
                LOG.exception("The work of thread %s failed and will be retried", self._thread.name)
                wait_s = self._interval_s
