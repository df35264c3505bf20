"""Writes claims to Placement: many at a time, by a bounded number of threads.

A thread takes all claims that wait, up to a batch, and writes them in one request. Placement serves
one writer of a provider at a time and lets the others repeat. So claims for a provider that another
thread writes to wait for that thread, and go together. Placement writes all of a request or
nothing. A refused batch is divided by the provider or consumer that the refusal names, or else in
halves, until each refusal is of one claim. A claim that met faster writers is tried again later.
"""

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Annotated

import msgspec

from scheduler_worker import events
from scheduler_worker.errors import (
    AllocationUpdateFailed,
    PlacementConflict,
    PlacementRefused,
    PlacementUnavailable,
    SchedulerWorkerError,
)
from scheduler_worker.model.providers import Consumer
from scheduler_worker.observer import Observer
from scheduler_worker.options import Opt
from scheduler_worker.placement import Allocations, ClaimRefusal, Why
from scheduler_worker.ports import Clock
from scheduler_worker.service.requests.jobs import LONGEST_S, Job, JobThreads
from scheduler_worker.wording import listed

LOG = logging.getLogger(__name__)

_UNFINISHED_S = 15.0
"""For how long an empty consumer may be that of a write under way, such as a dead worker's.

Placement makes the consumer first; if the write fails in the end, it deletes what it made, and what
others have written upon it meanwhile.
"""
_ROLLBACK_FOR_S = 300.0
"""For how long it is tried to take a claim back."""


class ClaimSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How claims are written."""

    enabled: Annotated[bool, Opt()] = False
    """Whether every chosen host is claimed in Placement before the caller is answered, as
    nova-scheduler does. Needs the extra `nova` and the group [placement] of nova.conf, whose
    options (auth_type, auth_url, region_name, valid_interfaces, endpoint_override, cafile, timeout,
    ...) are keystoneauth's. The same in all workers; docs/nova-cloud.md."""
    batch: Annotated[int, Opt(min=1, max=500)] = 50
    """Requests whose claims are written to Placement together, at most. Requests that wait while
    all writers are busy are the next batch."""
    workers: Annotated[int, Opt(min=1, max=64)] = 2
    """Requests to Placement that a worker has under way at a time, each over a kept connection. Few
    make large batches, which cost Placement less."""
    timeout_s: Annotated[float, Opt(min=1, max=600)] = 60.0
    """Seconds that a request waits for Placement while that is away or slow, or others write
    faster, if its caller does not say how long it waits itself; also for its allocation
    candidates."""


class ClaimJob(Job[ClaimRefusal | None]):
    """The consumers of one request, which are written together, or refused at their hosts."""

    def __init__(
        self,
        wanted: Sequence[Consumer],
        *,
        deadline_s: float,
        may_join: Callable[[Consumer], bool],
        empty: Collection[str] = (),
    ) -> None:
        super().__init__(deadline_s)
        self.wanted = tuple(wanted)
        self.may_join = may_join
        """Whether a consumer that holds something else is to hold this in addition."""
        self.consumers = [_as_empty(each) if each.uuid in empty else each for each in wanted]
        """What is written: the wanted ones, upon what Placement has of them already."""
        self.may_be_written = False
        """True also if the answer to the last attempt was lost."""
        self.answer_was_lost = False
        self.is_rebased = False
        """Whether it was written upon what Placement had once already."""
        self.empty_since_s: float | None = None
        """When Placement first had a consumer that held nothing, although it should be new."""
        self.uuids = frozenset(each.uuid for each in wanted)

    @property
    def keys(self) -> frozenset[Hashable]:
        """The consumers and the providers that a write of it changes."""
        return self.uuids.union(*(consumer.held for consumer in self.consumers))

    @property
    def empty(self) -> set[str]:
        """The consumers that Placement knows, and that hold nothing."""
        return {consumer.uuid for consumer in self.consumers if consumer.generation == 0}

    def was_refused(self, why: Why) -> None:
        """Nothing was written by the last attempt."""
        # A refused change may be that of an earlier attempt, whose answer was lost.
        self.may_be_written = why is Why.CHANGED and self.answer_was_lost
        if why is Why.GONE:
            self.consumers = [_as_empty(consumer) for consumer in self.consumers]


