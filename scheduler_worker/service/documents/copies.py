"""Keeps the archive a copy of the book, and refills a lost book from it.

A book is bound to one archive, whose id it has. The archive decides nothing: what it has and the
bound book has not is reported, and never merged. A book that no archive is bound to is new, or was
lost with the shared state: it gets what the archive has.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterator

from msgspec import structs

from scheduler_worker.archive import Archive, ArchiveState
from scheduler_worker.errors import ArchiveUnavailable, BackendError, ConfigError
from scheduler_worker.model.audit import EVERYTHING, MAX_PAGE, AuditEntry, AuditFilter
from scheduler_worker.model.documents import Documents
from scheduler_worker.service.documents import rules
from scheduler_worker.service.documents.audit import Actor, Audit
from scheduler_worker.service.documents.book import Book, Copied, Edited, Head

LOG = logging.getLogger(__name__)

NOTHING = Edited(Documents(), ())
_DAY_S = 86_400.0
_PURGED_AT_ONCE, _MAX_BATCHES = 1000, 50
"""Entries that one transaction deletes, and transactions in a row, at most."""


class Copies:
    """The book and its archive; safe for threads. Methods raise StateUnavailable.

    With an archive they raise ArchiveUnavailable, too: it cannot be reached, or has another book.
    """

    def __init__(
        self,
        book: Book,
        audit: Audit,
        open_archive: Callable[[], Archive] | None,
        *,
        by: Actor,
        report: Callable[[str], None],
        before: Callable[[Collection[str]], Edited] = lambda _: NOTHING,
    ) -> None:
        """``open_archive`` is called when the archive is needed first; None: there is none.

        ``by`` is this process. ``report`` gets a sentence for what administrators must know.
        ``before`` tells what there was before there is a book, but for what these clusters had.
        """
        self._book = book
        self._audit = audit
        self._open = open_archive
        self._archive: Archive | None = None
        self._lock = threading.RLock()
        """Held while the archive is opened, or copied into, which may make the book."""
        self._is_away = False
        """Whether the last attempt to copy failed: edits do not wait for the next one."""
        self._by = by
        self._report = report
        self._before = before

    @property
    def is_configured(self) -> bool:
        """Whether there is an archive."""
        return self._open is not None

    @property
    def is_open(self) -> bool:
        """Whether this process has used the archive already."""
        return self._archive is not None

    def open(self) -> Archive | None:
        """The archive; None: none is configured.

        Raises ConfigError where its tables are of another release.
        """
        if self._open is None:
            return None
        with self._lock:
            if self._archive is None:
                self._archive = self._open()
            return self._archive

    def found(self) -> None:
        """Make the book where there is none: of the archive, and of what clusters have in force."""
        with self._lock:
            if (archive := self.open()) is not None:
                self._bind(archive)
                return
            documents, entries = self._before(())

        def founded(head: Head | None, _: Documents) -> tuple[Head, Edited] | None:
            if head is not None:
                return None
            return Head(), Edited(documents, [*entries, self._entry("book.found")])

        self._book.rewrite(founded)

    def settle(self, *, asks: bool = False) -> None:
        """Copy what the archive lacks.

        It is asked where the book has more than was copied, or always if the caller ``asks``.
        """
        if self._open is None:
            return
        self._book.documents()
        head = self._book.head
        if not asks and head is not None and head.archive and self._book.kept >= head.number:
            return
        with self._lock:
            self._is_away = True
            archive = self.open()
            assert archive is not None  # noqa: S101 - one is configured
            while not self._copy(archive):
                pass
            self._is_away = False

    def copy_edit(self) -> None:
        """As :meth:`settle` after an edit, which is done: it is copied later if that fails."""
        if self._is_away:
            return
        try:
            self.settle()
        except (BackendError, ConfigError) as error:
            LOG.warning("An edit of policies is not in the archive yet: %s", error)

    def _copy(self, archive: Archive) -> bool:
        """Copy into a bound archive that has nothing else; whether it was one."""
        state = archive.state()
        copied = self._book.copied(state.number)
        if copied is None or not copied.head.archive:
            self._bind(archive)
        elif copied.head.archive != state.id:
            self._rebind(archive, state)
        elif _is_ahead(state, copied):
            self._go_past(archive, state)
        else:
            self._keep(archive, state, copied)
            return True
        return False

    def _keep(self, archive: Archive, state: ArchiveState, copied: Copied) -> None:
        number = copied.head.number
        if self._book.kept > state.number:
            self._report(
                f"The archive of policies ends at entry {state.number} of the audit and had "
                f"{self._book.kept}: it was restored from an older copy; the book is copied again"
            )
        lacking = [entry for entry in copied.entries if int(entry.id) > state.number]
        if number > state.number:
            first = int(lacking[0].id) if lacking else number + 1
            if first > state.number + 1:
                self._report(
                    f"Entries {state.number + 1} to {first - 1} of the audit are lost: neither the "
                    "archive nor the book has them"
                )
            archive.keep(copied.documents, lacking, number)
        if self._book.kept != number:
            self._book.note_kept(copied.head)

    def _bind(self, archive: Archive) -> None:
        """Give a book that has no archive, or is not there, what the archive has."""
        state, kept = archive.state(), archive.documents()
        before = self._before(kept.attachments)

        def bound(head: Head | None, now: Documents) -> tuple[Head, Edited] | None:
            if head is not None and head.archive:
                return None
            had = before if head is None else Edited(now, self._entries())
            after = rules.merged(had.documents, kept)
            is_new = bool(had.entries) or after != kept
            entries = [*had.entries, self._entry("book.found")] if is_new else []
            return Head(state.id, state.number), Edited(after, entries)

        if self._book.rewrite(bound, renumbers=True) is not None:
            LOG.info(
                "The book of policies has the %d policies and %d attachments of its archive",
                *(len(kept.policies), len(kept.attachments)),
            )

    def _rebind(self, archive: Archive, state: ArchiveState) -> None:
        """Begin a new archive, which is empty."""
        if state.number or archive.documents() != Documents():
            raise ArchiveUnavailable(
                "The database of [policy_store] connection is the archive of another book of "
                "policies; name the archive of this [state] url, or an empty database"
            )

        def bound(head: Head | None, now: Documents) -> tuple[Head, Edited] | None:
            if head is None or head.archive == state.id:
                return None
            entry = self._entry("book.archive")
            return structs.replace(head, archive=state.id), Edited(now, [entry])

        if self._book.rewrite(bound) is not None:
            self._report(
                "The book of policies has a new archive, which begins with the book's entries of "
                "the audit"
            )

    def _go_past(self, archive: Archive, state: ArchiveState) -> None:
        """Report edits that the shared state has lost, and number the next ones after them."""
        lost = _lost(archive.documents(), self._book.documents())
        what = "; ".join(lost) or "entries of the audit only"
        known = self._known(archive)

        def past(head: Head | None, now: Documents) -> tuple[Head, Edited] | None:
            if head is None or head.archive != state.id:
                return None
            lost = structs.replace(self._entry("book.lost"), reason=what)
            entries = [*self._entries(known), lost]
            return structs.replace(head, number=state.number), Edited(now, entries)

        if self._book.rewrite(past, renumbers=True) is not None:
            self._report(
                f"The shared state has lost edits of policies; the archive knows: {what}. "
                "`policy history` has them"
            )

    def restore(self, actor: Actor) -> Documents:
        """Have the archive's documents in place of the book's, which it may be another archive of.

        Raises ArchiveUnavailable, also where there is none.
        """
        archive = self.open()
        if archive is None:
            raise ArchiveUnavailable("[policy_store] connection is not set: there is no archive")
        with self._lock:
            state, kept = archive.state(), archive.documents()
            known = self._known(archive)
            entry = self._audit.entry(actor, "book.restore", "book", None, None)

            def restored(_: Head | None, now: Documents) -> tuple[Head, Edited]:
                lost = structs.replace(entry, reason="; ".join(_lost(now, kept)))
                entries = [*self._entries(known), lost]
                return Head(state.id, state.number), Edited(kept, entries)

            self._book.rewrite(restored, renumbers=True)
        self.settle(asks=True)
        return kept

    def _entries(self, known: Collection[AuditEntry] = ()) -> list[AuditEntry]:
        """The entries of the book but these, without their numbers.

        A change of the book that asks for them is made again if there is one more when it is
        written.
        """
        copied = self._book.copied()
        entries = map(_unnumbered, copied.entries if copied else ())
        return [entry for entry in entries if entry not in known]

    def _known(self, archive: Archive) -> set[AuditEntry]:
        """The archive's entries from the time of the book's oldest one on, without numbers."""
        since_s = min((entry.at_s for entry in self._entries()), default=0.0)
        return set(map(_unnumbered, _entries_of(archive, since_s)))

    def _entry(self, action: str) -> AuditEntry:
        return self._audit.entry(self._by, action, "book", None, None)

    # What is read

    def entries(
        self, criteria: AuditFilter = EVERYTHING, *, after: str | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Entries of the audit, as :meth:`.Archive.audit` finds them, or of the book."""
        if (archive := self.open()) is not None:
            self.settle()
            return archive.audit(criteria, after=after, limit=limit)
        self._book.documents()
        head = self._book.head
        if head is not None and head.archive:
            raise ArchiveUnavailable(
                "The audit is in the archive, which this process does not have; ask one that has "
                "[policy_store] connection"
            )
        return self._book.audit(criteria, after=after, limit=limit)

    def purge(self, days: float) -> int:
        """Delete old entries of the archive; returns how many. A backlog takes several calls."""
        if (archive := self.open()) is None:
            return 0
        before_s = self._audit.now_s() - days * _DAY_S
        deleted = 0
        for _ in range(_MAX_BATCHES):
            batch = archive.purge_audit(before_s=before_s, limit=_PURGED_AT_ONCE)
            deleted += batch
            if batch < _PURGED_AT_ONCE:
                break
        return deleted

    def problem(self) -> str | None:
        """Why the archive is no copy of the book now; None: it is one, or there is none."""
        if self._open is None:
            return None
        try:
            self.settle(asks=True)
        except ArchiveUnavailable as error:
            return f"{error}; edits are in the shared state, and copied later"
        return None


