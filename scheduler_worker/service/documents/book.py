"""The book of administrators' documents: policies, which cluster has which, and units.

It is one scope of the shared state under one version. An edit is a function from the documents to
the documents, and is pure. What it changed is written in one transaction, with its entries of the
audit, and is guarded by the book's version. So every rule that the edit has checked still holds
when it is written: names, what is in use, versions, and rights in the clusters that are attached.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from scheduler_worker.conversion import json_reader
from scheduler_worker.errors import EditConflict
from scheduler_worker.policy_store import (
    EVERYTHING,
    MAX_PAGE,
    Attachment,
    AuditEntry,
    AuditFilter,
    StoredPolicy,
    StoredUnit,
    marker_number,
    shortened,
)
from scheduler_worker.ports import ABSENT, Guard, Put, Store, Transaction
from scheduler_worker.service.documents import rules
from scheduler_worker.service.documents.rules import Documents
from scheduler_worker.service.state.records import gone
from scheduler_worker.service.state.replica import RecordKind, Replica
from scheduler_worker.unique import unique_hex

SCOPE = "@documents"
KEEP_S = 30 * 86_400.0
"""For how long the book keeps the entries of the audit that no archive takes."""
_HEAD, _ENTRY = "s:book", "o:"
_TRIES = 50
"""How often an edit is made, each time on what others have written meanwhile."""


NOTHING = Documents()


class Edited(NamedTuple):
    """What an edit makes of the documents, and what the audit says of it."""

    documents: Documents
    entries: Sequence[AuditEntry]


Edit = Callable[[Documents], Edited]
"""Raises AdministrationError where a rule forbids the edit. It may be called more than once."""


class Head(msgspec.Struct, frozen=True):
    """The record whose version is the book's."""

    archive: str = ""
    """The id of the archive that has a copy of the book; empty: none has."""
    entries: int = 0
    """How many entries of the audit were written; the number of the last one."""


