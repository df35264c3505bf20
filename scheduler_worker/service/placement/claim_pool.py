"""Writes claims to Placement: many at a time, by a bounded number of threads.

A thread takes all jobs that wait, up to a batch, and writes them in one request; those for a
provider that another thread writes to wait for it and go together, since Placement serves one
writer of a provider at a time and lets the others repeat. It writes all or nothing; so a refused
batch is divided, by the provider or consumer that the refusal names or
else in halves, until each refusal is of one job. While Placement is away, jobs wait until their
deadline.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import msgspec

from scheduler_worker.errors import (
    AllocationUpdateFailed,
    PlacementRefused,
    PlacementUnavailable,
    SchedulerWorkerError,
    WorkerStops,
)
from scheduler_worker.model.allocations import Amounts, Consumer
from scheduler_worker.observer import Observer
from scheduler_worker.placement import Allocations, Refusal, Why
from scheduler_worker.ports import Clock
from scheduler_worker.waiters import Waiter

LOG = logging.getLogger(__name__)

MAX_TRIES = 4
"""How often the same is written while other writers are faster, or a consumer changes."""
_SHORTEST_S, _LONGEST_S = 1.0, 10.0
"""Bounds of how long one request to Placement may take."""
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.1, 1.0
"""From one attempt to the next while Placement is away."""
_UNFINISHED_S = 15.0
"""For how long an empty consumer may be that of a write under way, such as a dead worker's.

Placement makes the consumer first; if the write fails in the end, it deletes what it made, and what
others have written upon it meanwhile.
"""
_LOOK_AGAIN_S = 0.5
_UNDO_FOR_S = 300.0
"""For how long it is tried to take a claim back."""


class ClaimSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How claims are written."""

    batch: int = 50
    """How many requests are written at once, at most."""
    workers: int = 2
    """How many threads write."""
    timeout_s: float = 60.0
    """How long a request waits for Placement if its caller does not say."""


