"""The books of a cloud, and the files that its services read."""

from collections import Counter
from typing import Any
from unittest.mock import Mock

import pytest
from nova_cloud.books import Books
from nova_cloud.client import Server
from nova_cloud.fleet import FLAVORS

SMALL = FLAVORS["small"].resources


def server(id, host="cmp1", *, status="ACTIVE", resources=SMALL) -> Server:
    return Server(
        id=id, name=f"server {id}", status=status, host=host, zone="nova", task=None,
        resources=resources, image="", fault="",
    )  # fmt: skip


def nova(*servers, migrations=()) -> Any:
    """The compute API with these servers and migrations."""

    def of(server_id):
        return [each for each in migrations if each["instance_uuid"] == server_id]

    return Mock(servers=lambda _="": list(servers), migrations=of)


def placement(allocations, **usages) -> Any:
    """Placement with these allocations, and usages that follow from them unless they are given."""
    held = {f"uuid of {name}": allocations.get(name, {}) for name in ("cmp1", "cmp2")}

    def sums(provider):
        total: Counter[str] = Counter()
        for resources in held[provider].values():
            total.update(resources)
        return usages.get(provider.removeprefix("uuid of "), dict(total))

    providers = {uuid.removeprefix("uuid of "): uuid for uuid in held}
    return Mock(providers=lambda: providers, consumers=held.get, usages=sums)


def migration(server_id, **fields):
    return {
        "uuid": f"migration of {server_id}", "instance_uuid": server_id, "source_compute": "cmp1",
        "status": "finished", "migration_type": "resize", **fields,
    }  # fmt: skip


def disagreements(allocations, one, *migrations):
    return Books(nova(one, migrations=migrations), placement(allocations)).disagreements()


def test_a_server_has_its_flavor_on_its_host():
    books = Books(nova(server("a")), placement({"cmp1": {"a": SMALL}}))
    assert books.places("a") == {"cmp1": SMALL}
    assert not books.is_empty
    assert Books(nova(), placement({})).is_empty


@pytest.mark.parametrize(
    ("allocations", "what"),
    [
        ({"cmp1": {"a": SMALL}}, []),
        ({}, [f"server a uses {SMALL} of cmp1, but has None"]),
        ({"cmp1": {"a": {"VCPU": 1}}}, [f"server a uses {SMALL} of cmp1, but has {{'VCPU': 1}}"]),
        (
            {"cmp1": {"a": SMALL}, "cmp2": {"a": SMALL}},
            [f"server a is not on cmp2, but has {SMALL} there"],
        ),
        ({"cmp1": {"a": SMALL, "b": SMALL}}, [f"b has {SMALL} of cmp1, and is no server"]),
    ],
    ids=["all", "nothing", "less", "twice", "a stranger"],
)
def test_what_does_not_agree_is_said(allocations, what):
    assert disagreements(allocations, server("a")) == what


def test_usages_that_are_not_the_sum_of_allocations_are_noticed():
    overused = placement({"cmp1": {"a": SMALL}}, cmp1={"VCPU": 2})
    [found] = Books(nova(server("a")), overused).disagreements()
    assert found.startswith("cmp1: its usages are {'VCPU': 2}, but its allocations add up to")


@pytest.mark.parametrize("status", ["SHELVED_OFFLOADED", "ERROR"])
def test_a_server_without_a_host_has_nothing(status):
    gone = server("a", "cmp1" if status == "SHELVED_OFFLOADED" else None, status=status)
    assert disagreements({}, gone) == []
    assert disagreements({"cmp1": {"a": SMALL}}, gone) != []


def test_a_move_that_waits_to_be_confirmed_holds_its_source():
    allocations = {"cmp2": {"a": SMALL}, "cmp1": {"migration of a": SMALL}}
    moved = server("a", "cmp2", status="VERIFY_RESIZE")
    assert disagreements(allocations, moved, migration("a")) == []
    assert disagreements(allocations, moved, migration("a", status="confirmed")) != []


def test_an_evacuated_server_keeps_its_source_until_that_is_back():
    allocations = {"cmp1": {"a": SMALL}, "cmp2": {"a": SMALL}}
    moved = server("a", "cmp2")
    evacuation = migration("a", migration_type="evacuation", status="done")
    assert disagreements(allocations, moved, evacuation) == []
    assert disagreements(allocations, moved, {**evacuation, "status": "completed"}) != []


def test_a_server_is_read_with_its_swap_rounded_up_to_gigabytes():
    body = {
        "id": "a", "name": "vm", "status": "ACTIVE", "image": "", "OS-EXT-SRV-ATTR:host": "cmp1",
        "OS-EXT-STS:task_state": None, "OS-EXT-AZ:availability_zone": "nova",
        "flavor": {"vcpus": 1, "ram": 512, "disk": 1, "ephemeral": 2, "swap": 1025},
    }  # fmt: skip
    assert Server.read(body).resources == {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 5}
