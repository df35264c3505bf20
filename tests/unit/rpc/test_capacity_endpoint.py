"""The RPC method ``capacity``, and ``explain`` of a request by hand."""

import pytest

from scheduler_worker.errors import RequestError
from scheduler_worker.model.allocation_candidates import SharingProvider
from scheduler_worker.model.policies import ClusterPolicy, FilterUse
from scheduler_worker.model.providers import Inventory
from scheduler_worker.placement import Sharing
from scheduler_worker.rpc.capacity import CapacityEndpoint
from scheduler_worker.rpc.contract import Context
from scheduler_worker.rpc.explanations import explanation
from scheduler_worker.service.placement.capacity import Capacity
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies
from tests.support.services import World, host

SMALL = {"name": "small", "vcpus": 1, "ram": 1024}


@pytest.fixture
def world():
    world = World()
    world.report(
        host("a", cluster="east", vcpus=4, memory_mb=2048),
        host("b", cluster="west", vcpus=2, memory_mb=8192),
    )
    return world


def capacity(world, *flavors, **setting):
    endpoint = CapacityEndpoint(Capacity(world.fleet, lambda: world.pipelines))
    return endpoint.capacity(Context(), list(flavors), setting)


def test_it_counts_each_flavor_in_each_cluster(world):
    small, large = capacity(world, SMALL, {"name": "large", "vcpus": 2, "ram": 4096})
    assert (small["name"], small["instances"], small["is_exact"]) == ("small", 4, True)
    assert [(each["cluster"], each["instances"]) for each in small["clusters"]] == [
        ("east", 2), ("west", 2),
    ]  # fmt: skip
    assert small["clusters"][0]["runs_out_first"] == "MEMORY_MB"
    assert small["clusters"][1]["zones"] == {"nova": 2}
    assert (large["instances"], large["clusters"][0]["instances"]) == (1, 0)


def test_reservations_count_as_used(world):
    world.place("i1", scheduler_hints={"cluster": ["west"]})
    [small] = capacity(world, SMALL)
    assert small["instances"] == 3


def test_a_setting_names_the_cluster(world):
    [small] = capacity(world, SMALL, cluster="east")
    assert [each["cluster"] for each in small["clusters"]] == ["east"]
    with pytest.raises(RequestError, match=r"setting.hints.cluster: there is no cluster 'north'"):
        capacity(world, SMALL, cluster="north")


def test_an_error_that_a_filter_finds_names_the_flavor(world):
    groups = {"resources1:CUSTOM_A": 1, "resources2:CUSTOM_B": 1}
    bad = {"name": "bad", "vcpus": 1, "ram": 1, "extra_specs": groups}
    with pytest.raises(RequestError) as error:
        capacity(world, SMALL, bad)
    assert error.value.field == "flavors[1].extra_specs.group_policy"


def test_a_policy_that_this_worker_cannot_use_is_a_problem_of_its_cluster_alone(world):
    policies = ClusterPolicies(world.fleet, lambda: world.pipelines)
    policy = ClusterPolicy(id="p", name="p", version=1, filters=(FilterUse(unit="RamFilter"),))
    policies.attach("east", policy)
    beside = World(state=world.state, clock=world.clock, filters=())
    [small] = capacity(beside, SMALL)
    east, west = small["clusters"]
    assert "RamFilter" in east["problem"]
    assert (east["instances"], west["problem"]) == (0, None)


class Pool(Sharing):
    """One provider of disk for all."""

    def known(self):
        return [
            SharingProvider(uuid="pool", name="pool", inventories={"DISK_GB": Inventory(total=9)})
        ]

    def read(self):
        return self.known()


def test_what_only_placement_can_count_is_not_counted(world):
    counting = Capacity(world.fleet, lambda: world.pipelines, Pool())
    endpoint = CapacityEndpoint(counting)
    with_disk, small = endpoint.capacity(Context(), [SMALL | {"disk": 1, "name": "disk"}, SMALL])
    assert {each["problem"] for each in with_disk["clusters"]} == {
        "it takes what providers share, or hosts give below their compute nodes; only Placement "
        "can tell how many fit"
    }
    assert (with_disk["instances"], small["instances"]) == (0, 4)


def test_a_request_by_hand_is_explained_like_any_other(world):
    asked = {"flavor": SMALL, "cluster": "west", "why_not": "a"}
    found = explanation(world.scheduler, Context(), None, None, None, None, asked)
    assert (found["cluster"], found["chosen"]) == ("west", "b")
    assert found["not_found"].keys() == {"a"}
    spec = {"flavor": {"vcpus": 1, "memory_mb": 1024}}
    with pytest.raises(RequestError, match="request: there is a spec_obj, too"):
        explanation(world.scheduler, Context(), spec, None, None, None, asked)
    asked["cluster"] = "north"
    with pytest.raises(RequestError) as error:
        explanation(world.scheduler, Context(), None, None, None, None, asked)
    assert error.value.field == "request.hints.cluster"
