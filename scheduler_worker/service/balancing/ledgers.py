"""Changes of clusters' ledgers and modes in the shared state, by whichever worker.

All are compare-and-set on the record, so each is made on the ledger as it is, and none is lost. A
migration is written down before it is asked for: a worker that dies in between loses it, and after
a while it counts as failed, but none is asked for twice. The same holds for power actions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from scheduler_worker.errors import ClusterLockTimeout, StaleFencingToken
from scheduler_worker.model.cluster_load import BalancingSwitch
from scheduler_worker.model.ledgers import MigrationLedger, PowerLedger
from scheduler_worker.observer import Observer
from scheduler_worker.ports import ClusterLock, Guard, Transaction
from scheduler_worker.service.state import records
from scheduler_worker.service.state.replica import ClusterReplica, Fleet
from scheduler_worker.service.state.writing import WritePlan, Writer

Change = Callable[[ClusterReplica, float], MigrationLedger]
"""From the current cluster and the store's time to its next ledger; runs under its lock."""
PowerChange = Callable[[ClusterReplica, float], PowerLedger]
"""The same for the ledger of power actions."""
_PATIENCE_S = 5.0
"""For how long to wait for a cluster's lock. A round that does not get it tries the next time."""


class Ledgers:
    """Writes ledgers and modes."""

    def __init__(self, fleet: Fleet, observer: Observer) -> None:
        self._fleet = fleet
        self._writer = Writer(fleet.store, observer)

    def change(self, cluster: str, change: Change) -> tuple[MigrationLedger, MigrationLedger]:
        """Put the next ledger of a cluster in force; returns the one before, and it.

        The write counts only under the policy and the mode on which ``change`` was made.

        Raises:
            Conflict: others changed it during each of several attempts.
            StateUnavailable: the store cannot be reached.
        """
        replica = self._fleet.cluster(cluster)
        read = (records.LEDGER, records.SWITCH, records.POLICY_IN_FORCE)

        before = found = MigrationLedger()

        def plan(_: str, now_s: float) -> WritePlan | None:
            nonlocal before, found
            before = replica.ledger
            found = change(replica, now_s)
            if found == before:
                return None
            return WritePlan(Transaction([records.put_ledger(found)], _guards(replica, read)))

        self._writer.write(replica, [cluster], plan)
        return before, found

    def change_power(self, cluster: str, change: PowerChange) -> tuple[PowerLedger, PowerLedger]:
        """Put the next ledger of power actions in force; returns the one before, and it.

        Raises as :meth:`change` does.
        """
        replica = self._fleet.cluster(cluster)
        before = found = PowerLedger()

        def plan(_: str, now_s: float) -> WritePlan | None:
            nonlocal before, found
            before = replica.power
            found = change(replica, now_s)
            if found == before:
                return None
            guards = _guards(replica, [records.POWER])
            return WritePlan(Transaction([records.put_power(found)], guards))

        self._writer.write(replica, [cluster], plan)
        return before, found

    def change_power_alone(
        self, lock: ClusterLock, cluster: str, host: str, change: PowerChange
    ) -> PowerLedger | None:
        """The same while no decision is made and the host is what it was when ``change`` saw it.

        Decisions before it are in what ``change`` sees, those after it see its ledger. None where
        the lock was not granted in time, or something has changed meanwhile.

        Raises StateUnavailable.
        """
        replica = self._fleet.cluster(cluster)
        with replica.lock:
            seen = replica.seen
        try:
            grant = lock.acquire(cluster, timeout_s=_PATIENCE_S, seen=seen)
        except ClusterLockTimeout:
            return None
        with contextlib.ExitStack() as lease:
            lease.callback(lock.release, grant)
            with replica.lock:
                if not replica.apply(grant.changes):
                    replica.refresh(self._fleet.store)
                found = change(replica, grant.changes.now_s)
                if found == replica.power:
                    return found
                put = records.put_power(found)
                transactions = [Transaction([put], _guards(replica, _read_of(replica, host)))]
                try:
                    written = lock.commit(grant, transactions)
                except StaleFencingToken:
                    return None
                lease.pop_all()  # The commit has handed the lock on.
                replica.apply_written(transactions, written, grant.changes.now_s)
        return found if written.applied[0] else None

    def switch(
        self, cluster: str, made: Callable[[ClusterReplica], BalancingSwitch | None]
    ) -> None:
        """Set the mode of a cluster, or withdraw it. Raises as :meth:`change` does."""
        replica = self._fleet.cluster(cluster)
        read = (records.SWITCH, records.POLICY_IN_FORCE)

        def plan(_: str, _now_s: float) -> WritePlan | None:
            switch = made(replica)
            if switch == replica.switch:
                return None
            return WritePlan(Transaction([records.put_switch(switch)], _guards(replica, read)))

        self._writer.write(replica, [cluster], plan)


def _read_of(replica: ClusterReplica, host: str) -> list[str]:
    """The keys on which an action on a host depends, beside the reservations on it."""
    nodes = [records.HOST + record.uuid for record in replica.table.find(host)]
    balancing = [records.LEDGER, records.POWER, records.SWITCH, records.POLICY_IN_FORCE]
    return [*balancing, *nodes, records.INSTANCES + host]


def _guards(replica: ClusterReplica, keys: Iterable[str]) -> list[Guard]:
    return [Guard(key, replica.version(key)) for key in keys]
