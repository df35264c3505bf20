"""The feeder: keeps the hosts of the shared state as a source of hosts has them.

Of several workers the leader feeds (``service/state/leadership.py``); it renews its leadership at
each round, and when it has missed a few another worker goes on from the hosts' records and the
places in the source that are stored with it. The outline and each part of the source are read by
threads of their own, so that one that hangs delays no other, and not the leadership.
"""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import NamedTuple

from msgspec import structs

from scheduler_worker.components import Periodic
from scheduler_worker.errors import Conflict, SourceUnavailable, StateUnavailable
from scheduler_worker.model.feed import Outline
from scheduler_worker.observer import Observer
from scheduler_worker.ports import Clock, HostSource
from scheduler_worker.service.feed.part import (
    ClusterNames,
    FeedDependencies,
    FeedState,
    LeadLost,
    PartFeed,
    PartProgress,
    remove,
)
from scheduler_worker.service.feed.providers import ProviderFeed
from scheduler_worker.service.feed.readiness import FeedReadiness
from scheduler_worker.service.feed.services import watched
from scheduler_worker.service.feed.settings import FeedSettings
from scheduler_worker.service.inventory.inventory import Inventory
from scheduler_worker.service.state.leadership import Leadership, lapse_s
from scheduler_worker.service.state.replica import Fleet
from scheduler_worker.unique import unique_hex

LOG = logging.getLogger(__name__)

_SHORTEST_S = 0.5
"""Between two looks at what has changed, however many hints there are."""
_MOST_PARTS = 64
"""Parts that are read at the same time."""
_STOP_S = 5.0
"""For a statement that is running when the worker stops; it ends by its own timeout."""
_OUTLINE = "@outline"
"""Beside the ids of parts."""
_NOBODY = ""
"""The worker of a leadership that was given up."""


class _Reading(NamedTuple):
    """An outline, numbered in the order in which outlines were read."""

    number: int
    outline: Outline


