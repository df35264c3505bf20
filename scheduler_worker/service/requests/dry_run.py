"""A dry run: requests that another scheduler serves are decided here too, and compared.

Nothing of the other scheduler's answers is seen; but the feed shows where the instances got to.
"""

import contextlib
import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from functools import partial

from scheduler_worker import events
from scheduler_worker.components import Periodic
from scheduler_worker.errors import SchedulerWorkerError, StateUnavailable
from scheduler_worker.observer import Observer
from scheduler_worker.ports import Clock
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.service.requests.comparison import (
    Comparison,
    DryRunSettings,
    Expectation,
    VerdictRecord,
    compared,
    known_of,
    weighers_of,
)
from scheduler_worker.service.requests.scheduler import Scheduler
from scheduler_worker.service.state.replica import Fleet

LOG = logging.getLogger(__name__)

_LOOK_S = 1.0
"""Between two looks at where instances are."""
_VERDICTS = 100
"""Verdicts that are kept for each request and cluster; others are looked up when they matter."""


class DryRun(Periodic):
    """Decides copies of requests, and compares them; safe for threads."""

    def __init__(
        self,
        scheduler: Scheduler,
        fleet: Fleet,
        clock: Clock,
        *,
        settings: DryRunSettings,
        observer: Observer,
    ) -> None:
        super().__init__("dry-run", self.run_due, _LOOK_S)
        self._scheduler = scheduler
        self._fleet = fleet
        self._clock = clock
        self._settings = settings
        self._observer = observer
        self._guard = threading.Lock()
        self._pending: OrderedDict[tuple[str, ...], Expectation] = OrderedDict()
        self._counts: Counter[Comparison] = Counter()
        """Since the last summary."""
        self._summary_due_s = clock.monotonic_s() + settings.summary_interval_s

    def take(self, request: Request) -> None:
        """Decide a copy of a request now; reserves nothing.

        Raises:
            NoValidHost: not all hosts are known yet; it is not compared.
            RequestError, StateUnavailable: it cannot be decided.
        """
        spec = request.spec
        if spec.is_rebuild_check:
            return  # it chooses nothing
        self._fleet.refresh()
        ids = request.instance_uuids
        is_move = bool(spec.ignore_hosts) or spec.requested_destination is not None
        ignored = frozenset(spec.ignore_hosts or ())
        before = frozenset(
            (uuid, host) for uuid in ids for host in self._fleet.hosts_of(uuid)
            if is_move or host in ignored
        )  # fmt: skip
        hosts, explanation = self._scheduler.rehearse(request, limit=_VERDICTS)
        dropped: list[str] = []
        with self._guard:
            self._pending.pop(ids, None)
            self._pending[ids] = Expectation(
                request,
                hosts,
                known=known_of(explanation),
                weighers=weighers_of(explanation),
                refusal=explanation.reason or "",
                before=before,
                due_s=self._clock.monotonic_s() + self._settings.wait_s,
                is_overlapped=bool(self._pending),
            )
            while len(self._pending) > self._settings.max_requests:
                dropped += self._pending.popitem(last=False)[0]
        self._count([Comparison.DROPPED] * len(dropped))

    def leave_out(self) -> None:
        """Count a copy that could not be decided."""
        self._count([Comparison.UNDECIDED])

    def run_due(self) -> float:
        """Compare what has shown or is overdue; returns the seconds until the next check."""
        now_s = self._clock.monotonic_s()
        with contextlib.suppress(StateUnavailable):
            self._look(now_s)
        if now_s >= self._summary_due_s:
            self._summary_due_s = now_s + self._settings.summary_interval_s
            self._sum_up()
        return _LOOK_S

    def stop(self) -> None:
        """End the thread, and log the last summary."""
        super().stop()
        self._sum_up()

    def _look(self, now_s: float) -> None:
        with self._guard:
            waiting = list(self._pending.items())
        if waiting:
            self._fleet.refresh()
        for ids, pending in waiting:
            current_hosts = {uuid: self._arrived(uuid, pending) for uuid in ids}
            if None in current_hosts.values() and now_s < pending.due_s:
                continue
            with self._guard:
                if self._pending.get(ids) is not pending:
                    continue  # asked for again in the meantime
                del self._pending[ids]
            differences = compared(
                pending,
                current_hosts,
                subset_size=self._settings.subset_size,
                look_up=partial(self._verdict_by_now, pending.request),
            )
            request_id = pending.request.request_id or "-"
            for instance, result, why in differences:
                if why:
                    text = "Dry run: instance %s (request %s) %s: %s"
                    LOG.warning(text, instance, request_id, result, why)
            self._count([difference.result for difference in differences])

    def _arrived(self, uuid: str, pending: Expectation) -> str | None:
        """The host that an instance got to; None: none yet."""
        hosts = {host for host in self._fleet.hosts_of(uuid) if (uuid, host) not in pending.before}
        return min(hosts, default=None)

    def _verdict_by_now(self, request: Request, host: str) -> VerdictRecord | None:
        try:
            return known_of(self._scheduler.explain(request, hosts=(host,))).get(host)
        except SchedulerWorkerError:
            return None

    def _count(self, results: Sequence[Comparison]) -> None:
        with self._guard:
            self._counts.update(results)
        for result in results:
            self._observer.count(events.DRY_RUN, result)

    def _sum_up(self) -> None:
        with self._guard:
            counts, self._counts = self._counts, Counter()
            waiting = len(self._pending)
        text = ", ".join(f"{counts[result]} {result}" for result in Comparison if counts[result])
        LOG.info("Dry run: %s; %d requests are waited for", text or "nothing compared", waiting)
