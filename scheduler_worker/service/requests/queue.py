"""One queue per cluster: the requests of this process share leases and commits.

Every request for a cluster joins its queue. The first becomes the leader: it acquires the cluster's
lock on behalf of all, decides a batch of at most ``max_batch`` requests in the order of their rank,
and commits their claims in one call (group commit). Then leadership goes to the next request in the
queue. A request that is alone is a batch of one and costs nothing extra.

A request's rank is its arrival time less its priority boost, so it is overtaken only by requests
that arrive at most the largest priority boost after it: none starves. A request whose decision
outlasts the first half of a lease counts as arriving then: if the lease was lost, it goes behind
the others. From then on it is decided as the first of a lease, and no other loses one by it.
"""

import logging
import math
import threading
from bisect import insort_left, insort_right
from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from scheduler_worker import events
from scheduler_worker.errors import (
    ClusterLockTimeout,
    Conflict,
    DeadlineExceeded,
    NoValidHost,
    SchedulerWorkerError,
    StaleFencingToken,
    StateUnavailable,
)
from scheduler_worker.model.decisions import Decision
from scheduler_worker.model.hosts import AskingTime
from scheduler_worker.service.requests.dependencies import PlacementDependencies
from scheduler_worker.service.requests.lease import Commit, Lease
from scheduler_worker.service.state.attempt import CLUSTER_HINT, PlacementAttempt
from scheduler_worker.service.state.intents import DecidedElsewhere, Intent
from scheduler_worker.service.state.replica import ClusterReplica
from scheduler_worker.service.state.waits import DeadlineWatch
from scheduler_worker.waiters import Deferred

LOG = logging.getLogger(__name__)

_MAX_AGE_S = 10.0
_rank_s = attrgetter("rank_s")


class QueuedRequest(Deferred[Decision]):
    """A request in a cluster queue. It is resumed when it is settled or becomes the leader."""

    def __init__(
        self, attempt: PlacementAttempt, *, deadline_s: float, priority_boost_s: float = 0.0
    ) -> None:
        super().__init__()
        self.attempt = attempt
        self.deadline_s = deadline_s
        """Until when it waits to be decided, in seconds of the monotonic clock."""
        self.priority_boost_s = priority_boost_s
        self.rank_s = attempt.arrived_s - priority_boost_s
        self.decided = 0
        """How often it was decided."""
        self.is_slow = False
        """Whether it is to be decided as the first of a lease, since it takes long."""
        self.leads = False

    def lead(self) -> None:
        """Make the request the leader of its queue."""
        self.leads = True
        self.end()


class WaitingList(list[QueuedRequest]):
    """Queued requests by rank; equal ranks in the order of their arrival."""

    def add(self, queued: QueuedRequest) -> None:
        """Insert a new request, behind the requests of its rank."""
        insort_right(self, queued, key=_rank_s)

    def put_back(self, queued: QueuedRequest) -> None:
        """Insert a request that was taken, before the requests of its rank."""
        insort_left(self, queued, key=_rank_s)

    def take(self, count: int) -> list[QueuedRequest]:
        """Remove and return the first requests, at most ``count``."""
        taken = self[:count]
        del self[:count]
        return taken

    def take_overdue(self, now_s: float) -> list[QueuedRequest]:
        """Remove and return the requests whose deadline has passed."""
        # Ranks say nothing of deadlines: the last in the queue may have the first one.
        overdue = [queued for queued in self if queued.deadline_s <= now_s]
        self[:] = [queued for queued in self if queued.deadline_s > now_s]
        return overdue


_Refused = list[tuple[QueuedRequest, NoValidHost]]


class _Placed(NamedTuple):
    """A request that got its hosts, and what is to be written for it."""

    queued: QueuedRequest
    decision: Decision
    commit: Commit


