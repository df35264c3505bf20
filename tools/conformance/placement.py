"""Stands in for the Placement service of recorded requests: its candidates and refused claims.

The worker has no such service; its filters decide instead. A recorded request includes Placement's
results, which are applied where they had their effect: units reject a host without a candidate, and
a host whose claim is refused is passed over.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from conformance.nova import Host
from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import Hosts, Mask
from scheduler_worker.model.requests import RequestGroup, RequestSpec
from scheduler_worker.scheduling.evaluation import Evaluation
from scheduler_worker.scheduling.filters.numa_topology import (
    NUMATopologyFilter,
    PciPassthroughFilter,
)
from scheduler_worker.scheduling.pipeline import NOT_ENOUGH_HOSTS, Pipeline
from scheduler_worker.scheduling.plugin import Filter, Unit
from scheduler_worker.scheduling.selectors import RandomSource, Ranking

Claim = Callable[[str, str], bool]
"""Whether an instance may have a provider (a host's uuid)."""


def needs_candidate(unit: Unit, spec: RequestSpec) -> bool:
    """Whether the unit rejects a host that Placement offers nothing on."""
    if isinstance(unit, NUMATopologyFilter):
        return bool(spec.numa_topology)
    return isinstance(unit, PciPassthroughFilter) and unit.applies(spec)


def offered(spec: RequestSpec, unit: Unit, host: Host) -> Iterator[RequestSpec]:
    """The request, once for each candidate that the unit may look at."""
    if not needs_candidate(unit, spec):
        yield spec
        return
    for candidate in host.allocation_candidates:
        groups = tuple(
            RequestGroup(requester_id=requester, provider_uuids=tuple(providers))
            for requester, providers in candidate["mappings"].items()
            if requester
        )
        yield msgspec.structs.replace(spec, requested_resources=groups)


class Candidates(Filter):
    """Passes hosts that Placement offers something on, where another filter asks for that."""

    def __init__(self, hosts: Sequence[Host], others: Sequence[Filter]) -> None:
        super().__init__()
        self._others = others
        self.offered: Mask = np.array([bool(host.allocation_candidates) for host in hosts], bool)

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        if any(needs_candidate(each, spec) for each in self._others):
            return self.offered
        return np.ones(len(hosts), bool)


class Placed(Pipeline):
    """A pipeline with a Placement that replays the recording."""

    def __init__(self, pipeline: Pipeline, hosts: Sequence[Host], may_have: Claim) -> None:
        candidates = Candidates(hosts, pipeline.filters)
        super().__init__(
            pipeline.policy,
            inventories=pipeline.inventories,
            providers=pipeline.providers,
            candidates=pipeline.candidates,
            mandatory=pipeline.mandatory,
            filters=(*pipeline.filters, candidates),
            weights=pipeline.weights,
            selector=pipeline.selector,
            options=pipeline.options,
        )
        self._offered = candidates.offered
        self._may_have = may_have

    def rank(
        self, hosts: HostTable, evaluation: Evaluation, spec: RequestSpec, rng: RandomSource
    ) -> Ranking:
        order = [row for row in super().rank(hosts, evaluation, spec, rng) if self._offered[row]]
        instance = spec.instance_uuid or ""
        claimed = (row for row in order if self._may_have(instance, hosts.records[row].uuid))
        return _Order(order, next(claimed, None))


class _Order(Ranking):
    """Hosts that are offered, and the first that can be claimed."""

    def __init__(self, order: list[int], first: int | None) -> None:
        self._order, self._first = order, first

    @property
    def first(self) -> int:
        if self._first is None:
            raise NoValidHost(NOT_ENOUGH_HOSTS)
        return self._first

    def head(self, count: int) -> list[int]:
        return []  # nothing is kept of these decisions

    def __iter__(self) -> Iterator[int]:
        return iter(self._order)
