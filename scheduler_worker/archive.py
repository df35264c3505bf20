"""Port: the archive of the book of documents, a copy for people, and the whole history.

It decides nothing. A book that was lost is refilled from it. ``tests/contract`` tests the
implementations.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from scheduler_worker.model.audit import EVERYTHING, AuditEntry, AuditFilter
from scheduler_worker.model.documents import Documents


class ArchiveState(NamedTuple):
    """What an archive says of itself."""

    id: str
    """Of this archive; books name it."""
    number: int
    """Of the last entry that it has; its documents are as that entry left them."""
    last: AuditEntry | None
    """That entry; None: it was purged, or there was none."""


class Archive(Protocol):
    """Keeps documents and entries; safe for threads.

    Every method raises ArchiveUnavailable when it fails. Then all of the call was done, or nothing.
    Which of both is unknown only where the connection broke during the commit.
    """

    def state(self) -> ArchiveState: ...

    def documents(self) -> Documents: ...

    def keep(self, documents: Documents, entries: Sequence[AuditEntry], number: int) -> bool:
        """Have these documents, as the entry of this number left them, and all these entries.

        Their ids are their numbers. False: it has that entry already, or later ones, and nothing
        was done.
        """

    def audit(
        self, criteria: AuditFilter = EVERYTHING, *, after: str | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Up to ``limit`` (at most :data:`.MAX_PAGE`) entries after a marker, oldest first.

        Raises RequestError for a marker that no entry can have.
        """

    def purge_audit(self, *, before_s: float, limit: int) -> int:
        """Delete entries of an earlier time among the ``limit`` oldest; how many."""

    def close(self) -> None:
        """Close the connections."""
