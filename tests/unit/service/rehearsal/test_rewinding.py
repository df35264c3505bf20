"""Instances are taken out of a snapshot, with what they take."""

import pytest

from scheduler_worker.model.claims import Resources
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.service.decisions.kept import DecisionQuery
from scheduler_worker.service.rehearsal.replay import (
    InstanceUse,
    RehearsalPlan,
    packing_of,
    replay_plan,
    rewound,
)
from scheduler_worker.service.rehearsal.snapshots import (
    hosts_in,
    instances_in,
    reservations_in,
    snapshot_of,
)
from tests.support.decisions import Records
from tests.support.services import World, host

SMALL = InstanceUse(
    Resources(vcpus=1, memory_mb=1024, disk_mb=20 * 1024),
    {"VCPU": 1, "MEMORY_MB": 1024, "DISK_GB": 20},
)


def reported(world: World, name: str, *instances: str, **facts: object) -> None:
    listed = [{"uuid": each} for each in instances]
    world.report({**host(name), "instances": listed, **facts})


def without(world: World, *instances: str) -> tuple[dict[str, HostRecord], set[str]]:
    found, gone = rewound(snapshot_of(world.fleet), dict.fromkeys(instances, SMALL))
    return {each.uuid: each for each in hosts_in(found.scopes["default"])}, gone


def test_what_an_instance_takes_is_given_back_to_its_host(world):
    use = {"vcpus_used": 3, "memory_mb_used": 3072, "local_gb_used": 60}
    reported(world, "a", "i1", "i2", **use)
    hosts, gone = without(world, "i1", "elsewhere")
    a = hosts["uuid-a"]
    assert gone == {"i1"}
    assert (a.vcpus_used, a.memory_mb_used, a.local_gb_used) == (2, 2048, 40)


def test_free_amounts_that_are_reported_grow(world):
    free = {"free_ram_mb": 4096, "free_disk_gb": 50, "disk_available_least": 40}
    reported(world, "a", "i1", vcpus_used=0, **free)
    a = without(world, "i1")[0]["uuid-a"]
    assert (a.free_ram_mb, a.free_disk_gb, a.disk_available_least) == (5120, 70, 60)
    assert a.vcpus_used == 0  # and not less


@pytest.mark.parametrize(
    ("consumers", "usages"),
    [
        (["i1", "i2"], {"VCPU": 1, "MEMORY_MB": 1024, "DISK_GB": 20}),
        (["i2"], {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 40}),
    ],
)
def test_a_consumer_goes_with_its_usages_of_inventories(world, consumers, usages):
    root = {
        "uuid": "uuid-a",
        "inventories": {name: {"total": 100} for name in usages},
        "usages": {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 40},
        "consumers": consumers,
    }
    reported(world, "a", "i1", "i2", resource_providers=[root])
    [left] = without(world, "i1")[0]["uuid-a"].resource_providers
    assert (left.usages, left.consumers) == (usages, ("i2",))


def test_a_reservation_goes_and_the_use_that_does_not_have_it_stays(world):
    world.report(host("a", vcpus_used=1))
    world.ask("i1")
    whole = snapshot_of(world.fleet)
    found, gone = rewound(whole, {"i1": SMALL})
    assert gone == {"i1"}
    assert list(reservations_in(found.scopes["default"])) == []
    [a] = hosts_in(found.scopes["default"])
    assert a.vcpus_used == 1
    assert packing_of(whole)[0].use["vcpus"].mean == 50.0
    assert packing_of(found)[0].use["vcpus"].mean == 25.0


def test_an_instance_on_two_hosts_stays_on_both(world):
    for name in "ab":
        reported(world, name, "i1", vcpus_used=1)
    hosts, gone = without(world, "i1")
    assert gone == set()
    assert [each.vcpus_used for each in hosts.values()] == [1, 1]


def test_an_instance_of_a_host_with_several_nodes_stays(world):
    reported(world, "a", "i1", vcpus_used=1)
    world.report({**host("a"), "uuid": "uuid-a2", "nodename": "a2", "vcpus_used": 1})
    hosts, gone = without(world, "i1")
    assert gone == set()
    assert {each.vcpus_used for each in hosts.values()} == {1}


def test_the_list_of_a_host_is_without_it(world):
    reported(world, "a", "i1", "i2", vcpus_used=2)
    found, _ = rewound(snapshot_of(world.fleet), {"i1": SMALL})
    assert [set(some) for _, some in instances_in(found.scopes["default"])] == [{"i2"}]


# Which kept decisions are decided again

INSIDE = "takes of NUMA cells, devices or providers of its host"


def plan(world: World, records: Records) -> RehearsalPlan:
    records.recorder.write()
    decisions = records.kept.with_details(DecisionQuery())
    return replay_plan(snapshot_of(world.fleet), decisions, world.pipelines)


def test_an_instance_that_cannot_be_taken_away_is_left_out_for_as_long_as_it_is_there(world):
    records = Records(world)
    world.report(host("a"))
    world.ask("i1", vm={"nics": [{"network": "blue"}]})
    assert plan(world, records).left_out == {INSIDE: 1}
    world.report(host("a", instances=[{"uuid": "i1"}], vcpus_used=1, memory_mb_used=1024))
    assert world.reserved() == {}
    assert plan(world, records).left_out == {INSIDE: 1}
    world.report(host("a", instances=[]))
    gone = plan(world, records)
    assert [each.outline.instances for each in gone.decisions] == [("i1",)]


def test_an_instance_that_takes_amounts_alone_is_decided_again_and_stays(world):
    records = Records(world)
    world.report(host("a"))
    world.ask("i1")
    found = plan(world, records)
    [decision] = found.decisions
    assert decision.outline.instances == ("i1",)
    assert found.staying == frozenset({decision.id})
