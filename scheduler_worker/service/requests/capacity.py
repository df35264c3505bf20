"""How many more instances of each of some flavors fit, in each cluster, as it is known now."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from scheduler_worker.errors import ClusterPolicyError, NoValidHost
from scheduler_worker.model.capacity import ClusterCapacity, FlavorCapacity
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import AskingTime
from scheduler_worker.model.providers import FLAVOR_CLASSES
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.placement import Sharing
from scheduler_worker.scheduling.capacity import MOST_STEPS, Measurement, of_cluster, of_flavor
from scheduler_worker.scheduling.pipeline import Pipeline, Request
from scheduler_worker.scheduling.prefilters.hosts import gives_below_root
from scheduler_worker.scheduling.prefilters.needs import needs_of
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.requests.allocation_candidates import concerns
from scheduler_worker.service.requests.lease import narrowed
from scheduler_worker.service.state.attempt import CLUSTER_HINT
from scheduler_worker.service.state.replica import ClusterReplica, Fleet

_FILLS_FOR_S = 20.0
"""Then upper bounds have to do: units of others may take seconds for each step."""


class _NotCounted(Exception):
    """What hosts themselves report does not tell how many fit."""


class Capacity(NamedTuple):
    """The use case behind ``capacity``; takes no lock of the store, and reserves nothing."""

    fleet: Fleet
    pipelines: Callable[[], Pipelines]
    sharing: Sharing | None = None
    """Knows which providers share with others, where Placement is read."""
    now_s: Callable[[], float] = lambda: 0.0
    """The monotonic clock; one that stands still bounds nothing."""
    ask_s: float = math.inf
    """How long external units may take, in all, while decisions of this process wait."""

    def of(self, flavors: Sequence[tuple[str, RequestSpec]]) -> Iterator[FlavorCapacity]:
        """Yields the capacity for each flavor, given as name and request for one instance.

        A request with the hint ``cluster`` is counted in that cluster alone. Decisions of this
        process wait while columns are read, some milliseconds at a time, and not while hosts are
        filled.

        Raises:
            RequestError: a request is invalid, or names a cluster that does not exist.
            StateUnavailable: the store cannot be reached.
        """
        self.fleet.refresh_globals()
        ends_s = self.now_s() + _FILLS_FOR_S
        steps = takewhile(lambda _: self.now_s() < ends_s, range(MOST_STEPS))
        read: set[str] = set()
        for name, spec in flavors:
            clusters = self.fleet.clusters()
            if (named := spec.hint(CLUSTER_HINT)) is not None:
                field = f"spec_obj.scheduler_hints.{CLUSTER_HINT}"
                clusters = [self.fleet.known_cluster(str(named), field)]
            counted = [self._counted(cluster, spec, steps, read) for cluster in clusters]
            yield of_flavor(name, counted)

    def _counted(
        self, replica: ClusterReplica, spec: RequestSpec, steps: Iterator[int], read: set[str]
    ) -> ClusterCapacity:
        with replica.lock:
            if replica.scope not in read:
                replica.refresh(self.fleet.store)
                read.add(replica.scope)
            table = self.fleet.prepare(replica)
            table.asking = AskingTime(self.now_s() + self.ask_s)
            try:
                pipeline = self.pipelines().of(replica)
                self._check(table, pipeline, spec)
                asked = narrowed(replica, Request(spec=spec, instance_uuids=())).spec
                measurement = Measurement(pipeline, table, asked)
                measurement.is_exact = not table.asking.has_run_out
            except (ClusterPolicyError, NoValidHost, _NotCounted) as error:
                return ClusterCapacity(cluster=replica.scope, hosts=len(table), problem=str(error))
        return of_cluster(replica.scope, pipeline.policy, measurement.finish(steps))

    def _check(self, hosts: HostTable, pipeline: Pipeline, spec: RequestSpec) -> None:
        """Raises _NotCounted where Placement would be asked for candidates."""
        needs = needs_of(spec, pipeline.candidates.parameters)
        sharing = (self.sharing and self.sharing.known()) or ()
        below = [name for name in FLAVOR_CLASSES if gives_below_root(hosts, name).any()]
        if concerns(needs, sharing, below):
            raise _NotCounted(
                "it takes what providers share, or hosts give below their compute nodes; only "
                "Placement can tell how many fit"
            )
