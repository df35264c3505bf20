"""A cluster's lock while this process holds it, and the view of the cluster that it decides on.

Claims are consumed in the host table as they are decided. :meth:`Lease.commit` stores them as
reservations under the fencing token, or gives them back. From :meth:`Lease.open` to the commit
callers hold the replica's lock; :meth:`Lease.acquire` waits, and is called without it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import structs

from scheduler_worker import events
from scheduler_worker.errors import NoValidHost, SchedulerWorkerError, StaleFencingToken
from scheduler_worker.model.claims import Claim, Reservation, reservation_id
from scheduler_worker.model.decisions import Decision
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import AskingTime
from scheduler_worker.model.ledgers import AskedMigration
from scheduler_worker.ports import Guard, LockGrant, Seen, Transaction, Written
from scheduler_worker.scheduling.pipeline import Pipeline, Request
from scheduler_worker.service.requests.dependencies import PlacementDependencies
from scheduler_worker.service.state import records, reservations
from scheduler_worker.service.state.attempt import PlacementAttempt, SeededRandom
from scheduler_worker.service.state.replica import ClusterReplica
from scheduler_worker.service.state.reservations import given_up, reserved_rows
from scheduler_worker.service.state.writing import WritePlan

LOG = logging.getLogger(__name__)


class ClusterView(NamedTuple):
    """A cluster's host table, reservations consumed, with the pipeline of its policy."""

    replica: ClusterReplica
    table: HostTable
    pipeline: Pipeline
    max_reservations: int

    @classmethod
    def current(
        cls, deps: PlacementDependencies, replica: ClusterReplica, until_s: float | None = None
    ) -> ClusterView:
        """The cluster as this process knows it now. Raises ClusterPolicyError.

        ``until_s`` is until when external units may be asked, of the monotonic clock. Not given:
        for as long as whoever holds only the replica's lock may ask them.
        """
        table = deps.fleet.prepare(replica)
        if until_s is None:
            until_s = deps.clock.monotonic_s() + deps.limits.ask_s
        table.asking = AskingTime(until_s)
        return cls(replica, table, deps.pipelines().of(replica), deps.limits.max_reservations)

    def without_pending(self) -> ClusterView | None:
        """The view if all pending reservations were released; None if there are none."""
        table = self.table.without_pending()
        return None if table is None else self._replace(table=table)

    def reserved(self, request: Request) -> Mapping[str, int]:
        """Instance uuid -> row of its host, for instances that have a host already."""
        return self._reserved(narrowed(self.replica, request))

    def _reserved(self, request: Request) -> Mapping[str, int]:
        return reserved_rows(self.replica, self.table, request)

    def decide(self, request: Request) -> Decision:
        """Choose hosts and consume them in the table; instances that have a host keep it.

        Raises NoValidHost: nothing stays consumed.
        """
        request = narrowed(self.replica, request)
        decision = self.pipeline.decide(
            self.table, request, SeededRandom(request), self._reserved(request)
        )
        if decision.claims and self.table.num_reservations > self.max_reservations:
            self.give_back(decision.claims)
            raise NoValidHost(
                f"Cluster {self.replica.scope} has {self.max_reservations} reservations already, "
                "which is as many as [pending] max_per_cluster allows.",
                decision.diagnosis,
            )
        return decision

    def give_back(self, claims: Iterable[Claim]) -> None:
        """Return the resources of claims; a stored reservation that one replaced is restored."""
        for claim in claims:
            stored = self.replica.reservations.get(claim.id)
            # The table of `without_pending` did not have the pending ones to begin with.
            is_other_table = self.table is not self.replica.table
            if stored is None or (stored.is_pending and is_other_table):
                self.table.give_back(claim.id)
            else:
                self.table.consume(stored)


# The hosts that requests may choose from while a balance moves VMs or switches hosts off: they are
# in the cluster's ledgers, which come with each grant of its lock.


def migration_of(replica: ClusterReplica, request: Request) -> AskedMigration | None:
    """The migration under way of the VM that a request is about; the caller holds the lock.

    One that is overdue binds nobody any more, even if no worker runs to say that it failed.
    """
    if not replica.ledger.under_way or len(request.instance_uuids) != 1:
        return None
    asked = replica.ledger.under_way.get(request.instance_uuids[0])
    return asked if asked and asked.overdue_at_s > replica.table.now_s else None


