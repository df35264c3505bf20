"""Cluster policies under load: two clusters, two replicas on one store, policies that change."""

from __future__ import annotations

import bisect
import itertools
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.policies import ClusterPolicy, FilterUse, WeightUse
from scheduler_worker.monitoring import journal
from scheduler_worker.scheduling.filters.capacity import CoreFilter, RamFilter
from scheduler_worker.scheduling.filters.isolated_hosts import IsolatedHostsFilter
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies
from scheduler_worker.service.state import records
from tests.support.patience import SOON_S
from tests.support.services import World, host, request

HOLD_TIMEOUT_S = SOON_S
FILTERS = (CoreFilter, RamFilter, IsolatedHostsFilter)
WEIGHERS = {"east": 1.0, "west": -1.0}
"""The cluster's factor of free memory: the policy of one spreads, that of the other packs."""
VERSIONS = 30
THREADS = 3
"""For each cluster and replica; they queue, so that leases are kept from commit to commit."""
BIG = 10**6
IMAGE: dict[str, Any] = {"image": {"id": "img"}, "memory_mb": 1}


def policy(cluster: str, version: int) -> ClusterPolicy:
    """Of three hosts it allows two, other ones in each version, and so chooses another host."""
    allowed = [name for at, name in enumerate(hosts_of(cluster)) if at != version % 3]
    isolated = {"isolated_images": "img", "isolated_hosts": ",".join(allowed)}
    return ClusterPolicy(
        id=cluster,
        name=f"of-{cluster}",
        version=version,
        filters=(
            FilterUse(unit="RamFilter"),
            FilterUse(unit="IsolatedHostsFilter", parameters=isolated),
        ),
        weights=(WeightUse(unit="RAMWeigher", factor=WEIGHERS[cluster]),),
    )


def hosts_of(cluster: str) -> list[str]:
    """From the one with least memory to the one with most."""
    return [f"{cluster}-{number}" for number in range(3)]


def expected_host(cluster: str, version: int) -> str:
    allowed = [name for at, name in enumerate(hosts_of(cluster)) if at != version % 3]
    return allowed[-1] if WEIGHERS[cluster] > 0 else allowed[0]


class Made(NamedTuple):
    """A decision, and the oldest version that it may have been made under."""

    cluster: str
    host: str
    policy: str
    arrived_under: int
    committed_at: int
    """The store's version of the cluster by its commit; 0 where nothing was committed."""


class Load(threading.Thread):
    """Places, explains and releases in one cluster through one replica, without pause."""

    def __init__(self, world: World, cluster: str, in_force: dict[str, int]) -> None:
        super().__init__(daemon=True)
        self.made: list[Made] = []
        self.decided = threading.Semaphore(0)
        self.stopping = threading.Event()
        self.failure: Exception | None = None
        self._world = world
        self._cluster = cluster
        self._in_force = in_force
        self._hint: dict[str, Any] = {"scheduler_hints": {"cluster": [cluster]}}

    def run(self) -> None:
        try:
            for number in itertools.count():
                if self.stopping.is_set():
                    return
                self._decide(f"{id(self)}-{number}")
                self._refuse(f"{id(self)}-{number}-big")
                self._explain()
                self.decided.release()
        except Exception as error:
            self.failure = error

    def _decide(self, uuid: str) -> None:
        arrived_under = self._in_force[self._cluster]
        asked = request(uuid, **IMAGE, **self._hint)
        decision = self._world.scheduler.select(asked)
        [[chosen]] = decision.selections
        [claim] = decision.claims
        replica = self._world.fleet.cluster(self._cluster)
        committed_at = replica.version(records.RESERVATION + claim.id)
        assert committed_at
        policy = str(decision.diagnosis.policy)
        self._note(chosen.service_host, policy, arrived_under, committed_at)
        self._check_outcome(asked.request_id, policy, "placed")
        self._world.inventory.release([uuid])

    def _refuse(self, uuid: str) -> None:
        arrived_under = self._in_force[self._cluster]
        asked = request(uuid, **IMAGE | {"memory_mb": BIG * 10}, **self._hint)
        with pytest.raises(NoValidHost) as refused:
            self._world.scheduler.select(asked)
        assert refused.value.diagnosis is not None
        self._note("", str(refused.value.diagnosis.policy), arrived_under)
        self._check_outcome(asked.request_id, str(refused.value.diagnosis.policy), "NoValidHost")

    def _explain(self) -> None:
        arrived_under = self._in_force[self._cluster]
        explained = self._world.scheduler.explain(request("i", **IMAGE, **self._hint))
        found = explained.clusters[self._cluster]
        self._note(found.chosen or "none", str(found.policy), arrived_under)

    def _note(self, chosen: str, policy: str, arrived_under: int, committed_at: int = 0) -> None:
        self.made.append(Made(self._cluster, chosen, policy, arrived_under, committed_at))

    def _check_outcome(self, request_id: str, policy: str, result: str) -> None:
        """The line of the journal names the policy that decided."""
        outcomes = list(self._world.observed.outcomes)  # which other loads append to
        [outcome] = [each for each in outcomes if each.request_id == request_id]
        fields = journal.fields(outcome)
        assert (fields["policy"], fields["result"]) == (policy, result)