class Book(Replica):
    """The documents as this process knows them; safe for threads.

    Methods raise StateUnavailable. While an edit computes it holds no lock: others read and edit.
    """

    def __init__(self, store: Store) -> None:
        self._of: tuple[RecordKind[Any], ...] = (
            RecordKind("p:", json_reader(StoredPolicy)),
            RecordKind("a:", json_reader(Attachment)),
            RecordKind("u:", json_reader(StoredUnit)),
        )
        """In the order of the fields of :class:`Documents`."""
        self._entries = RecordKind(_ENTRY, json_reader(AuditEntry))
        self._heads = RecordKind(_HEAD, json_reader(Head))
        super().__init__(SCOPE, *self._of, self._entries, self._heads)
        self._store = store

    def documents(self) -> Documents:
        """As they are now: one round trip, in which only changes come."""
        with self.reading(self._store):
            return self._known()

    def head(self) -> Head | None:
        """The book's own record as it was read last; None: there is no book."""
        return self._heads.get("")

    def _known(self) -> Documents:
        return Documents(*map(dict, self._of))

    def edit(self, change: Edit) -> Documents:
        """Make a change, again on what others wrote meanwhile; returns the documents after it.

        Raises what ``change`` raises, and EditConflict if others were first in every try.
        """
        for _ in range(_TRIES):
            with self.reading(self._store) as now_s:
                before, seen, head = self._known(), self.version(_HEAD), self.head()
            after, entries = change(before)
            puts = list(self._differences(before, after))
            if not puts and not entries:
                return after
            head = head or Head()
            for number, entry in enumerate(entries, head.entries + 1):
                puts.append(
                    Put(_entry(number), msgspec.json.encode(shortened(entry)), now_s + KEEP_S)
                )
            head = structs.replace(head, entries=head.entries + len(entries))
            if self._write(head, puts, seen, now_s):
                return after
        raise EditConflict("The documents", "others", 0)

    def found(self, documents: Documents, archive: str) -> bool:
        """Write the documents into a book that there is not yet; whether no other process did."""
        with self.reading(self._store) as now_s:
            if self.head() is not None:
                return False
        puts = list(self._differences(NOTHING, documents))
        return self._write(Head(archive), puts, ABSENT, now_s)

    def _write(self, head: Head, puts: Sequence[Put], seen: int, now_s: float) -> bool:
        puts = [*puts, Put(_HEAD, msgspec.json.encode(head))]
        write = [Transaction(puts, [Guard(_HEAD, seen)])]
        # A call whose reply was lost is made again under the same name, and done once.
        written = self._store.write(self.scope, write, once=unique_hex())
        with self.lock:
            self.apply_written(write, written, now_s)
        return written.applied[0]

    def _differences(self, before: Documents, after: Documents) -> Iterator[Put]:
        """What an edit changed. A document that stayed is the same object."""
        names = Documents.__struct_fields__
        for kind, name in zip(self._of, names, strict=True):
            was: Mapping[str, Any] = getattr(before, name)
            now: Mapping[str, Any] = getattr(after, name)
            if now is was:
                continue
            for key in sorted(was.keys() | now.keys()):
                if key not in now:
                    yield gone(kind.prefix + key)
                elif now[key] is not was.get(key):
                    yield Put(kind.prefix + key, msgspec.json.encode(now[key]))

    # Documents

    def policies(self) -> list[StoredPolicy]:
        """All, by name."""
        stored = self.documents().policies.values()
        return sorted(stored, key=lambda policy: policy.document.name.casefold())

    def policy(self, policy_id: str) -> StoredPolicy | None:
        return self.documents().policies.get(policy_id)

    def add(self, policy: StoredPolicy, audit: AuditEntry) -> None:
        """Raises as :func:`.rules.added`."""
        self.edit(lambda now: Edited(rules.added(now, policy), [audit]))

    def replace(
        self,
        policy: StoredPolicy,
        *,
        expected_version: int,
        clusters: Collection[str] | None = None,
        audit: AuditEntry,
    ) -> None:
        """Raises as :func:`.rules.replaced`."""
        self.edit(
            lambda now: Edited(rules.replaced(now, policy, expected_version, clusters), [audit])
        )

    def remove(
        self, policy_id: str, *, expected_version: int | None = None, audit: AuditEntry
    ) -> None:
        """Raises as :func:`.rules.removed`."""
        self.edit(lambda now: Edited(rules.removed(now, policy_id, expected_version), [audit]))

    def attachments(self) -> list[Attachment]:
        """All, by cluster."""
        return [each for _, each in sorted(self.documents().attachments.items())]

    def attachment(self, cluster: str) -> Attachment | None:
        return self.documents().attachments.get(cluster)

    def attach(self, attachment: Attachment, *, expected_version: int, audit: AuditEntry) -> None:
        """Raises as :func:`.rules.attached`."""
        self.edit(lambda now: Edited(rules.attached(now, attachment, expected_version), [audit]))

    def units(self) -> list[StoredUnit]:
        """All user units, by name and kind."""
        return sorted(self.documents().units.values(), key=lambda unit: (unit.name, unit.kind))

    def put_units(self, units: Sequence[StoredUnit]) -> None:
        self.edit(lambda now: Edited(rules.with_units(now, units), ()))

    def remove_unit(self, unit_id: str, audit: AuditEntry) -> None:
        """Raises as :func:`.rules.without_unit`."""
        self.edit(lambda now: Edited(rules.without_unit(now, unit_id), [audit]))

    # The audit

    def record(self, entry: AuditEntry) -> None:
        """Add an entry that belongs to no change: an attempt that was refused."""
        self.edit(lambda now: Edited(now, [entry]))

    def audit(
        self, criteria: AuditFilter = EVERYTHING, *, after: str | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Up to ``limit`` (at most :data:`.MAX_PAGE`) entries after a marker, the oldest first.

        Raises RequestError for a marker that no entry can have.
        """
        first = "" if after is None else _entry(marker_number(after)).removeprefix(_ENTRY)
        with self.reading(self._store):
            entries = sorted(self._entries.items())
        found = (
            structs.replace(entry, id=str(int(name)))
            for name, entry in entries
            if name > first and criteria.admits(entry)
        )
        return list(islice(found, max(1, min(limit, MAX_PAGE))))

    def purge_audit(self, *, before_s: float, limit: int) -> int:
        """Delete entries of an earlier time among the ``limit`` oldest; how many."""
        with self.reading(self._store):
            entries = sorted(self._entries.items())[:limit]
        old = [gone(_ENTRY + name) for name, entry in entries if entry.at_s < before_s]
        if old:
            self._store.write(self.scope, [Transaction(old)])
        return len(old)

    def close(self) -> None:
        """The state is closed by who opened it."""


def _entry(number: int) -> str:
    """The key of an entry of the audit; its number is its marker."""
    return f"{_ENTRY}{number:019}"
