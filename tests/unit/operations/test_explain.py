"""Explanations and capacity: of requests with the fields of Nova's RequestSpec."""

import pytest

from scheduler_worker.errors import RequestError
from scheduler_worker.model.policies import ClusterPolicy, FilterUse
from scheduler_worker.model.providers import Inventory, SharingProvider
from scheduler_worker.operations.requests import capacity, explain
from scheduler_worker.placement import Sharing
from scheduler_worker.service.requests.capacity import Capacity
from tests.support.services import World, host

SMALL = {"name": "small", "vcpus": 1, "memory_mb": 1024}


@pytest.fixture
def world():
    world = World()
    world.report(
        host("a", cluster="east", vcpus=4, memory_mb=2048),
        host("b", cluster="west", vcpus=2, memory_mb=8192),
    )
    return world


def count(world, *flavors, **options):
    return world.call(capacity, flavors=list(flavors), **options).flavors


def test_it_counts_each_flavor_in_each_cluster(world):
    small, large = count(world, SMALL, {"name": "large", "vcpus": 2, "memory_mb": 4096})
    assert (small.name, small.instances, small.is_exact) == ("small", 4, True)
    assert [(each.cluster, each.instances) for each in small.clusters] == [("east", 2), ("west", 2)]
    assert small.clusters[0].runs_out_first == "MEMORY_MB"
    assert small.clusters[1].zones == {"nova": 2}
    assert (large.instances, large.clusters[0].instances) == (1, 0)


def test_reservations_count_as_used(world):
    world.place("i1", scheduler_hints={"cluster": ["west"]})
    assert count(world, SMALL)[0].instances == 3


def test_a_hint_names_the_cluster(world):
    [small] = count(world, SMALL, spec_obj={"scheduler_hints": {"cluster": "east"}})
    assert [each.cluster for each in small.clusters] == ["east"]


@pytest.mark.parametrize(
    ("flavors", "spec", "field"),
    [
        ([], {}, "flavors"),
        ([SMALL, {"vcpus": 1}], {}, "flavors[1].memory_mb"),
        ([SMALL, SMALL], {}, "flavors[1]"),
        ([SMALL | {"ram": 1}], {}, "spec_obj.flavor.ram"),
        ([SMALL], {"zone": "az1"}, "spec_obj.zone"),
        ([SMALL], {"scheduler_hints": {"cluster": "north"}}, "spec_obj.scheduler_hints.cluster"),
        (
            [SMALL | {"extra_specs": {"resources1:CUSTOM_A": 1, "resources2:CUSTOM_B": 1}}],
            {},
            "spec_obj.flavor.extra_specs.group_policy",
        ),
        (
            [SMALL | {"extra_specs": {"pci_passthrough:alias": "gpu:1"}}],
            {},
            "flavors[0].extra_specs.pci_passthrough:alias",
        ),
    ],
)
def test_what_is_wrong_is_named(world, flavors, spec, field):
    with pytest.raises(RequestError) as error:
        count(world, *flavors, spec_obj=spec)
    assert error.value.field == field


def test_a_policy_that_this_worker_cannot_use_is_a_problem_of_its_cluster_alone(world):
    policy = ClusterPolicy(id="p", name="p", version=1, filters=(FilterUse(unit="RamFilter"),))
    world.services.policies.settle("east", lambda _: policy)
    beside = World(state=world.state, clock=world.clock, filters=())
    [small] = count(beside, SMALL)
    east, west = small.clusters
    assert "RamFilter" in east.problem
    assert (east.instances, west.problem) == (0, None)


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
    services = world.services._replace(capacity=counting)
    disk = SMALL | {"root_gb": 1, "name": "disk"}
    with_disk, small = count(world, disk, SMALL, services=services)
    assert {each.problem for each in with_disk.clusters} == {
        "it takes what providers share, or hosts give below their compute nodes; only Placement "
        "can tell how many fit"
    }
    assert (with_disk.instances, small.instances) == (0, 4)


