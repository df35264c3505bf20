"""A cluster's lock while this process holds it: a current table, and commits under the token.

Claims are consumed in the table as they are decided; :meth:`Hold.commit` makes promises of them or
takes them back. Whoever uses a hold has the replica's lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from scheduler_worker.errors import SchedulerWorkerError, StaleFencingToken
from scheduler_worker.model.claims import Claim, Reservation
from scheduler_worker.ports import (
    Clock,
    ClusterLock,
    Grant,
    Guard,
    Observer,
    Seen,
    Transaction,
)
from scheduler_worker.scheduling.pipeline import Pipeline
from scheduler_worker.service import records
from scheduler_worker.service.ground import Ground
from scheduler_worker.service.replica import ClusterReplica, Fleet
from scheduler_worker.service.whereabouts import Whereabouts, Wish


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how much; times in seconds."""

    acquire_timeout_s: float = 30.0
    hold_timeout_s: float = 10.0
    max_batch: int = 64
    ordering: Literal["priority", "fifo"] = "priority"
    max_head_start_s: float = 2.0
    promise_ttl_s: float = 300.0
    wait_timeout_s: float = 10.0
    max_waiting: int = 32
    max_promises: int = 100_000
    max_attempts_to_commit: int = 8
    globals_max_age_s: float = 5.0

    @property
    def whereabouts_ttl_s(self) -> float:
        """Longer than a request takes from its look at all clusters to its commit in one."""
        return self.acquire_timeout_s + 2 * self.hold_timeout_s


class Means(NamedTuple):
    """What the use cases around a request work with."""

    fleet: Fleet
    lock: ClusterLock
    pipeline: Callable[[], Pipeline]
    clock: Clock
    limits: Limits
    observer: Observer
    holds: dict[str, Hold]
    """The clusters whose lock this process has, for those who look; nothing is decided by it."""
    whereabouts: Whereabouts

    def ground(self, replica: ClusterReplica) -> Ground:
        """The cluster's hosts as they are known now; the caller holds the replica's lock."""
        return Ground(replica, self.fleet.prepare(replica), self.limits.max_promises)

    def claim(self, wishes: Sequence[Wish], now_s: float) -> list[bool]:
        """Say where instances are decided, as :meth:`Whereabouts.claim` does."""
        until_s = now_s + self.limits.whereabouts_ttl_s
        return self.whereabouts.claim(self.fleet.store, wishes, until_s=until_s)


class Hold:
    """One grant, and the replica that it makes current."""

    def __init__(self, grant: Grant, replica: ClusterReplica, means: Means) -> None:
        self.grant = grant
        self.replica = replica
        self.ground: Ground
        self.ended = False
        self._means = means

    @classmethod
    def acquire(
        cls, means: Means, replica: ClusterReplica, *, until_s: float, head_start_s: float = 0.0
    ) -> Hold:
        """Wait for the cluster's lock, at most until ``until_s`` of the clock.

        Raises as :meth:`ClusterLock.acquire` does.
        """
        with replica.lock:
            seen = replica.seen
        grant = means.lock.acquire(
            replica.scope,
            timeout_s=max(0.0, until_s - means.clock.monotonic_s()),
            seen=seen,
            head_start_s=head_start_s,
        )
        means.observer.lock_granted(replica.scope, grant.waited_s)
        hold = means.holds[replica.scope] = cls(grant, replica, means)
        return hold

    def open(self) -> None:
        """Make :attr:`ground` of what is known now, ready to be decided on."""
        if self.grant.turn == 0:
            # A hold that was kept was kept because there was nothing new to know.
            self.replica.apply(self.grant.changes)
        self.ground = self._means.ground(self.replica)
        self.ground.table.now_s = self._store_time_s()

    def held_s(self) -> float:
        """Seconds since the grant."""
        granted_s = self.grant.ends_at_s - self._means.limits.hold_timeout_s
        return max(0.0, self._means.clock.monotonic_s() - granted_s)

    def is_half_over(self) -> bool:
        """Half of a hold is for judgement; what does not fit into it goes to the next one."""
        return self.held_s() > self._means.limits.hold_timeout_s / 2

    def commit(self, wishes: Sequence[Sequence[Claim]], *, keep: bool = False) -> list[bool]:
        """Promise each group of claims whole, or take it back; then the lock goes on.

        With ``keep``, and if nobody else waits, the hold has not :attr:`ended` afterwards. Raises
        as :meth:`ClusterLock.commit` does; then all claims are taken back.
        """
        now_s = self._store_time_s()
        promises = [[self._promise(claim, now_s) for claim in claims] for claims in wishes]
        transactions = [
            Transaction([records.put_promise(each) for each in made], _guards(claims))
            for claims, made in zip(wishes, promises, strict=True)
        ]
        keep_at = self.replica.seen.version if keep and not self.is_half_over() else None
        try:
            written = self._means.lock.commit(self.grant, transactions, keep_at=keep_at)
        except BaseException as error:
            for claims in wishes:
                self.ground.give_up(claims)
            if isinstance(error, StaleFencingToken):
                self._means.observer.commit_fenced(self.replica.scope)
                self._end()
            raise
        for claims, made, applied in zip(wishes, promises, written.applied, strict=True):
            if applied:
                self.replica.keep_all(made, written.version)
            else:
                self._means.observer.commit_conflicted(self.replica.scope)
                self.ground.give_up(claims)
        if written.before == self.replica.seen.version:
            # Nobody wrote in between: what was just promised is all that changed.
            self.replica.seen = Seen(self.replica.seen.epoch, written.version)
        if written.kept:
            self.grant = msgspec.structs.replace(self.grant, turn=self.grant.turn + 1)
        else:
            self._end()
        return list(written.applied)

    def release(self) -> None:
        """Hand the lock on without writing."""
        if not self.ended:
            self._means.lock.release(self.grant)
            self._end()

    def release_quietly(self) -> None:
        """The same, where a hold that cannot be released has to run out."""
        with contextlib.suppress(SchedulerWorkerError):
            self.release()
        if not self.ended:
            self._end()

    def _end(self) -> None:
        self.ended = True
        means, scope = self._means, self.replica.scope
        if means.holds.get(scope) is self:
            means.holds.pop(scope, None)
        means.observer.lock_ended(scope, self.held_s())
        if means.clock.monotonic_s() > self.grant.ends_at_s:
            means.observer.hold_expired(scope)

    def _promise(self, claim: Claim, now_s: float) -> Reservation:
        return Reservation(
            instance_uuid=claim.instance_uuid,
            host_uuid=claim.host_uuid,
            host=claim.host,
            nodename=claim.nodename,
            resources=claim.resources,
            created_at_s=now_s,
            expires_at_s=now_s + self._means.limits.promise_ttl_s,
            token=self.grant.token.number,
            request_id=claim.request_id,
            project_id=claim.project_id,
        )

    def _store_time_s(self) -> float:
        """The store's clock now: as it was told with the grant, and what has passed since."""
        return self.grant.changes.now_s + self.held_s()


def _guards(claims: Iterable[Claim]) -> list[Guard]:
    """The hosts must still be as they were when they were chosen."""
    versions = {claim.host_uuid: claim.host_version for claim in claims}
    return [Guard(records.HOST + uuid, version) for uuid, version in versions.items()]
