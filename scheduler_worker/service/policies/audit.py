"""The audit of what administrators do: who, from where, what, and what was there before and after.

An edit of a policy writes its entry in the same transaction. A change of the shared state cannot:
its entry is written first, so nothing changes without one.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator

import msgspec
from msgspec import structs

from scheduler_worker.conversion import json_reader
from scheduler_worker.errors import BackendError, SchedulerWorkerError
from scheduler_worker.policy_store import AuditEntry, PolicyStore
from scheduler_worker.ports import Clock, Put, Store, Transaction
from scheduler_worker.service.state.records import gone
from scheduler_worker.service.state.replica import RecordKind, Replica
from scheduler_worker.unique import unique_hex

LOG = logging.getLogger(__name__)

SCOPE = "@audit"
_DAY_S = 86_400.0
KEEP_S = 30 * _DAY_S
PURGED_AT_ONCE = 1000
"""Upper bound of the entries that one transaction deletes."""
_MAX_BATCHES = 50


class Actor(msgspec.Struct, frozen=True):
    """Who changes something, and from where: an address, or the name of a command."""

    user: str
    origin: str = ""
    check: Callable[[Collection[str]], None] = lambda _: None
    """Raises Forbidden unless they may change what all of these clusters have. An edit that is made
    again, on what is stored then, asks again."""


class Audit:
    """Records changes, and attempts that were refused. Methods raise as :meth:`record` does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def record(self, entry: AuditEntry) -> None:
        """Store an entry."""
        raise NotImplementedError

    def entry(
        self, actor: Actor, action: str, subject: str, before: str | None, after: str | None
    ) -> AuditEntry:
        """The entry of a change that is made now; ``before`` and ``after`` are JSON."""
        return AuditEntry(
            at_s=self._clock.time_s(),
            user=actor.user,
            origin=actor.origin,
            action=action,
            subject=subject,
            before=before,
            after=after,
        )

    def refused(self, actor: Actor, action: str, subject: str, reason: str) -> None:
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


class AuditLog(Audit):
    """The audit in the SQL store. Every method raises PolicyStoreUnavailable."""

    def __init__(self, store: PolicyStore, clock: Clock) -> None:
        super().__init__(clock)
        self._store = store
        self.entries = store.audit
        """Changes and refused attempts, as :meth:`PolicyStore.audit` finds them."""

    def record(self, entry: AuditEntry) -> None:
        self._store.record(entry)

    def purge(self, days: float) -> int:
        """Delete old entries; returns how many. A large backlog takes several calls."""
        before_s = self._clock.time_s() - days * _DAY_S
        deleted = 0
        for _ in range(_MAX_BATCHES):
            batch = self._store.purge_audit(before_s=before_s, limit=PURGED_AT_ONCE)
            deleted += batch
            if batch < PURGED_AT_ONCE:
                break
        return deleted


class SharedAudit(Audit):
    """Entries in the shared state, scope ``@audit``, until an API process moves them.

    Workers have no SQL store, so what is changed over RPC is recorded here, and in the log. Each
    process that has the store copies the entries into it, and then deletes them. An entry is copied
    twice if a process ends in between, or two copy it at the same moment; none is lost. Without
    such a process they expire. Methods raise StateUnavailable.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(clock)
        self._store = store
        self._entries = RecordKind("", json_reader(AuditEntry))
        self._replica = Replica(SCOPE, self._entries)

    def record(self, entry: AuditEntry) -> None:
        LOG.info(
            "%s of %r by %s from %s: %s%s",
            *(entry.action, entry.subject, entry.user, entry.origin, entry.result),
            f", {entry.reason}" if entry.reason else "",
        )
        now_s = self._replica.refresh(self._store)
        key = f"{entry.at_s:017.6f} {unique_hex()}"
        put = Put(key, msgspec.json.encode(entry), now_s + KEEP_S)
        self._store.write(SCOPE, [Transaction([put])])

    def move(self, record: Callable[[AuditEntry], None]) -> int:
        """Give each entry to ``record``, the oldest first, and delete it; returns how many.

        Raises what ``record`` raises; the entries from there on stay.
        """
        with self._replica.reading(self._store):
            entries = sorted(self._entries.items())
        for key, entry in entries:
            record(entry)
            self._store.write(SCOPE, [Transaction([gone(key)])])
        return len(entries)