class ClaimRefused(Exception):
    """Placement does not take a claim at these hosts; nothing was written for the job."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class ClaimJob:
    """The consumers of one request, which are written together."""

    def __init__(
        self,
        wanted: Sequence[Consumer],
        *,
        deadline_s: float,
        may_join: Callable[[Consumer], bool],
        empty: Collection[str] = (),
    ) -> None:
        self.wanted = tuple(wanted)
        self.deadline_s = deadline_s
        self.may_join = may_join
        """Whether a consumer that holds something else is to hold this in addition."""
        self.consumers = [_as_empty(each) if each.uuid in empty else each for each in wanted]
        """What is written: the wanted ones, upon what Placement has of them already."""
        self.may_be_written = False
        """True also if the answer to the last attempt was lost."""
        self.rounds = 0
        self.empty_since_s: float | None = None
        """When Placement first had a consumer that held nothing, although it should be new."""
        self.trouble: SchedulerWorkerError | None = None
        """Why it has not been written yet."""
        self.error: Exception | None = None
        self.done = Waiter()

    @property
    def uuids(self) -> set[str]:
        return {each.uuid for each in self.wanted}

    @property
    def written_to(self) -> set[str]:
        """The consumers and the providers that a write of it changes."""
        return self.uuids.union(*(each.held for each in self.consumers))

    @property
    def empty(self) -> set[str]:
        """Those that Placement knows, and that hold nothing."""
        return {each.uuid for each in self.consumers if each.generation == 0}

    def was_refused(self, why: Why) -> None:
        """Nothing was written by the last attempt."""
        # A refused change may be that of an earlier attempt, whose answer was lost.
        self.may_be_written = why is Why.CHANGED and self.trouble is not None
        if why is Why.GONE:
            self.consumers = [_as_empty(each) for each in self.consumers]

    def end(self, error: Exception | None = None) -> None:
        """Resume the request."""
        self.error = error
        self.done.end()


class _Undo(NamedTuple):
    """A claim to take back, unless it was written again since."""

    written: Consumer
    wanted: dict[str, Amounts]
    until_s: float


class ClaimPool:
    """The threads, and what waits for them."""

    def __init__(
        self, allocations: Allocations, clock: Clock, observer: Observer, settings: ClaimSettings
    ) -> None:
        self._allocations = allocations
        self._clock = clock
        self._observer = observer
        self._settings = settings
        self._changed = threading.Condition()
        self._jobs: deque[ClaimJob] = deque()
        self._undos: deque[_Undo] = deque()
        self._written_to: set[str] = set()
        """The consumers and providers of what threads write now."""
        self._threads = 0
        self._idle = 0
        self._started = 0
        self._closing = False
        self._hurrying = threading.Event()
        self._pause_s = _FIRST_PAUSE_S

    def submit(self, job: ClaimJob) -> None:
        """Write it as soon as a thread is free; its waiter is ended when it is settled."""
        with self._changed:
            if not self._closing:
                self._jobs.append(job)
                self._wake()
                return
        job.end(WorkerStops("The worker stops; try again."))

    def undo(self, consumer: Consumer, wanted: Consumer) -> None:
        """Take back what was written, or may have been, unless it is written again meanwhile."""
        until_s = self._clock.monotonic_s() + _UNDO_FOR_S
        with self._changed:
            self._undos.append(_Undo(consumer.written(), dict(wanted.held), until_s))
            self._wake()

    def stop_waiting(self) -> None:
        """From now on fail jobs for which Placement is away."""
        self._hurrying.set()

    def close(self, timeout_s: float) -> int:
        """End after what is begun; returns how many claims could not be taken back in time."""
        self.stop_waiting()
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._threads, timeout_s)
            jobs = list(self._jobs)
            self._jobs.clear()
            left = len(self._undos)
        for job in jobs:
            job.end(WorkerStops("The worker stops; try again."))
        return left

    # Threads

    def _wake(self) -> None:
        if self._idle:
            self._changed.notify()
        elif self._threads < self._settings.workers:
            self._threads += 1
            self._started += 1
            name = f"claims-{self._started}"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (batch := self._take()) and not (self._undos or self._closing):
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
                undo = self._undos.popleft() if self._undos and not batch else None
                if not batch and undo is None:
                    self._threads -= 1
                    self._changed.notify_all()
                    return
                written_to = {each for job in batch for each in job.written_to}
                self._written_to |= written_to
                if self._jobs:
                    self._changed.notify()  # the batch may be full, or its jobs ended others' wait
            if undo is not None:
                self._take_back(undo)
            else:
                self._settle(batch)
            with self._changed:
                self._written_to -= written_to

    def _take(self) -> list[ClaimJob]:
        """The next jobs; no consumer is in two of them, and nobody else writes to theirs.

        What has to wait goes before later jobs for the same, or else these could overtake it for
        ever.
        """
        batch: list[ClaimJob] = []
        left: list[ClaimJob] = []
        uuids: set[str] = set()
        taken = set(self._written_to)
        while self._jobs and len(batch) < self._settings.batch:
            job = self._jobs.popleft()
            if uuids.isdisjoint(job.uuids) and taken.isdisjoint(job.written_to):
                batch.append(job)
                uuids |= job.uuids
            else:
                left.append(job)
                taken |= job.written_to
        self._jobs.extendleft(reversed(left))
        return batch

    def _pause(self, until_s: float) -> None:
        """Let Placement recover."""
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, _MAX_PAUSE_S)
        self._hurrying.wait(max(0.0, min(pause_s, until_s - self._clock.monotonic_s())))

    # Writing

    def _settle(self, batch: list[ClaimJob]) -> None:
        """Write the jobs, divided as far as Placement's refusals require."""
        parts = [batch]
        while parts:
            part = [job for job in parts.pop() if self._is_in_time(job)]
            if not part:
                continue
            try:
                parts += self._after(part, self._write(part))
            except PlacementUnavailable as error:
                self._wait_for_placement(part, error)
            except PlacementRefused as error:
                parts += self._after_error(part, error)
            except Exception as error:
                LOG.exception("Claims of %d requests failed", len(part))
                for job in part:
                    job.end(error)

    def _is_in_time(self, job: ClaimJob) -> bool:
        if self._clock.monotonic_s() < job.deadline_s:
            return True
        job.end(job.trouble or PlacementUnavailable("it was too slow for the caller"))
        return False

    def _write(self, jobs: Sequence[ClaimJob]) -> Refusal | None:
        consumers = [each for job in jobs for each in job.consumers]
        refusal: Refusal | None = None
        for _ in range(MAX_TRIES):
            for job in jobs:
                job.may_be_written = True  # unless an answer says otherwise
            begun_s = self._clock.monotonic_s()
            refusal = self._allocations.write(consumers, timeout_s=self._time_for(jobs))
            self._observer.claims_posted(
                refusal.why.value if refusal else "written",
                len(consumers),
                self._clock.monotonic_s() - begun_s,
            )
            self._pause_s = _FIRST_PAUSE_S
            if refusal is None or refusal.why is not Why.BUSY:
                break
        return refusal

    def _time_for(self, jobs: Sequence[ClaimJob]) -> float:
        left_s = min(job.deadline_s for job in jobs) - self._clock.monotonic_s()
        return min(max(left_s, _SHORTEST_S), _LONGEST_S)

    def _after(self, part: list[ClaimJob], refusal: Refusal | None) -> list[list[ClaimJob]]:
        """What is still to be written."""
        if refusal is None:
            for job in part:
                job.end()
            return []
        for job in part:
            job.was_refused(refusal.why)
        if len(part) > 1:
            return _divided(part, refusal)
        [job] = part
        if refusal.why is not Why.CHANGED:
            job.end(ClaimRefused(refusal))
            return []
        return [part] if self._rebased(job, refusal) else []

    def _after_error(self, part: list[ClaimJob], error: PlacementRefused) -> list[list[ClaimJob]]:
        """One job alone may be what Placement does not understand."""
        if len(part) > 1:
            return _halves(part)
        part[0].may_be_written = False
        part[0].end(error)
        return []

    def _wait_for_placement(self, part: list[ClaimJob], error: PlacementUnavailable) -> None:
        self._observer.claims_posted("unavailable", 0, 0.0)
        for job in part:
            job.trouble = error
        if self._hurrying.is_set():
            for job in part:
                job.end(WorkerStops(f"The worker stops; try again. {error}"))
            return
        with self._changed:
            self._jobs.extendleft(reversed(part))
        self._pause(min(job.deadline_s for job in part))

    def _rebased(self, job: ClaimJob, refusal: Refusal) -> bool:
        """Take in what Placement has of the job's consumers; whether to write upon that now.

        Ends a job that has no place there. Raises PlacementUnavailable, PlacementRefused.
        """
        found = [
            self._allocations.read(each.uuid, timeout_s=self._time_for([job]))
            for each in job.wanted
        ]
        if not any(found) and self._may_be_under_way(job):
            self._look_again(job)
            return False
        job.rounds += 1
        for at, (wanted, has) in enumerate(zip(job.wanted, found, strict=True)):
            if has is None and any(found):
                continue  # it is new, and not the one that has changed
            rebased = _upon(has, wanted, job.consumers[at], job.may_join)
            if rebased is None or job.rounds >= MAX_TRIES:
                job.end(AllocationUpdateFailed(wanted.uuid, refusal.message))
                return False
            job.consumers[at] = rebased
        return True

    def _look_again(self, job: ClaimJob) -> None:
        if self._hurrying.is_set():
            job.end(WorkerStops("The worker stops; try again."))
            return
        again = threading.Timer(_LOOK_AGAIN_S, self.submit, [job])
        again.daemon = True
        again.start()

    def _may_be_under_way(self, job: ClaimJob) -> bool:
        """Whether its consumers, which hold nothing, are to be left alone for a while."""
        if job.empty:
            return False
        now_s = self._clock.monotonic_s()
        if job.empty_since_s is None:
            job.empty_since_s = now_s
        return now_s - job.empty_since_s < _UNFINISHED_S

    # Taking back

    def _take_back(self, undo: _Undo) -> None:
        try:
            found = self._allocations.read(undo.written.uuid, timeout_s=_LONGEST_S)
            if found is None or found.generation != undo.written.generation:
                return
            if not found.holds(undo.wanted):
                return
            refusal = self._allocations.write([found.without(undo.wanted)], timeout_s=_LONGEST_S)
            self._observer.claims_posted("kept" if refusal else "taken back", 1, 0.0)
        except SchedulerWorkerError as error:
            self._undo_later(undo, error)
        except Exception:
            LOG.exception("The claim of %s could not be taken back", undo.written.uuid)

    def _undo_later(self, undo: _Undo, error: SchedulerWorkerError) -> None:
        is_late = self._clock.monotonic_s() >= undo.until_s
        with self._changed:
            if self._hurrying.is_set() or is_late or isinstance(error, PlacementRefused):
                LOG.warning(
                    "The claim of %s in Placement was not taken back: %s; it ends with the server",
                    undo.written.uuid,
                    error,
                )
                return
            self._undos.append(undo)
        self._pause(undo.until_s)


