"""Writes claims to Placement: many at a time, by a bounded number of threads.

A thread takes all jobs that wait, up to a batch, and writes them in one request; those for a
provider that another thread writes to wait for it and go together, since Placement serves one
writer of a provider at a time and lets the others repeat. It writes all or nothing; so a refused
batch is divided, by the provider or consumer that the refusal names or
else in halves, until each refusal is of one job. A job that met faster writers is tried again after
a pause, and all are while Placement is away, until their deadlines; no thread pauses with them.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Annotated, NamedTuple

import msgspec

from scheduler_worker import events
from scheduler_worker.errors import (
    AllocationUpdateFailed,
    PlacementConflict,
    PlacementRefused,
    PlacementUnavailable,
    SchedulerWorkerError,
    WorkerStops,
)
from scheduler_worker.model.providers import Amounts, Consumer
from scheduler_worker.observer import Observer
from scheduler_worker.options import Opt
from scheduler_worker.placement import Allocations, ClaimRefusal, Why
from scheduler_worker.ports import Clock
from scheduler_worker.service.placement.pauses import Pauses
from scheduler_worker.waiters import Waiter
from scheduler_worker.wording import listed

LOG = logging.getLogger(__name__)

_SHORTEST_S, _LONGEST_S = 1.0, 10.0
"""Bounds of how long one request to Placement may take."""
_UNFINISHED_S = 15.0
"""For how long an empty consumer may be that of a write under way, such as a dead worker's.

Placement makes the consumer first; if the write fails in the end, it deletes what it made, and what
others have written upon it meanwhile.
"""
_UNDO_FOR_S = 300.0
"""For how long it is tried to take a claim back."""


class ClaimSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How claims are written."""

    enabled: Annotated[bool, Opt()] = False
    """Whether every chosen host is claimed in Placement before the caller is answered, as
    nova-scheduler does. Needs the extra `nova` and the group [placement] of nova.conf, whose
    options (auth_type, auth_url, region_name, valid_interfaces, endpoint_override, cafile, timeout,
    ...) are those of keystoneauth. The same in all workers; docs/nova-cloud.md."""
    batch: Annotated[int, Opt(min=1, max=500)] = 50
    """Requests whose claims are written to Placement together, at most. Those that wait while all
    writers are busy are the next batch."""
    workers: Annotated[int, Opt(min=1, max=64)] = 2
    """Requests to Placement that a worker has under way at a time, each over a kept connection. Few
    make large batches, which cost Placement less."""
    timeout_s: Annotated[float, Opt(min=1, max=600)] = 60.0
    """Seconds that a request waits for Placement while that is away or slow, or others write
    faster, if its caller does not say how long it waits itself; also for its allocation
    candidates."""


