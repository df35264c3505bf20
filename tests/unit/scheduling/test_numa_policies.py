"""Thread and CPU policies that amounts and traits stand for."""

import pytest

from scheduler_worker.errors import RequestError
from scheduler_worker.scheduling.numa.constraints import instance_topology
from tests.support.hosts import request_spec


def of_flavor(extra_specs, image=None, vcpus=2):
    flavor = request_spec(vcpus=vcpus, memory_mb=2048, extra_specs=extra_specs).flavor
    return instance_topology(flavor, image or {})


@pytest.mark.parametrize(
    ("extra_specs", "pins"),
    [
        ({"resources:PCPU": "2"}, True),
        ({"resources1:PCPU": "1", "resources2:PCPU": "1", "resources:VCPU": "0"}, True),
        ({"resources:PCPU": "3", "hw:emulator_threads_policy": "isolate"}, True),
        ({"resources_a:PCPU": "2"}, False),
        ({"resources:PCPU": "0"}, False),
        ({"resources:PCPU": "two"}, False),
        ({"resources:VCPU": "3"}, False),
    ],
)
def test_requested_pinned_cpus_are_a_dedicated_cell(extra_specs, pins):
    found = of_flavor(extra_specs)
    cells = (
        [(*cell.cpuset, *cell.pcpuset, cell.cpu_policy) for cell in found.cells] if found else []
    )
    assert cells == ([(0, 1, "dedicated")] if pins else [])


TRAIT = "trait:HW_CPU_HYPERTHREADING"
DEDICATED = {"hw:cpu_policy": "dedicated"}


@pytest.mark.parametrize(
    ("extra_specs", "image", "policy"),
    [
        (DEDICATED | {TRAIT: "required"}, {}, "require"),
        ({"resources:PCPU": "2", TRAIT: "forbidden"}, {}, "isolate"),
        (DEDICATED | {"trait1:HW_CPU_HYPERTHREADING": "required"}, {}, "require"),
        (DEDICATED, {"traits_required": ["HW_CPU_HYPERTHREADING"]}, "require"),
        (
            DEDICATED | {TRAIT: "forbidden"},
            {"traits_required": ["HW_CPU_HYPERTHREADING"]},
            "isolate",
        ),
        (DEDICATED | {TRAIT: "preferred"}, {"traits_required": "none"}, None),
    ],
)
def test_the_trait_of_several_threads_is_a_thread_policy(extra_specs, image, policy):
    assert of_flavor(extra_specs, image).cells[0].cpu_thread_policy == policy


@pytest.mark.parametrize(
    ("extra_specs", "image", "field"),
    [
        ({"resources:PCPU": "1"}, {}, "flavor.extra_specs.resources:PCPU"),
        ({"resources:PCPU": "2", "resources:VCPU": "2"}, {}, "flavor.extra_specs.resources:PCPU"),
        (DEDICATED | {"resources:PCPU": "2"}, {}, "flavor.extra_specs.hw:cpu_policy"),
        ({"resources:VCPU": "2"}, {"hw_cpu_policy": "shared"}, "image.properties.hw_cpu_policy"),
        ({TRAIT: "forbidden"}, {}, f"flavor.extra_specs.{TRAIT}"),
        (
            {},
            {"traits_required": ["HW_CPU_HYPERTHREADING"]},
            "image.properties.traits_required",
        ),
        (
            DEDICATED | {TRAIT: "required", "hw:cpu_thread_policy": "require"},
            {},
            "flavor.extra_specs.hw:cpu_thread_policy",
        ),
    ],
)
def test_two_ways_to_ask_for_the_same_are_refused(extra_specs, image, field):
    with pytest.raises(RequestError) as refused:
        of_flavor(extra_specs, image)
    assert refused.value.field == f"spec_obj.{field}"
