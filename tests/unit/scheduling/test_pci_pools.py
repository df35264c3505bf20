"""The PCI devices that serve a request: each step, and what is taken."""

import pytest

from scheduler_worker.errors import RequestError
from scheduler_worker.model.topology import devices_taken
from scheduler_worker.scheduling.pci.pools import devices_for, is_true, pci_requests, providers_of
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


@pytest.mark.parametrize(
    ("spec", "suits"),
    [
        ({"vendor_id": "8086"}, True),
        ({"vendor_id": "8086", "product_id": "1520"}, True),
        ({"vendor_id": "10de"}, False),
        ({"physical_network": "physnet1"}, True),
        ({"physical_network": None}, False),
        ({"no_such_tag": None}, True),
        ({"resource_class": "CUSTOM_X", "traits": "A,B", "rp_uuid": "p", "rp_uuids": "p,q"}, True),
        ({}, True),
    ],
)
def test_every_key_of_a_spec_is_the_pools(spec, suits):
    plain = {"requests": [{"count": 1, "spec": [spec], "alias_name": "a"}]}
    [request] = pci_requests(request_spec(pci_requests=plain))
    assert request.suits(pool(physical_network="PhysNet1")) == suits


def test_one_of_several_specs_is_enough():
    asked = devices(1, {"vendor_id": "10de"}, {"product_id": "1520"})
    assert taken([pool(address="a")], asked) == [("a", 1)]


def test_devices_come_from_several_pools_those_with_fewest_tags_first():
    some = [pool(2, address="a", more="x"), pool(1, address="b")]
    assert taken(some, devices(2)) == [("b", 1), ("a", 1)]
    assert taken(some, devices(4)) is None


def test_requests_are_served_one_after_the_other():
    some = [pool(1, address="a"), pool(1, address="b", product_id="9")]
    narrow, wide = devices(1, {"product_id": "1520"}), devices(1)
    assert taken(some, narrow, wide) == [("a", 1), ("b", 1)]
    assert taken(some, narrow, narrow) is None


@pytest.mark.parametrize("kind", ["type-PF", "vdpa"])
def test_physical_functions_and_vdpa_are_given_on_request_only(kind):
    some = [pool(address="a", dev_type=kind)]
    assert taken(some, devices(1)) is None
    assert taken(some, devices(1, {"dev_type": kind})) == [("a", 1)]


@pytest.mark.parametrize("text", ["true", "True", "1"])
def test_remote_managed_devices_are_given_on_request_only(text):
    some = [pool(address="a", remote_managed=text)]
    assert taken(some, devices(1)) is None
    assert taken(some, devices(1, {"remote_managed": text})) == [("a", 1)]


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
HERE, NEAR, FAR, NOWHERE = (
    pool(1, 0, address="here"),
    pool(1, 1, address="near"),
    pool(1, 2, address="far"),
    pool(1, None, address="nowhere"),
)


@pytest.mark.parametrize(
    ("policy", "some", "gets"),
    [
        ("required", [HERE, NOWHERE], [("here", 1)]),
        ("required", [NEAR, NOWHERE], None),
        ("legacy", [HERE, NOWHERE], [("here", 1)]),
        ("legacy", [NEAR, NOWHERE], [("nowhere", 1)]),
        ("legacy", [NEAR], None),
        ("preferred", [FAR, NOWHERE, HERE], [("here", 1)]),
        ("preferred", [FAR, NOWHERE], [("nowhere", 1)]),
        ("preferred", [FAR], [("far", 1)]),
        ("socket", [FAR, NEAR, NOWHERE], [("near", 1)]),
        ("socket", [FAR, NOWHERE], None),
    ],
)
def test_numa_policies(policy, some, gets):
    assert taken(some, devices(numa_policy=policy), on=[0], cells=CELLS) == gets


def test_without_a_topology_any_device_is_near():
    assert taken([FAR], devices(numa_policy="required")) == [("far", 1)]


def test_the_socket_policy_needs_reported_sockets():
    cells = host(host_cell(0, socket=0), host_cell(1)).cells
    assert taken([NEAR], devices(numa_policy="socket"), on=[0], cells=cells) is None


# Resource providers


def test_devices_of_the_providers_that_were_chosen():
    some = [pool(4, address="a", rp_uuid="p"), pool(4, address="b", rp_uuid="q")]
    assert taken(some, devices(2, providers=("q", "q"))) == [("b", 2)]
    assert taken(some, devices(2, providers=("p", "q"))) == [("a", 1), ("b", 1)]
    assert taken(some, devices(5, providers=("q",) * 5)) is None
    assert taken(some, devices(1, providers=("r",))) is None


def test_a_provider_of_several_pools_is_ambiguous():
    some = [pool(1, address="a", rp_uuid="p"), pool(1, address="b", rp_uuid="p")]
    assert taken(some, devices(1, providers=("p",))) is None
    assert taken(some, devices(1)) == [("a", 1)]
    assert taken([*some, pool(1, rp_uuid="q")], devices(1, providers=("q",))) is None


def test_even_no_device_needs_a_pool_of_its_kind():
    asked = devices(0, {"product_id": "9"})
    assert taken([pool(1, address="a", product_id="9")], asked) == []
    assert taken([pool(1, address="a")], asked) is None


@pytest.mark.parametrize(
    ("alias", "groups", "providers"),
    [
        ("a", [], ()),
        ("a", [("id-0", "p"), ("id-1", "q"), ("other-0", "r")], ("p", "q")),
        ("a", [("other-0", "r")], ()),
        (None, [("id-0", "p")], ()),
        (None, [], ()),
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


def test_a_request_without_an_id_has_no_group():
    [request] = pci_requests(
        request_spec(
            pci_requests={"requests": [{"count": 1, "spec": [{}], "alias_name": "a"}]},
            requested_resources=[{"requester_id": "x-0", "provider_uuids": ["p"]}],
        )
    )
    assert request.providers == ()


@pytest.mark.parametrize("text", ["no", "", "false", "2", None])
def test_other_texts_mean_no(text):
    assert not is_true(text)
    assert is_true(" Yes ")


def test_groups_are_mapped_to_the_providers_of_their_devices():
    plain = [{"count": 2, "request_id": "x"}, {"count": 1, "request_id": "y"}]
    plain = [each | {"spec": [{"vendor_id": "8086"}], "alias_name": "a"} for each in plain]
    spec = request_spec(pci_requests={"requests": plain})
    some = pools(pool(1, rp_uuid="p"), pool(1, rp_uuid="q"), pool(1, rp_uuid="r"))
    chosen = devices_for(pci_requests(spec), some)
    assert providers_of(spec, chosen) == {"x-0": "p", "x-1": "q", "y-0": "r"}  # type: ignore[arg-type]
    assert providers_of(spec, pools(pool(3))) == {}


def test_requests_that_differ_in_their_ids_only_are_equal():
    def of(request_id):
        asked = {"count": 1, "spec": [{"vendor_id": "8086"}], "request_id": request_id}
        return pci_requests(request_spec(pci_requests={"requests": [asked]}))

    assert of("one") == of("two")


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


# Taking and giving back


def test_devices_that_a_host_no_longer_reports_are_ignored():
    assert devices_taken((), [pool(1)]) == ()


def test_pools_of_the_same_devices_are_one():
    assert pools(pool(1), pool(2), pool(1, 0)) == (pool(3), pool(1, 0))


def test_an_invalid_pool_is_left_out():
    assert pools() == ()
    assert len(pools(pool(1), {"vendor_id": "8086"})) == 1  # type: ignore[arg-type]