def narrowed(replica: ClusterReplica, request: Request) -> Request:
    """The request, limited to the hosts that its VM's migration may choose from, if there is one.

    A host that is being put into maintenance, or switched off, is left out in any case. The caller
    holds the replica's lock.
    """
    spec = request.spec
    asked = migration_of(replica, request)
    if asked is not None:
        only = spec.only_hosts
        allowed = tuple(host for host in asked.candidates if only is None or host in only)
        spec = structs.replace(spec, only_hosts=allowed)
    # Of a migration too: its destination may be closing since the balance named it. A host whose
    # power action is overdue takes VMs again, as with migrations.
    power = replica.power.under_way
    if power and power.to != "up" and power.overdue_at_s > replica.table.now_s:
        spec = structs.replace(spec, closing_hosts=(power.host,))
    return request if spec is request.spec else structs.replace(request, spec=spec)


class Commit(NamedTuple):
    """What is written for one decision, all of it or nothing."""

    claims: Sequence[Claim]
    repeated: Sequence[Reservation] = ()
    """Existing reservations that the decision answers again.

    They are renewed and so get a new version. A worker that made them and then finds its caller
    gone takes back only the version it wrote, so it leaves them alone.
    """
    given_up: Sequence[Reservation] = ()
    """Existing reservations of its instances on hosts that the request excludes; they end."""


