"""The PCI devices that serve a request: each step, and what is taken."""

import pytest

from scheduler_worker.errors import RequestError
from scheduler_worker.scheduling.pci.pools import devices_for, pci_requests, providers_of
from tests.support.hosts import request_spec
from tests.support.topologies import devices, host, host_cell, pool, pools

VF = {"dev_type": "type-VF"}


def taken(some, *requests, on=None, cells=()):
    """(address, count) of the devices taken; ``on`` are the ids of the instance's cells."""
    found = devices_for(
        requests,
        pools(*some),
        None if on is None else [cell for cell in cells if cell.id in on],
        cells,
    )
    return None if found is None else [(each.value("address"), each.count) for each in found]


# Which devices


def test_what_is_meant_for_placement_is_not_matched_and_case_does_not_matter():
    spec = {"resource_class": "CUSTOM_X", "traits": "A,B", "rp_uuid": "p", "rp_uuids": "p,q"}
    spec |= {"physical_network": "physnet1"}
    [request] = pci_requests(
        request_spec(pci_requests={"requests": [{"count": 1, "spec": [spec]}]})
    )
    assert request.suits(pool(physical_network="PhysNet1"))


@pytest.mark.parametrize("kind", ["type-PF", "vdpa"])
def test_physical_functions_and_vdpa_are_given_on_request_only(kind):
    some = [pool(address="a", dev_type=kind)]
    assert taken(some, devices(1)) is None
    assert taken(some, devices(1, {"dev_type": kind})) == [("a", 1)]


@pytest.mark.parametrize(("asked", "address"), [("true", "a"), ("false", "b")])
def test_devices_that_can_migrate_or_that_cannot(asked, address):
    some = [
        pool(address="c"),
        pool(address="a", live_migratable="true"),
        pool(address="b", live_migratable="false"),
    ]
    assert taken(some, devices(1, {"live_migratable": asked})) == [(address, 1)]
    undecided = devices(1, {"live_migratable": "true"}, {"live_migratable": "false"})
    assert taken(some, undecided) == [("a", 1)]
    assert taken(some, devices(1)) == [("c", 1)]


@pytest.mark.parametrize("tag", ["true", "false"])
def test_the_live_migratable_tag_is_matched_exactly(tag):
    loud = pool(live_migratable=tag.upper())
    assert taken([loud], devices(1, {"live_migratable": tag})) is None
    assert taken([loud], devices(1, {"live_migratable": tag}, {"vendor_id": "8086"})) is not None


# Where


CELLS = host(*(host_cell(number, socket=number // 2) for number in range(4))).cells
NEAR, FAR, NOWHERE = (
    pool(1, 1, address="near"),
    pool(1, 2, address="far"),
    pool(1, None, address="nowhere"),
)


@pytest.mark.parametrize(
    ("policy", "some", "gets"),
    [
        ("legacy", [NEAR], None),
        ("preferred", [FAR], [("far", 1)]),
        ("socket", [FAR, NEAR, NOWHERE], [("near", 1)]),
    ],
)
def test_numa_policies(policy, some, gets):
    assert taken(some, devices(numa_policy=policy), on=[0], cells=CELLS) == gets


# Resource providers


def test_devices_of_the_providers_that_were_chosen():
    some = [pool(4, address="a", rp_uuid="p"), pool(4, address="b", rp_uuid="q")]
    assert taken(some, devices(2, providers=("q", "q"))) == [("b", 2)]
    assert taken(some, devices(2, providers=("p", "q"))) == [("a", 1), ("b", 1)]
    assert taken(some, devices(5, providers=("q",) * 5)) is None
    assert taken(some, devices(1, providers=("r",))) is None


@pytest.mark.parametrize(
    ("alias", "groups", "providers"),
    [
        ("a", [("id-0", "p"), ("id-1", "q"), ("other-0", "r")], ("p", "q")),
        (None, [("id-0", "p")], ()),
    ],
)
def test_providers_are_those_of_the_requests_groups_alone(alias, groups, providers):
    spec = {"vendor_id": "8086", "rp_uuids": "x,y"}
    asked = {"count": 2, "spec": [spec], "alias_name": alias, "request_id": "id"}
    [request] = pci_requests(
        request_spec(
            pci_requests={"requests": [asked]},
            requested_resources=[
                {"requester_id": name, "provider_uuids": [uuid]} for name, uuid in groups
            ],
        )
    )
    assert request.providers == providers


def test_groups_are_mapped_to_the_providers_of_their_devices():
    plain = [{"count": 2, "request_id": "x"}, {"count": 1, "request_id": "y"}]
    plain = [each | {"spec": [{"vendor_id": "8086"}], "alias_name": "a"} for each in plain]
    spec = request_spec(pci_requests={"requests": plain})
    some = pools(pool(1, rp_uuid="p"), pool(1, rp_uuid="q"), pool(1, rp_uuid="r"))
    chosen = devices_for(pci_requests(spec), some)
    assert providers_of(spec, chosen) == {"x-0": "p", "x-1": "q", "y-0": "r"}  # type: ignore[arg-type]
    assert providers_of(spec, pools(pool(3))) == {}


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ({"count": -1}, "$.requests[0].count"),
        ({"count": "x"}, "$.requests[0].count"),
        (
            {"count": 1, "numa_policy": "near"},
            "$.requests[0].numa_policy",
        ),
        (
            {"count": 1, "spec": [{"vendor_id": 8086}]},
            "$.requests[0].spec[0][...]",
        ),
        ({}, "$.requests[0]"),
        (1, "$.requests[0]"),
    ],
)
def test_invalid_requests_are_refused(asked, place):
    with pytest.raises(RequestError) as refused:
        pci_requests(request_spec(pci_requests={"requests": [asked]}))
    assert refused.value.field == "spec_obj.pci_requests"
    assert refused.value.problem.endswith(f" - at `{place}`")


def test_pools_of_the_same_devices_are_one():
    assert pools(pool(1), pool(2), pool(1, 0)) == (pool(3), pool(1, 0))


def test_an_invalid_pool_is_left_out():
    assert pools() == ()
    assert len(pools(pool(1), {"vendor_id": "8086"})) == 1  # type: ignore[arg-type]
