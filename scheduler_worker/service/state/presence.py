"""Which workers there are, and what each reports of itself, for operators; nothing depends on it.

A worker renews both records while it serves, and removes them when it stops. Of a worker that was
killed, the presence expires, and the report stays for a day or until it is dismissed. They are
under ``w:`` and its name in two scopes: workers of versions that know of no reports read the first.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from scheduler_worker.components import Periodic
from scheduler_worker.conversion import json_reader
from scheduler_worker.errors import Conflict, NotFound, RequestError, StateUnavailable
from scheduler_worker.model.worker_reports import WorkerFacts, WorkerReport, WorkerState
from scheduler_worker.ports import ABSENT, Guard, Put, Seen, Store, Transaction
from scheduler_worker.remedies import DRAINED
from scheduler_worker.service.state.replica import RecordKind, Replica

LOG = logging.getLogger(__name__)

SCOPE, REPORTS_SCOPE = "@workers", "@reports"
_KEY = "w:"
RENEW_S = 10.0
LASTS_S = 30.0
"""How long a worker's presence outlives its last renewal."""
REPORT_LASTS_S = 86_400.0
"""How long a report does, so that a lost worker stays in view."""
LOST_S = 2 * RENEW_S
"""A worker that has reported nothing for so long counts as lost."""
_DRAIN_TRIES = 5
"""Each fails where the other worker's record was just renewed."""


class WorkerRecords(Replica):
    """A replica of who there is."""

    def __init__(self) -> None:
        self.workers = RecordKind(_KEY, json_reader(WorkerFacts))
        """By name."""
        super().__init__(SCOPE, self.workers)


class ReportRecords(Replica):
    """A replica of the reports."""

    def __init__(self) -> None:
        self.reports = RecordKind(_KEY, json_reader(WorkerReport))
        """By the names of the workers."""
        super().__init__(REPORTS_SCOPE, self.reports)

    def take(self, key: str, version: int, value: bytes | None) -> None:
        # First forget the one before: a report that cannot be read leaves none, not an old one.
        super().take(key, version, None)
        try:
            super().take(key, version, value)
        except msgspec.DecodeError as error:
            LOG.debug("The report %s, of another version, is left out: %s", key, error)


class WorkerHealth(NamedTuple):
    """A worker as the shared state knows it."""

    facts: WorkerFacts
    report: WorkerReport | None = None
    """None: it is of a version that makes none, or has just begun."""
    age_s: float = 0.0
    """How old the report is."""

    @property
    def name(self) -> str:
        """``[DEFAULT] host``."""
        return self.facts.name

    @property
    def is_lost(self) -> bool:
        """Whether it should have reported again by now: it was killed, hangs or is cut off."""
        return self.report is not None and self.age_s > LOST_S

    @property
    def missing(self) -> list[str]:
        """What keeps it from serving, but for a drain."""
        return [text for text in self.report.missing if text != DRAINED] if self.report else []

    @property
    def state(self) -> WorkerState:
        """In one word or two."""
        if self.is_lost:
            return "lost"
        if self.report is None and not (self.facts.is_dry_run or self.facts.is_drained):
            return "no report"
        in_hand = self.report.running + self.report.waiting if self.report else 0
        return state_of(self.facts, self.missing, in_hand)


def state_of(facts: WorkerFacts, missing: Sequence[str], in_hand: int) -> WorkerState:
    """The state of a worker that answers: with what is missing, and its requests in hand."""
    if facts.is_dry_run:
        return "dry run"
    if facts.is_drained:
        return "draining" if in_hand else "drained"
    return "not ready" if any(text != DRAINED for text in missing) else "serving"


