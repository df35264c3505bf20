"""Refreshes: looks at the source of hosts that requests ask for before they are refused.

Host records lag behind their source. Refresh them once before refusing a request: meanwhile a
server was deleted, a host came, and the next request is for its place. So a request that no host
passes waits for a refresh that began after it, and is decided again, once.

Refreshes are numbered, in scope ``@looks``, one record under ``n:looks``. Whoever needs one that
begins from now on asks for the number after the last that has begun, so all that wait at a moment
share one, and one that was under way counts for none of them. The worker that feeds begins
refreshes and says when they are done.
"""

import logging
from collections.abc import Callable, Collection, Iterable

import msgspec

from scheduler_worker import events
from scheduler_worker.components import Periodic
from scheduler_worker.conversion import json_reader
from scheduler_worker.errors import BackendError, Conflict, RequestError, StateUnavailable
from scheduler_worker.observer import Observer
from scheduler_worker.ports import Clock, Put, Store
from scheduler_worker.service.feed.feeder import Feeder
from scheduler_worker.service.feed.readiness import FeedReadiness
from scheduler_worker.service.feed.settings import FeedSettings
from scheduler_worker.service.state.replica import Replica
from scheduler_worker.service.state.waits import ScopeWatch
from scheduler_worker.waiters import YieldSlot

LOG = logging.getLogger(__name__)

SCOPE = "@looks"
_KEY = "n:looks"
_ATTEMPTS = 32
_MOST_QUERIES = 16
"""Different queries that one refresh asks Placement."""