def _is_ahead(state: ArchiveState, copied: Copied) -> bool:
    """Whether the archive has an entry that the book has not: the shared state has lost it."""
    if state.number > copied.head.number:
        return True
    ours = (entry for entry in copied.entries if entry.id == str(state.number))
    return state.last is not None and next(ours, state.last) != state.last


def _lost(kept: Documents, now: Documents) -> Iterator[str]:
    """What the archive knows and the book does not, as sentences."""
    for policy_id, policy in kept.policies.items():
        ours = now.policies.get(policy_id)
        if ours is None or ours.document.version < policy.document.version:
            has = "none" if ours is None else str(ours.document.version)
            yield f"policy {policy.document.reference}, of which the book has {has}"
    for cluster, attachment in kept.attachments.items():
        own = now.attachments.get(cluster)
        if own is None or own.version < attachment.version:
            yield f"cluster {cluster} attached to {attachment.policy_id}"


def _entries_of(archive: Archive, since_s: float) -> Iterator[AuditEntry]:
    since = AuditFilter(since_s=since_s)
    marker = None
    while page := archive.audit(since, after=marker, limit=MAX_PAGE):
        yield from page
        marker = page[-1].id


def _unnumbered(entry: AuditEntry) -> AuditEntry:
    return structs.replace(entry, id="")
