"""Topologies computed from extra specs and image properties."""

from typing import Any

import msgspec
import pytest

from scheduler_worker.errors import RequestError
from scheduler_worker.model.topology import InstanceNUMATopology
from scheduler_worker.scheduling.numa.constraints import instance_topology, with_topology
from tests.support.hosts import request_spec


def topology(image=None, vcpus=4, memory_mb=2048, **extra_specs):
    """Extra specs are given without ``hw:``, properties without ``hw_``."""
    named = {f"hw:{name}": text for name, text in extra_specs.items()}
    flavor = request_spec(vcpus=vcpus, memory_mb=memory_mb, extra_specs=named).flavor
    return instance_topology(flavor, {f"hw_{name}": value for name, value in (image or {}).items()})


def read(text):
    """Extra specs of a text such as ``numa_nodes=2 numa_cpus.0=0-1``."""
    return dict(each.split("=") for each in text.split())


def test_a_flavor_as_nova_reads_it():
    found = topology(
        cpu_policy="dedicated",
        cpu_thread_policy="prefer",
        emulator_threads_policy="isolate",
        mem_page_size="2048",
        numa_nodes="2",
    )
    cell: dict[str, Any] = {"memory": 1024, "pagesize": 2048}
    cell |= {"cpu_policy": "dedicated", "cpu_thread_policy": "prefer"}
    expected = {
        "cells": [cell | {"id": 0, "pcpuset": [0, 1]}, cell | {"id": 1, "pcpuset": [2, 3]}],
        "emulator_threads_policy": "isolate",
    }
    assert found == msgspec.convert(expected, InstanceNUMATopology)


def test_persistent_memory_needs_a_node():
    assert [cell.memory for cell in topology(pmem="6GB").cells] == [2048]


PINNED = [([], [0, 1, 2, 3], 2048)]


@pytest.mark.parametrize(
    ("image", "extra_specs", "cells"),
    [
        (
            {"numa_nodes": 2, "numa_cpus": [[0], [1, 2, 3]], "numa_mem": [48, 2000]},
            "",
            [([0], [], 48), ([1, 2, 3], [], 2000)],
        ),
        # The mask of dedicated vCPUs goes before that of real time, the image's before the flavor's
        (
            {},
            "cpu_policy=mixed cpu_dedicated_mask=0 cpu_realtime=yes cpu_realtime_mask=1-3",
            [([1, 2, 3], [0], 2048)],
        ),
        (
            {"cpu_realtime_mask": "0-1"},
            "cpu_policy=mixed cpu_realtime=yes cpu_realtime_mask=3",
            [([2, 3], [0, 1], 2048)],
        ),
        # Real time leaves the emulator a CPU
        ({}, "cpu_policy=dedicated cpu_realtime=yes cpu_realtime_mask=^0", PINNED),
        ({}, "cpu_policy=dedicated cpu_realtime=yes emulator_threads_policy=share", PINNED),
    ],
)
def test_vcpus_and_memory_of_cells(image, extra_specs, cells):
    found = topology(image, **read(extra_specs)).cells
    assert [(sorted(each.cpuset), sorted(each.pcpuset), each.memory) for each in found] == cells


@pytest.mark.parametrize(
    ("flavor", "image", "policy"),
    [
        ("dedicated", "shared", "dedicated"),
        ("", "dedicated", "dedicated"),
        ("dedicated", None, "dedicated"),
    ],
)
def test_the_flavors_cpu_policy_wins(flavor, image, policy):
    found = topology({"cpu_policy": image}, numa_nodes="1", cpu_policy=flavor)
    assert found.cells[0].cpu_policy == policy


@pytest.mark.parametrize(
    ("flavor", "image", "size"),
    [
        ("small", None, -1),
        ("any", "small", -1),
        ("large", "2MB", 2048),
        ("1GB", None, 1048576),
        ("1048576", None, 1048576),
        ("2MiB", None, 2048),
        ("02048KB", None, 2048),
    ],
)
def test_page_sizes(flavor, image, size):
    found = topology({"mem_page_size": image} if image else {}, mem_page_size=flavor)
    assert found.cells[0].pagesize == size