class Feeder(Periodic):
    """Feeds, if this worker leads; ``name`` identifies it."""

    def __init__(
        self,
        source: HostSource,
        inventory: Inventory,
        fleet: Fleet,
        clock: Clock,
        *,
        readiness: FeedReadiness,
        settings: FeedSettings,
        providers: ProviderFeed | None = None,
        observer: Observer | None = None,
        name: str = "",
        threads: Executor | None = None,
    ) -> None:
        super().__init__("feed", self.run_due, settings.interval_s)
        self._name = f"{name}/{unique_hex()}"
        self._settings = settings
        self._clock = clock
        self.readiness = readiness
        """What this worker knows of the feed's state, and others ask."""
        self.records = readiness.records
        self._held_until_s = float("-inf")
        self._deps = FeedDependencies(
            source=source,
            inventory=inventory.only_while(self._check_lead),
            fleet=fleet,
            clock=clock,
            settings=settings,
            observer=observer or Observer(),
            providers=providers,
            check_lead=self._check_lead,
            now_s=readiness.now_s,
            keep=self._keep,
        )
        self._outline: Outline | None = None
        self._outlines_read = self._outline_taken = 0
        """Outlines are counted as they are read; an older one never replaces a newer one."""
        # Written by a thread of the source, taken by the thread of the rounds.
        self._answers: deque[_Reading | SourceUnavailable] = deque(maxlen=1)
        """What the thread that reads the outline has found last, until a round takes it."""
        self._outline_due_s = float("-inf")
        self._problem = ""
        self._parts: dict[str, PartFeed] = {}
        # Of the thread of the rounds, until that has ended.
        self._running: dict[str, Future[None]] = {}
        # In these the source is asked, and the hosts of a part are stored: what hangs holds one up.
        self._threads = threads or ThreadPoolExecutor(_MOST_PARTS, "feed-read")
        self._refreshed_at_s = float("-inf")
        self._wants_outline = threading.Event()
        # Taken by two threads, `feed` and `look`. The shared state is used under it, with the
        # locks of replicas; the source is never asked.
        self._guard = threading.RLock()
        """Of the outline and the parts, for rounds and refreshes."""
        # Held while the source is asked, so that outlines are numbered as they were read.
        self._reading_outline = threading.Lock()

    # What others ask

    def look_now(self, *, outline: bool = False) -> None:
        """A hint: something has changed; with ``outline``, perhaps an aggregate."""
        # In a slot, for a cast of Nova's: it only sets flags.
        if outline:
            self._wants_outline.set()
        self.wake()

    def look(self) -> None:
        """Look at everything that may have changed, now; what was found is stored on return.

        Called while this worker leads. What cannot be read in time is left out.

        Raises Conflict, StateUnavailable.
        """
        # In the thread `look`, which waits here for the source and for all parts. No lock is held
        # meanwhile, so rounds go on, and renew the lead.
        with contextlib.suppress(SourceUnavailable):
            reading = self._outline_now()
            with self._guard:
                if self.is_leader():
                    self._take_outline(reading, self._clock.monotonic_s())
        with self._guard:
            # A cell may answer again long before the round ends that clears its problem.
            parts = [part for part in self._parts.values() if part.is_answering]
        looks = [self._threads.submit(partial(part.run, anew=True)) for part in parts]
        # Those that are late go on in their threads. What they store counts, but nobody is told.
        in_time, _ = wait(looks, timeout=self._settings.look_timeout_s)
        if not all(each.result() for each in in_time):
            raise Conflict("Not all hosts that were read could be stored; they are read once more.")

    def describe(self) -> Mapping[str, object]:
        """The feed's state for an operator, as this worker knows it."""
        state = self.records.state
        return {"us": self._name} if state is None else {
            "us": self._name, **structs.asdict(state),
            "parts": {key: structs.asdict(part) for key, part in state.parts.items()},
        }  # fmt: skip

    def stop(self) -> None:
        """End the rounds, and give the lead to another worker."""
        # By the thread that stops the process. The thread of the rounds has ended after this, or
        # hangs in the shared state; then it finds that it may start nothing.
        was_leader = self.is_leader()
        super().stop()
        self._threads.shutdown(wait=False, cancel_futures=True)
        wait(list(self._running.values()), timeout=_STOP_S)  # a round may still add one
        if was_leader:
            try:
                self._write(worker=_NOBODY)
            except StateUnavailable:
                LOG.debug("The feed's leadership was not given up; it lapses", exc_info=True)
        self._deps.source.close()

    # Rounds

    def run_due(self) -> float:
        """Feed, if this worker leads; returns the seconds until it is to be called again."""
        now_s, interval_s = self._clock.monotonic_s(), self._settings.interval_s
        if now_s < self._refreshed_at_s + _SHORTEST_S:
            return self._refreshed_at_s + _SHORTEST_S - now_s
        try:
            with self._guard, contextlib.suppress(StateUnavailable):
                wait_s = self._take_lead()
                if wait_s > 0:
                    return min(wait_s, interval_s)
                self._refreshed_at_s = now_s
                self._round(now_s)
        except Conflict as error:
            LOG.warning("The feed goes on in a moment: %s", error)
        return interval_s

    def _round(self, now_s: float) -> None:
        if now_s >= self._outline_due_s or self._wants_outline.is_set():
            self._start(_OUTLINE, self._read_outline)
        if self._answers:
            self._take_outline(self._answers.popleft(), now_s)
        for part in self._parts.values():
            self._start(part.part.id, partial(self._run, part))
        self._publish()

    def _start(self, what: str, work: Callable[[], None]) -> None:
        """Do it in a thread of its own, unless it is still being done."""
        running = self._running.get(what)
        if running is None or running.done():
            self._running[what] = self._threads.submit(work)

    def _run(self, part: PartFeed) -> None:
        # In a thread of the source.
        was_settled = part.is_settled
        part.run()
        if part.is_settled and not was_settled:
            self.wake()  # to say so

    def _publish(self) -> None:
        """Say so when all hosts are known, or the source cannot be read for long."""
        state = self.records.state
        if state is None:
            return
        if self._outline is not None:
            # A worker that has just taken over reads everything once; what is known stays known.
            is_complete = state.is_complete or self._is_complete()
        else:
            synced_s = max((part.synced_at_s for part in state.parts.values()), default=0.0)
            is_recent = self.readiness.now_s() - synced_s <= self._settings.silent_after_s
            is_complete = state.is_complete and is_recent
        if is_complete != state.is_complete or self._problem != state.problem:
            self._write(is_complete=is_complete)
            if is_complete and not state.is_complete:
                LOG.info("All hosts of %d cells are known; requests are served", len(self._parts))

    def _is_complete(self) -> bool:
        """Whether all hosts are known, and none would be judged without providers that it has."""
        if not all(part.is_settled for part in self._parts.values()):
            return False
        providers = self._deps.providers
        return providers is None or (
            providers.is_begun and not any(map(providers.lacks, watched(self._deps.fleet)))
        )

    # The outline

    def _read_outline(self) -> None:
        self._wants_outline.clear()
        try:
            self._answers.append(self._outline_now())
        except SourceUnavailable as error:
            self._answers.append(error)
        except Exception as error:
            LOG.exception("The cells and aggregates cannot be read")
            self._answers.append(SourceUnavailable(repr(error)))
        self.wake()

    def _outline_now(self) -> _Reading:
        with self._reading_outline:
            self._outlines_read += 1
            return _Reading(self._outlines_read, self._deps.source.outline())

    def _take_outline(self, answer: _Reading | SourceUnavailable, now_s: float) -> None:
        settings = self._settings
        if isinstance(answer, SourceUnavailable):
            if not self._problem:
                LOG.error("The cells and aggregates cannot be read: %s", answer)
            self._problem = str(answer)
            self._outline_due_s = now_s + settings.services_interval_s
            return
        if self._problem:
            LOG.info("The cells and aggregates can be read again")
        self._problem = ""
        if answer.number < self._outline_taken:
            return
        outline = answer.outline
        self._outline_taken = answer.number
        self._outline_due_s = now_s + settings.full_interval_s
        self._store_aggregates(outline)
        self._follow(outline)
        self._outline = outline
        known = {part.id for part in outline.parts}
        # Their cells were disabled or deleted.
        if gone := [host for host in watched(self._deps.fleet) if host.cell_uuid not in known]:
            remove(self._deps.inventory, gone)

    def _store_aggregates(self, outline: Outline) -> None:
        inventory, fleet = self._deps.inventory, self._deps.fleet
        fleet.refresh_globals()
        with fleet.globals.lock:
            known = {aggregate.id: aggregate for aggregate in fleet.globals.aggregates.values()}
        aggregates = {aggregate.id: aggregate for aggregate in outline.aggregates}
        if changed := [new for key, new in aggregates.items() if known.get(key) != new]:
            inventory.update_aggregates(changed)
        for gone in known.keys() - aggregates.keys():
            inventory.delete_aggregate(gone)

    def _follow(self, outline: Outline) -> None:
        state = self.records.state
        stored = state.parts if state else {}
        clusters = ClusterNames(self._settings, outline)
        feeds: dict[str, PartFeed] = {}
        for part in outline.parts:
            feed = self._parts.get(part.id)
            if feed is None or feed.part != part:
                feed = PartFeed(part, stored.get(part.id, PartProgress(part.name)), self._deps)
            feed.follow(outline, clusters)
            feeds[part.id] = feed
        self._parts = feeds

    # Leadership

    def _take_lead(self) -> float:
        """Renew the lead or take it; returns the seconds until it may be taken, 0: it is held."""
        began_s = self._clock.monotonic_s()
        with self.records.lock:
            now_s = self.readiness.refresh()
            before = self.records.state
            is_ours = before is not None and before.worker == self._name
            if before is not None and not is_ours and before.worker != _NOBODY:
                lead = Leadership(before.worker, before.at_s)
                wait_s = lead.due_in_s(self._name, now_s, self._settings.interval_s)
                if wait_s > 0:
                    self._warn_of_lapse(before.worker)
                    self._lose_lead()
                    return wait_s
            if is_ours and began_s >= self._held_until_s:
                self._warn_of_lapse("nobody")
            if not is_ours:
                self._lose_lead()
            is_complete = (
                before is not None
                and before.is_complete
                and now_s - before.at_s <= self._settings.silent_after_s
            )
            if not self._write(is_complete=is_complete, takes_over=not is_ours):
                self._lose_lead()
                return self._settings.interval_s
        if not is_ours:
            LOG.info("This worker feeds now; it was %s", before.worker if before else "nobody")
        # From before the write on: here the lead must not last longer than for other workers.
        self._held_until_s = began_s + lapse_s(self._settings.interval_s)
        return 0.0

    def _write(
        self,
        *,
        worker: str | None = None,
        is_complete: bool | None = None,
        takes_over: bool = False,
    ) -> bool:
        """Write the leadership with the parts' progress; False if another worker was first."""
        with self.records.lock:
            before = self.records.state
            # Held up in the middle of a round, it may know meanwhile that another worker leads.
            if not takes_over and (before is None or before.worker != self._name):
                return False
            parts = {key: part.progress for key, part in self._parts.items()}
            if self._outline is None and before is not None:
                parts = before.parts
            if is_complete is None:
                is_complete = before is not None and before.is_complete
            state = FeedState(
                worker=self._name if worker is None else worker,
                at_s=self.readiness.now_s(),
                is_complete=is_complete,
                parts=parts,
                problem=self._problem,
            )
            return self.records.write(self._deps.fleet.store, state)

    def _warn_of_lapse(self, successor: str) -> None:
        """Say that the lead was lost, if it was, and what may be done."""
        if self._held_until_s == float("-inf"):
            return
        parts = [part.progress for part in self._parts.values()]
        hosts = sum(part.hosts for part in parts)
        LOG.warning(
            "This worker's leadership of the feed lapsed, as its round took more than %.0f s; %s "
            "feeds meanwhile. %d of %d hosts are read, and reading goes on from there. Give the "
            "workers more CPU, or raise [nova_feed] interval on all of them",
            lapse_s(self._settings.interval_s), successor,
            hosts - sum(part.left for part in parts), hosts,
        )  # fmt: skip

    def _keep(self) -> None:
        # In a thread of the source, for a part that has got on. It takes the record's lock without
        # the guard, which a round may hold that waits for this very lock.
        with self.records.lock:
            began_s = self._clock.monotonic_s()
            if self.is_leader() and self._write():
                self._held_until_s = began_s + lapse_s(self._settings.interval_s)

    def _lose_lead(self) -> None:
        """Forget what was read: another worker goes on with it."""
        # Under the guard. Parts that are being read notice at their next write, by `_check_lead`.
        self._held_until_s = float("-inf")
        self._outline_due_s = float("-inf")
        self._outline, self._problem = None, ""
        self._answers.clear()
        self._parts = {}

    def is_leader(self) -> bool:
        """Whether this worker feeds now: its lead has not lapsed, by its own clock."""
        # Any thread asks, without a lock: a float that is replaced whole.
        return self._clock.monotonic_s() < self._held_until_s and not self.is_stopping

    def _check_lead(self) -> None:
        if not self.is_leader():
            raise LeadLost("Another worker feeds now.")
