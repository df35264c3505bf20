"""Entries of the audit in the shared state, scope ``@audit``, until an API process moves them.

Workers have no SQL store, so what is changed over RPC is recorded here, and in the log. Each
process that has the store copies the entries into it, and then deletes them: a process that ends in
between leaves an entry that is copied twice, and none is lost. Without such a process they expire.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from scheduler_worker.policy_store import AuditEntry
from scheduler_worker.ports import Clock, Guard, Put, Seen, Store, Transaction
from scheduler_worker.service.policies.audit import Audit
from scheduler_worker.service.state.records import gone
from scheduler_worker.service.state.replica import RecordKind, Replica
from scheduler_worker.unique import unique_hex

LOG = logging.getLogger(__name__)

SCOPE = "@audit"
KEEP_S = 30 * 86_400.0


class SharedAudit(Audit):
    """The audit of a process without the SQL store. Every method raises StateUnavailable."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(clock)
        self._entries = SharedEntries(store)

    def record(self, entry: AuditEntry) -> None:
        self._entries.write(entry)


class SharedEntries(Replica):
    """The entries that wait. Methods raise StateUnavailable."""

    def __init__(self, store: Store) -> None:
        self._entries = RecordKind("", msgspec.json.Decoder(AuditEntry).decode)
        super().__init__(SCOPE, self._entries)
        self._store = store

    def write(self, entry: AuditEntry) -> None:
        """Add an entry, and log it."""
        LOG.info(
            "%s of %r by %s from %s: %s%s",
            *(entry.action, entry.subject, entry.user, entry.origin, entry.result),
            f", {entry.reason}" if entry.reason else "",
        )
        now_s = self._store.changes(SCOPE, Seen()).now_s
        key = f"{entry.at_s:017.6f} {unique_hex()}"
        put = Put(key, msgspec.json.encode(entry), now_s + KEEP_S)
        self._store.write(SCOPE, [Transaction([put])])

    def move(self, record: Callable[[AuditEntry], None]) -> int:
        """Give each entry to ``record``, the oldest first, and delete it; returns how many.

        Raises what ``record`` raises; the entries from there on stay.
        """
        with self.lock:
            self.refresh(self._store)
            found = sorted(self._entries.items())
            versions = {key: self.version(key) for key, _ in found}
        for key, entry in found:
            record(entry)
            self._store.write(SCOPE, [Transaction([gone(key)], [Guard(key, versions[key])])])
        return len(found)
