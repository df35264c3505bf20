"""oVirt's locked policies, attached to clusters."""

from typing import Any

import pytest
from conformance import ovirt
from msgspec import structs

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.policies import read_policy, write_policy
from scheduler_worker.ports import Transaction
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.ovirt.policies import LOCKED_POLICIES, NONE, POWER_SAVING
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.state import records
from tests.support.services import World, host

VIRT = {"sockets": 1, "cores": 4, "threads": 4, "free_mb": 8192}


@pytest.fixture
def world() -> World:
    world = World()
    world.pipelines = Pipelines(ovirt.catalogue(), world.pipelines.nova_policy, Options())
    return world


def attach(world: World, policy: Any) -> None:
    ClusterPolicies(world.fleet, lambda: world.pipelines).settle("default", lambda _: policy)


def virt(percent: int, **facts: Any) -> dict[str, Any]:
    return {"virt": VIRT | {"cpu_percent": percent} | facts}


@pytest.mark.parametrize("policy", LOCKED_POLICIES, ids=lambda each: each.name)
def test_a_locked_policy_is_a_document_that_a_cluster_can_have(world, policy):
    world.report(host("a", **virt(50)))
    attach(world, policy)
    assert read_policy(write_policy(policy)) == policy
    balance = world.pipelines.compile(policy).balance
    assert balance.name == policy.balance.unit
    assert world.place("i1", vm={"highly_available": True}) == ["a"]


def test_loads_are_spread_or_gathered(world):
    world.report(host("busy", **virt(60)), host("idle", **virt(10)), host("full", **virt(85)))
    attach(world, NONE)
    assert world.place("i1") == ["idle"]
    attach(world, POWER_SAVING)
    # Memory is gathered as well, so i1 makes its host the better one for that.
    assert world.place("i2") == ["busy"]


def test_pending_vms_count_until_they_are_reported(world):
    world.report(host("a", **virt(10)), host("b", **virt(12)))
    attach(world, NONE)
    assert world.place("i1", "i2", "i3") == ["a", "b", "a"]


def test_vms_that_are_kept_apart_are(world):
    world.report(host("a", **virt(10)), host("b", **virt(50)))
    attach(world, NONE)
    group = {"vms_rule": "negative", "vms_enforcing": True, "vms": ["i1", "i2", "i3"]}
    asked = {"vm": {"affinity_groups": [group]}}
    assert world.place("i1", "i2", **asked) == ["a", "b"]
    with pytest.raises(NoValidHost):
        world.place("i3", **asked)


def test_what_a_vm_takes_beside_memory_is_reserved(world):
    world.report(host("a", **virt(10, free_hugepages=[[2048, 600]])), host("b", **virt(10)))
    attach(world, NONE)
    assert world.place("i1", vm={"hugepage_kb": 2048}) == ["a"]
    with pytest.raises(NoValidHost):
        world.place("i2", vm={"hugepage_kb": 2048})
    world.report(
        {"host": "a", "virt": VIRT | {"cpu_percent": 10, "free_hugepages": [[2048, 1200]]}}
    )
    assert world.place("i2", vm={"hugepage_kb": 2048}) == ["a"]


@pytest.mark.parametrize(("high", "is_busy"), [("60", True), ("80", False), ("0.6", False)])
def test_the_policy_says_from_which_load_a_host_is_over_committed(world, high, is_busy):
    world.report(host("a", **virt(50)))
    # A unit of another package may read the same name in another way.
    policy = structs.replace(NONE, filters=(), weights=(), parameters={"HighUtilization": high})
    replica = world.fleet.cluster("default")
    world.state.write("default", [Transaction([records.put_policy(policy)])])
    with replica.lock:
        replica.refresh(world.fleet.store)
    world.report({"host": "a"} | virt(70))
    [record] = replica.table.find("a")
    assert (record.over_commit_since_s is not None) is is_busy
