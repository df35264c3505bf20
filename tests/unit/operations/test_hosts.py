"""Hosts one by one, and the columns of all of them."""

import msgspec
import pytest

from scheduler_worker.errors import Ambiguous, NotFound, RequestError
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.operations.decisions import list_decisions
from scheduler_worker.operations.hosts import Amount, get_fleet, get_host, list_hosts
from scheduler_worker.operations.operation import when
from scheduler_worker.operations.requests import explain
from scheduler_worker.operations.reservations import list_reservations
from scheduler_worker.service.inventory import listing
from tests.support.rest import Rest
from tests.support.services import World, host

CELL = {
    "id": 0, "memory": 4096, "memory_usage": 512, "cpuset": [0, 1], "pcpuset": [2, 3],
    "pinned_cpus": [2], "siblings": [[0, 1], [2, 3]], "socket": 1,
    "mempages": [{"size_kb": 4, "total": 1000, "used": 10, "reserved": 5}],
}  # fmt: skip
POOL = {"vendor_id": "8086", "product_id": "154c", "numa_node": 0, "count": 4}


@pytest.fixture
def world():
    world = World()
    world.report(host("a", cluster="east"), host("b", cluster="west"))
    return world


def names(world, **query):
    return [each.name for each in world.call(list_hosts, **query).items]


def test_they_have_what_is_used_and_reserved(world):
    world.report(host("a", cluster="east", vcpus_used=1, memory_mb_used=512))
    world.place("one", vcpus=2, requested_destination={"host": "a"})
    found = world.call(get_host, name="a")
    assert found.vcpus == Amount(total=4, used=1, reserved=2, limit=4)
    assert found.memory_mb == Amount(total=8192, used=512, reserved=1024, limit=8192)
    assert (found.reservations, found.record["vcpus_used"]) == (1, 1)
    assert found.reported_at == when(world.clock.time_s())
    assert world.call(get_host, name="uuid-a") == found


def test_they_are_filtered_by_cluster_name_aggregate_and_state_of_which_they_say_why(world):
    off = host("off", cluster="east", service={"disabled": True, "disabled_reason": "repair"})
    lost = host("lost", cluster="west", service={"forced_down": True})
    world.report(off, lost, host("silent", cluster="west", updated_at=1.0))
    world.clock.advance(61.0)
    world.report(host("a", cluster="east"), off, lost)
    world.inventory.update_aggregates([Aggregate(id=1, name="fast", hosts=("off", "lost"))])
    for query, expected in (
        ({"cluster": "east"}, ["a", "off"]),
        ({"name": "lost"}, ["lost"]),
        ({"name": "[ab]"}, ["a", "b"]),
        ({"name": "null"}, []),
        ({"aggregate": "fast"}, ["lost", "off"]),
        ({"aggregate": "slow"}, []),
        ({"state": "up"}, ["a"]),
        ({"state": "disabled", "cluster": "east"}, ["off"]),
        ({"state": "down", "cluster": "east"}, []),
    ):
        assert names(world, **query) == expected, query
    assert {each.name: each.reason for each in world.call(list_hosts).items} == {
        "a": None,
        "b": "it has not been heard of within 60 s",
        "lost": "its compute service is forced down",
        "off": "its compute service is disabled: repair",
        "silent": "it has not been heard of within 60 s",
    }


def test_an_unknown_cluster_is_named(world):
    with pytest.raises(RequestError, match="known are east, west"):
        world.call(list_hosts, cluster="north")
    with pytest.raises(NotFound, match="'north'"):
        world.call(get_fleet, cluster="north")


def test_a_name_of_several_is_refused_with_their_uuids(world):
    for number in (1, 2):
        world.report(host("ironic", uuid=f"node-{number}", nodename=f"n{number}", cluster="east"))
    with pytest.raises(Ambiguous, match="node-1, node-2"):
        world.call(get_host, name="ironic")
    assert world.call(get_host, name="n2").uuid == "node-2"