class Rollback(Job[None]):
    """A claim to take back, unless it was written again since; nobody waits for it."""

    def __init__(self, consumer: Consumer, wanted: Consumer, until_s: float) -> None:
        super().__init__()
        self.written = consumer.written()
        self.wanted = dict(wanted.held)
        self.until_s = until_s

    @property
    def keys(self) -> frozenset[Hashable]:
        """The consumer."""
        return frozenset((self.written.uuid,))


class ClaimBatcher(JobThreads[ClaimJob | Rollback]):
    """Writes claims, and takes them back."""

    def __init__(
        self, allocations: Allocations, clock: Clock, observer: Observer, settings: ClaimSettings
    ) -> None:
        super().__init__(clock, name="claims", workers=settings.workers)
        self._allocations = allocations
        self._observer = observer
        self._batch = settings.batch

    def roll_back(self, consumer: Consumer, wanted: Consumer) -> None:
        """Take back what was written, or may have been, unless it is written again meanwhile."""
        until_s = self._clock.monotonic_s() + _ROLLBACK_FOR_S
        with self._changed:
            self._jobs.append(Rollback(consumer, wanted, until_s))
            self._wake()

    def _take(self, now_s: float) -> list[ClaimJob | Rollback]:
        """The next claims, no consumer of which is in two of them; or else one rollback.

        What waits for a writer goes before later claims for the same, or else these could overtake
        it for ever. What pauses holds up nobody, but what is to be taken back of a consumer does.
        """
        batch: list[ClaimJob | Rollback] = []
        uuids: set[str] = set()
        rollbacks = [job for job in self._jobs if isinstance(job, Rollback)]
        taken = self._busy.union(*(job.keys for job in rollbacks))
        for job in self._jobs:
            if len(batch) == self._batch:
                break
            if isinstance(job, Rollback) or self._pauses_until_s(job) > now_s:
                continue
            if uuids.isdisjoint(job.uuids) and taken.isdisjoint(job.keys):
                batch.append(job)
                uuids |= job.uuids
            else:
                taken |= job.keys
        # A rollback goes alone: it reads before it writes.
        if not batch:
            batch += [job for job in rollbacks if self._pauses_until_s(job) <= now_s][:1]
        for job in batch:
            self._jobs.remove(job)
        return batch

    def _do(self, batch: list[ClaimJob | Rollback]) -> None:
        self._settle([job for job in batch if isinstance(job, ClaimJob)])
        for job in batch:
            if isinstance(job, Rollback):
                self._take_back(job)

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
                    # Whether it was written is not known; the next attempt finds out.
                    job.answer_was_lost = True
                self._put_off(part, error)
            except PlacementRefused as error:
                parts += self._after_error(part, error)
            except Exception as error:
                LOG.exception("Claims of %d requests failed", len(part))
                for job in part:
                    job.fail(error)

    def _write(self, jobs: Sequence[ClaimJob]) -> ClaimRefusal | None:
        consumers = [consumer for job in jobs for consumer in job.consumers]
        for job in jobs:
            job.may_be_written = True  # unless an answer says otherwise
        begun_s = self._clock.monotonic_s()
        timeout_s = self._time_for(min(job.deadline_s for job in jobs))
        refusal = self._allocations.write(consumers, timeout_s=timeout_s)
        self._posted(refusal.why.value if refusal else "written", len(consumers))
        self._observer.time(events.CLAIM_POST_TIME, self._clock.monotonic_s() - begun_s)
        self._away.end()
        return refusal

    def _posted(self, answer: str, consumers: int) -> None:
        self._observer.count(events.CLAIM_POSTS, answer)
        self._observer.count(events.CLAIM_CONSUMERS, answer, by=consumers)

    def _after(self, part: list[ClaimJob], refusal: ClaimRefusal | None) -> list[list[ClaimJob]]:
        """What is still to be written."""
        if refusal is None:
            for job in part:
                job.succeed(None)
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
            job.succeed(refusal)
        return []

    def _after_error(self, part: list[ClaimJob], error: PlacementRefused) -> list[list[ClaimJob]]:
        """One job alone may be what Placement does not understand."""
        if len(part) > 1:
            return _halves(part)
        part[0].may_be_written = False
        part[0].fail(error)
        return []

    def _rebased(self, job: ClaimJob, refusal: ClaimRefusal) -> bool:
        """Take in what Placement has of the job's consumers; whether to write upon that now.

        Ends a job that has no place there. Raises PlacementUnavailable, PlacementRefused.
        """
        consumers = [
            self._allocations.read(claimed.uuid, timeout_s=self._time_for(job.deadline_s))
            for claimed in job.wanted
        ]
        changes = AllocationUpdateFailed(job.wanted[0].uuid, refusal.message)
        # Placement creates a consumer before its allocations: somebody may be half done.
        if not any(consumers) and self._may_be_under_way(job):
            self._put_off([job], changes)
            return False
        for at, (wanted, has) in enumerate(zip(job.wanted, consumers, strict=True)):
            if has is None and any(consumers):
                continue  # it is new, and not the one that has changed
            rebased = _upon(has, wanted, job.consumers[at], job.may_join)
            if rebased is None:
                job.fail(AllocationUpdateFailed(wanted.uuid, refusal.message))
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

    def _take_back(self, rollback: Rollback) -> None:
        try:
            present = self._allocations.read(rollback.written.uuid, timeout_s=LONGEST_S)
            if present is None or present.generation != rollback.written.generation:
                return
            if not present.holds(rollback.wanted):
                return
            rest = present.without(rollback.wanted)
            refusal = self._allocations.write([rest], timeout_s=LONGEST_S)
            if refusal and refusal.why is Why.BUSY:
                raise _conflict(refusal, [rollback.written])
            self._posted("kept" if refusal else "taken back", 1)
        except SchedulerWorkerError as error:
            self._roll_back_later(rollback, error)
        except Exception:
            LOG.exception("The claim of %s could not be taken back", rollback.written.uuid)

    def _roll_back_later(self, rollback: Rollback, error: SchedulerWorkerError) -> None:
        now_s = self._clock.monotonic_s()
        with self._changed:
            is_final = isinstance(error, PlacementRefused) or now_s >= rollback.until_s
            if not (is_final or self._hurrying):
                rollback.pauses.begin(now_s, rollback.until_s)
                self._jobs.append(rollback)
                return
        LOG.warning(
            "The claim of %s in Placement was not taken back: %s; it ends with the server",
            rollback.written.uuid,
            error,
        )


