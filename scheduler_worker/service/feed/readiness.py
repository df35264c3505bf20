"""Whether requests may be decided: what every process reads of the feed's shared record."""

from scheduler_worker.ports import Clock, Store
from scheduler_worker.service.feed.part import FeedRecords, PartProgress


class FeedReadiness:
    """The feed as this process knows it; needs no access to the source. Safe for threads."""

    def __init__(self, store: Store, clock: Clock, *, silent_after_s: float) -> None:
        """A feed that nobody has written for ``silent_after_s`` is not trusted."""
        self.records = FeedRecords()
        self.store = store
        self._clock = clock
        self._silent_after_s = silent_after_s
        self._store_ahead_s = 0.0

    def refresh(self) -> float:
        """Read the record; returns the time of the store's clock. Raises StateUnavailable."""
        with self.records.reading(self.store) as now_s:
            self._store_ahead_s = now_s - self._clock.monotonic_s()
        return now_s

    def now_s(self) -> float:
        """The store's clock, as of the last :meth:`refresh`."""
        return self._clock.monotonic_s() + self._store_ahead_s

    def unready(self) -> str | None:
        """Why requests must not be decided now; None: they may. Raises StateUnavailable."""
        if self.unready_as_known() is None:
            return None
        self.refresh()
        return self.unready_as_known()

    def unready_as_known(self) -> str | None:
        """The same, by what is known of :attr:`records`."""
        state = self.records.state
        if state is None:
            return "Nova's databases have not been read yet; try again"
        silence_s = self.now_s() - state.at_s
        if silence_s > self._silent_after_s:
            return f"No worker has read Nova's databases for {silence_s:.0f} s"
        if state.is_complete:
            return None
        if state.problem:
            return "Nova's API database cannot be read, so that no hosts are known"
        hosts = sum(part.hosts for part in state.parts.values())
        unread = sum(part.left for part in state.parts.values())
        if hosts and not unread:
            return f"What the {hosts} hosts have in Placement is still being read; try again"
        return f"The hosts are still being read: {hosts - unread} of {hosts} are known; try again"

    def parts(self) -> list[tuple[PartProgress, float | None]]:
        """Progress of each part, and seconds since all of it was known; None: it never was."""
        state, now_s = self.records.state, self.now_s()
        return [
            (part, max(0.0, now_s - part.synced_at_s) if part.synced_at_s else None)
            for part in (state.parts.values() if state else ())
        ]
