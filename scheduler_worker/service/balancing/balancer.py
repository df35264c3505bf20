"""The balancer: runs the rounds of all clusters, each on one worker at a time.

The worker that leads a cluster (``service/state/leadership.py``) runs its rounds. What is
under way is in the cluster's ledger, so a worker that takes over continues where the other was.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import structs

from scheduler_worker import events
from scheduler_worker.model.cluster_load import Round
from scheduler_worker.model.host_records import HostCounts, contest_of
from scheduler_worker.model.ledgers import MigrationLedger, PowerLedger, Progress
from scheduler_worker.observer import Observer
from scheduler_worker.ports import Clock, ClusterLock, MigrationTarget, PowerTarget
from scheduler_worker.service.balancing.ledgers import BalancingRecords, Ledgers
from scheduler_worker.service.balancing.power import states_of
from scheduler_worker.service.balancing.rounds import ClusterRounds
from scheduler_worker.service.balancing.settings import BalancingSettings
from scheduler_worker.service.balancing.situation import BalancingDependencies
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.state.leadership import ClusterLeader, Leadership
from scheduler_worker.service.state.replica import ClusterReplica, Fleet

_MOST_INTERVALS = 3
"""Bounds the time that a round accounts for, in intervals: longer ones were not watched."""


class Balancer(ClusterLeader[Leadership, tuple[Round | None, Round | None]]):
    """Runs the rounds of the clusters that this worker leads; ``name`` identifies it."""

    def __init__(
        self,
        fleet: Fleet,
        pipelines: Callable[[], Pipelines],
        target: MigrationTarget,
        clock: Clock,
        *,
        lock: ClusterLock,
        power_target: PowerTarget,
        settings: BalancingSettings,
        observer: Observer | None = None,
        name: str = "",
    ) -> None:
        self._fleet = fleet
        self._settings = settings
        observer = observer or Observer()
        self._ledgers = Ledgers(fleet, observer, settings.limits)
        self._deps = BalancingDependencies(
            fleet=fleet,
            lock=lock,
            pipelines=pipelines,
            target=target,
            power_target=power_target,
            ledgers=self._ledgers,
            clock=clock,
            observer=observer,
            settings=settings,
        )
        self._last_rounds = BalancingRecords()
        self._rounds: dict[str, ClusterRounds] = {}
        self._hosts: dict[str, HostCounts] = {}
        self._contests: dict[str, list[str]] = {}
        super().__init__(
            "balancing",
            self._last_rounds,
            fleet.store,
            clock,
            worker=name,
            interval_s=settings.interval_s,
            failed=events.BALANCING_FAILURES,
            observer=observer,
        )

    # Rounds

    def clusters(self) -> Sequence[str]:
        return self._fleet.read_names()

    def not_ours(self, cluster: str) -> None:
        """Leave the figures to the worker that leads."""
        self._observer.level(events.UNPROTECTED, 0, cluster)
        self._hosts = {name: host for name, host in self._hosts.items() if name != cluster}
        self._contests = {name: some for name, some in self._contests.items() if name != cluster}

    def run_cluster(self, cluster: str, lead: Leadership) -> tuple[Round | None, Round | None]:
        """Count the hosts and run one round; returns the last round, and this."""
        replica, clock = self._fleet.cluster(cluster), self._deps.clock
        replica.catch_up(self._fleet.store, clock, clock.monotonic_s())
        with replica.lock:
            counts = replica.table.count_states(self._settings.down_after_s)
            contests = [contest_of(record) for record in replica.table.contested()]
        self._hosts = self._hosts | {cluster: counts}
        self._contests = self._contests | {cluster: contests}
        with self._last_rounds.lock:
            before = self._last_rounds.last_round(cluster)
        return before, self._rounds_of(cluster).run(before)

    def _rounds_of(self, cluster: str) -> ClusterRounds:
        return self._rounds.setdefault(cluster, ClusterRounds(cluster, self._deps))

    def ended(
        self, cluster: str, took_s: float, rounds: tuple[Round | None, Round | None] | None
    ) -> None:
        before, latest = rounds or (None, None)
        if latest is not None:
            self._last_rounds.write_round(self._fleet.store, cluster, latest)
            self._observer.time(events.BALANCING_TIME, took_s, cluster)
            self._observer.count(events.BUSY, cluster, by=self._busy_s(before, latest))

    def _busy_s(self, before: Round | None, latest: Round) -> float:
        """For how long hosts have been busy since the last round, added up."""
        if before is None:
            return 0.0
        passed_s = min(latest.at_s - before.at_s, _MOST_INTERVALS * self._settings.interval_s)
        return max(0.0, passed_s) * len({*before.busy_hosts} & {*latest.busy_hosts})

    # Answers

    def report(self, cluster: str, migration_id: str, progress: Progress) -> bool:
        """Take in how far a migration is; False if it is not under way.

        Answers may be repeated, and may come late.

        Raises:
            RequestError: there is no such cluster.
            Conflict, StateUnavailable: try again.
        """
        self._fleet.known_cluster(cluster)
        limits = self._settings.limits
        before, _ = self._ledgers.change(
            cluster,
            MigrationLedger,
            lambda ledger, _, now_s: ledger.advance(migration_id, progress, now_s, limits),
            {migration_id: progress},
        )
        return before.find(migration_id) is not None

    def report_power(self, cluster: str, action_id: str, progress: Progress) -> bool:
        """Take in how far a power action is; False if it is not under way.

        One that is said to be done ends when the host's reports show it. Answers may be repeated,
        and may come late. Raises as :meth:`report` does.
        """
        self._fleet.known_cluster(cluster)
        limits = self._settings.limits

        def changed(ledger: PowerLedger, replica: ClusterReplica, now_s: float) -> PowerLedger:
            ledger = ledger.advance(action_id, progress, now_s, limits)
            return ledger.settle(states_of(replica), now_s, limits)

        before, _ = self._ledgers.change(cluster, PowerLedger, changed, {action_id: progress})
        return before.find(action_id) is not None

    def hosts(self) -> Mapping[str, HostCounts] | None:
        """How many hosts the clusters have that this worker leads; None: it has counted none."""
        return self._hosts or None

    def contests(self) -> list[str]:
        """The hosts of these clusters that several machines report as, in sentences."""
        return [text for texts in self._contests.values() for text in texts]

    def describe(self) -> dict[str, object]:
        """Leaderships, ledgers and last rounds by cluster, as they were read last; for the dump.

        Takes no lock, and leaves out what a balance remembers of each host.
        """
        leaders = dict(self._last_rounds.leaders)
        clusters = {
            cluster.scope: {
                "turn": msgspec.to_builtins(leaders.get(cluster.scope)),
                "ledger": msgspec.to_builtins(cluster.ledger),
                "power": msgspec.to_builtins(cluster.power),
                "last_round": _described(self._last_rounds.last_round(cluster.scope)),
            }
            for cluster in self._fleet.clusters()
        }
        return {"balancer": self.worker, "clusters": clusters}


def _described(last_round: Round | None) -> object:
    return msgspec.to_builtins(last_round and structs.replace(last_round, seen_since_s={}))