class ReportedWorkers:
    """Reads the records again and again, each time what has changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._workers = WorkerRecords()
        self._reports = ReportRecords()
        self.now_s = 0.0
        """The store's time of the last reading."""

    def read(self) -> list[WorkerHealth]:
        """The workers, by name; lost ones for a day. Raises StateUnavailable."""
        with self._workers.reading(self._store):
            present = dict(self._workers.workers)
        with self._reports.reading(self._store) as self.now_s:
            reports = dict(self._reports.reports)
        return [
            _reported(facts, reports.get(name), self.now_s)
            for name in sorted(present.keys() | reports.keys())
            if (facts := present.get(name) or reports[name].facts) is not None
        ]

    def guard(self, name: str) -> Guard:
        """The record of a worker that is there, as it was read."""
        return Guard(_KEY + name, self._workers.versions.get(_KEY + name, ABSENT))

    def check_lost(self, name: str) -> None:
        """Raises NotFound, StateUnavailable, and Conflict: it reports."""
        known = {worker.name: worker for worker in self.read()}
        if name not in known:
            raise NotFound("worker", name)
        if not known[name].is_lost:
            raise Conflict(f"Worker {name!r} reports; stop it in place of dismissing it.")

    def forget(self, name: str) -> None:
        """Remove a lost worker from view. Raises as :meth:`check_lost`."""
        self.check_lost(name)
        key = _KEY + name
        guard = Guard(key, self._reports.versions.get(key, ABSENT))
        if not all(
            self._store.write(REPORTS_SCOPE, [Transaction([Put(key, None)], [guard])]).applied
        ):
            raise Conflict(f"Worker {name!r} reports again.")
        self._store.write(SCOPE, [Transaction([Put(key, None)], [self.guard(name)])])


def _reported(facts: WorkerFacts, report: WorkerReport | None, now_s: float) -> WorkerHealth:
    return WorkerHealth(facts, report, 0.0 if report is None else max(0.0, now_s - report.at_s))


class Presence(Periodic):
    """Keeps the records of one worker while it runs."""

    def __init__(
        self, store: Store, facts: WorkerFacts, report: Callable[[], WorkerReport] = WorkerReport
    ) -> None:
        """``report`` says how the worker is, and may take some seconds."""
        super().__init__("presence", self.renew, RENEW_S)
        self._store = store
        self.facts = facts
        """What the record says, or will say once it is written."""
        self._report = report
        self._writing = threading.Lock()
        """Held while the record is written, so that the last record is true."""

    def drain(self) -> None:
        """Write that this worker takes no requests, if another one of its topic does.

        Of the last two workers that are drained at a time, the second is refused.
        Raises RequestError: it is the last; Conflict, StateUnavailable.
        """
        facts = msgspec.structs.replace(self.facts, is_drained=True)
        for _ in range(_DRAIN_TRIES):
            with self._writing:
                guard, until_s = self._another()
                put = Put(_KEY + facts.name, msgspec.json.encode(facts), until_s)
                if all(self._store.write(SCOPE, [Transaction([put], [guard])]).applied):
                    self.facts = facts
                    return
        raise Conflict("The other workers changed in every attempt to drain this one; try again.")

    def _another(self) -> tuple[Guard, float]:
        """Another worker that takes requests, by its record; and when a record of now expires."""
        workers = ReportedWorkers(self._store)
        for other in workers.read():
            takes_requests = not (other.facts.is_drained or other.facts.is_dry_run or other.is_lost)
            is_another = other.name != self.facts.name and other.facts.topic == self.facts.topic
            if is_another and takes_requests:
                return workers.guard(other.name), workers.now_s + LASTS_S
        raise RequestError(
            "worker",
            "no other worker would take requests: they would wait in the queue, and time out; "
            "start or resume another one first, or drain this one as the last (--last)",
        )

    def set_drained(self, is_drained: bool) -> None:
        """Write it into the record as soon as possible, in the thread."""
        self.facts = msgspec.structs.replace(self.facts, is_drained=is_drained)
        self.wake()

    def renew(self) -> float:
        """Write the records; returns the seconds until the next time.

        Raises only what the report raises; the worker is known then.
        """
        with contextlib.suppress(StateUnavailable):
            now_s = self._store.changes(SCOPE, Seen()).now_s
            with self._writing:
                self._write(SCOPE, self.facts, now_s + LASTS_S)
            # After the presence: a report may take seconds, and others must not miss the worker.
            report = msgspec.structs.replace(self._report(), at_s=now_s, facts=self.facts)
            self._write(REPORTS_SCOPE, report, now_s + REPORT_LASTS_S)
        return RENEW_S

    def stop(self) -> None:
        """End the thread, and remove the records."""
        was_running = self.is_running
        super().stop()
        # Records of a worker that never ran may be those of another one of its name.
        if was_running:
            try:
                self._write(SCOPE, None)
                self._write(REPORTS_SCOPE, None)
            except StateUnavailable:
                LOG.debug("The records of this worker were not removed; they expire", exc_info=True)

    def _write(
        self, scope: str, record: WorkerFacts | WorkerReport | None, until_s: float | None = None
    ) -> None:
        value = None if record is None else msgspec.json.encode(record)
        self._store.write(scope, [Transaction([Put(_KEY + self.facts.name, value, until_s)])])