class Lease:
    """One grant of a cluster's lock; or a lock taken up that the last commit left to nobody."""

    def __init__(
        self,
        grant: LockGrant,
        replica: ClusterReplica,
        deps: PlacementDependencies,
        *,
        resumable_until_s: float | None = None,
    ) -> None:
        """``resumable_until_s`` is given for a lease that is taken up again."""
        self.grant = grant
        self.replica = replica
        self.view: ClusterView
        """Set by :meth:`open`."""
        self.ended = False
        self.is_held = resumable_until_s is None
        """Whether this worker has the lock; else only a commit that succeeds shows that nothing has
        changed."""
        self._deps = deps
        self._is_alone = not self.is_held
        """Whether no other worker has changed anything between our last two leases."""
        self._is_free = False
        """Whether its last commit left the lock to nobody, at a version that is known here."""
        self._resumable_until_s = (
            self.half_over_at_s if resumable_until_s is None else resumable_until_s
        )

    @classmethod
    def acquire(
        cls,
        deps: PlacementDependencies,
        replica: ClusterReplica,
        *,
        until_s: float,
        priority_boost_s: float = 0.0,
    ) -> Lease:
        """Wait for the cluster's lock, at most until ``until_s`` of the monotonic clock.

        Raises as :meth:`ClusterLock.acquire` does.
        """
        # Only for a moment: who has the cluster's lock in this process needs it to decide.
        with replica.lock:
            seen = replica.seen
        # Called by the slot that leads a queue, or that places over several clusters. It blocks.
        grant = deps.lock.acquire(
            replica.scope,
            timeout_s=max(0.0, until_s - deps.clock.monotonic_s()),
            seen=seen,
            priority_boost_s=priority_boost_s,
        )
        lease = cls(grant, replica, deps)
        lease._begin()
        return lease

    def resumed(self) -> Lease | None:
        """The same grant once more, without a word to the store; None: acquire the lock.

        Possible while the store left the lock to nobody and no other worker changes the cluster. A
        commit finds out whether that is still so. Called by the slot that leads a queue.
        """
        now_s = self._deps.clock.monotonic_s()
        is_known = self.grant.changes.epoch == self.replica.seen.epoch
        if not (self._is_free and is_known and now_s < self._resumable_until_s):
            return None
        changes = structs.replace(self.grant.changes, now_s=self._store_time_s())
        grant = structs.replace(self.grant, waited_s=0.0, granted_at_s=now_s, changes=changes)
        lease = Lease(grant, self.replica, self._deps, resumable_until_s=self._resumable_until_s)
        lease._begin()
        return lease

    def _begin(self) -> None:
        grant, deps = self.grant, self._deps
        deps.observer.time(events.LOCK_WAIT, grant.waited_s, self.replica.scope)
        # For the dump of this process, which says who holds what; never read to decide.
        # Written without a lock: each lease has a key of its own, and readers copy.
        deps.grants[grant.owner] = grant

    def open(self) -> None:
        """Apply the grant's changes, and build :attr:`view` from them. Raises StateUnavailable."""
        # A lease that was kept, or is taken up again, has no changes that this process missed.
        if self.grant.commits == 0:
            changes = self.grant.changes
            self._is_alone = not (changes.entries or changes.reset)
            if not self.replica.apply(changes):
                self.replica.refresh(self._deps.fleet.store)
        self.view = ClusterView.current(self._deps, self.replica, self.half_over_at_s)
        self.view.table.now_s = self._store_time_s()

    def held_s(self) -> float:
        """Seconds since the grant."""
        return max(0.0, self._deps.clock.monotonic_s() - self.grant.granted_at_s)

    @property
    def half_over_at_s(self) -> float:
        """When half of the lease is over, by the monotonic clock."""
        return (self.grant.granted_at_s + self.grant.ends_at_s) / 2

    def is_half_over(self) -> bool:
        """Whether to stop deciding: the second half of a lease is left for the commit."""
        return self._deps.clock.monotonic_s() > self.half_over_at_s

    def planned(self, request: Request, claims: Sequence[Claim]) -> Commit:
        """What is to be written for a request with these claims."""
        ended = self._given_up(request, claims)
        claimed = {claim.instance_uuid for claim in claims}
        if claimed.issuperset(request.instance_uuids):
            return Commit(claims, given_up=ended)
        ids = {
            reservation_id(uuid, self.view.table.records[row].uuid)
            for uuid, row in self.view.reserved(request).items()
            if uuid not in claimed
        }
        repeated = [
            self.replica.reservations[reservation_key].repeated(request.request_id)
            for reservation_key in sorted(ids & self.replica.reservations.keys())
        ]
        return Commit(claims, repeated, ended)

    def refusal(self, request: Request) -> Commit:
        """What is written for a request that no host passes: also that the policy is in force."""
        return Commit((), given_up=self._given_up(request))

    def commit(self, commits: Sequence[Commit], *, keep: bool = False) -> list[bool]:
        """Write each commit whole, or give its claims back; then hand the lock on.

        With ``keep``, and if no other worker waits for the lock, the lease has not :attr:`ended`
        afterwards. Returns for each commit whether it was applied. Raises as
        :meth:`ClusterLock.commit` does; then all claims are given back.
        """
        # Of the store's clock, by which reservations expire, whatever this machine's says.
        now_s = self._store_time_s()
        made = [self._made(planned, now_s) for planned in commits]
        in_force = self.replica.guard(records.POLICY_IN_FORCE)
        transactions = [
            self._transaction(planned, some, in_force)
            for planned, some in zip(commits, made, strict=True)
        ]
        # A kept lease brings no changes along, so it is kept only if none came since the grant.
        known, keep = self.replica.seen, keep and not self.is_half_over()
        # One round trip under the replica's lock, so that nobody here sees the table between what
        # was decided and what was stored. During an outage it lasts until the engine gives up.
        try:
            written = self._deps.lock.commit(self.grant, transactions, at=known.version, keep=keep)
        except BaseException as error:
            for planned in commits:
                self.view.give_back(planned.claims)
            # The lock has gone to another worker: what it decides must not be overwritten.
            if isinstance(error, StaleFencingToken):
                if self.is_held:
                    self._deps.observer.count(events.COMMITS_FENCED, self.replica.scope)
                self._end()
            raise
        for planned, some, applied in zip(commits, made, written.applied, strict=True):
            if applied:
                self.replica.keep_all(some, written.version)
                self._release(planned.given_up)
            else:
                self._deps.observer.count(events.COMMIT_CONFLICTS, self.replica.scope)
                self.view.give_back(planned.claims)
        self._committed(known, written)
        return list(written.applied)

    def _committed(self, known: Seen, written: Written) -> None:
        """Note where the lock is after a commit, which was made when ``known`` was known."""
        if is_current := written.before == known.version:
            # Nobody wrote in between, so our own writes are all that changed: no need to read.
            self.replica.seen = Seen(known.epoch, written.version)
        self.grant = structs.replace(self.grant, commits=self.grant.commits + 1)
        self.is_held = written.kept
        self._is_free = written.is_free and is_current and self._is_alone
        if not written.kept:
            self._end()

    def made(self, claims: Sequence[Claim]) -> list[Reservation]:
        """The reservations of claims that were committed just now."""
        return [self.replica.reservations[claim.id] for claim in claims]

    def release_quietly(self) -> None:
        """Hand the lock on without writing; if the store is away, let the lease expire."""
        # With or without the replica's lock: it touches the store's lock alone.
        if not self.ended:
            if self.is_held:
                with contextlib.suppress(SchedulerWorkerError):
                    self._deps.lock.release(self.grant)
            self._end()

    def _end(self) -> None:
        self.ended = True
        deps, scope = self._deps, self.replica.scope
        deps.grants.pop(self.grant.owner, None)
        deps.observer.time(events.LOCK_HOLD, self.held_s(), scope)
        if deps.clock.monotonic_s() > self.grant.ends_at_s:
            deps.observer.count(events.LEASES_EXPIRED, scope)

    def _made(self, planned: Commit, now_s: float) -> list[Reservation]:
        made = [self._reservation(claim, now_s) for claim in planned.claims]
        made += [self._renewed(reservation, now_s) for reservation in planned.repeated]
        return made

    def _transaction(
        self, planned: Commit, made: Sequence[Reservation], in_force: Guard
    ) -> Transaction:
        """Requires hosts and policy to be as they were when the claims were decided."""
        puts = [records.put_reservation(reservation) for reservation in made]
        puts += reservations.given_back(planned.given_up)
        versions = {claim.host_uuid: claim.host_version for claim in planned.claims}
        guards = [Guard(records.HOST + uuid, version) for uuid, version in versions.items()]
        guards.append(in_force)
        guards += reservations.guards(self.replica, planned.repeated)
        guards += reservations.guards(self.replica, planned.given_up)
        return Transaction(puts, guards)

    def _reservation(self, claim: Claim, now_s: float) -> Reservation:
        row = self.view.table.row_of(claim.host_uuid)
        return Reservation(
            instance_uuid=claim.instance_uuid,
            host_uuid=claim.host_uuid,
            host=claim.host,
            nodename=claim.nodename,
            resources=claim.resources,
            created_at_s=now_s,
            expires_at_s=now_s + self._deps.limits.reservation_ttl_s,
            token=self.grant.token.number,
            request_id=claim.request_id,
            project_id=claim.project_id,
            # The commit is guarded by the host's version, so this is what was decided on.
            other_use=None if row is None else reservations.other_use(self.replica, row),
        )

    def _given_up(self, request: Request, claims: Sequence[Claim] = ()) -> list[Reservation]:
        """A host that was tried may be chosen again; then the claim replaces the reservation."""
        excluded = given_up(self.replica, self.view.table, request)
        claimed = {claim.id for claim in claims} if excluded else ()
        return [reservation for reservation in excluded if reservation.id not in claimed]

    def _release(self, ended: Sequence[Reservation]) -> None:
        if ended:
            self.replica.drop(records.RESERVATION + reservation.id for reservation in ended)
            self._deps.observer.count(events.RESERVATIONS_ENDED, "released", by=len(ended))

    def _renewed(self, reservation: Reservation, now_s: float) -> Reservation:
        until_s = max(reservation.expires_at_s, now_s + self._deps.limits.reservation_ttl_s)
        return structs.replace(reservation, expires_at_s=until_s, token=self.grant.token.number)

    def _store_time_s(self) -> float:
        """The store's clock now: its time at the grant plus what has passed since."""
        return self.grant.changes.now_s + self.held_s()


def take_back(deps: PlacementDependencies, attempt: PlacementAttempt) -> set[str]:
    """Delete the reservations that were committed in each cluster, if they are still the same.

    A reservation that was answered to another request since, or announced, stays. If the store
    cannot be reached the reservations expire. Returns the ids of the deleted reservations.
    """
    deleted: set[str] = set()
    while attempt.reserved:
        cluster, made = attempt.reserved.popitem()
        replica = deps.fleet.cluster(cluster)
        planned: dict[str, bool] = {}
        try:
            deps.writer.write(replica, made, partial(_deletion, replica, planned))
            deleted |= {reservation_key for reservation_key, is_ours in planned.items() if is_ours}
        except SchedulerWorkerError as error:
            LOG.warning(
                "Reservations in cluster %s could not be taken back and will expire: %s",
                cluster,
                error,
            )
    return deleted


def _deletion(
    replica: ClusterReplica, planned: dict[str, bool], made: Reservation, _now_s: float
) -> WritePlan | None:
    """Also notes in ``planned`` whether the reservation is deleted."""
    plan = reservations.taken_back(replica, made)
    planned[made.id] = plan is not None
    return plan