class RecentDurations:
    """The last few durations of an operation.

    Old ones are dropped: a caller that skips an operation because it would take too long adds no
    new duration, and would otherwise skip it for ever. Times are of the monotonic clock.
    """

    def __init__(self) -> None:
        self._durations: deque[tuple[float, float]] = deque(maxlen=5)

    def add(self, duration_s: float, now_s: float) -> None:
        """Add the duration of an operation that ended now."""
        self._durations.append((now_s, duration_s))

    def typical_s(self, now_s: float) -> float:
        """The median, so that one outlier does not count; 0 if there are no recent ones."""
        durations, recent_s = self._durations, now_s - _MAX_AGE_S
        while durations and durations[0][0] <= recent_s:
            durations.popleft()
        if not durations:
            return 0.0
        # Of an even number the larger of the two in the middle: statistics.median() takes longer.
        return sorted([took_s for _, took_s in durations])[len(durations) // 2]


class ClusterQueue:
    """The requests of this process for one cluster, with their leader; safe for threads."""

    def __init__(self, replica: ClusterReplica, deps: PlacementDependencies) -> None:
        self._replica = replica
        self._deps = deps
        self._now_s = deps.clock.monotonic_s
        self._waiting = WaitingList()
        self._has_leader = False
        self._batch: list[QueuedRequest] = []
        """What the leader has taken, and not begun to decide."""
        # Taken by every request that comes, by the leader, and by the thread of deadlines; under
        # the replica's lock too, never before it. A request that is failed or made the leader under
        # it is resumed at once, which only puts it into the queue of the slots.
        self._guard = threading.Lock()
        """Guards all above and the leadership; all below belongs to the leader alone."""
        self._deciding = RecentDurations()
        self._committing = RecentDurations()
        self._kept_lease: Lease | None = None
        """A lease that the last commit kept for the next leader."""
        self._last_lease: Lease | None = None
        """The last one that ended with a commit; the next leader may take it up again."""
        self._deadlines = DeadlineWatch(deps.clock, self._end_overdue, f"deadlines-{replica.scope}")

    async def decide(
        self, attempt: PlacementAttempt, *, deadline_s: float, priority_boost_s: float = 0.0
    ) -> Decision:
        """Wait in the queue and decide the request; its hosts are reserved when this returns.

        Raises:
            DecidedElsewhere: another copy of the request may have a host in another cluster.
            NoValidHost, ClusterLockTimeout, Conflict, StateUnavailable: nothing is reserved.
        """
        attempt.queued(self._replica.scope, self._now_s())
        queued = QueuedRequest(attempt, deadline_s=deadline_s, priority_boost_s=priority_boost_s)
        with self._guard:
            self._waiting.add(queued)
            if not self._has_leader:
                self._has_leader = True
                queued.lead()
        if not queued.leads:
            # Not under the guard: the thread of deadlines takes it, and may be started here.
            self._watch([queued])
        # A leader gives way too: the requests that arrived with it join the queue first.
        # From here on the thread of a slot is the leader's. It blocks for the lock and the commit.
        await queued
        while not queued.done:
            self._serve_batch()
        if queued.leads:
            self._hand_over()
        return queued.result()

    def arrivals_s(self) -> list[float]:
        """When the queued requests arrived; takes no lock."""
        return [queued.attempt.arrived_s for queued in list(self._waiting)]

    # Leading

    def _serve_batch(self) -> None:
        """Decide and commit one batch under one lease; unsettled requests return to the queue."""
        batch: Sequence[QueuedRequest] = ()
        # Whatever happens becomes the outcome of requests. A leader that raised would leave behind
        # a queue that has one, and never serves again.
        try:
            lease = self._lease()
            if lease is not None:
                try:
                    batch = self._take_batch()
                    self._decide_and_commit(lease, batch)
                except BaseException:
                    lease.release_quietly()
                    raise
        except BaseException as error:
            self._fail(batch, error)
        with self._guard:
            self._batch = []
            left = [queued for queued in batch if not queued.done]
            for queued in reversed(left):
                self._waiting.put_back(queued)
        self._watch(left)

    def _hand_over(self) -> None:
        """Make the first in the queue its leader; without one, hand the kept lease on."""
        kept = None
        with self._guard:
            self._has_leader = bool(self._waiting)
            # It leads in another slot, as soon as one is free, and then has the kept lease.
            if self._waiting:
                self._waiting[0].lead()
            else:
                # Those it was kept for have failed at their deadlines meanwhile.
                kept, self._kept_lease = self._kept_lease, None
        if kept is not None:
            kept.release_quietly()

    def _take_batch(self) -> Sequence[QueuedRequest]:
        with self._guard:
            taken = self._taken()
            self._batch = list(taken)
        self._watch(taken[1:] and taken)  # one that is alone is decided now
        return taken

    def _taken(self) -> Sequence[QueuedRequest]:
        """Take the next batch out of the queue; called under the guard."""
        return self._waiting.take(self._deps.limits.max_batch)

    def _watch(self, queued: Sequence[QueuedRequest]) -> None:
        """Let these requests fail at their deadlines while they are not decided."""
        self._deadlines.set(min((each.deadline_s for each in queued), default=math.inf))

    def _end_overdue(self, now_s: float) -> float:
        """Fail the requests whose deadline has passed; returns the next deadline."""
        # In the thread of deadlines, or by the leader whose wait for the lock was in vain. What is
        # being decided is in neither list: the leader alone ends that.
        with self._guard:
            for queued in self._waiting.take_overdue(now_s) + self._batch:
                if queued.deadline_s <= now_s and not queued.done:
                    self._time_out(queued)
            self._batch = [queued for queued in self._batch if not queued.done]
            waiting = (*self._waiting, *self._batch)
            return min((queued.deadline_s for queued in waiting), default=math.inf)

    def _fail(self, batch: Sequence[QueuedRequest], error: BaseException) -> None:
        """Fail the batch; an error before it was taken, such as no store, fails the whole queue."""
        with self._guard:
            failed = batch or self._waiting.take(len(self._waiting))
        for queued in failed:
            if not queued.done:
                queued.fail(error)

    def _is_waited_for(self) -> bool:
        """Whether requests are queued; then one of them leads next."""
        # Without the guard, under the replica's lock: one that comes too late finds the lock free.
        return bool(self._waiting)

    # The lease

    def _lease(self) -> Lease | None:
        """The kept lease or a new one; None where nobody waits for it any more.

        The requests whose deadline has passed have been failed then.
        """
        kept, self._kept_lease = self._kept_lease, None
        if kept is not None:
            # After a restart or failover of the store its token would be refused.
            if not kept.ended and kept.grant.changes.epoch == self._replica.seen.epoch:
                return kept
            kept.release_quietly()
        last, self._last_lease = self._last_lease, None
        with self._guard:
            if not self._waiting:  # the leader, too, was ended at its deadline before it began
                return None
            # The lock is waited for no longer than the least patient request would wait.
            until_s = min(queued.deadline_s for queued in self._waiting)
            boost_s = self._waiting[0].priority_boost_s
        if last is not None and (resumed := last.resumed()) is not None:
            return resumed
        # Blocks, for seconds where other workers are before us, and holds no lock of this process.
        try:
            return Lease.acquire(
                self._deps, self._replica, until_s=until_s, priority_boost_s=boost_s
            )
        except ClusterLockTimeout:
            self._end_overdue(self._now_s())
            return None

    def _time_out(self, queued: QueuedRequest) -> None:
        now_s = self._now_s()
        waited_s = queued.attempt.dequeued(now_s)
        if now_s < queued.deadline_s or now_s >= queued.attempt.caller_deadline_s:
            queued.fail(DeadlineExceeded("The request cannot be decided while its caller waits."))
            return
        self._deps.observer.count(events.LOCK_TIMEOUTS, self._replica.scope)
        queued.fail(
            ClusterLockTimeout(
                f"The lock of cluster {self._replica.scope} was not granted within {waited_s:g} s; "
                "try again."
            )
        )

    # Deciding

    def _decide_and_commit(self, lease: Lease, batch: Sequence[QueuedRequest]) -> None:
        # For as long as a batch takes to decide and commit, which asks the store once or twice.
        # What else this process does with the cluster waits: reports, listings, checks.
        with self._replica.lock:
            lease.open()
            self._declare(lease, list(filter(self._may_be_elsewhere, batch)))
            placed, refused = self._decide_all(lease, [each for each in batch if not each.done])
            placed, late = self._split_late(lease, placed)
            # What was found stands as long as the lock is held; else a commit confirms it.
            found = [each for each in placed if lease.is_held and not any(each.commit)]
            stands = self._commit(
                lease, [each for each in placed if any(each.commit) or not lease.is_held], refused
            )
        # Without the replica's lock, as what follows only ends waits.
        for each in found:
            each.queued.succeed(each.decision)
        if stands and not late:
            # Otherwise hosts that a refused request lacked were not reserved after all, so the
            # refused ones stay unsettled and are decided again.
            for queued, error in refused:
                queued.fail(error)
        self._bound_attempts(batch)

    def _may_be_elsewhere(self, queued: QueuedRequest) -> bool:
        """Whether a copy may be decided in another cluster, one that came since it was queued too.

        For who learns of that cluster earlier decides there, by an intent that is declared.
        """
        attempt, hint = queued.attempt, queued.attempt.request.spec.hint(CLUSTER_HINT)
        attempt.any_cluster |= len(self._deps.fleet.globals.names) > 1 and hint is None
        return attempt.any_cluster

    def _declare(self, lease: Lease, batch: Sequence[QueuedRequest]) -> None:
        """Declare that requests are decided here; fail each that another cluster has declared."""
        declaring: list[tuple[QueuedRequest, Intent]] = []
        for queued in batch:
            attempt, request = queued.attempt, queued.attempt.request
            reserved = lease.view.reserved(request)
            missing = [uuid for uuid in request.instance_uuids if uuid not in reserved]
            if self._replica.has_lost(missing, attempt.moves_seen):
                queued.fail(DecidedElsewhere())
            elif missing:
                homes = dict.fromkeys(missing, self._replica.scope)
                declaring.append((queued, Intent(attempt.declared, homes)))
        if declaring:
            intents = [intent for _, intent in declaring]
            declared = self._deps.placement_intents.declare(intents, lease.view.table.now_s)
            for (queued, _), is_declared in zip(declaring, declared, strict=True):
                if not is_declared:
                    queued.fail(DecidedElsewhere())

    def _decide_all(
        self, lease: Lease, batch: Sequence[QueuedRequest]
    ) -> tuple[list[_Placed], _Refused]:
        """Decide the batch in order, as far as lease and callers' deadlines leave time for."""
        placed: list[_Placed] = []
        refused: _Refused = []
        instances: set[str] = set()
        earliest_s = math.inf
        # The first is always decided, or a lease that is always late would starve the queue.
        is_first = lease.grant.commits == 0
        for queued in batch:
            request, now_s = queued.attempt.request, self._now_s()
            ready_s = now_s + self._deciding.typical_s(now_s) + self._committing.typical_s(now_s)
            is_late = lease.is_half_over() or ready_s > earliest_s
            if not is_first and (queued.is_slow or is_late):
                break
            # Two copies of one request in a batch would reserve two hosts for an instance; the next
            # lease finds what this one reserves.
            if not instances.isdisjoint(request.instance_uuids) or not self._begin(queued, ready_s):
                continue
            instances.update(request.instance_uuids)
            decided = self._decide_one(lease, queued, is_first=is_first)
            if decided is None and not queued.done:
                break
            is_first = False
            if isinstance(decided, _Placed):
                placed.append(decided)
                earliest_s = min(earliest_s, queued.attempt.caller_deadline_s)
            elif decided is not None:
                refused.append((queued, decided))
        return placed, refused

    def _begin(self, queued: QueuedRequest, ready_s: float) -> bool:
        """Whether to decide a request of the batch, in time for its caller: it waits no longer."""
        # Either the thread of deadlines has failed it by now, or it does not find it any more.
        with self._guard:
            if queued.done:
                return False
            self._batch.remove(queued)
        if queued.deadline_s <= self._now_s() or queued.attempt.caller_deadline_s <= ready_s:
            self._time_out(queued)
        return not queued.done

    def _decide_one(
        self, lease: Lease, queued: QueuedRequest, *, is_first: bool
    ) -> _Placed | NoValidHost | None:
        """Its hosts, consumed in the table, or its refusal; None: it has failed, or is put off."""
        attempt, now_s = queued.attempt, self._now_s()
        queued.decided += 1
        attempt.attempted(lease.grant.token.number, now_s)
        asking = AskingTime(min(lease.half_over_at_s, attempt.half_time_s(now_s)))
        lease.view.table.asking = asking
        decided = self._tried(lease, queued)
        ended_s = self._now_s()
        self._deciding.add(ended_s - now_s, ended_s)
        if lease.is_half_over():
            queued.is_slow, queued.rank_s = True, ended_s
        if is_first or not asking.has_run_out:
            return decided
        # Its external units had the time that others left; next they have all of a lease's.
        queued.is_slow = True
        if isinstance(decided, _Placed):
            lease.view.give_back(decided.commit.claims)
        return None

    def _tried(self, lease: Lease, queued: QueuedRequest) -> _Placed | NoValidHost | None:
        attempt = queued.attempt
        try:
            decision = lease.view.decide(attempt.request)
            return _Placed(queued, decision, lease.planned(attempt.request, decision.claims))
        except NoValidHost as error:
            attempt.refused_at[self._replica.scope] = self._replica.capacity_version
            attempt.is_partly_reserved = bool(lease.view.reserved(attempt.request))
            return error
        except SchedulerWorkerError as error:
            queued.fail(error)
        except Exception as error:
            LOG.exception("A filter or weigher failed for request %s", attempt.request.request_id)
            queued.fail(error)
        return None

    def _split_late(
        self, lease: Lease, placed: Sequence[_Placed]
    ) -> tuple[list[_Placed], list[_Placed]]:
        """The requests that can be answered in time; and the others, without their claims."""
        now_s = self._now_s()
        ready_s = now_s + self._committing.typical_s(now_s)
        late = [each for each in placed if each.queued.attempt.caller_deadline_s <= ready_s]
        for each in late:
            lease.view.give_back(each.commit.claims)
            self._time_out(each.queued)
        return [each for each in placed if not each.queued.done], late

    # Committing

    def _commit(self, lease: Lease, placed: Sequence[_Placed], refused: _Refused) -> bool:
        """Reserve what was decided; returns whether all of it was, so that refusals stand."""
        if not placed and not refused:
            lease.release_quietly()  # nothing to write: the reservations that were found stand
            return True
        commits = [request.commit for request in placed]
        commits += [lease.refusal(queued.attempt.request) for queued, _ in refused]
        begun_s = self._now_s()
        try:
            applied = lease.commit(commits, keep=self._is_waited_for())
        except (StaleFencingToken, StateUnavailable) as error:
            return self._refusals_stand(lease, error, placed, refused)
        now_s = self._now_s()
        self._committing.add(now_s - begun_s, now_s)
        # The next leader takes it, in this thread or another: leadership is handed over under the
        # guard, so it sees this.
        if lease.ended:
            self._last_lease = lease
        else:
            self._kept_lease = lease
        for (queued, decision, _), is_reserved in zip(placed, applied, strict=False):
            if is_reserved:
                queued.attempt.committed(begun_s, now_s, lease.held_s())
                queued.attempt.reserved[self._replica.scope] = lease.made(decision.claims)
                queued.succeed(decision)
        return all(applied)

    def _refusals_stand(
        self, lease: Lease, error: Exception, placed: Sequence[_Placed], refused: _Refused
    ) -> bool:
        """Whether refusals stand though the commit failed; raises ``error`` without the store.

        A request that may go on to another cluster needs a refusal under a valid lease, or a copy
        of it could get a host here at the same time. Others do not. Nothing stands that was decided
        without the lock: what is refused may have been released before the request came.
        """
        if not lease.is_held:
            if isinstance(error, StateUnavailable):
                raise error
            for queued in (*(each.queued for each in placed), *(queued for queued, _ in refused)):
                queued.decided -= 1  # only what is decided under the lock counts as an attempt
            return False
        if not placed and not any(queued.attempt.any_cluster for queued, _ in refused):
            lease.release_quietly()
            return True
        if isinstance(error, StateUnavailable):
            raise error
        LOG.warning(
            "The lease of cluster %s expired before the commit; deciding again.",
            self._replica.scope,
        )
        return False

    def _bound_attempts(self, batch: Sequence[QueuedRequest]) -> None:
        for queued in batch:
            if not queued.done and queued.decided >= self._deps.limits.max_attempts_to_commit:
                queued.fail(
                    Conflict(
                        f"The chosen hosts changed during each of {queued.decided} attempts; "
                        "try again."
                    )
                )