class RefreshRequests(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which refreshes were requested, begun, and done."""

    wanted: int = 0
    begun: int = 0
    done: int = 0
    queries: dict[str, int] = {}
    """What requests that wait ask of allocation candidates -> the last refresh that they wait
    for."""


_encode = msgspec.json.Encoder().encode
_decode = json_reader(RefreshRequests)


class RefreshRecords(Replica):
    """A replica of the record. Methods raise StateUnavailable, and Conflict after many tries."""

    def __init__(self) -> None:
        super().__init__(SCOPE)
        self.book = RefreshRequests()
        """Replaced, never changed."""

    def take(self, key: str, version: int, value: bytes | None) -> None:
        if key == _KEY:
            self.book = RefreshRequests() if value is None else _decode(value)

    def ask(self, store: Store, queries: Collection[str]) -> int:
        """Request a refresh that begins from now on; returns its number.

        ``queries`` of allocation candidates find the hosts that may serve the request.
        """

        def asked(book: RefreshRequests) -> RefreshRequests:
            # One that is under way may have read the hosts before this request needed them.
            number = book.begun + 1
            asked = dict(book.queries)
            for query in queries:
                # A bound on what one refresh asks of Placement, however many requests wait.
                if query in asked or len(asked) < _MOST_QUERIES:
                    asked[query] = number
            return msgspec.structs.replace(book, wanted=max(book.wanted, number), queries=asked)

        _, after = self._change(store, asked)
        return after.begun + 1

    def begin(self, store: Store) -> tuple[int, Collection[str]] | None:
        """Begin a refresh if one is requested or unfinished; returns its number and questions."""

        def begun(book: RefreshRequests) -> RefreshRequests:
            if book.wanted <= book.done:
                return book
            number = book.begun + 1
            return msgspec.structs.replace(book, begun=number, wanted=max(book.wanted, number))

        before, after = self._change(store, begun)
        if after == before:
            return None
        return after.begun, after.queries.keys()

    def finish(self, store: Store, number: int) -> None:
        """The refresh is done: what it found is stored."""

        def finished(book: RefreshRequests) -> RefreshRequests:
            queries = {query: last for query, last in book.queries.items() if last > number}
            # One whose worker was held up ends what was begun before it, and so this one, too.
            return msgspec.structs.replace(book, done=max(book.done, number), queries=queries)

        self._change(store, finished)

    def _change(
        self, store: Store, change: Callable[[RefreshRequests], RefreshRequests]
    ) -> tuple[RefreshRequests, RefreshRequests]:
        """Compare-and-set the record; returns it as it was and as it is."""
        for _ in range(_ATTEMPTS):
            with self.reading(store):
                before = self.book
                after = change(before)
                if after == before:
                    return before, after
                written = store.write(self.scope, [self.replacing(Put(_KEY, _encode(after)))])
                if written.applied[0]:
                    self.refresh(store)
                    return before, after
        raise Conflict("Others asked for looks at the source of hosts at the same time; try again.")


_STEP_S = 1.0
"""How long one wait for a request may last: so long a stop of the worker waits for it."""


class Looker(Periodic):
    """Answers requests for refreshes, one after the other."""

    def __init__(
        self,
        feeder: Feeder,
        look: Callable[[Iterable[str]], None] | None,
        store: Store,
        clock: Clock,
        observer: Observer | None = None,
    ) -> None:
        """``look`` is :meth:`.ProviderFeed.look`; None: Placement is not read."""
        super().__init__("look", self.run_due, _STEP_S)
        self._feeder = feeder
        self._look = look
        self._store = store
        self._clock = clock
        self._observer = observer or Observer()
        self._records = RefreshRecords()

    def run_due(self) -> float:
        """Refresh, if that is requested here; returns the seconds until the next call."""
        if not self._feeder.is_leader():
            return _STEP_S
        try:
            if not self.look_if_asked():
                records = self._records
                self._store.await_change(records.scope, records.seen, timeout_s=_STEP_S)
        except StateUnavailable:
            return _STEP_S  # the state itself logs and counts it
        except Conflict as error:
            LOG.info("Hosts are looked at again in a moment: %s", error)
            return _STEP_S
        return 0.0

    def look_if_asked(self) -> bool:
        """Refresh if that was requested; whether it was. Raises Conflict, StateUnavailable."""
        begun = self._records.begin(self._store)
        if begun is None:
            return False
        number, queries = begun
        began_s = self._clock.monotonic_s()
        self._feeder.look()
        if self._look is not None:
            try:
                self._look(queries)
            except (StateUnavailable, Conflict):
                raise
            except (BackendError, RequestError) as error:
                # What is known without it may be enough; nobody is helped by waiting for it.
                LOG.warning(
                    "Placement was not looked at for requests that found no host: %s", error
                )
        if self._feeder.is_leader():  # else another worker begins one anew
            self._records.finish(self._store, number)
            self._observer.time(events.LOOK_TIME, self._clock.monotonic_s() - began_s)
        return True


class RefreshBarrier:
    """Waits for the feed, as long as a request may."""

    def __init__(self, readiness: FeedReadiness, clock: Clock, settings: FeedSettings) -> None:
        self.readiness = readiness
        self._store = store = readiness.store
        self._clock = clock
        self._settings = settings
        self._records = RefreshRecords()
        self._hosts = ScopeWatch(readiness.records, store, clock)
        self._refreshes = ScopeWatch(self._records, store, clock)

    @property
    def waiting(self) -> int:
        """How many requests wait for hosts or for a refresh."""
        return self._hosts.waiting + self._refreshes.waiting

    async def until_ready(self, deadline_s: float, yield_slot: YieldSlot) -> str | None:
        """Wait until all hosts are known; returns why requests must not be decided even then.

        ``deadline_s`` is the caller's. Raises WorkerStops, StateUnavailable.
        """
        why = self.readiness.unready()
        until_s = self._until_s(self._settings.ready_timeout_s, deadline_s)
        if why is None or until_s is None:
            return why
        await self._hosts.until(
            lambda: self.readiness.unready_as_known() is None or None, until_s, yield_slot
        )
        return self.readiness.unready()

    async def refresh(
        self, queries: Collection[str], deadline_s: float, yield_slot: YieldSlot
    ) -> bool:
        """Wait until what may have changed for a request is read again; False: it did not come.

        ``queries`` of allocation candidates are what nova-scheduler would ask for it.

        Raises Conflict, WorkerStops, StateUnavailable.
        """
        until_s = self._until_s(self._settings.look_timeout_s, deadline_s)
        if until_s is None:
            return False
        # A refresh under way may have read a table before the change: it needs a later one.
        number = self._records.ask(self._store, queries)
        is_done = await self._refreshes.until(
            lambda: self._records.book.done >= number or None, until_s, yield_slot
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
