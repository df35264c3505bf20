"""Rehearsals: kept decisions are decided again under other conditions, in this process alone.

Hosts and decisions are copies (:mod:`scheduler_worker.copies`), and the state is a private one in
memory: nothing of the workers is touched, and they do not serve slower.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from scheduler_worker import factories
from scheduler_worker.backends.clock import StandingClock
from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.conf import Settings
from scheduler_worker.model.host_records import HostReport
from scheduler_worker.model.kept_decisions import KeptDecision
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.model.rehearsals import PackingChange, RehearsalSummary
from scheduler_worker.service.placement.dependencies import PlacementLimits
from scheduler_worker.service.placement.scheduler import Scheduler
from scheduler_worker.service.replay.alterations import drained, with_policies
from scheduler_worker.service.replay.packing import packing_of
from scheduler_worker.service.replay.replay import Rehearsed, Replay, planned
from scheduler_worker.service.replay.snapshot import Snapshot, Snapshots
from scheduler_worker.service.replay.summary import summarized
from scheduler_worker.service.state.replica import Fleet

_FOR_EVER_S = 10.0 * 365 * 86_400
"""How long reservations last: the clock stands still."""


class Rehearsal:
    """One pass through decisions, under conditions that are given at the beginning."""

    def __init__(
        self,
        settings: Settings,
        snapshot: Snapshot,
        decisions: Iterable[KeptDecision],
        *,
        policies: Mapping[str, ClusterPolicy] | None = None,
        added: Sequence[HostReport] = (),
        drain: Collection[str] = (),
    ) -> None:
        """``settings`` have the options of the rehearsal, ``policies`` those in force by cluster.

        Clusters that are not named keep their policies. ``added`` are reports of further hosts,
        ``drain`` names hosts that take no more instances.

        Raises:
            RequestError: names a host or cluster that is not there, or what is wrong in a report.
            ConfigError, ClusterPolicyError: the options, or a policy, cannot be used.
        """
        self._cages = factories.build_cages(settings)
        self._pipelines = factories.compile_pipelines(
            settings.options,
            factories.registered(factories.FILTERS),
            factories.registered(factories.WEIGHERS),
            cages=self._cages,
        )
        self._before = snapshot
        for each in (policies or {}).values():
            self._pipelines.compile(each)
        self.plan = planned(snapshot, decisions, self._pipelines)
        self._clock = StandingClock(snapshot.now_s)
        self._state = MemoryState(self._clock, hold_timeout_s=_FOR_EVER_S)
        altered = drained(with_policies(self.plan.snapshot, policies or {}), drain)
        altered.write_to(self._state)
        self._fleet = Fleet(self._state, default_cluster=settings.default_cluster)
        self._fleet.refresh_globals()
        if added:
            factories.build_inventory(settings, self._fleet).update_hosts(added)

    def run(self) -> Iterator[Rehearsed]:
        """Decide one after the other, the oldest first, and yield each; may be left at any time."""
        replay = Replay(self.plan, self._fleet, self._pipelines)
        scheduler = Scheduler(
            fleet=self._fleet,
            lock=self._state,
            pipelines=lambda: self._pipelines,
            clock=self._clock,
            limits=PlacementLimits(
                hold_timeout_s=_FOR_EVER_S,
                reservation_ttl_s=_FOR_EVER_S,
                wait_timeout_s=0.0,
                max_reservations=10**9,
                max_attempts=1,
            ),
            keep=replay.keep,
        )
        yield from replay.run(scheduler)

    def summary(self, found: Sequence[Rehearsed], most: int | None = None) -> RehearsalSummary:
        """The result after all of :meth:`run`; ``most`` bounds the changes of each kind."""
        packing = PackingChange(
            packing_of(self._before), packing_of(Snapshots(self._fleet).whole())
        )
        return summarized(found, self.plan.left_out, packing, most=most)

    def close(self) -> None:
        """End the processes of units from files, if there are any."""
        if self._cages is not None:
            self._cages.close()


def policies_of(
    policy: ClusterPolicy | None, cluster: str | None, snapshot: Snapshot
) -> dict[str, ClusterPolicy]:
    """The parameter ``policies`` for a policy that is tried in a cluster, or in all."""
    if policy is None:
        return {}
    return dict.fromkeys([cluster] if cluster else snapshot.clusters, policy)
