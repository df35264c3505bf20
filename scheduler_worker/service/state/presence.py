"""Which workers there are: scope ``@workers``, one record under ``w:`` and the name of each.

A worker renews its record while it serves, with its report (``reports.py``), and removes both when
it stops; those of one that was killed expire. Nothing depends on them but what operators are told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from scheduler_worker import events
from scheduler_worker.components import Periodic
from scheduler_worker.errors import StateUnavailable
from scheduler_worker.model.worker_reports import WorkerFacts, WorkerReport
from scheduler_worker.observer import Observer
from scheduler_worker.ports import Put, Seen, Store, Transaction
from scheduler_worker.service.state import reports
from scheduler_worker.service.state.replica import Replica

LOG = logging.getLogger(__name__)

SCOPE = "@workers"
_KEY = "w:"
RENEW_S = 10.0
LASTS_S = 30.0
"""How long a record outlives its last renewal."""


class WorkerRecords(Replica):
    """A replica of the records."""

    def __init__(self) -> None:
        super().__init__(SCOPE)
        self.workers: dict[str, WorkerFacts] = {}
        """By name."""

    def take(self, key: str, version: int, value: bytes | None) -> None:
        name = key.removeprefix(_KEY)
        if value is None:
            self.workers.pop(name, None)
        else:
            self.workers[name] = msgspec.json.decode(value, type=WorkerFacts)


def workers(store: Store) -> list[WorkerFacts]:
    """The workers that serve now, by name. Raises StateUnavailable."""
    records = WorkerRecords()
    with records.lock:
        records.refresh(store)
        return [records.workers[name] for name in sorted(records.workers)]


class Presence(Periodic):
    """Keeps the records of one worker while it runs."""

    def __init__(
        self,
        store: Store,
        facts: WorkerFacts,
        observer: Observer,
        report: Callable[[], WorkerReport] = WorkerReport,
    ) -> None:
        """``report`` says how the worker is, and may take some seconds."""
        super().__init__("presence", self.renew, RENEW_S)
        self._store = store
        self._facts = facts
        self._observer = observer
        self._report = report

    @property
    def facts(self) -> WorkerFacts:
        """What the record says, or will say once it is written."""
        return self._facts

    def set_drained(self, is_drained: bool) -> None:
        """Write it into the record as soon as possible, in the thread."""
        self._facts = msgspec.structs.replace(self._facts, is_drained=is_drained)
        self.wake()

    def renew(self) -> float:
        """Write the records; returns the seconds until the next time.

        Raises only what the report raises; the worker is known then.
        """
        try:
            now_s = self._store.changes(SCOPE, Seen()).now_s
            self._write(msgspec.json.encode(self._facts), now_s + LASTS_S)
            report = msgspec.structs.replace(self._report(), at_s=now_s)
            reports.write(self._store, self._facts.name, report, now_s + LASTS_S)
        except StateUnavailable:
            self._observer.count(events.STATE_ERRORS)
        return RENEW_S

    def stop(self) -> None:
        """End the thread, and remove the records."""
        was_running = self.is_running
        super().stop()
        if was_running:
            try:
                self._write(None, None)
                reports.write(self._store, self._facts.name, None)
            except StateUnavailable:
                LOG.debug("The records of this worker were not removed; they expire", exc_info=True)

    def _write(self, value: bytes | None, expires_at_s: float | None) -> None:
        put = Put(_KEY + self._facts.name, value, expires_at_s)
        self._store.write(SCOPE, [Transaction([put])])