@pytest.fixture
def replicas(engine) -> Iterator[list[World]]:
    clock = SystemClock()
    worlds = [
        World(
            state=engine.open(hold_timeout_s=HOLD_TIMEOUT_S),
            clock=clock,
            filters=FILTERS,
            hold_timeout_s=HOLD_TIMEOUT_S,
            acquire_timeout_s=SOON_S,
        )
        for _ in range(2)
    ]
    for cluster in WEIGHERS:
        worlds[0].report(
            *(
                host(name, cluster=cluster, vcpus=1000, memory_mb=BIG + at * 1000)
                for at, name in enumerate(hosts_of(cluster))
            )
        )
    for world in worlds:
        world.fleet.load(clock)
    yield worlds


def test_every_decision_that_arrives_after_a_change_is_made_under_the_new_policy(replicas):
    in_force = dict.fromkeys(WEIGHERS, 0)
    attached: dict[str, list[int]] = {cluster: [] for cluster in WEIGHERS}
    policies = [ClusterPolicies(each.fleet, lambda each=each: each.pipelines) for each in replicas]

    def attach(number: int, cluster: str, version: int) -> None:
        policies[number].attach(cluster, policy(cluster, version))
        in_force[cluster] = version
        replica = replicas[number].fleet.cluster(cluster)
        attached[cluster].append(replica.version(records.POLICY_IN_FORCE))

    for cluster in WEIGHERS:
        attach(0, cluster, 1)
    loads = [
        Load(world, cluster, in_force)
        for world in replicas
        for cluster in WEIGHERS
        for _ in range(THREADS)
    ]
    for load in loads:
        load.start()
    try:
        for version in range(2, VERSIONS + 1):
            for number, cluster in enumerate(WEIGHERS):
                for load in loads:
                    assert load.decided.acquire(timeout=SOON_S), load.failure
                attach((version + number) % 2, cluster, version)
        for load in loads:
            for _ in range(2):
                assert load.decided.acquire(timeout=SOON_S), load.failure
    finally:
        for load in loads:
            load.stopping.set()
        for load in loads:
            load.join(SOON_S)
    assert [each.failure for each in loads] == [None] * len(loads)
    made = [each for load in loads for each in load.made]
    assert {each.policy for each in made} >= {f"of-{each}@{VERSIONS}" for each in WEIGHERS}
    for each in made:
        name, version = each.policy.split("@")  # type: ignore[assignment]
        assert name == f"of-{each.cluster}"
        assert int(version) >= each.arrived_under, each
        if each.committed_at:
            at_commit = bisect.bisect(attached[each.cluster], each.committed_at)
            assert int(version) == at_commit, each
        if each.host:
            assert each.host == expected_host(each.cluster, int(version)), each
    assert replicas[0].reserved() == {}


def test_a_policy_that_is_detached_decides_no_longer_in_any_replica(replicas):
    east, west = (request(f"i-{name}", **IMAGE, **in_cluster(name)) for name in WEIGHERS)
    policies = ClusterPolicies(replicas[0].fleet, lambda: replicas[0].pipelines)
    for cluster in WEIGHERS:
        policies.attach(cluster, policy(cluster, 1))
    assert str(replicas[1].scheduler.select(east).diagnosis.policy) == "of-east@1"
    policies.detach("west")
    decision = replicas[1].scheduler.select(west)
    assert decision.diagnosis.policy is not None
    assert decision.diagnosis.policy.name == "nova"
    replicas[1].inventory.release(["i-east"])
    assert str(replicas[1].scheduler.select(east).diagnosis.policy) == "of-east@1"


def in_cluster(name: str) -> dict[str, Any]:
    return {"scheduler_hints": {"cluster": [name]}}
