"""Work that each cluster needs regularly, on one worker at a time.

The worker that did it last leads the cluster, by a record that it renews by compare-and-set. It
does so again after one interval, another worker after two: so the work stays where everything is
cached already, and another continues where a worker was stopped, killed or cut off. No cluster lock
is held, so no decision waits for such work. Operators see it as leadership.
"""

import contextlib
import logging
import uuid
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, Self, TypeVar

import msgspec

from scheduler_worker.components import Periodic
from scheduler_worker.conversion import json_reader
from scheduler_worker.errors import StateUnavailable
from scheduler_worker.events import Count
from scheduler_worker.observer import Observer
from scheduler_worker.ports import Clock, Put, Store
from scheduler_worker.service.state.replica import RecordKind, Replica

LOG = logging.getLogger(__name__)

_LEADER = "u:"
# Longer than any interval: without its record anybody may take the lead.
_KEEP_S = 86_400.0
_SHORTEST_LAPSE_S = 1.0


def lapse_s(interval_s: float) -> float:
    """After how many seconds a leadership that was not renewed goes to another worker."""
    return max(2 * interval_s, _SHORTEST_LAPSE_S)


class Leadership(msgspec.Struct, frozen=True):
    """The right to do the work of a cluster: held by the worker that did it last."""

    worker: str
    at_s: float
    """When it began, by the store's clock."""

    @classmethod
    def after(cls, before: Self | None, worker: str, now_s: float) -> Self:  # noqa: ARG003 - some are numbered
        """The leadership that ``worker`` takes now; ``before`` is the last one."""
        return cls(worker, now_s)

    def due_in_s(self, worker: str, now_s: float, interval_s: float) -> float:
        """The seconds until ``worker`` may take the next one.

        A leadership from the future was taken before the store's clock was set back; it is void.
        """
        if self.at_s > now_s:
            return 0.0
        # The present leader comes first, so the work stays where its caches are warm.
        wait_s = interval_s if worker == self.worker else lapse_s(interval_s)
        return self.at_s + wait_s - now_s


AnyLeadership = TypeVar("AnyLeadership", bound=Leadership)
Found = TypeVar("Found")


class LeadershipRecords(Replica, Generic[AnyLeadership]):
    """A replica of a scope with leaderships: each under ``u:`` and a cluster's name."""

    def __init__(self, scope: str, form: type[AnyLeadership], *kinds: RecordKind[Any]) -> None:
        self.leaders = RecordKind(_LEADER, json_reader(form))
        """By cluster."""
        super().__init__(scope, self.leaders, *kinds)
        self._form = form

    def take_lead(
        self, store: Store, cluster: str, worker: str, interval_s: float
    ) -> tuple[AnyLeadership | None, float]:
        """Return the leadership if it is the worker's now; and the seconds until the next may be.

        Of several workers that want it one gets it. Raises StateUnavailable.
        """
        key = _LEADER + cluster
        with self.reading(store) as now_s:
            before = self.leaders.get(cluster)
            wait_s = before.due_in_s(worker, now_s, interval_s) if before else 0.0
            if wait_s > 0:
                return None, wait_s
            lead = self._form.after(before, worker, now_s)
            put = Put(key, msgspec.json.encode(lead), now_s + _KEEP_S)
            # Of two workers that find it due the guard refuses one.
            [is_ours] = store.write(self.scope, [self.replacing(put)]).applied
        return (lead if is_ours else None), interval_s


class ClusterLeader(Periodic, Generic[AnyLeadership, Found]):
    """A thread that does the work of each cluster that this worker leads.

    Shared state that cannot be reached ends a walk over the clusters; the next one is tried after
    an interval.
    """

    def __init__(
        self,
        name: str,
        records: LeadershipRecords[AnyLeadership],
        store: Store,
        clock: Clock,
        *,
        worker: str,
        interval_s: float,
        failed: Count,
        observer: Observer,
    ) -> None:
        """``name`` is of the work, as in the log; ``worker`` is this one's, in the records.

        ``failed`` counts the work of clusters that ended with an error.
        """
        super().__init__(name, self.run_due, interval_s)
        # A worker that was restarted must wait like any other: its caches are empty.
        self.worker = f"{worker}/{uuid.uuid4()}"
        """Differs from that of the same worker before a restart."""
        self._records = records
        self._store = store
        self._clock = clock
        self._failed = failed
        self._observer = observer

    @abstractmethod
    def clusters(self) -> Iterable[str]:
        """Read and return the clusters that may have work. Raises StateUnavailable."""

    @abstractmethod
    def run_cluster(self, cluster: str, lead: AnyLeadership) -> Found:
        """Do the work of a cluster.

        An error other than StateUnavailable is logged and counted, and affects no other cluster.
        """

    def ended(self, cluster: str, took_s: float, found: Found | None) -> None:
        """Called after the work, with the time since the lead was taken; None after an error."""

    def not_ours(self, cluster: str) -> None:
        """Called when another worker leads a cluster."""

    def led(self) -> list[str]:
        """The clusters that this worker led last, as far as it has read; takes no lock."""
        leaders = dict(self._records.leaders)
        return sorted(name for name, lead in leaders.items() if lead.worker == self.worker)

    def run_due(self) -> float:
        """Do what is due here; return the seconds until the next may be."""
        wait_s = self._interval_s
        with contextlib.suppress(StateUnavailable):
            for cluster in self.clusters():
                if self.is_stopping:
                    break
                wait_s = min(wait_s, self._run_if_due(cluster))
        return wait_s

    def _run_if_due(self, cluster: str) -> float:
        began_s = self._clock.monotonic_s()
        lead, wait_s = self._records.take_lead(self._store, cluster, self.worker, self._interval_s)
        if lead is None:
            known = self._records.leaders.get(cluster)
            if known is not None and known.worker != self.worker:
                self.not_ours(cluster)
            return wait_s
        finding = None
        try:
            finding = self.run_cluster(cluster, lead)
        # It concerns all clusters, so the walk over them ends.
        except StateUnavailable:
            raise
        except Exception:
            LOG.exception("%s of cluster %s failed", self._thread.name.capitalize(), cluster)
            self._observer.count(self._failed, cluster)
        took_s = self._clock.monotonic_s() - began_s
        self.ended(cluster, took_s, finding)
        # Intervals count from beginning to beginning, however long the work takes.
        return max(0.0, self._interval_s - took_s)