class ClaimRefused(Exception):
    """Placement does not take a claim at these hosts; nothing was written for the job."""

    def __init__(self, refusal: ClaimRefusal) -> None:
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
        self.answer_was_lost = False
        self.is_rebased = False
        """Whether it was written upon what Placement had once already."""
        self.pauses = Pauses()
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
        self.may_be_written = why is Why.CHANGED and self.answer_was_lost
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
    deadline_s: float
    pauses: Pauses


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
        self._hurrying = False
        self._away = Pauses()
        """While Placement is away."""

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
        deadline_s = self._clock.monotonic_s() + _UNDO_FOR_S
        undo = _Undo(consumer.written(), dict(wanted.held), deadline_s, Pauses())
        with self._changed:
            self._undos.append(undo)
            self._wake()

    def stop_waiting(self) -> None:
        """From now on try jobs that pause once more, and let none pause again."""
        with self._changed:
            self._hurrying = True
            self._changed.notify_all()

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
                batch, undo = self._await_work()
                if not batch and undo is None:
                    self._threads -= 1
                    self._changed.notify_all()
                    return
                written_to = {each for job in batch for each in job.written_to}
                if undo is not None:
                    written_to.add(undo.written.uuid)
                self._written_to |= written_to
                if self._jobs:
                    self._changed.notify()  # the batch may be full, or its jobs ended others' wait
            if undo is not None:
                self._take_back(undo)
            else:
                self._settle(batch)
            with self._changed:
                self._written_to -= written_to

    def _await_work(self) -> tuple[list[ClaimJob], _Undo | None]:
        """The next jobs, or else a claim to take back; neither at the end."""
        now_s = self._clock.monotonic_s()
        while True:
            if batch := self._take(now_s):
                return batch, None
            for undo in self._undos:
                if self._pauses_until_s(undo) <= now_s:
                    self._undos.remove(undo)
                    return [], undo
            if self._closing:
                return [], None
            waiting: list[ClaimJob | _Undo] = [*self._jobs, *self._undos]
            ends_s = map(self._pauses_until_s, waiting)
            next_s = min((each for each in ends_s if each > now_s), default=None)
            self._idle += 1
            is_woken = self._changed.wait(None if next_s is None else next_s - now_s)
            self._idle -= 1
            now_s = self._clock.monotonic_s()
            if next_s is not None and not is_woken:
                now_s = max(now_s, next_s)

    def _pauses_until_s(self, what: ClaimJob | _Undo) -> float:
        return -math.inf if self._hurrying else max(what.pauses.until_s, self._away.until_s)

    def _take(self, now_s: float) -> list[ClaimJob]:
        """The next jobs; no consumer is in two of them, and nobody else writes to theirs.

        What waits for a writer goes before later jobs for the same, or else these could overtake it
        for ever. What pauses holds up nobody, but what is to be taken back of a consumer does.
        """
        batch: list[ClaimJob] = []
        left: list[ClaimJob] = []
        uuids: set[str] = set()
        taken = self._written_to.union(undo.written.uuid for undo in self._undos)
        while self._jobs and len(batch) < self._settings.batch:
            job = self._jobs.popleft()
            if self._pauses_until_s(job) > now_s:
                left.append(job)
            elif job.deadline_s <= now_s or (
                uuids.isdisjoint(job.uuids) and taken.isdisjoint(job.written_to)
            ):
                batch.append(job)
                uuids |= job.uuids
            else:
                left.append(job)
                taken |= job.written_to
        self._jobs.extendleft(reversed(left))
        return batch

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
                self._observer.count(events.CLAIM_POSTS, "unavailable")
                for job in part:
                    job.answer_was_lost = True
                self._put_off(part, error)
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

    def _write(self, jobs: Sequence[ClaimJob]) -> ClaimRefusal | None:
        consumers = [each for job in jobs for each in job.consumers]
        for job in jobs:
            job.may_be_written = True  # unless an answer says otherwise
        begun_s = self._clock.monotonic_s()
        refusal = self._allocations.write(consumers, timeout_s=self._time_for(jobs))
        self._posted(refusal.why.value if refusal else "written", len(consumers))
        self._observer.time(events.CLAIM_POST_TIME, self._clock.monotonic_s() - begun_s)
        self._away.end()
        return refusal

    def _posted(self, answer: str, consumers: int) -> None:
        self._observer.count(events.CLAIM_POSTS, answer)
        self._observer.count(events.CLAIM_CONSUMERS, answer, by=consumers)

    def _time_for(self, jobs: Sequence[ClaimJob]) -> float:
        left_s = min(job.deadline_s for job in jobs) - self._clock.monotonic_s()
        return min(max(left_s, _SHORTEST_S), _LONGEST_S)

    def _after(self, part: list[ClaimJob], refusal: ClaimRefusal | None) -> list[list[ClaimJob]]:
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
        if refusal.why is Why.CHANGED:
            return [part] if self._rebased(job, refusal) else []
        if refusal.why is Why.BUSY:
            self._put_off(part, _conflict(refusal, job.wanted))
        else:
            job.end(ClaimRefused(refusal))
        return []

    def _after_error(self, part: list[ClaimJob], error: PlacementRefused) -> list[list[ClaimJob]]:
        """One job alone may be what Placement does not understand."""
        if len(part) > 1:
            return _halves(part)
        part[0].may_be_written = False
        part[0].end(error)
        return []

    def _put_off(self, part: list[ClaimJob], trouble: SchedulerWorkerError) -> None:
        """Try them again after a pause, unless the worker stops or their time is over by then."""
        with self._changed:
            if not self._hurrying:
                now_s = self._clock.monotonic_s()
                is_away = isinstance(trouble, PlacementUnavailable)
                for job in part:
                    job.trouble = trouble
                    if not is_away:
                        job.pauses.begin(now_s, job.deadline_s)
                if is_away:
                    self._away.begin(now_s, min(job.deadline_s for job in part))
                self._jobs.extendleft(reversed(part))
                return
        for job in part:
            job.end(WorkerStops(f"The worker stops; try again. {trouble}"))

    def _rebased(self, job: ClaimJob, refusal: ClaimRefusal) -> bool:
        """Take in what Placement has of the job's consumers; whether to write upon that now.

        Ends a job that has no place there. Raises PlacementUnavailable, PlacementRefused.
        """
        found = [
            self._allocations.read(each.uuid, timeout_s=self._time_for([job]))
            for each in job.wanted
        ]
        changes = AllocationUpdateFailed(job.wanted[0].uuid, refusal.message)
        if not any(found) and self._may_be_under_way(job):
            self._put_off([job], changes)
            return False
        for at, (wanted, has) in enumerate(zip(job.wanted, found, strict=True)):
            if has is None and any(found):
                continue  # it is new, and not the one that has changed
            rebased = _upon(has, wanted, job.consumers[at], job.may_join)
            if rebased is None:
                job.end(AllocationUpdateFailed(wanted.uuid, refusal.message))
                return False
            job.consumers[at] = rebased
        if job.is_rebased:
            self._put_off([job], changes)
            return False
        job.is_rebased = True
        return True

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
            if refusal and refusal.why is Why.BUSY:
                raise _conflict(refusal, [undo.written])
            self._posted("kept" if refusal else "taken back", 1)
        except SchedulerWorkerError as error:
            self._undo_later(undo, error)
        except Exception:
            LOG.exception("The claim of %s could not be taken back", undo.written.uuid)

    def _undo_later(self, undo: _Undo, error: SchedulerWorkerError) -> None:
        now_s = self._clock.monotonic_s()
        with self._changed:
            is_final = isinstance(error, PlacementRefused) or now_s >= undo.deadline_s
            if not (is_final or self._hurrying):
                undo.pauses.begin(now_s, undo.deadline_s)
                self._undos.append(undo)
                return
        LOG.warning(
            "The claim of %s in Placement was not taken back: %s; it ends with the server",
            undo.written.uuid,
            error,
        )


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


def _conflict(refusal: ClaimRefusal, written: Iterable[Consumer]) -> PlacementConflict:
    """Placement seldom says which providers others write to; then it is one of the claim's."""
    held = {provider for each in written for provider in each.held}
    return PlacementConflict(listed(refusal.providers or sorted(held)))


def _divided(part: list[ClaimJob], refusal: ClaimRefusal) -> list[list[ClaimJob]]:
    """The jobs that a refusal names and the others, if it tells them apart."""
    named = set(refusal.providers)
    hit = [job for job in part if _concerns(job, named)]
    others = [job for job in part if job not in hit]
    return [hit, others] if hit and others else _halves(part)


def _halves(part: list[ClaimJob]) -> list[list[ClaimJob]]:
    return [part[len(part) // 2 :], part[: len(part) // 2]]


def _concerns(job: ClaimJob, providers: set[str]) -> bool:
    return any(not providers.isdisjoint(each.held) for each in job.consumers)
