"""The book of administrators' documents: policies, which cluster has which, and units.

It is one scope of the shared state under one version. An edit is a function from the documents to
the documents, and is pure. What it changed is written in one transaction, with its entries of the
audit, and is guarded by the book's version. So every rule that the edit has checked still holds
when it is written: names, what is in use, versions, and rights in the clusters that are attached.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from scheduler_worker.conversion import json_reader
from scheduler_worker.errors import EditConflict
from scheduler_worker.model.audit import (
    EVERYTHING,
    MAX_PAGE,
    AuditEntry,
    AuditFilter,
    marker_number,
    shortened,
)
from scheduler_worker.model.documents import (
    Attachment,
    Documents,
    StoredPolicy,
    StoredUnit,
)
from scheduler_worker.ports import ABSENT, Guard, Put, Store, Transaction
from scheduler_worker.service.documents import rules
from scheduler_worker.service.state.records import gone
from scheduler_worker.service.state.replica import RecordKind, Replica
from scheduler_worker.unique import unique_hex

SCOPE = "@documents"
KEEP_S = 30 * 86_400.0
"""For how long the book keeps entries of the audit. An archive keeps them longer."""
MAX_ENTRIES = 10_000
"""Of the audit in the book; with each further one the oldest goes."""
_HEAD, _KEPT, _ENTRY = "s:book", "s:kept", "o:"
_TRIES = 50
"""How often an edit is made, each time on what others have written meanwhile."""

_read_entry = json_reader(AuditEntry)


class Edited(NamedTuple):
    """What an edit makes of the documents, and what the audit says of it."""

    documents: Documents
    entries: Sequence[AuditEntry]
    """At least one where the documents differ: the number of the last one names their state."""


Edit = Callable[[Documents], Edited]
"""Raises AdministrationError where a rule forbids the edit. It may be called more than once."""


class Revision(NamedTuple):
    """The documents before and after an edit; a document that stayed is the same object."""

    before: Documents
    after: Documents


class Head(msgspec.Struct, frozen=True):
    """The record whose version is the book's."""

    archive: str = ""
    """The id of the archive that has a copy of the book; empty: none has."""
    number: int = 0
    """Of the last entry of the audit."""


