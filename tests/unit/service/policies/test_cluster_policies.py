"""Cluster policies: attached, read, detached, and used by every worker."""

from typing import Any

import pytest

from scheduler_worker.errors import ClusterPolicyError, Conflict, NoValidHost, RequestError
from scheduler_worker.model.policies import (
    ClusterPolicy,
    FilterUse,
    WeightUse,
)
from scheduler_worker.scheduling.filters.capacity import CoreFilter, RamFilter
from scheduler_worker.scheduling.filters.isolated_hosts import IsolatedHostsFilter
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies
from tests.support.interrupted import before_next
from tests.support.services import World, host, request

FILTERS = (CoreFilter, RamFilter, IsolatedHostsFilter)


def policy(name: str = "p", version: int = 1, *, only: str = "", **fields) -> ClusterPolicy:
    """Prefers the host with most free memory, or allows ``only`` one."""
    image = {"isolated_images": "img", "isolated_hosts": only}
    filters: tuple[FilterUse, ...] = (FilterUse(unit="RamFilter"),)
    if only:
        filters += (FilterUse(unit="IsolatedHostsFilter", parameters=image),)
    weights = (WeightUse(unit="RAMWeigher"),)
    used: dict[str, Any] = {"filters": filters, "weights": weights} | fields
    return ClusterPolicy(id=name, name=name, version=version, **used)


class InForce(ClusterPolicies):
    def attach(self, cluster: str, policy: ClusterPolicy) -> None:
        self.settle(cluster, lambda _: policy)


def attach_to(world: World) -> InForce:
    return InForce(world.fleet, lambda: world.pipelines)


@pytest.fixture
def world() -> World:
    world = World(filters=FILTERS)
    world.report(host("a", cluster="one", memory_mb=1000), host("b", cluster="one", memory_mb=2000))
    return world


def meanwhile(world: World, monkeypatch: pytest.MonkeyPatch, attached: ClusterPolicy) -> None:
    """Another process attaches a policy between the grant of the lock and the commit."""
    other = attach_to(world.beside())
    before_next(monkeypatch, world.state, "commit", lambda: other.attach("one", attached))


def image() -> dict:
    return {"image": {"id": "img"}, "memory_mb": 10}


def test_an_attached_policy_decides_in_every_worker(world):
    beside = world.beside()
    assert world.place("i0", **image()) == ["b"]
    attach_to(world).attach("one", policy(only="a"))
    assert world.place("i1", **image()) == ["a"]
    assert beside.place("i2", **image()) == ["a"]
    assert attach_to(beside).in_force("one") == policy(only="a")
    attach_to(beside).settle("one", lambda _: None)
    assert world.place("i3", **image()) == ["b"]


def test_a_decision_an_explanation_and_the_log_name_policy_and_version(world):
    attach_to(world).attach("one", policy("packing", 7))
    decision = world.ask("i1", memory_mb=10)
    assert str(decision.diagnosis.policy) == "packing@7"
    explanation = world.scheduler.explain(request("i2", memory_mb=10))
    assert str(explanation.clusters["one"].policy) == "packing@7"
    assert world.observed.outcomes[-1].policy == "packing@7"
    with pytest.raises(NoValidHost):
        world.ask("i3", memory_mb=10**6)
    assert world.observed.outcomes[-1].policy == "packing@7"


def test_attaching_the_same_document_again_is_a_no_op(world):
    policies = attach_to(world)
    policies.attach("one", policy())
    assert policies.in_force("one") == policy()
    version = world.fleet.cluster("one").seen.version
    policies.attach("one", policy())
    assert world.fleet.cluster("one").seen.version == version


def test_a_policy_that_cannot_be_compiled_is_refused_with_all_errors(world):
    wrong = policy(filters=(FilterUse(unit="RamFiltre"), FilterUse(unit="X")))
    with pytest.raises(RequestError, match=r"policy: .*RamFiltre.*mean RamFilter\?; .*filter X: "):
        attach_to(world).attach("one", wrong)
    assert attach_to(world).in_force("one").name == "nova"


def test_an_unknown_cluster_is_named(world):
    with pytest.raises(RequestError, match="there is no cluster 'two'; known are one"):
        attach_to(world).in_force("two")


def test_clusters_of_one_policy_share_a_pipeline(world):
    world.report(host("c", cluster="two"))
    for cluster in ("one", "two"):
        attach_to(world).attach(cluster, policy())
        world.scheduler.explain(request("i", scheduler_hints={"cluster": [cluster]}))
    one, two = (world.pipelines.of(world.fleet.cluster(name)) for name in ("one", "two"))
    assert one is two


def test_a_reload_compiles_the_policies_in_force_again(world):
    attach_to(world).attach("one", policy())
    before = world.pipelines.of(world.fleet.cluster("one"))
    fresh = World(state=world.state, clock=world.clock, filters=FILTERS).pipelines
    assert fresh.of(world.fleet.cluster("one")) is not before


def test_a_unit_that_a_worker_does_not_have_is_named_and_another_cluster_is_chosen(world):
    attach_to(world).attach("one", policy(only="a"))
    other = World(state=world.state, clock=world.clock, filters=(CoreFilter, RamFilter))
    with pytest.raises(ClusterPolicyError, match="policy p@1: filter IsolatedHostsFilter"):
        other.ask("i1")
    assert other.observed.outcomes[-1].result == "ClusterPolicyError"
    world.report(host("c", cluster="two"))
    assert other.beside().place("i2", memory_mb=10) == ["c"]


def test_clusters_are_ranked_by_their_hosts_or_by_the_share_of_passing_ones():
    """Cluster ``one`` has one large host, ``two`` many small ones."""
    world = World(filters=FILTERS)
    world.report(
        *(host(f"a{n}", cluster="one", memory_mb=10 if n else 8000) for n in range(4)),
        *(host(f"b{n}", cluster="two", memory_mb=100) for n in range(4)),
    )
    assert world.place("i0", memory_mb=50) == ["a0"], "together, under one policy"
    attach_to(world).attach("two", policy())
    assert world.place("i1", memory_mb=50)[0].startswith("b"), "the larger share"
    assert world.place("i2", memory_mb=500) == ["a0"], "none passes in the other"
    placed = world.place("i3", "i4", "i5", "i6", "i7", memory_mb=90)
    assert {each[0] for each in placed} == {"a", "b"}


def test_a_commit_under_a_replaced_policy_is_refused_and_decided_again(world, monkeypatch):
    meanwhile(world, monkeypatch, policy(only="a"))
    decision = world.ask("i1", **image())
    assert decision.selections[0][0].service_host == "a"
    assert str(decision.diagnosis.policy) == "p@1"


def test_a_refusal_under_a_replaced_policy_does_not_stand(world, monkeypatch):
    attach_to(world).attach("one", policy(only="nowhere"))
    meanwhile(world, monkeypatch, policy(version=2))
    assert world.place("i1", **image()) == ["b"]


def test_settling_gives_up_where_every_attempt_meets_another_document(world):
    attached = attach_to(world)
    versions = iter(range(1, 100))

    def overtaken(_: object) -> ClusterPolicy:
        attach_to(world.beside()).attach("one", policy(version=next(versions)))
        return policy("wanted")

    with pytest.raises(Conflict, match="changed during each of 8 attempts"):
        attached.settle("one", overtaken)
    assert attached.in_force("one") == policy(version=8)
    assert attached.settle("one", lambda _: policy("wanted"))
    assert attached.settle("one", lambda _: None)
    assert attached.in_force("one").name == "nova"
