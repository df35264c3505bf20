"""A cluster's lock while this process holds it: a current table, and commits under the token.

Claims are consumed in the table as they are decided; :meth:`Hold.commit` makes promises of them or
takes them back. Whoever uses a hold has the replica's lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from scheduler_worker.model.claims import Claim, Reservation
from scheduler_worker.model.hosts import HostTable
from scheduler_worker.ports import Clock, ClusterLock, Grant, Guard, Seen, Transaction
from scheduler_worker.service import records
from scheduler_worker.service.replica import ClusterReplica, Fleet


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how much; times in seconds."""

    acquire_timeout_s: float = 30.0
    hold_timeout_s: float = 10.0
    max_batch: int = 64
    promise_ttl_s: float = 300.0
    max_attempts_to_commit: int = 8
    globals_max_age_s: float = 5.0


class Hold:
    """One grant and the replica it made current."""

    def __init__(
        self,
        grant: Grant,
        replica: ClusterReplica,
        *,
        fleet: Fleet,
        lock: ClusterLock,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self.grant = grant
        self.replica = replica
        self._lock = lock
        self._clock = clock
        self._limits = limits
        if grant.turn == 0:
            # A hold that was kept was kept because there was nothing new to know.
            replica.apply(grant.changes)
        self.table: HostTable = fleet.prepare(replica)
        self.table.now_s = self._store_time_s()

    def is_half_over(self) -> bool:
        """Half of a hold is for judgement; what does not fit into it goes to the next one."""
        return self._clock.monotonic_s() > self.grant.ends_at_s - self._limits.hold_timeout_s / 2

    def commit(
        self, wishes: Sequence[Sequence[Claim]], *, keep: bool = False
    ) -> tuple[list[bool], Grant | None]:
        """Promise each group of claims whole, or take it back; then the lock goes on.

        With ``keep``, and if nobody else waits, the second part of the answer is the hold to go on
        with. Raises as :meth:`ClusterLock.commit` does; then all claims are taken back.
        """
        promises = [[self._promise(claim) for claim in claims] for claims in wishes]
        transactions = [
            Transaction([records.put_promise(each) for each in made], _guards(claims))
            for claims, made in zip(wishes, promises, strict=True)
        ]
        keep_at = self.replica.seen.version if keep and not self.is_half_over() else None
        try:
            written = self._lock.commit(self.grant, transactions, keep_at=keep_at)
        except BaseException:
            for claims in wishes:
                self.give_up(claims)
            raise
        for claims, made, applied in zip(wishes, promises, written.applied, strict=True):
            if applied:
                for reservation in made:
                    self.replica.keep(reservation)
                    self.replica.versions[records.PROMISE + reservation.id] = written.version
            else:
                self.give_up(claims)
        if written.before == self.replica.seen.version:
            # Nobody wrote in between: what was just promised is all that changed.
            self.replica.seen = Seen(self.replica.seen.epoch, written.version)
        kept = msgspec.structs.replace(self.grant, turn=self.grant.turn + 1)
        return list(written.applied), kept if written.kept else None

    def give_up(self, claims: Iterable[Claim]) -> None:
        """Take claims back that were decided and not committed."""
        for claim in claims:
            self.replica.give_up(claim.id)

    def release(self) -> None:
        """Hand the lock on without writing."""
        self._lock.release(self.grant)

    def _promise(self, claim: Claim) -> Reservation:
        now_s = self._store_time_s()
        return Reservation(
            instance_uuid=claim.instance_uuid,
            host_uuid=claim.host_uuid,
            host=claim.host,
            nodename=claim.nodename,
            resources=claim.resources,
            created_at_s=now_s,
            expires_at_s=now_s + self._limits.promise_ttl_s,
            token=self.grant.token.number,
            request_id=claim.request_id,
            project_id=claim.project_id,
        )

    def _store_time_s(self) -> float:
        """The store's clock now: as it was told with the grant, and what has passed since."""
        granted_s = self.grant.ends_at_s - self._limits.hold_timeout_s
        return self.grant.changes.now_s + max(0.0, self._clock.monotonic_s() - granted_s)


def _guards(claims: Iterable[Claim]) -> list[Guard]:
    """The hosts must still be as they were when they were chosen."""
    versions = {claim.host_uuid: claim.host_version for claim in claims}
    return [Guard(records.HOST + uuid, version) for uuid, version in versions.items()]
