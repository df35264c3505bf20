"""The requests of this process that want one cluster, and how their leader serves them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from scheduler_worker.errors import (
    ClusterLockTimeout,
    Conflict,
    NoValidHost,
    SchedulerWorkerError,
    StaleFencingToken,
)
from scheduler_worker.model.decisions import Decision
from scheduler_worker.service.batch import Batch, Job
from scheduler_worker.service.hold import Hold, Means
from scheduler_worker.service.replica import ClusterReplica
from scheduler_worker.service.trail import Trail
from scheduler_worker.service.whereabouts import Elsewhere, Wish

LOG = logging.getLogger(__name__)

_Job = Job[Trail, Decision]
_Decided = list[tuple[_Job, Decision]]
_Refused = list[tuple[_Job, NoValidHost]]


class ClusterLine:
    """One cluster's line: whoever leads gets the lock, decides for a batch, and commits."""

    def __init__(self, replica: ClusterReplica, means: Means) -> None:
        self._replica = replica
        self._means = means
        self._batch: Batch[Trail, Decision] = Batch(self._serve, max_batch=means.limits.max_batch)
        self._kept: Hold | None = None
        """A hold that goes to the next leader; only a leader touches it."""

    async def decide(self, trail: Trail, *, deadline_s: float, head_start_s: float) -> Decision:
        """Wait for the request's turn; its hosts are promised when this returns.

        Raises:
            Elsewhere: another copy of the request may have a host in another cluster.
            NoValidHost, ClusterLockTimeout, Conflict, StateUnavailable: nothing is promised.
        """
        trail.line_up(self._replica.scope, self._now_s())
        return await self._batch.submit(
            _Job(trail, deadline_s, arrived_s=trail.arrived_s, head_start_s=head_start_s)
        )

    def arrivals_s(self) -> list[float]:
        """When the requests came that are in line now; takes no lock."""
        return [job.asked.arrived_s for job in self._batch]

    def _now_s(self) -> float:
        return self._means.clock.monotonic_s()

    def _serve(self, take: Callable[[], Sequence[_Job]]) -> None:
        try:
            hold = self._kept_hold() or self._acquired()
        except ClusterLockTimeout:
            self._drop_overdue()
            return
        try:
            self._decide_and_commit(hold, take())
        except BaseException:
            hold.release_quietly()
            raise

    def _kept_hold(self) -> Hold | None:
        """The hold that the leader before left, unless the store began another life since."""
        kept, self._kept = self._kept, None
        if kept and (kept.ended or kept.grant.changes.epoch != self._replica.seen.epoch):
            kept.release_quietly()
            return None
        return kept

    def _acquired(self) -> Hold:
        """A hold of our own, waited for no longer than the most impatient in line would."""
        until_s, head_start_s = self._batch.urgency()
        return Hold.acquire(self._means, self._replica, until_s=until_s, head_start_s=head_start_s)

    def _drop_overdue(self) -> None:
        for job in self._batch.drop_overdue(self._now_s()):
            self._time_out(job)

    def _time_out(self, job: _Job) -> None:
        waited_s = job.asked.wait_on(self._now_s())
        self._means.observer.lock_timed_out(self._replica.scope)
        job.fail(
            ClusterLockTimeout(
                f"The lock of cluster {self._replica.scope} was not granted within {waited_s:g} s; "
                "try again."
            )
        )

    def _decide_and_commit(self, hold: Hold, jobs: Sequence[_Job]) -> None:
        with self._replica.lock:
            hold.open()
            self._claim(hold, [job for job in jobs if job.asked.roams])
            decided, refused = self._decide_all(hold, [job for job in jobs if not job.done])
            stands = self._commit(hold, [each for each in decided if each[1].claims], refused)
        for job, decision in decided:
            if not decision.claims:
                job.succeed(decision)
        if stands:
            # Else what they were refused for was not promised either: they are decided again.
            for job, error in refused:
                job.fail(error)
        self._bound_attempts(jobs)

    def _claim(self, hold: Hold, roaming: Sequence[_Job]) -> None:
        """Say that they are decided here; those that are elsewhere are done here."""
        wishes: list[tuple[_Job, Wish]] = []
        for job in roaming:
            request = job.asked.request
            promised = hold.ground.promised(request)
            missing = [uuid for uuid in request.instance_uuids if uuid not in promised]
            if missing:
                wishes.append((job, Wish(job.asked, dict.fromkeys(missing, self._replica.scope))))
        if wishes:
            may = self._means.claim([wish for _, wish in wishes], hold.ground.table.now_s)
            for (job, _), may_be_here in zip(wishes, may, strict=True):
                if not may_be_here:
                    job.fail(Elsewhere())

    def _decide_all(self, hold: Hold, jobs: Sequence[_Job]) -> tuple[_Decided, _Refused]:
        pipeline = self._means.pipeline()
        decided: _Decided = []
        refused: _Refused = []
        wanted: set[str] = set()
        for number, job in enumerate(jobs):
            if number and hold.is_half_over():
                break
            if job.deadline_s <= self._now_s():
                self._time_out(job)
                continue
            if not wanted.isdisjoint(job.asked.request.instance_uuids):
                # The same instance once more: the next hold will find what this one promises.
                continue
            wanted.update(job.asked.request.instance_uuids)
            job.attempts += 1
            trail = job.asked
            trail.decide(hold.grant.token.number, self._now_s())
            try:
                decided.append((job, hold.ground.decide(trail.request, pipeline)))
            except NoValidHost as error:
                trail.refused_at[self._replica.scope] = self._replica.news
                refused.append((job, error))
            except SchedulerWorkerError as error:
                job.fail(error)
            except Exception as error:
                LOG.exception("Request %s broke a filter or weigher", trail.request.request_id)
                job.fail(error)
        return decided, refused

    def _commit(self, hold: Hold, claiming: _Decided, refused: _Refused) -> bool:
        """Promise what was decided; whether all of it was, under a hold that stood until then.

        Who is refused and may go on to another cluster must know that; others need not.
        """
        if not claiming and not any(job.asked.roams for job, _ in refused):
            hold.release()
            return True
        try:
            # Kept for the next leader of this process, if there will be one.
            applied = hold.commit(
                [decision.claims for _, decision in claiming], keep=self._batch.is_awaited()
            )
        except StaleFencingToken:
            LOG.warning("The hold on %s had ended before the commit; again.", self._replica.scope)
            return False
        if not hold.ended:
            self._kept = hold
        for (job, decision), is_promised in zip(claiming, applied, strict=True):
            if is_promised:
                job.asked.hold_s = hold.held_s()
                job.succeed(decision)
        return all(applied)

    def _bound_attempts(self, jobs: Sequence[_Job]) -> None:
        for job in jobs:
            if not job.done and job.attempts >= self._means.limits.max_attempts_to_commit:
                job.fail(
                    Conflict(
                        f"The chosen hosts changed during each of {job.attempts} attempts; "
                        "try again."
                    )
                )
