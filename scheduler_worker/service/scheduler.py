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
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from scheduler_worker.errors import (
    ClusterLockTimeout,
    Conflict,
    NoValidHost,
    RequestError,
    SchedulerWorkerError,
    StaleFencingToken,
)
from scheduler_worker.model.claims import Claim, Reservation
from scheduler_worker.model.decisions import Decision, Diagnosis
from scheduler_worker.model.hosts import HostTable
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.ports import Clock, ClusterLock, Grant, Guard, Seen, Transaction
from scheduler_worker.scheduling.pipeline import (
    NOT_ENOUGH_HOSTS,
    Pipeline,
    Request,
    may_use,
    resources_of,
)
from scheduler_worker.service import records
from scheduler_worker.service.batch import Batch, Job
from scheduler_worker.service.replica import ClusterReplica, Fleet

LOG = logging.getLogger(__name__)

CLUSTER_HINT = "cluster"
"""The scheduler hint that names a cluster."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how much; times in seconds."""

    acquire_timeout_s: float = 30.0
    hold_timeout_s: float = 10.0
    max_batch: int = 64
    promise_ttl_s: float = 300.0
    max_attempts_to_commit: int = 8
    globals_max_age_s: float = 5.0


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
        self._freshen_globals()
        candidates = self._candidates(request)
        if request.spec.is_rebuild_check:
            return self._first(candidates, lambda replica: self._check(replica, request))
        longest_s = self._limits.acquire_timeout_s
        patience_s = longest_s if patience_s is None else min(patience_s, longest_s)
        deadline_s = self._clock.monotonic_s() + patience_s
        decision = self._first(
            candidates,
            lambda replica: self._batch(replica).submit(Job(request, deadline_s)),
        )
        self._unanswered[id(decision)] = decision
        return decision

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
        keeping = [each for each in replicas if self._keeps(each, request)]
        if keeping:
            return keeping
        scores = self._scores(replicas, request.spec)
        fitting = [each for each in replicas if scores[each.scope] is not None]
        return sorted(fitting or replicas, key=lambda each: -(scores[each.scope] or 0.0))

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
            return bool(_kept(replica, table, request))

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
            grant = self._kept.pop(replica.scope, None) or self._acquired(replica)
        except ClusterLockTimeout:
            self._expire(take())
            return
        try:
            self._decide_and_commit(replica, grant, take())
        except BaseException:
            with contextlib.suppress(SchedulerWorkerError):
                self._lock.release(grant)
            raise

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
            replica.apply(grant.changes)
            table = self._fleet.prepare(replica)
            table.now_s = self._store_time_s(grant)
            decided = self._decide_all(replica, table, grant, jobs)
            claiming = [(job, decision) for job, decision in decided if decision.claims]
            try:
                if claiming:
                    self._commit(replica, grant, claiming)
                else:
                    self._lock.release(grant)
            except BaseException as error:
                for _, decision in claiming:
                    _give_up(replica, decision.claims)
                if not isinstance(error, StaleFencingToken):
                    raise
                LOG.warning("The hold on %s had ended before the commit; again.", replica.scope)
        for job, decision in decided:
            if not decision.claims:
                job.succeed(decision)
        self._bound_attempts(jobs)

    def _decide_all(
        self, replica: ClusterReplica, table: HostTable, grant: Grant, jobs: Sequence[_Job]
    ) -> list[tuple[_Job, Decision]]:
        pipeline = self._pipeline()
        # Half of the hold is for judgement; what does not fit into it goes to the next batch.
        stop_s = grant.ends_at_s - self._limits.hold_timeout_s / 2
        decided: list[tuple[_Job, Decision]] = []
        for number, job in enumerate(jobs):
            if number and self._clock.monotonic_s() > stop_s:
                break
            if job.deadline_s <= self._clock.monotonic_s():
                self._expire([job])
                continue
            job.attempts += 1
            try:
                request = job.asked
                kept = _kept(replica, table, request)
                decided.append((job, pipeline.decide(table, request, _dice(request), kept)))
            except SchedulerWorkerError as error:
                job.fail(error)
            except Exception as error:
                LOG.exception("Request %s broke a filter or weigher", job.asked.request_id)
                job.fail(error)
        return decided

    def _commit(
        self,
        replica: ClusterReplica,
        grant: Grant,
        claiming: Sequence[tuple[_Job, Decision]],
    ) -> None:
        promises = [
            [self._promise(claim, grant) for claim in decision.claims] for _, decision in claiming
        ]
        transactions = [
            Transaction([records.put_promise(each) for each in kept], _guards(decision.claims))
            for (_, decision), kept in zip(claiming, promises, strict=True)
        ]
        written = self._lock.commit(grant, transactions, keep_at=self._keep_at(replica, grant))
        for (job, decision), kept, applied in zip(claiming, promises, written.applied, strict=True):
            if applied:
                for reservation in kept:
                    replica.keep(reservation)
                job.succeed(decision)
            else:
                _give_up(replica, decision.claims)
        if written.before == replica.seen.version:
            # Nobody wrote in between: what was just kept is all that changed.
            for kept, applied in zip(promises, written.applied, strict=True):
                for reservation in kept if applied else ():
                    replica.versions[records.PROMISE + reservation.id] = written.version
            replica.seen = Seen(replica.seen.epoch, written.version)
        if written.kept:
            self._kept[replica.scope] = msgspec.structs.replace(grant, turn=grant.turn + 1)

    def _keep_at(self, replica: ClusterReplica, grant: Grant) -> int | None:
        """Keep the hold for the next leader of this process, if there is one and time is left."""
        if not self._batches[replica.scope].is_awaited():
            return None
        if self._clock.monotonic_s() > grant.ends_at_s - self._limits.hold_timeout_s / 2:
            return None
        return replica.seen.version

    def _promise(self, claim: Claim, grant: Grant) -> Reservation:
        now_s = self._store_time_s(grant)
        return Reservation(
            instance_uuid=claim.instance_uuid,
            host_uuid=claim.host_uuid,
            host=claim.host,
            nodename=claim.nodename,
            resources=claim.resources,
            created_at_s=now_s,
            expires_at_s=now_s + self._limits.promise_ttl_s,
            token=grant.token.number,
            request_id=claim.request_id,
            project_id=claim.project_id,
        )

    def _store_time_s(self, grant: Grant) -> float:
        """The store's clock now: as it was told with the grant, and what has passed since."""
        granted_s = grant.ends_at_s - self._limits.hold_timeout_s
        return grant.changes.now_s + max(0.0, self._clock.monotonic_s() - granted_s)

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