class Copied(NamedTuple):
    """The book at one moment."""

    head: Head
    documents: Documents
    entries: Sequence[AuditEntry]
    """The entries that it still has, the oldest first, with their numbers as ids."""


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
        self._entries = RecordKind(_ENTRY, bytes)
        self._heads = RecordKind(_HEAD, json_reader(Head))
        self._kept = RecordKind(_KEPT, json_reader(Head))
        super().__init__(SCOPE, *self._of, self._entries, self._heads, self._kept)
        self._store = store
        self._known: tuple[object, Documents] = None, Documents()
        """Of which moment, and the documents, so that unchanged ones are the same object."""
        self.found: Callable[[], object] | None = None
        """Makes the book where there is none. It may raise, and then there is nothing to read."""

    @property
    def head(self) -> Head | None:
        """The book's own record as it was read last; None: there is no book."""
        return self._heads.get("")

    @property
    def kept(self) -> int:
        """The number of the last entry that the book's archive has, as it was read last."""
        kept, head = self._kept.get(""), self.head
        return kept.number if kept and head and kept.archive == head.archive else 0

    def documents(self) -> Documents:
        """As they are now: one round trip, in which only changes come."""
        return self._read()[2]

    def _read(self, *, founds: bool = True) -> tuple[float, int, Documents]:
        """The store's time, the book's version, and the documents."""
        with self.lock:
            now_s, version = self.refresh(self._store), self.versions.get(_HEAD, ABSENT)
            moment = version and (self.seen.epoch, version)
            if not moment or moment != self._known[0]:
                self._known = moment, Documents(*map(dict, self._of))
            if version or self.found is None or not founds:
                return now_s, version, self._known[1]
        self.found()
        return self._read(founds=False)

    def edit(self, change: Edit) -> Revision:
        """Make a change, again on what others wrote meanwhile.

        Raises what ``change`` raises, and EditConflict if others were first in every try.
        """
        done = self.rewrite(lambda head, now: (head or Head(), change(now)), founds=True)
        assert done is not None  # noqa: S101 - an edit makes something of whatever there is
        return done

    def rewrite(
        self,
        change: Callable[[Head | None, Documents], tuple[Head, Edited] | None],
        *,
        founds: bool = False,
        renumbers: bool = False,
    ) -> Revision | None:
        """As :meth:`edit`, of the book's own record too; None: ``change`` had nothing to do.

        The numbers of entries follow that of the record which ``change`` returns. If it
        ``renumbers``, these entries are all that the book has then.
        """
        for _ in range(_TRIES):
            now_s, seen, before = self._read(founds=founds)
            was = self.head if seen else None
            if (changed := change(was, before)) is None:
                return None
            head, (after, entries) = changed
            puts = list(self._differences(before, after))
            if not puts and not entries and head == was:
                return Revision(before, after)
            new = {
                _key(number): msgspec.json.encode(shortened(entry))
                for number, entry in enumerate(entries, head.number + 1)
            }
            puts += (Put(key, text, now_s + KEEP_S) for key, text in new.items())
            head = structs.replace(head, number=head.number + len(entries))
            old = self._outnumbered(head.number, all_of_them=renumbers)
            puts += (gone(key) for key in old if key not in new)
            puts.append(Put(_HEAD, msgspec.json.encode(head)))
            write = [Transaction(puts, [Guard(_HEAD, seen)])]
            # A call whose reply was lost is made again under the same name, and done once.
            written = self._store.write(self.scope, write, once=unique_hex())
            if written.applied[0]:
                return Revision(before, after)
        raise EditConflict("The documents", "others", 0)

    def _differences(self, before: Documents, after: Documents) -> Iterator[Put]:
        """What an edit changed. A document that stayed is the same object."""
        for kind, name in zip(self._of, Documents.__struct_fields__, strict=True):
            now: Mapping[str, Any] = getattr(after, name)
            for key in rules.differing(getattr(before, name), now):
                value = now.get(key)
                text = None if value is None else msgspec.json.encode(value)
                yield gone(kind.prefix + key) if text is None else Put(kind.prefix + key, text)

    def _outnumbered(self, number: int, *, all_of_them: bool) -> list[str]:
        """The keys of the entries that are too many once that of this number is there."""
        with self.lock:
            if len(self._entries) < MAX_ENTRIES and not all_of_them:
                return []
            first = _key(number - MAX_ENTRIES + 1)
            keys = (_ENTRY + name for name in self._entries)
            return [key for key in keys if all_of_them or key < first]

    # The audit

    def record(self, entry: AuditEntry) -> None:
        """Add an entry that belongs to no change of documents."""
        self.edit(lambda now: Edited(now, [entry]))

    def audit(
        self, criteria: AuditFilter = EVERYTHING, *, after: str | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Up to ``limit`` (at most :data:`.MAX_PAGE`) entries after a marker, the oldest first.

        Raises RequestError for a marker that no entry can have.
        """
        first = "" if after is None else _key(marker_number(after)).removeprefix(_ENTRY)
        with self.reading(self._store):
            texts = sorted((name, text) for name, text in self._entries.items() if name > first)
        entries = (structs.replace(_read_entry(text), id=str(int(name))) for name, text in texts)
        found = (entry for entry in entries if criteria.admits(entry))
        return list(islice(found, max(1, min(limit, MAX_PAGE))))

    def copied(self, number: int = 0) -> Copied | None:
        """The book, with its entries of this number and later; None: there is none."""
        first = _key(number).removeprefix(_ENTRY)
        with self.lock:
            documents, head = self._read(founds=False)[2], self.head
            texts = sorted((name, text) for name, text in self._entries.items() if name >= first)
        if head is None:
            return None
        entries = (structs.replace(_read_entry(text), id=str(int(name))) for name, text in texts)
        return Copied(head, documents, list(entries))

    def note_kept(self, head: Head) -> None:
        """Let all processes know that the archive has the entries up to this head's last one."""
        put = Put(_KEPT, msgspec.json.encode(head))
        self._store.write(self.scope, [Transaction([put])])


def _key(number: int) -> str:
    """The key of an entry of the audit; its number is its marker."""
    return f"{_ENTRY}{number:019}"
