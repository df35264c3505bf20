"""Balancing in the shared state: the ledgers and modes of clusters, and their last rounds.

All changes of ledgers are compare-and-set on the record, so each is made on the ledger as it is,
and none is lost. An action is written down before it is asked for: a worker that dies in between
loses it, and after a while it counts as failed, but none is asked for twice.

In ``@balancing`` ``u:`` and a cluster's name is its leadership, ``r:`` and the name its last round.
What binds is in the cluster's own scope: placing VMs reads it too.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import TypeVar, cast

import msgspec

from scheduler_worker import events
from scheduler_worker.conversion import json_reader
from scheduler_worker.errors import (
    BackendError,
    ClusterLockTimeout,
    MigrationRefused,
    PowerRefused,
    StaleFencingToken,
)
from scheduler_worker.model.cluster_load import Round
from scheduler_worker.model.host_records import phrase
from scheduler_worker.model.ledgers import (
    AskedMigration,
    AskedPower,
    MigrationLedger,
    MigrationLimits,
    PowerLedger,
    Progress,
    Setback,
)
from scheduler_worker.observer import Observer
from scheduler_worker.ports import ClusterLock, Put, Store, Transaction
from scheduler_worker.service.state import records
from scheduler_worker.service.state.leadership import Leadership, LeadershipRecords
from scheduler_worker.service.state.replica import ClusterReplica, Fleet, RecordKind
from scheduler_worker.service.state.writing import WritePlan, Writer

LOG = logging.getLogger(__name__)

ASKED, SHOWN = "asked for", "would be asked for"
_PATIENCE_S = 5.0
"""For how long to wait for a cluster's lock. A round that does not get it tries the next time."""
CONDITIONS = (records.SWITCH, records.POLICY_IN_FORCE)
"""On what, beside the ledgers, it depends which actions may be asked for."""

AnyLedger = TypeVar("AnyLedger", MigrationLedger, PowerLedger)
Change = Callable[[AnyLedger, ClusterReplica, float], AnyLedger]
"""From the current ledger, cluster and time of the store to the next; runs under its lock."""


class Ledgers:
    """Writes ledgers, and reports the actions that ended."""

    def __init__(self, fleet: Fleet, observer: Observer, limits: MigrationLimits) -> None:
        self._fleet = fleet
        self._observer = observer
        self._limits = limits
        self._writer = Writer(fleet.store, observer)

    def change(
        self,
        cluster: str,
        form: type[AnyLedger],
        change: Change[AnyLedger],
        answers: Mapping[str, Progress] = {},
    ) -> tuple[AnyLedger, AnyLedger]:
        """Put the next ledger of a cluster in force; returns the one before, and it.

        The write counts only under the policy and the mode on which ``change`` was made.
        ``answers`` were given about actions, by their ids; the report of their ends has them.

        Raises:
            Conflict: others changed it during each of several attempts.
            StateUnavailable: the store cannot be reached.
        """
        replica = self._fleet.cluster(cluster)
        before = after = form()

        def plan(_: str, now_s: float) -> WritePlan | None:
            nonlocal before, after
            before = _ledger_of(replica, form)
            after = change(before, replica, now_s)
            if after == before:
                return None
            put = records.put_ledger(after)
            return WritePlan(Transaction([put], replica.guards((put.key, *CONDITIONS))))

        self._writer.write(replica, [cluster], plan)
        for asked in before.actions:
            if after.find(asked.id) is None:
                self._report_end(cluster, asked, after.setbacks, answers.get(asked.id))
        return before, after

    def change_power_alone(
        self, lock: ClusterLock, cluster: str, host: str, change: Change[PowerLedger]
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
                after = change(replica.power, replica, grant.changes.now_s)
                if after == replica.power:
                    return after
                # On these it depends, beside the reservations on the host.
                keys = [records.LEDGER, records.POWER, *CONDITIONS, records.INSTANCES + host]
                keys += [records.HOST + record.uuid for record in replica.table.find(host)]
                transactions = [Transaction([records.put_ledger(after)], replica.guards(keys))]
                try:
                    written = lock.commit(grant, transactions)
                except StaleFencingToken:
                    return None
                lease.pop_all()  # The commit has handed the lock on.
                replica.apply_written(transactions, written, grant.changes.now_s)
        return after if written.applied[0] else None

    def ask(
        self, cluster: str, form: type[AnyLedger], action_id: str, ask: Callable[[], None]
    ) -> tuple[str, str]:
        """Ask for an action that is written down; returns what became of it, as for a proposal.

        Raises Conflict, StateUnavailable.
        """
        try:
            ask()
        except (MigrationRefused, PowerRefused) as refused:
            progress = Progress(state="refused", why=str(refused))

            def advanced(ledger: AnyLedger, _: ClusterReplica, now_s: float) -> AnyLedger:
                return ledger.advance(action_id, progress, now_s, self._limits)

            self.change(cluster, form, advanced, {action_id: progress})
            return f"refused: {refused}", "held"
        except BackendError as error:
            # It may have arrived all the same, so it counts as under way until it is overdue.
            if form is MigrationLedger:
                self._observer.count(events.TARGET_FAILURES, cluster)
            return f"{ASKED}, but it is unknown whether that arrived: {error}", "asked"
        return ASKED, "asked"

    def _report_end(
        self,
        cluster: str,
        asked: AskedMigration | AskedPower,
        setbacks: Mapping[str, Setback],
        progress: Progress | None,
    ) -> None:
        """Log and count the end of an action; without an answer, by a check or for its silence."""
        setback = setbacks.get(asked.host if isinstance(asked, AskedPower) else asked.vm)
        outcome = "done" if setback is None else "overdue"
        if setback and progress and progress.state in {"refused", "failed"}:
            outcome = progress.state
        if isinstance(asked, AskedPower):
            what = f"bringing {asked.host} {phrase(asked.to)}"
            self._observer.count(events.POWER_ACTIONS, cluster, asked.to, outcome)
        else:
            known = (progress and progress.destination) or asked.destination or "a host not known"
            what = f"the migration of {asked.vm} from {asked.source} to {known}"
            self._observer.count(events.MIGRATIONS, cluster, outcome)
        why = f": {setback.why}" if setback is not None and setback.why else ""
        LOG.info("Balancing %s: %s is %s%s", cluster, what, outcome, why)


def _ledger_of(replica: ClusterReplica, form: type[AnyLedger]) -> AnyLedger:
    return cast("AnyLedger", replica.ledger if form is MigrationLedger else replica.power)


SCOPE = "@balancing"
_ROUND = "r:"
_KEEP_S = 86_400.0


class BalancingRecords(LeadershipRecords[Leadership]):
    """A replica of the leaderships and the last rounds."""

    def __init__(self) -> None:
        self._rounds = RecordKind(_ROUND, bytes)
        """Decoded on demand: most workers need none of them."""
        super().__init__(SCOPE, Leadership, self._rounds)

    def last_round(self, cluster: str) -> Round | None:
        """The last round of a cluster; None: there was none within a day."""
        encoded = self._rounds.get(cluster)
        return None if encoded is None else json_reader(Round)(encoded)

    def write_round(self, store: Store, cluster: str, made: Round) -> None:
        """Write the last round of a cluster. Raises StateUnavailable."""
        put = Put(_ROUND + cluster, msgspec.json.encode(made), made.at_s + _KEEP_S)
        store.write(SCOPE, [Transaction([put])])