@pytest.mark.parametrize("name", ["ironic", "node-1", "n1"])
def test_a_host_is_called_by_name_node_or_uuid_in_every_operation(name):
    world = Rest()
    world.world.report(host("ironic", uuid="node-1", nodename="n1"), host("other"))
    world.world.place("one", requested_destination={"host": "ironic"})
    world.records.recorder.write()
    assert world.call(get_host, name=name).uuid == "node-1"
    [reservation] = world.call(list_reservations, host=name).items
    assert reservation.instance_uuid == "one"
    [decision] = world.call(list_decisions, host=name).items
    assert decision.hosts == ["ironic"]
    found = world.call(explain, spec_obj={"flavor": {"vcpus": 1, "memory_mb": 1}}, hosts=[name])
    assert [(each.host, each.nodename) for each in found.verdicts] == [("ironic", "n1")]
    assert found.not_found == {}


def test_a_uuid_means_its_host_though_another_has_it_as_its_name(world):
    world.report(host("uuid-a", uuid="other", cluster="west"))
    assert world.call(get_host, name="uuid-a").name == "a"


@pytest.mark.parametrize("name", ["a", "uuid-a"])
def test_one_is_found_without_reading_all(world, monkeypatch, name):
    monkeypatch.setattr(listing, "hosts_of", None)
    assert world.call(get_host, name=name).name == "a"


def test_one_has_its_cells_and_its_devices_each_pool_by_itself(world):
    other = POOL | {"product_id": "10ed", "count": 2, "tags": {"physical_network": "blue"}}
    facts = {"numa_topology": {"cells": [CELL]}, "pci_device_pools": [POOL, other]}
    world.report(host("cells", cluster="east", **facts))
    found = msgspec.to_builtins(world.call(get_host, name="cells"))
    assert found["numa_cells"] == [
        {
            "id": 0, "socket": 1, "memory_mb": 4096, "memory_used_mb": 512, "shared_cpus": [0, 1],
            "dedicated_cpus": [2, 3], "pinned_cpus": [2], "cores": [[0, 1], [2, 3]],
            "pages": [{"size_kb": 4, "total": 1000, "used": 15}],
        }
    ]  # fmt: skip
    whole = {"vendor_id": "8086", "product_id": "154c", "numa_node": 0, "tags": {}}
    more = {"product_id": "10ed", "tags": other["tags"], "reported": 2, "free": 2}
    assert sorted(found["devices"], key=lambda each: -each["free"]) == [
        whole | {"reported": 4, "free": 4}, whole | more
    ]  # fmt: skip
    assert world.call(get_host, name="a").numa_cells == []


# Columns


def test_columns_have_what_the_hosts_have(world):
    zones = Aggregate(id=1, hosts=("b",), metadata={"availability_zone": "z2,z1"})
    world.inventory.update_aggregates([zones])
    world.report(
        host("a", cluster="east", vcpus_used=1, memory_mb_used=512),
        host("off", cluster="west", service={"disabled": True}, cpu_allocation_ratio=2.0),
    )
    world.place("one", vcpus=2, requested_destination={"host": "a"})
    world.clock.advance(7.0)
    found = msgspec.to_builtins(world.call(get_fleet))
    assert found["cluster"] == ["east", "west", "west"]
    assert found["name"] == ["a", "b", "off"]
    assert found["state"] == ["up", "up", "disabled"]
    assert found["zone"] == [None, "z1", None]
    assert found["age_s"] == [7, 7, 7]
    assert found["vcpus"]["reserved"] == [2, 0, 0]
    assert found["vcpus"]["limit"] == [4, 4, 8]
    for place, one in enumerate(msgspec.to_builtins(world.call(list_hosts).items)):
        assert found["uuid"][place] == one["uuid"]
        for name in ("vcpus", "memory_mb", "disk_mb"):
            shown = {column: values[place] for column, values in found[name].items()}
            assert shown == {column: one[name][column] for column in shown}
        assert found["instances"][place] == one["instances"]
        assert found["reservations"][place] == one["reservations"]


def test_columns_may_be_of_one_cluster_and_say_which_hosts_are_silent(world):
    world.clock.advance(61.0)
    world.report(host("a", cluster="east"))
    assert world.call(get_fleet).state == ["up", "down"]
    west = world.call(get_fleet, cluster="west")
    assert (west.name, west.state) == (["b"], ["down"])
