"""The audit of what administrators do: who, from where, what, and what was there before and after.

An edit of documents writes its entry in the same transaction. Another change of the shared state
cannot: its entry is written first, so nothing changes without one.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec
from msgspec import structs

from scheduler_worker.errors import BackendError, SchedulerWorkerError
from scheduler_worker.model.audit import AuditEntry
from scheduler_worker.ports import Clock
from scheduler_worker.service.documents.book import Book

LOG = logging.getLogger(__name__)


class Actor(msgspec.Struct, frozen=True):
    """Who changes something, and from where: an address, or the name of a command."""

    user: str
    origin: str = ""
    check: Callable[[Collection[str]], None] = lambda _: None
    """Raises Forbidden unless they may change what all of these clusters have. An edit asks with
    the clusters that are attached to the policy when it is written."""


class Audit:
    """Records changes, and attempts that were refused. Methods raise StateUnavailable."""

    def __init__(self, book: Book, clock: Clock) -> None:
        self._book = book
        self.now_s = clock.time_s
        """Seconds since the epoch, of this machine."""

    def entry(
        self, actor: Actor, action: str, subject: str, before: str | None, after: str | None
    ) -> AuditEntry:
        """The entry of a change that is made now; ``before`` and ``after`` are JSON."""
        return AuditEntry(
            at_s=self.now_s(),
            user=actor.user,
            origin=actor.origin,
            action=action,
            subject=subject,
            before=before,
            after=after,
        )

    def record(self, entry: AuditEntry) -> None:
        """Add an entry that belongs to no change of documents."""
        log([entry])
        self._book.record(entry)

    def refused(self, actor: Actor, action: str, subject: str, reason: str) -> None:
        """Record an attempt."""
        self._record_refused(self.entry(actor, action, subject, None, None), reason)

    @contextlib.contextmanager
    def changing(
        self, actor: Actor, action: str, subject: str, *, before: str | None, after: str | None
    ) -> Iterator[None]:
        """Record a change, which the block makes; a block that fails is recorded as refused too."""
        entry = self.entry(actor, action, subject, before, after)
        self.record(entry)
        try:
            yield
        except SchedulerWorkerError as error:
            with contextlib.suppress(BackendError):
                self._record_refused(entry, f"it was recorded and then failed: {error}")
            raise

    def _record_refused(self, entry: AuditEntry, reason: str) -> None:
        self.record(structs.replace(entry, result="refused", reason=reason))


def log(entries: Sequence[AuditEntry]) -> None:
    """Have entries in this process's log, too."""
    for entry in entries:
        LOG.info(
            "%s of %r by %s from %s: %s%s",
            *(entry.action, entry.subject, entry.user, entry.origin, entry.result),
            f", {entry.reason}" if entry.reason else "",
        )
