"""The tuner: runs the tuning cycles of all clusters, each on one worker at a time.

The worker that leads a cluster (``service/state/leadership.py``) runs its cycles. They are
numbered, so that an agent can ignore values that arrive late.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from scheduler_worker import events
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.observer import Observer
from scheduler_worker.ports import Clock, Publisher
from scheduler_worker.service.inventory import listing
from scheduler_worker.service.inventory.listing import hosts_of, record_of
from scheduler_worker.service.state.leadership import ClusterLeader
from scheduler_worker.service.state.replica import Fleet
from scheduler_worker.service.tuning.cycle import ClusterTuning, TuningDependencies, TuningSettings
from scheduler_worker.service.tuning.policies import TuningPolicies
from scheduler_worker.service.tuning.records import TuningLeadership
from scheduler_worker.tuning.evaluate import Diagnostic
from scheduler_worker.tuning.samples import Sample

LOG = logging.getLogger(__name__)


class Tuner(ClusterLeader[TuningLeadership, None]):
    """Runs the cycles of the clusters that this worker leads; ``name`` identifies it."""

    def __init__(
        self,
        fleet: Fleet,
        policies: TuningPolicies,
        publisher: Publisher,
        clock: Clock,
        *,
        settings: TuningSettings,
        observer: Observer | None = None,
        name: str = "",
    ) -> None:
        self.policies = policies
        self._fleet = fleet
        observer = observer or Observer()
        self._deps = TuningDependencies(fleet, publisher, clock, observer, settings)
        self._tunings: dict[str, ClusterTuning] = {}
        self._logged: tuple[int, set[tuple[str, str]]] = (0, set())
        """The kinds of diagnostics of each policy, of the policies' present generation."""
        super().__init__(
            "tuning",
            self.policies.records,
            fleet.store,
            clock,
            worker=name,
            interval_s=settings.interval_s,
            failed=events.TUNING_FAILURES,
            observer=observer,
        )

    # Cycles

    def clusters(self) -> Iterator[str]:
        """Read the policies in force, and yield the clusters that have some."""
        self.policies.refresh()
        for cluster in self._fleet.read_names():
            if self.policies.program(cluster) is not None:
                yield cluster

    def run_cluster(self, cluster: str, lead: TuningLeadership) -> None:
        program = self.policies.program(cluster)
        if program is not None:  # else its policies were withdrawn meanwhile
            parameters = self.policies.parameters(cluster)
            self._report(cluster, self._tuning_of(cluster).tune(program, parameters, lead))

    def ended(self, cluster: str, took_s: float, _: None) -> None:
        self._observer.time(events.TUNING_TIME, took_s, cluster)

    def _report(self, cluster: str, diagnostics: Iterable[Diagnostic]) -> None:
        """Count the diagnostics, and log each kind once for each version of a policy."""
        if self._logged[0] != self.policies.generation:
            self._logged = self.policies.generation, set()
        counts: Counter[tuple[str, str]] = Counter()
        for diagnostic in diagnostics:
            policy = diagnostic.rule.partition(":")[0]
            about = policy, diagnostic.kind
            counts[about] += 1
            if about not in self._logged[1]:
                self._logged[1].add(about)
                detail = f": {diagnostic.detail}" if diagnostic.detail else ""
                LOG.warning(
                    "Tuning %s: %s for %s %s: %s%s (logged once per policy and kind)",
                    cluster,
                    diagnostic.rule,
                    diagnostic.entity.scope,
                    diagnostic.entity,
                    diagnostic.kind,
                    detail,
                )
        for (policy, kind), count in counts.items():
            self._observer.count(events.TUNING_FAULTS, policy, kind, by=count)

    def _tuning_of(self, cluster: str) -> ClusterTuning:
        return self._tunings.setdefault(cluster, ClusterTuning(cluster, self._deps))

    # Statistics

    def statistics(
        self, cluster: str | None, marker: str | None, limit: int
    ) -> tuple[list[tuple[HostRecord, Sample]], str | None]:
        """A page of hosts by uuid, each with its statistics as rules see them; the next marker.

        Raises:
            RequestError: the cluster does not exist.
            StateUnavailable: the store cannot be reached.
        """
        self.policies.refresh()
        for name in self._fleet.read_names():
            if cluster in {None, name}:
                self._tuning_of(name).refresh()
        records, following = listing.page(
            self._fleet, hosts_of, record_of, limit=limit, cluster=cluster, marker=marker
        )
        # Only here, where the locks of the clusters are no longer held.
        return [(record, self._sample(record)) for record in records], following

    def _sample(self, record: HostRecord) -> Sample:
        cluster = record.cluster
        program, parameters = self.policies.program(cluster), self.policies.parameters(cluster)
        return self._tuning_of(cluster).sample(record, program, parameters)

    def describe(self) -> dict[str, object]:
        """Return the policies in force, the alarms, and the leader of each cluster."""
        leaders = msgspec.to_builtins(dict(self.policies.records.leaders))
        return {"tuner": self.worker, "turns": leaders, **self.policies.describe()}
