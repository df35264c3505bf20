"""Select destinations: from a request to promised hosts.

What is decided is decided under the cluster's lock on hosts less everything promised, and exists
only once the store has accepted the claims under the fencing token. A refused commit costs another
round, never a double booking.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections.abc import Callable, Iterable, MutableSequence, Sequence
from typing import Any

from scheduler_worker.errors import (
    ClusterLockTimeout,
    Conflict,
    NoValidHost,
    RequestError,
    SchedulerWorkerError,
    StaleFencingToken,
)
from scheduler_worker.model.decisions import Decision, Diagnosis
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.ports import Clock, ClusterLock, Grant
from scheduler_worker.scheduling.pipeline import NOT_ENOUGH_HOSTS, Pipeline, Request
from scheduler_worker.service import spread
from scheduler_worker.service.batch import Batch, Job
from scheduler_worker.service.hold import Hold, Limits
from scheduler_worker.service.promised import promised_rows
from scheduler_worker.service.replica import ClusterReplica, Fleet

LOG = logging.getLogger(__name__)

CLUSTER_HINT = "cluster"
"""The scheduler hint that names a cluster."""


_Job = Job[Request, Decision]


class Scheduler:
    """The use case behind every ``select_destinations`` and ``explain``."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        lock: ClusterLock,
        pipeline: Callable[[], Pipeline],
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._fleet = fleet
        self._lock = lock
        self._pipeline = pipeline
        self._clock = clock
        self._limits = limits
        self._batches: dict[str, Batch[Request, Decision]] = {}
        self._kept: dict[str, Grant] = {}
        """Holds that go to the next leader; only a leader touches its scope's."""
        self._guard = threading.Lock()
        self._globals_read_s = float("-inf")
        self._unanswered: dict[int, Decision] = {}

    # Selecting

    @property
    def max_alternates(self) -> int:
        """How many further hosts a caller may be offered for an instance."""
        return self._pipeline().options.max_attempts - 1

    def select(self, request: Request, *, patience_s: float | None = None) -> Decision:
        """Choose and promise a host for every instance of the request.

        ``patience_s`` is how long the caller will wait, if that is less than the lock's timeout.

        Raises:
            NoValidHost: with the diagnosis of the last cluster that was tried.
            ClusterLockTimeout, Conflict, StateUnavailable: nothing is promised; try again.
        """
        try:
            return self._select(request, patience_s)
        except NoValidHost as error:
            why = error.diagnosis.summary() if error.diagnosis else error.reason
            LOG.info("No valid host for request %s: %s", request.request_id, why)
            raise

    def _select(self, request: Request, patience_s: float | None) -> Decision:
        self._freshen_globals()
        candidates = self._candidates(request)
        if request.spec.is_rebuild_check:
            return self._first(candidates, lambda replica: self._check(replica, request))
        longest_s = self._limits.acquire_timeout_s
        patience_s = longest_s if patience_s is None else min(patience_s, longest_s)
        deadline_s = self._clock.monotonic_s() + patience_s
        decision = self._decided(candidates, request, deadline_s)
        self._unanswered[id(decision)] = decision
        return decision

    def _decided(
        self, candidates: Sequence[ClusterReplica], request: Request, deadline_s: float
    ) -> Decision:
        try:
            return self._first(
                candidates,
                lambda replica: self._batch(replica).submit(Job(request, deadline_s)),
            )
        except NoValidHost:
            if len(candidates) < 2 or len(request.instance_uuids) < 2:
                raise
            return self._over_all(candidates, request, deadline_s)

    def answered(self, decision: Decision) -> None:
        """The caller has the decision: its promises are no longer ours to give back."""
        self._unanswered.pop(id(decision), None)

    def unanswered(self) -> list[str]:
        """The instances that were promised a host and whose caller has not been told."""
        decisions = list(self._unanswered.values())
        return [claim.instance_uuid for each in decisions for claim in each.claims]

    def _first(
        self, candidates: Iterable[ClusterReplica], ask: Callable[[ClusterReplica], Decision]
    ) -> Decision:
        refused = NoValidHost(NOT_ENOUGH_HOSTS, Diagnosis())
        for replica in candidates:
            try:
                return ask(replica)
            except NoValidHost as error:
                refused = error
        raise refused

    def _check(self, replica: ClusterReplica, request: Request) -> Decision:
        """A decision that promises nothing needs no lock."""
        with replica.lock:
            replica.refresh(self._fleet.store)
            return self._pipeline().decide(self._fleet.prepare(replica), request, _dice(request))

    # Which clusters

    def _freshen_globals(self) -> None:
        now = self._clock.monotonic_s()
        if now - self._globals_read_s > self._limits.globals_max_age_s or not self._fleet.names():
            self._fleet.refresh_globals()
            self._globals_read_s = now

    def _candidates(self, request: Request) -> list[ClusterReplica]:
        """The clusters that may serve the request, the most promising first."""
        named = request.spec.hint(CLUSTER_HINT)
        names = self._fleet.names()
        if named is not None:
            if not isinstance(named, str) or named not in names:
                raise RequestError(
                    "spec_obj.scheduler_hints.cluster",
                    f"there is no cluster {named!r}; known are {', '.join(names) or 'none'}",
                )
            return [self._fleet.cluster(named)]
        if len(names) < 2:
            return self._fleet.clusters()
        return self._ranked(request)

    def _ranked(self, request: Request) -> list[ClusterReplica]:
        replicas = self._fleet.clusters()
        keeping = {each.scope for each in replicas if self._keeps(each, request)}
        scores = self._scores(replicas, request.spec)
        fitting = [
            each for each in replicas if each.scope in keeping or scores[each.scope] is not None
        ]
        return sorted(
            fitting or replicas,
            key=lambda each: (each.scope not in keeping, -(scores[each.scope] or 0.0)),
        )

    def _scores(
        self, replicas: Sequence[ClusterReplica], spec: RequestSpec
    ) -> dict[str, float | None]:
        """The best weight in each cluster, as they look without their locks; None: nothing fits."""
        with contextlib.ExitStack() as held:
            for replica in replicas:
                held.enter_context(replica.lock)
            tables = [self._fleet.prepare(replica) for replica in replicas]
            best = self._pipeline().best_weights(tables, spec)
        return dict(zip((replica.scope for replica in replicas), best, strict=True))

    def _keeps(self, replica: ClusterReplica, request: Request) -> bool:
        with replica.lock:
            replica.refresh(self._fleet.store)
            table = self._fleet.prepare(replica)
            return bool(promised_rows(replica, table, request))

    # One cluster

    def _batch(self, replica: ClusterReplica) -> Batch[Request, Decision]:
        with self._guard:
            batch = self._batches.get(replica.scope)
            if batch is None:
                batch = Batch(
                    lambda take: self._serve(replica, take), max_batch=self._limits.max_batch
                )
                self._batches[replica.scope] = batch
            return batch

    def _serve(self, replica: ClusterReplica, take: Callable[[], Sequence[_Job]]) -> None:
        try:
            grant = self._kept_grant(replica) or self._acquired(replica)
        except ClusterLockTimeout:
            self._expire(take())
            return
        try:
            self._decide_and_commit(replica, grant, take())
        except BaseException:
            self._release_quietly(grant)
            raise

    def _kept_grant(self, replica: ClusterReplica) -> Grant | None:
        """The hold that the leader before left, unless the store began another life since."""
        kept = self._kept.pop(replica.scope, None)
        if kept is not None and kept.changes.epoch != replica.seen.epoch:
            self._release_quietly(kept)
            return None
        return kept

    def _acquired(self, replica: ClusterReplica) -> Grant:
        """A hold of our own, waited for no longer than the most impatient in line would."""
        deadline_s = self._batches[replica.scope].earliest_deadline_s()
        patience_s = max(0.0, deadline_s - self._clock.monotonic_s())
        with replica.lock:
            seen = replica.seen
        return self._lock.acquire(replica.scope, timeout_s=patience_s, seen=seen)

    def _expire(self, jobs: Iterable[_Job]) -> None:
        now = self._clock.monotonic_s()
        for job in jobs:
            if job.deadline_s <= now:
                waited = self._limits.acquire_timeout_s
                job.fail(
                    ClusterLockTimeout(
                        f"The cluster's lock was not granted within {waited:g} s; try again."
                    )
                )

    def _decide_and_commit(
        self, replica: ClusterReplica, grant: Grant, jobs: Sequence[_Job]
    ) -> None:
        with replica.lock:
            hold = self._hold(grant, replica)
            decided = self._decide_all(hold, jobs)
            claiming = [(job, decision) for job, decision in decided if decision.claims]
            if claiming:
                self._commit(hold, claiming)
            else:
                hold.release()
        for job, decision in decided:
            if not decision.claims:
                job.succeed(decision)
        self._bound_attempts(jobs)

    def _decide_all(self, hold: Hold, jobs: Sequence[_Job]) -> list[tuple[_Job, Decision]]:
        pipeline = self._pipeline()
        decided: list[tuple[_Job, Decision]] = []
        for number, job in enumerate(jobs):
            if number and hold.is_half_over():
                break
            if job.deadline_s <= self._clock.monotonic_s():
                self._expire([job])
                continue
            job.attempts += 1
            try:
                kept = promised_rows(hold.replica, hold.table, job.asked)
                decision = pipeline.decide(hold.table, job.asked, _dice(job.asked), kept)
                decided.append((job, decision))
            except SchedulerWorkerError as error:
                job.fail(error)
            except Exception as error:
                LOG.exception("Request %s broke a filter or weigher", job.asked.request_id)
                job.fail(error)
        return decided

    def _commit(self, hold: Hold, claiming: Sequence[tuple[_Job, Decision]]) -> None:
        scope = hold.replica.scope
        wishes = [decision.claims for _, decision in claiming]
        # Kept for the next leader of this process, if there will be one.
        keep = self._batches[scope].is_awaited()
        try:
            applied, kept = hold.commit(wishes, keep=keep)
        except StaleFencingToken:
            LOG.warning("The hold on %s had ended before the commit; again.", scope)
            return
        if kept is not None:
            self._kept[scope] = kept
        for (job, decision), is_promised in zip(claiming, applied, strict=True):
            if is_promised:
                job.succeed(decision)

    def _hold(self, grant: Grant, replica: ClusterReplica) -> Hold:
        return Hold(
            grant,
            replica,
            fleet=self._fleet,
            lock=self._lock,
            clock=self._clock,
            limits=self._limits,
        )

    # Several clusters

    def _over_all(
        self, candidates: Sequence[ClusterReplica], request: Request, deadline_s: float
    ) -> Decision:
        """Choose among all candidate clusters at once, under all of their locks."""
        replicas = sorted(candidates, key=lambda replica: replica.scope)
        with contextlib.ExitStack() as held:
            grants = []
            for replica in replicas:
                patience_s = max(0.0, deadline_s - self._clock.monotonic_s())
                with replica.lock:
                    seen = replica.seen
                grants.append(self._lock.acquire(replica.scope, timeout_s=patience_s, seen=seen))
                held.callback(self._release_quietly, grants[-1])
            for replica in replicas:
                held.enter_context(replica.lock)
            holds = [self._hold(*pair) for pair in zip(grants, replicas, strict=True)]
            decision = spread.decide(holds, self._pipeline(), request, _dice(request))
            spread.commit(holds, decision, self._fleet.store)
            return decision

    def _release_quietly(self, grant: Grant) -> None:
        with contextlib.suppress(SchedulerWorkerError):
            self._lock.release(grant)

    def _bound_attempts(self, jobs: Iterable[_Job]) -> None:
        for job in jobs:
            if not job.done and job.attempts >= self._limits.max_attempts_to_commit:
                job.fail(
                    Conflict(
                        f"The chosen hosts changed during each of {job.attempts} attempts; "
                        "try again."
                    )
                )

    # Explaining

    def explain(
        self, request: Request, *, hosts: Sequence[str] = (), limit: int = 100
    ) -> dict[str, Diagnosis]:
        """For each candidate cluster, why its hosts would be chosen or not; promises nothing."""
        self._fleet.refresh_globals()
        return {
            replica.scope: self._explain(replica, request, hosts, limit)
            for replica in self._candidates(request)
        }

    def _explain(
        self, replica: ClusterReplica, request: Request, hosts: Sequence[str], limit: int
    ) -> Diagnosis:
        with replica.lock:
            replica.refresh(self._fleet.store)
            table = self._fleet.prepare(replica)
            return self._pipeline().explain(table, request, _dice(request), only=hosts, limit=limit)


class _Dice:
    """Chance that a recorded request replays; seeded when it is first thrown."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._random: random.Random | None = None

    def randrange(self, start: int, /) -> int:
        return self._seeded().randrange(start)

    def shuffle(self, x: MutableSequence[Any], /) -> None:
        self._seeded().shuffle(x)

    def _seeded(self) -> random.Random:
        if self._random is None:
            self._random = random.Random(self._seed)
        return self._random


def _dice(request: Request) -> _Dice:
    return _Dice(request.request_id)
