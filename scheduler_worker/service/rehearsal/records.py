"""Rehearsals in the shared state, scope ``@rehearsals``: every process that serves them knows all.

``r:`` and an id is what became of a rehearsal until now, ``s:`` and the id its summary. While one
runs, the process that runs it renews ``r:``; one that is not renewed for long counts as failed.
Whoever removes ``r:``, or writes there that it is cancelled, ends it.
"""

from collections.abc import Sequence

import msgspec
from msgspec import structs

from scheduler_worker.conversion import json_reader
from scheduler_worker.model.rehearsals import RehearsalRecord, RehearsalSummary
from scheduler_worker.ports import Guard, Put, Store, Transaction
from scheduler_worker.service.state.replica import RecordKind, Replica

SCOPE = "@rehearsals"
KEEP_S = 86_400.0
"""How long one is kept after its last renewal."""
SILENT_S = 30.0
"""One that has not been renewed for longer counts as failed, until it is."""
MOST = 20
"""So many are kept; then the oldest are removed."""
_RECORD, _SUMMARY = "r:", "s:"


class RehearsalRecords(Replica):
    """The rehearsals of all processes. Methods raise StateUnavailable."""

    def __init__(self, store: Store) -> None:
        self._records = RecordKind(_RECORD, json_reader(RehearsalRecord))
        self._summaries = RecordKind(_SUMMARY, bytes)
        """Decoded on demand: they may be long."""
        super().__init__(SCOPE, self._records, self._summaries)
        self._store = store

    def now_s(self) -> float:
        """The store's clock."""
        return self.refresh(self._store)

    def all(self) -> Sequence[RehearsalRecord]:
        """The known rehearsals, the latest first."""
        with self.reading(self._store) as now_s:
            seen = [_seen(record, now_s) for record in self._records.values()]
        return sorted(seen, key=lambda record: (-record.begun_at_s, record.id))

    def find(self, id: str) -> tuple[RehearsalRecord, RehearsalSummary | None] | None:
        """A rehearsal with its summary, which it has once it is done; None: there is none."""
        with self.reading(self._store) as now_s:
            record, summary = self._records.get(id), self._summaries.get(id)
        if record is None:
            return None
        decoded = json_reader(RehearsalSummary)(summary) if summary else None
        return _seen(record, now_s), decoded

    def add(self, record: RehearsalRecord) -> None:
        """Store a new one, and remove the oldest if there are too many."""
        ended = [earlier for earlier in self.all() if not earlier.is_running]
        puts = [put for earlier in ended[MOST - 1 :] for put in _removal(earlier.id)]
        puts.append(_put(record, self.now_s()))
        self._store.write(SCOPE, [Transaction(puts)])

    def renew(self, record: RehearsalRecord, summary: RehearsalSummary | None = None) -> bool:
        """Store how far one is; False: it was cancelled or removed in the meantime."""
        key = _RECORD + record.id
        with self.reading(self._store) as now_s:
            version, stored = self.version(key), self._records.get(record.id)
        if stored is None or not stored.is_running:
            return False
        puts = [_put(record, now_s)]
        if summary is not None:
            puts.append(Put(_SUMMARY + record.id, msgspec.json.encode(summary), now_s + KEEP_S))
        return all(self._store.write(SCOPE, [Transaction(puts, [Guard(key, version)])]).applied)

    def end(self, id: str, user: str) -> None:
        """Cancel one that runs, on behalf of a user; remove one that has ended, or nothing."""
        entry = self.find(id)
        if entry is not None and entry[0].is_running:
            cancelled = structs.replace(entry[0], state="cancelled", problem=f"cancelled by {user}")
            if self.renew(cancelled):
                return
        self._store.write(SCOPE, [Transaction(_removal(id))])


def _seen(record: RehearsalRecord, now_s: float) -> RehearsalRecord:
    """A record as it is now; the API process of one that runs may be gone."""
    silent_s = now_s - record.renewed_at_s
    if not record.is_running or silent_s <= SILENT_S:
        return record
    problem = f"its API process ended, or has said nothing for {silent_s:.0f} s"
    return structs.replace(record, state="failed", problem=problem)


def _put(record: RehearsalRecord, now_s: float) -> Put:
    renewed = structs.replace(record, renewed_at_s=now_s)
    return Put(_RECORD + record.id, msgspec.json.encode(renewed), now_s + KEEP_S)


def _removal(id: str) -> list[Put]:
    return [Put(_RECORD + id, None), Put(_SUMMARY + id, None)]
