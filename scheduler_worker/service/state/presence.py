"""Which workers there are, and what each reports of itself, for operators; nothing depends on it.

A worker renews both records while it serves, and removes them when it stops; records of a worker
that was killed expire. They are under ``w:`` and its name in two scopes: who only lists the workers
does not read the reports, and neither do workers of versions that know of none.
"""

import contextlib
import logging
import threading
from collections.abc import Callable

import msgspec

from scheduler_worker.components import Periodic
from scheduler_worker.conversion import json_reader
from scheduler_worker.errors import Conflict, RequestError, StateUnavailable
from scheduler_worker.model.worker_reports import WorkerFacts, WorkerReport
from scheduler_worker.ports import Guard, Put, Seen, Store, Transaction
from scheduler_worker.service.state.replica import RecordKind, Replica

LOG = logging.getLogger(__name__)

SCOPE, REPORTS_SCOPE = "@workers", "@reports"
_KEY = "w:"
RENEW_S = 10.0
LASTS_S = 30.0
"""How long a record outlives its last renewal."""
SILENT_S = 2 * RENEW_S
"""A worker that has reported nothing for so long counts as silent."""
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


def workers(store: Store) -> list[WorkerFacts]:
    """The workers that serve now, by name. Raises StateUnavailable."""
    records = WorkerRecords()
    with records.reading(store):
        return [records.workers[name] for name in sorted(records.workers)]


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
        workers, reports = WorkerRecords(), ReportRecords()
        with workers.reading(self._store) as now_s:
            others = dict(workers.workers)
        others.pop(self.facts.name, None)
        with reports.reading(self._store):
            heard_s = {name: report.at_s for name, report in reports.reports.items()}
        for name, other in sorted(others.items()):
            takes_requests = not other.is_drained and not other.is_dry_run
            is_silent = now_s - heard_s.get(name, now_s) > SILENT_S
            if other.topic == self.facts.topic and takes_requests and not is_silent:
                return Guard(_KEY + name, workers.versions[_KEY + name]), now_s + LASTS_S
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
            report = msgspec.structs.replace(self._report(), at_s=now_s)
            self._write(REPORTS_SCOPE, report, now_s + LASTS_S)
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