def _as_empty(consumer: Consumer) -> Consumer:
    """To be written upon the empty consumer that a refusal left, if it was new."""
    if consumer.generation is not None:
        return consumer
    return msgspec.structs.replace(consumer, generation=0)


def _upon(
    found: Consumer | None,
    wanted: Consumer,
    refused: Consumer,
    may_join: Callable[[Consumer], bool],
) -> Consumer | None:
    """What to write upon what Placement has; None: the consumer is somebody else's.

    Our own claim, made before, is written again: with its next generation nobody takes it back who
    believes that it was not answered.
    """
    if found is None:
        generation = 0 if refused.generation is None else None  # an empty consumer may be there
        return msgspec.structs.replace(wanted, generation=generation)
    if found.holds(wanted.held):
        return found
    return found.with_more(wanted.held) if may_join(found) else None


def _divided(part: list[ClaimJob], refusal: Refusal) -> list[list[ClaimJob]]:
    """The jobs that a refusal names and the others, if it tells them apart."""
    named = set(refusal.providers)
    hit = [job for job in part if _concerns(job, named)]
    others = [job for job in part if job not in hit]
    return [hit, others] if hit and others else _halves(part)


def _halves(part: list[ClaimJob]) -> list[list[ClaimJob]]:
    return [part[len(part) // 2 :], part[: len(part) // 2]]


def _concerns(job: ClaimJob, providers: set[str]) -> bool:
    return any(not providers.isdisjoint(each.held) for each in job.consumers)