@pytest.mark.parametrize(
    ("extra_specs", "problem"),
    [
        ("numa_nodes=3", "numa_nodes: 3 cannot share 4 vCPUs and 2048 MiB evenly"),
        ("numa_nodes=0", "numa_nodes: '0' is not an integer >= 1"),
        ("numa_nodes=9", "numa_nodes: 9 cannot share 4 vCPUs"),
        ("numa_nodes=2 numa_cpus.0=0-1", "numa_nodes: needs numa_cpus of each of the 2 nodes"),
        (
            "numa_nodes=1 numa_cpus.0=0-3",
            "numa_nodes: needs numa_mem of each node, as numa_cpus is given",
        ),
        (
            "numa_nodes=1 numa_mem.0=2048",
            "numa_nodes: needs numa_cpus of each node, as numa_mem is given",
        ),
        (
            "numa_nodes=2 numa_cpus.0=0-2 numa_mem.0=1024 numa_cpus.1=2-3 numa_mem.1=1024",
            "numa_nodes: needs every vCPU in numa_cpus of exactly one node",
        ),
        (
            "numa_nodes=2 numa_cpus.0=0-1 numa_mem.0=1024 numa_cpus.1=0-1 numa_mem.1=1024",
            "numa_nodes: needs every vCPU in numa_cpus of exactly one node",
        ),
        (
            "numa_nodes=1 numa_cpus.0=0-3 numa_mem.0=1",
            "numa_nodes: needs numa_mem that adds up to 2048 MiB",
        ),
        (
            "numa_nodes=1 numa_cpus.0=0-4 numa_mem.0=2048",
            "numa_cpus.0: 0-4 is not within the 4 vCPUs",
        ),
        ("numa_nodes=1 numa_cpus.0=0-3 numa_mem.0=-1", "numa_mem.0: '-1' is not an integer >= 0"),
        ("cpu_policy=pinned", "cpu_policy: 'pinned' is none of shared, dedicated, mixed"),
        (
            "cpu_policy=mixed cpu_realtime=no cpu_realtime_mask=0",
            "cpu_policy: mixed needs hw:cpu_dedicated_mask or a real-time mask",
        ),
        (
            "cpu_policy=mixed cpu_dedicated_mask=0-3",
            "cpu_dedicated_mask: must name some vCPUs, and not all",
        ),
        (
            "cpu_policy=mixed cpu_dedicated_mask=^0-3",
            "cpu_dedicated_mask: must name some vCPUs, and not all",
        ),
        (
            "cpu_policy=mixed cpu_realtime=yes cpu_realtime_mask=^0-3",
            "cpu_realtime_mask: must name some vCPUs",
        ),
        (
            "cpu_realtime=yes cpu_realtime_mask=^0-1",
            "cpu_realtime: needs cpu_policy dedicated or mixed",
        ),
        (
            "cpu_policy=dedicated cpu_realtime=yes",
            "cpu_realtime: needs a cpu_realtime_mask that leaves out a vCPU, "
            "or an emulator_threads_policy",
        ),
        (
            "mem_page_size=1G",
            "mem_page_size: '1G' is none of small, large, any, or a size such as 2048, 2MB, 1GB",
        ),
        (
            "cpu_policy=mixed cpu_dedicated_mask=a",
            "cpu_dedicated_mask: 'a' is no CPU, range of CPUs, or one of them with ^",
        ),
        (
            "cpu_policy=dedicated cpu_dedicated_mask=0",
            "cpu_dedicated_mask: needs hw:cpu_policy mixed",
        ),
        ("cpu_thread_policy=require", "cpu_thread_policy: needs cpu_policy dedicated or mixed"),
        (
            "emulator_threads_policy=isolate",
            "emulator_threads_policy: isolate needs cpu_policy dedicated or mixed",
        ),
    ],
)
def test_an_extra_spec_that_is_invalid_is_named(extra_specs, problem):
    with pytest.raises(RequestError) as refused:
        topology(**read(extra_specs))
    assert str(refused.value) == f"spec_obj.flavor.extra_specs.hw:{problem}"


