"""A dry run: requests that another scheduler serves are decided here too, and compared.

Nothing of the other scheduler's answers is seen; but the feed shows where the instances got to.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import NamedTuple, Protocol

from scheduler_worker import events
from scheduler_worker.errors import SchedulerWorkerError, StateUnavailable
from scheduler_worker.model.decisions import Explanation
from scheduler_worker.observer import Observer
from scheduler_worker.ports import Clock
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.service.dry_run.comparison import (
    Comparison,
    Difference,
    Expectation,
    Known,
    compared,
)
from scheduler_worker.service.dry_run.settings import DryRunSettings
from scheduler_worker.service.placement.rehearsal import Rehearsal
from scheduler_worker.service.state.replica import Fleet
from scheduler_worker.service.state.turns import Periodic

LOG = logging.getLogger(__name__)

_LOOK_S = 1.0
"""Between two looks at where instances are."""
_VERDICTS = 100
"""Verdicts that are kept for each request and cluster; others are looked up when they matter."""


class Rehearsing(Protocol):
    """The part of the scheduler that is used."""

    def rehearse(self, request: Request, *, limit: int) -> Rehearsal: ...

    def explain(
        self, request: Request, *, hosts: tuple[str, ...] = (), limit: int = 100
    ) -> Explanation: ...


class _Pending(NamedTuple):
    """A request whose instances have not all shown yet."""

    request: Request
    expected: Expectation
    before: frozenset[tuple[str, str]]
    """Instance and host, of those that do not count: where the instances are moved from."""
    due_s: float
    is_overlapped: bool


class DryRun:
    """Decides copies of requests, and compares them; safe for threads."""

    def __init__(
        self,
        scheduler: Rehearsing,
        fleet: Fleet,
        clock: Clock,
        *,
        settings: DryRunSettings,
        observer: Observer | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._fleet = fleet
        self._clock = clock
        self._settings = settings
        self._observer = observer or Observer()
        self._guard = threading.Lock()
        self._pending: OrderedDict[tuple[str, ...], _Pending] = OrderedDict()
        self._counts: Counter[Comparison] = Counter()
        """Since the last summary."""
        self._summary_due_s = clock.monotonic_s() + settings.summary_interval_s
        self.task = Periodic("dry-run", self.run_due, _LOOK_S)
        """The thread that compares."""

    @property
    def waiting(self) -> int:
        """How many requests wait for their instances to show."""
        return len(self._pending)

    def take(self, request: Request) -> None:
        """Decide a copy of a request now; reserves nothing.

        Raises:
            NoValidHost: not all hosts are known yet; it is not compared.
            RequestError, StateUnavailable: it cannot be decided.
        """
        spec = request.spec
        if spec.is_rebuild_check:
            return  # it chooses nothing
        self._refresh()
        ids = request.instance_uuids
        is_move = bool(spec.ignore_hosts) or spec.requested_destination is not None
        ignored = frozenset(spec.ignore_hosts or ())
        before = frozenset(
            (uuid, host) for uuid in ids for host in self._hosts(uuid)
            if is_move or host in ignored
        )  # fmt: skip
        expected = Expectation.of(self._scheduler.rehearse(request, limit=_VERDICTS))
        due_s = self._clock.monotonic_s() + self._settings.wait_s
        with self._guard:
            self._pending.pop(ids, None)
            pending = _Pending(request, expected, before, due_s, bool(self._pending))
            self._pending[ids] = pending
            dropped = []
            while len(self._pending) > self._settings.max_requests:
                _, oldest = self._pending.popitem(last=False)
                dropped.append(oldest)
        for each in dropped:
            self._count(
                [Difference(uuid, Comparison.DROPPED) for uuid in each.request.instance_uuids]
            )

    def leave_out(self) -> None:
        """Count a copy that could not be decided."""
        self._count([Difference("", Comparison.UNDECIDED)])

    def run_due(self) -> float:
        """Compare what has shown or is overdue; returns the seconds until the next look."""
        now_s = self._clock.monotonic_s()
        try:
            self._look(now_s)
        except StateUnavailable:
            self._observer.count(events.STATE_ERRORS)
        if now_s >= self._summary_due_s:
            self._summary_due_s = now_s + self._settings.summary_interval_s
            self._sum_up()
        return _LOOK_S

    def stop(self) -> None:
        """End the thread, and log the last summary."""
        self.task.stop()
        self._sum_up()

    def _look(self, now_s: float) -> None:
        with self._guard:
            waiting = list(self._pending.items())
        if waiting:
            self._refresh()
        for ids, pending in waiting:
            theirs = {uuid: self._arrived(uuid, pending) for uuid in ids}
            if None in theirs.values() and now_s < pending.due_s:
                continue
            with self._guard:
                if self._pending.get(ids) is not pending:
                    continue  # asked for again in the meantime
                del self._pending[ids]
            differences = compared(
                pending.expected,
                theirs,
                subset_size=self._settings.subset_size,
                is_overlapped=pending.is_overlapped,
                look_up=self._looking_up(pending.request),
            )
            self._log(pending, differences)
            self._count(differences)

    def _arrived(self, uuid: str, pending: _Pending) -> str | None:
        """The host that an instance got to; None: none yet."""
        hosts = {host for host in self._hosts(uuid) if (uuid, host) not in pending.before}
        return min(hosts, default=None)

    def _looking_up(self, request: Request) -> Callable[[str], Known | None]:
        def known(host: str) -> Known | None:
            try:
                explanation = self._scheduler.explain(request, hosts=(host,))
            except SchedulerWorkerError:
                return None
            found = Expectation.of(Rehearsal((), explanation)).known
            return found.get(host)

        return known

    def _log(self, pending: _Pending, differences: list[Difference]) -> None:
        for each in differences:
            if each.why:
                LOG.warning(
                    "Dry run: instance %s (request %s) %s: %s",
                    each.instance, pending.request.request_id or "-", each.result, each.why,
                )  # fmt: skip

    def _count(self, differences: list[Difference]) -> None:
        with self._guard:
            self._counts.update(each.result for each in differences)
        for each in differences:
            self._observer.count(events.DRY_RUN, each.result)

    def _sum_up(self) -> None:
        with self._guard:
            counts, self._counts = self._counts, Counter()
            waiting = len(self._pending)
        text = ", ".join(f"{counts[each]} {each}" for each in Comparison if counts[each])
        LOG.info("Dry run: %s; %d requests are waited for", text or "nothing compared", waiting)

    # Where instances are

    def _refresh(self) -> None:
        for replica in self._fleet.clusters():
            with replica.lock:
                replica.refresh(self._fleet.store)

    def _hosts(self, uuid: str) -> set[str]:
        found: set[str] = set()
        for replica in self._fleet.clusters():
            with replica.lock:
                found.update(replica.table.hosts_reporting(uuid))
        return found
