"""What decisions ask of a feed: that it is complete, and that it refreshes before a refusal.

Host records lag behind their source. Refresh them once before refusing a request: meanwhile a
server was deleted, a host came, and the next request is for its place. So a request that no host
passes waits for a refresh that began after it, and is decided again, once.
"""

from collections.abc import Collection

from scheduler_worker.ports import Clock, Store
from scheduler_worker.service.feed.feeder import Feeder
from scheduler_worker.service.state.refreshes import RefreshRecords
from scheduler_worker.service.state.waits import ScopeWatch
from scheduler_worker.waiters import YieldSlot


class RefreshBarrier:
    """Waits for the feed, as long as a request may; ``timeouts`` are in seconds, 0: not at all."""

    def __init__(
        self,
        feed: Feeder,
        store: Store,
        clock: Clock,
        *,
        ready_timeout_s: float,
        look_timeout_s: float,
    ) -> None:
        self.feed = feed
        self._store = store
        self._clock = clock
        self._ready_timeout_s = ready_timeout_s
        self._refresh_timeout_s = look_timeout_s
        self._records = RefreshRecords()
        self._hosts = ScopeWatch(feed.records, store, clock)
        self._refreshes = ScopeWatch(self._records, store, clock)

    @property
    def waiting(self) -> int:
        """How many requests wait for hosts or for a refresh."""
        return self._hosts.waiting + self._refreshes.waiting

    async def until_ready(self, deadline_s: float, yield_slot: YieldSlot) -> str | None:
        """Wait until all hosts are known; returns why requests must not be decided, if they must
        not even then. ``deadline_s`` is the caller's. Raises WorkerStops, StateUnavailable.
        """
        why = self.feed.unready()
        until_s = self._until_s(self._ready_timeout_s, deadline_s)
        if why is None or until_s is None:
            return why
        await self._hosts.until(
            lambda: self.feed.is_ready() or None, until_s=until_s, yield_slot=yield_slot
        )
        return self.feed.unready()

    async def refresh(
        self, queries: Collection[str], deadline_s: float, yield_slot: YieldSlot
    ) -> bool:
        """Wait until what may have changed for a request is read again; False: it did not come.

        ``queries`` of allocation candidates are what nova-scheduler would ask for it.

        Raises Conflict, WorkerStops, StateUnavailable.
        """
        until_s = self._until_s(self._refresh_timeout_s, deadline_s)
        if until_s is None:
            return False
        # A refresh under way may have read a table before the change: it needs a later one.
        number = self._records.ask(self._store, queries)
        is_done = await self._refreshes.until(
            lambda: self._records.book.done >= number or None,
            until_s=until_s,
            yield_slot=yield_slot,
        )
        return bool(is_done)

    def close(self) -> None:
        """End all waits, present and future: they fail with WorkerStops."""
        self._hosts.close()
        self._refreshes.close()

    def _until_s(self, timeout_s: float, deadline_s: float) -> float | None:
        """Until when to wait; half of the caller's time is left for what comes afterwards."""
        now_s = self._clock.monotonic_s()
        until_s = min(now_s + timeout_s, (now_s + deadline_s) / 2)
        return until_s if until_s > now_s else None