@pytest.mark.parametrize(
    ("image", "extra_specs", "problem"),
    [
        ({"numa_nodes": "x"}, "", "numa_nodes: 'x' is not an integer >= 1"),
        ({"numa_nodes": 2}, "numa_nodes=2", "numa_nodes: must not be set, as the flavor sets it"),
        (
            {"numa_cpus": [[0, 1, 2, 3]]},
            "numa_nodes=1 numa_cpus.0=0-3",
            "numa_cpus: must not be set, as the flavor sets it",
        ),
        (
            {"cpu_policy": "dedicated"},
            "cpu_policy=shared",
            "cpu_policy: 'dedicated' contradicts the flavor's 'shared'",
        ),
        ({"locked_memory": True}, "", "locked_memory: needs a mem_page_size"),
        (
            {"locked_memory": False},
            "locked_memory=true mem_page_size=large",
            "locked_memory: contradicts the flavor's",
        ),
        (
            {"cpu_thread_policy": "require"},
            "",
            "cpu_thread_policy: needs cpu_policy dedicated or mixed",
        ),
        (
            {"cpu_thread_policy": "isolate"},
            "cpu_policy=dedicated cpu_thread_policy=require",
            "cpu_thread_policy: 'isolate' contradicts the flavor's 'require'",
        ),
        (
            {"emulator_threads_policy": "isolate"},
            "cpu_policy=dedicated emulator_threads_policy=share",
            "emulator_threads_policy: 'isolate' contradicts the flavor's 'share'",
        ),
        (
            {"mem_page_size": "2MB"},
            "mem_page_size=small",
            "mem_page_size: is only for flavors whose hw:mem_page_size is large or any",
        ),
    ],
)
def test_a_property_that_is_invalid_or_contradicts_the_flavor_is_named(image, extra_specs, problem):
    with pytest.raises(RequestError) as refused:
        topology(image, **read(extra_specs))
    assert str(refused.value) == f"spec_obj.image.properties.hw_{problem}"


@pytest.mark.parametrize(("vcpus", "memory_mb"), [(4, 2047), (5, 2048)])
def test_nodes_share_evenly_or_list_their_shares(vcpus, memory_mb):
    with pytest.raises(RequestError, match=f"4 cannot share {vcpus} vCPUs and {memory_mb} MiB"):
        topology(vcpus=vcpus, memory_mb=memory_mb, numa_nodes="4")
    assert len(topology(numa_nodes="4").cells) == 4


def test_huge_numbers_are_refused_quickly():
    with pytest.raises(RequestError, match=r"^spec_obj\.flavor\.vcpus: .* 1 to 4096$"):
        topology(vcpus=2**40, cpu_policy="dedicated")


def test_a_request_with_only_a_flavor_gets_its_topology():
    spec = with_topology(request_spec(vcpus=2, extra_specs={"hw:cpu_policy": "dedicated"}))
    [cell] = spec.numa_topology["cells"]
    assert sorted(cell["pcpuset"]) == [0, 1]
    assert with_topology(spec) is spec
    plain = request_spec(vcpus=2)
    assert with_topology(plain) is plain


@pytest.mark.parametrize("name", ["numa_cpus", "numa_mem"])
@pytest.mark.parametrize("value", [7, True, "0-1", {"0": "0-1"}, 1.5])
def test_a_property_of_each_node_has_to_be_a_list(name, value):
    image = {"numa_nodes": 1, "numa_cpus": [[0, 1, 2, 3]], "numa_mem": [2048]}
    with pytest.raises(RequestError) as refused:
        topology(image | {name: value})
    assert refused.value.field == f"spec_obj.image.properties.hw_{name}"
    assert refused.value.problem == (
        f"has to be a list with an entry for each node, got {str(value)!r}"
    )


# Policies that amounts and traits stand for


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
    ("extra_specs", "image", "field"),
    [
        ({"resources:PCPU": "1"}, {}, "flavor.extra_specs.resources:PCPU"),
        ({"resources:PCPU": "2", "resources:VCPU": "2"}, {}, "flavor.extra_specs.resources:PCPU"),
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
