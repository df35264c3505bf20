"""Rehearsals in the shared state, scope ``@rehearsals``: every process that serves them knows all.

``r:`` and an id is what became of a rehearsal until now, ``s:`` and the id its summary. While one
runs, the process that runs it renews ``r:``; so that of a process that was killed expires. Whoever
removes ``r:`` cancels it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec

from scheduler_worker.ports import ABSENT, Guard, Put, Store, Transaction
from scheduler_worker.service.replay.summary import RehearsalSummary
from scheduler_worker.service.state.replica import Replica

SCOPE = "@rehearsals"
KEEP_S = 86_400.0
"""How long one that has ended is kept."""
LASTS_S = 30.0
"""How long the record of one that runs outlives its last renewal."""
MOST = 20
"""So many are kept; then the oldest are removed."""
_RECORD, _SUMMARY = "r:", "s:"

State = Literal["reading", "deciding", "done", "failed"]
_Kept = TypeVar("_Kept")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a rehearsal is about."""

    since_s: float
    until_s: float
    cluster: str | None = None
    project: str | None = None
    policy: str | None = None
    """The name of the policy that is tried; None: those in force."""
    drained: tuple[str, ...] = ()
    """Hosts that take no more instances."""
    added: tuple[str, ...] = ()
    """Further hosts."""


class RehearsalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A rehearsal, and how far it is."""

    id: str
    user: str
    begun_at_s: float
    """By the store's clock."""
    asked: Asked
    state: State = "reading"
    read: int = 0
    """Decisions that were read."""
    done: int = 0
    """Decisions that were made again, of ``total``."""
    total: int = 0
    problem: str | None = None
    """Why it failed."""

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.state in {"reading", "deciding"}


class RehearsalRecords(Replica):
    """The rehearsals of all processes. Methods raise StateUnavailable."""

    def __init__(self, store: Store) -> None:
        super().__init__(SCOPE)
        self._store = store
        self._records: dict[str, RehearsalRecord] = {}
        self._summaries: dict[str, bytes] = {}

    def take(self, key: str, version: int, value: bytes | None) -> None:
        kind, id = key[: len(_RECORD)], key[len(_RECORD) :]
        if kind == _SUMMARY:
            _keep(self._summaries, id, value)
        else:
            _keep(self._records, id, None if value is None else _RECORDS.decode(value))

    def now_s(self) -> float:
        """The store's clock."""
        with self.lock:
            return self.refresh(self._store).now_s

    def all(self) -> Sequence[RehearsalRecord]:
        """Those that are known, the latest first."""
        with self.lock:
            self.refresh(self._store)
            return sorted(self._records.values(), key=_age)

    def find(self, id: str) -> tuple[RehearsalRecord, RehearsalSummary | None] | None:
        """A rehearsal with its summary, which it has once it is done; None: there is none."""
        with self.lock:
            self.refresh(self._store)
            record, summary = self._records.get(id), self._summaries.get(id)
        if record is None:
            return None
        return record, None if summary is None else _SUMMARIES.decode(summary)

    def add(self, record: RehearsalRecord) -> None:
        """Store a new one, and remove the oldest of those that are too many."""
        with self.lock:
            now_s = self.refresh(self._store).now_s
            ended = [
                each for each in sorted(self._records.values(), key=_age) if not each.is_running
            ]
        puts = [put for each in ended[MOST - 1 :] for put in _removal(each.id)]
        puts.append(Put(_RECORD + record.id, _ENCODER.encode(record), now_s + LASTS_S))
        self._store.write(SCOPE, [Transaction(puts)])

    def renew(self, record: RehearsalRecord, summary: RehearsalSummary | None = None) -> bool:
        """Store how far one is; False: it was removed in the meantime."""
        key = _RECORD + record.id
        with self.lock:
            now_s = self.refresh(self._store).now_s
            version = self.version(key)
        if version == ABSENT:
            return False
        until_s = now_s + (LASTS_S if record.is_running else KEEP_S)
        puts = [Put(key, _ENCODER.encode(record), until_s)]
        if summary is not None:
            puts.append(Put(_SUMMARY + record.id, _ENCODER.encode(summary), until_s))
        written = self._store.write(SCOPE, [Transaction(puts, [Guard(key, version)])])
        return all(written.applied)

    def remove(self, id: str) -> None:
        """Remove one, which cancels it if it runs; nothing happens if there is none."""
        self._store.write(SCOPE, [Transaction(_removal(id))])


def _keep(found: dict[str, _Kept], id: str, value: _Kept | None) -> None:
    if value is None:
        found.pop(id, None)
    else:
        found[id] = value


def _age(record: RehearsalRecord) -> tuple[float, str]:
    """Sorts the latest first."""
    return -record.begun_at_s, record.id


def _removal(id: str) -> list[Put]:
    return [Put(_RECORD + id, None), Put(_SUMMARY + id, None)]


_ENCODER = msgspec.json.Encoder()
_RECORDS = msgspec.json.Decoder(RehearsalRecord)
_SUMMARIES = msgspec.json.Decoder(RehearsalSummary)
