"""``/v1/fleet`` and a host's cells and devices, without a server."""

import pytest

from scheduler_worker.model.aggregates import Aggregate
from tests.support.rest import Rest
from tests.support.services import host

CELLS = {
    "cells": [
        {
            "id": 0,
            "memory": 4096,
            "memory_usage": 512,
            "cpuset": [0, 1],
            "pcpuset": [2, 3],
            "pinned_cpus": [2],
            "siblings": [[0, 1], [2, 3]],
            "mempages": [{"size_kb": 4, "total": 1000, "used": 10, "reserved": 5}],
            "socket": 1,
        }
    ]
}
POOLS = [{"vendor_id": "8086", "product_id": "154c", "numa_node": 0, "count": 4}]


@pytest.fixture
def rest():
    return Rest("east", "west")


def read(rest, path, status=200, **options):
    response = rest.request("GET", path, **options)
    assert response.status_code == status, response.get_data(as_text=True)
    return response.get_json()


def test_columns_have_what_the_hosts_have(rest):
    zones = Aggregate(id=1, hosts=("host-west",), metadata={"availability_zone": "z2,z1"})
    rest.world.inventory.update_aggregates([zones])
    rest.world.report(
        host("host-east", cluster="east", vcpus_used=1, memory_mb_used=512),
        host("off", cluster="west", service={"disabled": True}, cpu_allocation_ratio=2.0),
    )
    rest.world.place("one", vcpus=2, requested_destination={"host": "host-east"})
    rest.clock.advance(7.0)
    found = read(rest, "/v1/fleet")
    listed = {each["uuid"]: each for each in read(rest, "/v1/hosts")["items"]}
    assert found["cluster"] == ["east", "west", "west"]
    assert found["name"] == ["host-east", "host-west", "off"]
    assert found["state"] == ["up", "up", "disabled"]
    assert found["zone"] == [None, "z1", None]
    assert found["age_s"] == [7, 7, 7]
    for place, uuid in enumerate(found["uuid"]):
        for name in ("vcpus", "memory_mb", "disk_mb"):
            shown = {column: values[place] for column, values in found[name].items()}
            assert shown == {column: listed[uuid][name][column] for column in shown}
        assert found["instances"][place] == listed[uuid]["instances"]
        assert found["reservations"][place] == listed[uuid]["reservations"]
    assert found["vcpus"]["reserved"] == [2, 0, 0]
    assert found["vcpus"]["limit"] == [4, 4, 8]


def test_one_cluster_is_read_alone(rest):
    assert read(rest, "/v1/fleet?cluster=west")["name"] == ["host-west"]
    assert "'north'" in read(rest, "/v1/fleet?cluster=north", 404)["detail"]


def test_silent_hosts_are_down(rest):
    rest.clock.advance(61.0)
    rest.world.report(host("host-east", cluster="east"))
    assert read(rest, "/v1/fleet")["state"] == ["up", "down"]


def test_the_fleet_needs_the_right_to_read(rest):
    rest.add_user("nobody")
    read(rest, "/v1/fleet", 403, user="nobody")


def test_a_host_has_its_cells_and_devices(rest):
    rest.world.report(host("cells", cluster="east", numa_topology=CELLS, pci_device_pools=POOLS))
    found = read(rest, "/v1/hosts/cells")
    assert found["numa_cells"] == [
        {
            "id": 0,
            "socket": 1,
            "memory_mb": 4096,
            "memory_used_mb": 512,
            "shared_cpus": [0, 1],
            "dedicated_cpus": [2, 3],
            "pinned_cpus": [2],
            "cores": [[0, 1], [2, 3]],
            "pages": [{"size_kb": 4, "total": 1000, "used": 15}],
        }
    ]
    assert found["devices"] == [
        {
            "vendor_id": "8086",
            "product_id": "154c",
            "numa_node": 0,
            "reported": 4,
            "free": 4,
            "tags": {},
        }
    ]
    assert read(rest, "/v1/hosts/host-east")["numa_cells"] == []


def test_each_pool_has_its_own_tags_and_free_devices(rest):
    others = POOLS[0] | {"product_id": "10ed", "count": 2, "tags": {"physical_network": "blue"}}
    rest.world.report(host("cells", cluster="east", pci_device_pools=[*POOLS, others]))
    found = {each["product_id"]: each for each in read(rest, "/v1/hosts/cells")["devices"]}
    assert {name: each["free"] for name, each in found.items()} == {"154c": 4, "10ed": 2}
    assert found["10ed"]["tags"] == {"physical_network": "blue"}
