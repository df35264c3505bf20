"""Work that each cluster needs regularly, on one worker at a time.

The worker that did it last has the cluster's *turn*, a record that it renews by compare-and-set. It
takes the turn again after one interval, another worker after two: so it stays where everything is
cached already, and another continues where a worker was stopped, killed or cut off. No cluster lock
is held, so no decision waits for such work.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Generic, Self, TypeVar

import msgspec

from scheduler_worker import events
from scheduler_worker.errors import StateUnavailable
from scheduler_worker.events import Count
from scheduler_worker.observer import Observer
from scheduler_worker.ports import Clock, Guard, Put, Store, Transaction
from scheduler_worker.service.state.replica import Replica

LOG = logging.getLogger(__name__)

_TURN = "u:"
_KEEP_S = 86_400.0
_SHORTEST_LAPSE_S = 1.0
_STOP_S = 5.0


def lapse_s(interval_s: float) -> float:
    """After how many seconds a turn that was not renewed goes to another worker."""
    return max(2 * interval_s, _SHORTEST_LAPSE_S)


class Turn(msgspec.Struct, frozen=True):
    """The right to do the work of a cluster: held by the worker that did it last."""

    worker: str
    at_s: float
    """When it began, by the store's clock."""

    @classmethod
    def after(cls, before: Self | None, worker: str, now_s: float) -> Self:  # noqa: ARG003 - for turns that are numbered
        """The turn that ``worker`` takes now; ``before`` is the last one."""
        return cls(worker, now_s)

    def due_in_s(self, worker: str, now_s: float, interval_s: float) -> float:
        """The seconds until ``worker`` may take the next one.

        A turn from the future was taken before the store's clock was set back; it is void.
        """
        if self.at_s > now_s:
            return 0.0
        wait_s = interval_s if worker == self.worker else lapse_s(interval_s)
        return self.at_s + wait_s - now_s


AnyTurn = TypeVar("AnyTurn", bound=Turn)
Found = TypeVar("Found")


class TurnRecords(Replica, Generic[AnyTurn]):
    """A replica of a scope with turns: ``u:`` and a cluster's name is its turn."""

    def __init__(self, scope: str, form: type[AnyTurn]) -> None:
        super().__init__(scope)
        self.turns: dict[str, AnyTurn] = {}
        """By cluster."""
        self._form = form

    def take(self, key: str, version: int, value: bytes | None) -> None:
        if not key.startswith(_TURN):
            return
        cluster = key.removeprefix(_TURN)
        if value is None:
            self.turns.pop(cluster, None)
        else:
            self.turns[cluster] = msgspec.json.decode(value, type=self._form)

    def held_by(self, worker: str) -> list[str]:
        """The clusters whose turn is the worker's, by name; takes no lock."""
        return sorted(
            cluster for cluster, turn in dict(self.turns).items() if turn.worker == worker
        )

    def take_turn(
        self, store: Store, cluster: str, worker: str, interval_s: float
    ) -> tuple[AnyTurn | None, float]:
        """Return the turn if it is the worker's now, else None; and the seconds until it may be.

        Of several workers that want it one gets it. Raises StateUnavailable.
        """
        key = _TURN + cluster
        with self.lock:
            now_s = self.refresh(store).now_s
            before = self.turns.get(cluster)
            wait_s = before.due_in_s(worker, now_s, interval_s) if before else 0.0
            if wait_s > 0:
                return None, wait_s
            turn = self._form.after(before, worker, now_s)
            put = Put(key, msgspec.json.encode(turn), now_s + _KEEP_S)
            taking = Transaction([put], [Guard(key, self.version(key))])
            [is_ours] = store.write(self.scope, [taking]).applied
        return (turn if is_ours else None), interval_s


class Periodic:
    """A thread that does what is due, until it is stopped.

    ``run_due`` returns the seconds until it is to be called again, which :meth:`wake` cuts short.
    With an ``interval_s`` of 0 nothing starts.
    """

    def __init__(self, name: str, run_due: Callable[[], float], interval_s: float) -> None:
        self._name = name
        self._run_due = run_due
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_running(self) -> bool:
        """Whether the thread has started and not ended."""
        return self._thread.is_alive()

    @property
    def is_stopping(self) -> bool:
        """Whether nothing new is to begin."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Start the thread."""
        if self._interval_s:
            self._thread.start()

    def wake(self) -> None:
        """Call ``run_due`` now, or once more after the call that is running."""
        self._woken.set()

    def stop(self, timeout_s: float = _STOP_S) -> None:
        """Begin nothing new; wait up to ``timeout_s`` for the end of what is running."""
        self._stopping.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        wait_s = 0.0
        while True:
            self._woken.wait(wait_s)
            self._woken.clear()
            if self._stopping.is_set():
                return
            try:
                wait_s = self._run_due()
            except Exception:
                LOG.exception("The work of thread %s failed and will be retried", self._name)
                wait_s = self._interval_s


class ClusterTurns(Periodic, Generic[AnyTurn, Found]):
    """A thread that does the work of each cluster whose turn this worker gets.

    Shared state that cannot be reached ends a walk over the clusters; the next one is tried after
    an interval.
    """

    def __init__(
        self,
        name: str,
        records: TurnRecords[AnyTurn],
        store: Store,
        clock: Clock,
        *,
        worker: str,
        interval_s: float,
        clusters: Callable[[], Iterable[str]],
        run: Callable[[str, AnyTurn], Found],
        failed: Count,
        ended: Callable[[str, float, Found | None], None],
        not_ours: Callable[[str], None] = lambda _: None,
        observer: Observer,
    ) -> None:
        """``name`` is of the work, as in the log; ``worker`` is this one's, in the turns.

        ``clusters`` reads and returns what may be due. ``run`` does the work of a cluster; what it
        raises, other than StateUnavailable, affects no other cluster: it is logged, and counted as
        ``failed``. ``ended`` gets the seconds since the turn was taken, and what ``run`` returned,
        None after a failure. ``not_ours`` is called when a cluster's turn is another worker's.
        """
        super().__init__(name, self.run_due, interval_s)
        self.worker = f"{worker}/{uuid.uuid4()}"
        """Differs from that of the same worker before a restart."""
        self._records = records
        self._store = store
        self._clock = clock
        self._clusters = clusters
        self._run_one = run
        self._failed = failed
        self._ended = ended
        self._not_ours = not_ours
        self._observer = observer

    def run_due(self) -> float:
        """Do what is due here; return the seconds until the next may be."""
        wait_s = self._interval_s
        try:
            for cluster in self._clusters():
                if self.is_stopping:
                    break
                wait_s = min(wait_s, self._run_if_due(cluster))
        except StateUnavailable:
            self._observer.count(events.STATE_ERRORS)
        return wait_s

    def _run_if_due(self, cluster: str) -> float:
        began_s = self._clock.monotonic_s()
        turn, wait_s = self._records.take_turn(self._store, cluster, self.worker, self._interval_s)
        if turn is None:
            known = self._records.turns.get(cluster)
            if known is not None and known.worker != self.worker:
                self._not_ours(cluster)
            return wait_s
        found = None
        try:
            found = self._run_one(cluster, turn)
        except StateUnavailable:
            raise
        except Exception:
            LOG.exception("%s of cluster %s failed", self._name.capitalize(), cluster)
            self._observer.count(self._failed, cluster)
        took_s = self._clock.monotonic_s() - began_s
        self._ended(cluster, took_s, found)
        return max(0.0, self._interval_s - took_s)