def _guards(claims: Iterable[Claim]) -> list[Guard]:
    """The hosts must still be as they were when they were chosen."""
    versions = {claim.host_uuid: claim.host_version for claim in claims}
    return [Guard(records.HOST + uuid, version) for uuid, version in versions.items()]


def _give_up(replica: ClusterReplica, claims: Iterable[Claim]) -> None:
    for claim in claims:
        replica.give_up(claim.id)


def _dice(request: Request) -> random.Random:
    """Chance that a recorded request replays."""
    return random.Random(request.request_id)


def _kept(replica: ClusterReplica, table: HostTable, request: Request) -> Mapping[str, int]:
    """The instances whose promise lives and still suits the request, with the row of the host."""
    kept: dict[str, int] = {}
    wanted = resources_of(request.spec.flavor)
    for uuid in request.instance_uuids:
        for promise in replica.promises_of(uuid):
            row = table.row_of(promise.host_uuid)
            if (
                row is not None
                and promise.resources == wanted
                and _still_suits(table, row, request.spec)
            ):
                kept[uuid] = row
    return kept


def _still_suits(table: HostTable, row: int, spec: RequestSpec) -> bool:
    """False when the caller no longer wants that host: ignored, elsewhere, or tried and failed."""
    record = table.records[row]
    tried = spec.retry.hosts if spec.retry else ()
    return may_use(table, row, spec) and not any(
        (each.host, each.hypervisor_hostname) == (record.host, record.nodename) for each in tried
    )