# Explanations


def why(world, *, flavor=SMALL, **options):
    spec = {"flavor": flavor} | options.pop("spec", {})
    return world.call(explain, spec_obj=spec, **options)


def test_it_says_which_filter_removed_which_host_and_the_weights(world):
    world.report(
        host("small", cluster="west", memory_mb=512), host("busy", cluster="west", vcpus_used=3)
    )
    found = why(world, spec={"scheduler_hints": {"cluster": "west"}})
    verdicts = {each.host: each for each in found.verdicts}
    assert verdicts["small"].rejected_by == "RamFilter"
    assert verdicts["small"].reason
    assert verdicts["b"].weight is not None
    assert [each.name for each in verdicts["b"].weights] == ["RAMWeigher", "CPUWeigher"]
    assert (found.chosen, found.cluster, found.others) == ("b", "west", [])
    assert found.policy.name == "nova"
    assert world.reserved() == {}


def test_hosts_may_be_named_and_others_are_said_not_to_be_there(world):
    found = why(world, hosts=["b", "x"], limit=1, instance_uuids=["i1"])
    parts = (found, *found.others)
    assert [each.host for part in parts for each in part.verdicts] == ["b"]
    assert found.not_found.keys() == {"x"}


def test_a_host_that_is_asked_for_has_every_filter_that_rejects_it(world):
    small = host("small", cluster="west", memory_mb=512, service={"disabled": True})
    world.report(small, host("slim", cluster="west", memory_mb=512))
    asked = {"spec": {"scheduler_hints": {"cluster": "west"}}, "flavor": SMALL | {"vcpus": 9}}
    named = {each.host: each for each in why(world, hosts=["small", "b"], **asked).verdicts}
    others = {name: [each.filter for each in named[name].also_rejected_by] for name in named}
    assert {name: named[name].rejected_by for name in named} == {
        "small": "RequestFilters",
        "b": "CoreFilter",
    }
    assert others == {"small": ["ComputeFilter", "CoreFilter", "RamFilter"], "b": []}
    assert "512" in named["small"].also_rejected_by[2].reason
    assert {each.also_rejected_by for each in why(world, **asked).verdicts} == {()}


def test_a_specification_may_name_its_instance(world):
    world.place("i1", scheduler_hints={"cluster": ["west"]})
    assert why(world, spec={"instance_uuid": "i1"}).cluster == "west"


def test_a_limit_counts_what_it_leaves_out(world):
    world.report(*(host(f"h{number}", cluster="west") for number in range(5)))
    found = why(world, limit=2, spec={"scheduler_hints": {"cluster": "west"}})
    assert (len(found.verdicts), found.left_out) == (2, 4)


def test_a_refusal_in_several_clusters_says_so(world):
    found = why(world, flavor=SMALL | {"memory_mb": 10**6})
    assert found.sentence.startswith("No host of 2 in 2 clusters; nearest is cluster ")


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"spec_obj": {}}, "spec_obj.flavor"),
        ({"spec_obj": {"flavor": SMALL | {"vcpus": -1}}}, "spec_obj.flavor.vcpus"),
        ({"spec_obj": {"flavor": SMALL, "scheduler_hints": {"cluster": "north"}}},
         "spec_obj.scheduler_hints.cluster"),
        ({"spec_obj": {"flavor": SMALL, "hints": {}}}, "spec_obj.hints"),
        ({"spec_obj": {"flavor": SMALL}, "limit": 0}, "limit"),
        ({"spec_obj": {"flavor": SMALL}, "instance_uuids": ["a", "a"]}, "instance_uuids"),
        ({"spec_obj": {"flavor": SMALL}, "hosts": [7]}, "hosts[0]"),
        ({"spec_obj": []}, "spec_obj"),
        ({}, "spec_obj"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_request_is_named(world, asked, field):
    with pytest.raises(RequestError) as error:
        world.call(explain, **asked)
    assert error.value.field == field