def _as_empty(consumer: Consumer) -> Consumer:
    """To be written upon the empty consumer that a refusal left, if it was new."""
    if consumer.generation is not None:
        return consumer
    return msgspec.structs.replace(consumer, generation=0)


def _upon(
    present: Consumer | None,
    wanted: Consumer,
    refused: Consumer,
    may_join: Callable[[Consumer], bool],
) -> Consumer | None:
    """What to write upon what Placement has; None: the consumer is somebody else's.

    Our own claim, made before, is written again: with its next generation nobody takes it back who
    believes that it was not answered.
    """
    if present is None:
        generation = 0 if refused.generation is None else None  # an empty consumer may be there
        return msgspec.structs.replace(wanted, generation=generation)
    if present.holds(wanted.held):
        return present
    return present.with_more(wanted.held) if may_join(present) else None


def _conflict(refusal: ClaimRefusal, written: Iterable[Consumer]) -> PlacementConflict:
    """Placement seldom says which providers others write to; then it is one of the claim's."""
    held = {provider for consumer in written for provider in consumer.held}
    return PlacementConflict(listed(refusal.providers or sorted(held)))


def _divided(part: list[ClaimJob], refusal: ClaimRefusal) -> list[list[ClaimJob]]:
    """The jobs that a refusal names and the others, if it tells them apart."""
    named = set(refusal.providers)
    hit = [job for job in part if any(not named.isdisjoint(each.held) for each in job.consumers)]
    others = [job for job in part if job not in hit]
    return [hit, others] if hit and others else _halves(part)


def _halves(part: list[ClaimJob]) -> list[list[ClaimJob]]:
    return [part[len(part) // 2 :], part[: len(part) // 2]]
