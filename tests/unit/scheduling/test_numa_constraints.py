"""Topologies out of extra specs and image properties."""

import msgspec
import pytest

from scheduler_worker.errors import RequestError
from scheduler_worker.model.topology import InstanceNUMATopology
from scheduler_worker.scheduling.numa.constraints import instance_topology
from scheduler_worker.scheduling.numa.cpu_sets import cpu_set
from scheduler_worker.scheduling.numa.requests import with_topology
from tests.support.hosts import request_spec


def topology(image=None, vcpus=4, memory_mb=2048, **extra_specs):
    """Extra specs are given without ``hw:``, with ``__`` for a dot; properties without ``hw_``."""
    named = {f"hw:{name.replace('__', '.')}": text for name, text in extra_specs.items()}
    flavor = request_spec(vcpus=vcpus, memory_mb=memory_mb, extra_specs=named).flavor
    return instance_topology(flavor, {f"hw_{name}": value for name, value in (image or {}).items()})


def shapes(found):
    return [(sorted(cell.cpuset), sorted(cell.pcpuset), cell.memory) for cell in found.cells]


def test_nothing_asked_is_no_topology():
    assert topology() is None
    assert topology(cpu_policy="shared", emulator_threads_policy="share") is None


def test_a_flavor_as_nova_reads_it():
    found = topology(
        cpu_policy="dedicated",
        cpu_thread_policy="prefer",
        emulator_threads_policy="isolate",
        mem_page_size="2048",
        numa_nodes="2",
    )
    cell = {"memory": 1024, "pagesize": 2048}
    cell |= {"cpu_policy": "dedicated", "cpu_thread_policy": "prefer"}
    expected = {
        "cells": [cell | {"id": 0, "pcpuset": [0, 1]}, cell | {"id": 1, "pcpuset": [2, 3]}],
        "emulator_threads_policy": "isolate",
    }
    assert found == msgspec.convert(expected, InstanceNUMATopology)


@pytest.mark.parametrize(
    "extra_specs", [{"cpu_policy": "dedicated"}, {"mem_page_size": "large"}, {"pmem": "6GB"}]
)
def test_what_needs_a_node_makes_one(extra_specs):
    assert [cell.memory for cell in topology(**extra_specs).cells] == [2048]


def test_nodes_of_different_size():
    nodes = {"numa_cpus__0": "0", "numa_mem__0": "48", "numa_cpus__1": "1-3", "numa_mem__1": "2000"}
    assert shapes(topology(numa_nodes="2", **nodes)) == [([0], [], 48), ([1, 2, 3], [], 2000)]
    image = {"numa_nodes": 2, "numa_cpus": [[0], [1, 2, 3]], "numa_mem": [48, 2000]}
    assert shapes(topology(image)) == [([0], [], 48), ([1, 2, 3], [], 2000)]


def test_mixed_cells_are_pinned_by_a_mask():
    assert shapes(topology(cpu_policy="mixed", cpu_dedicated_mask="^0-1")) == [
        ([0, 1], [2, 3], 2048)
    ]
    found = topology(
        cpu_policy="mixed", cpu_realtime="yes", cpu_realtime_mask="2-3", numa_nodes="2"
    )
    assert shapes(found) == [([0, 1], [], 1024), ([], [2, 3], 1024)]


@pytest.mark.parametrize(
    ("flavor", "image", "policy"),
    [
        ("dedicated", "shared", "dedicated"),
        (None, "dedicated", "dedicated"),
        ("dedicated", None, "dedicated"),
    ],
)
def test_the_flavors_cpu_policy_wins(flavor, image, policy):
    said = {"cpu_policy": flavor} if flavor else {}
    found = topology({"cpu_policy": image} if image else {}, numa_nodes="1", **said)
    assert found.cells[0].cpu_policy == policy


@pytest.mark.parametrize(
    ("flavor", "image", "size"),
    [
        ("small", None, -1),
        ("any", "small", -1),
        ("large", "2MB", 2048),
        ("1GB", None, 1048576),
        ("1048576", None, 1048576),
        ("2 MiB", None, 2048),
    ],
)
def test_page_sizes(flavor, image, size):
    found = topology({"mem_page_size": image} if image else {}, mem_page_size=flavor)
    assert found.cells[0].pagesize == size


def test_the_image_chooses_a_thread_policy_where_the_flavor_prefers():
    found = topology(
        {"cpu_thread_policy": "isolate"}, cpu_policy="dedicated", cpu_thread_policy="prefer"
    )
    assert found.cells[0].cpu_thread_policy == "isolate"


FLAVOR, IMAGE = "spec_obj.flavor.extra_specs.hw:", "spec_obj.image.properties.hw_"


@pytest.mark.parametrize(
    ("extra_specs", "image", "field"),
    [
        ({"numa_nodes": "3"}, {}, f"{FLAVOR}numa_nodes"),
        ({"numa_nodes": "0"}, {}, f"{FLAVOR}numa_nodes"),
        ({"numa_nodes": "x"}, {}, f"{FLAVOR}numa_nodes"),
        ({"numa_nodes": "9"}, {}, f"{FLAVOR}numa_nodes"),
        ({"numa_nodes": "2"}, {"numa_nodes": 2}, f"{IMAGE}numa_nodes"),
        ({"numa_nodes": "2", "numa_cpus__0": "0-1"}, {}, f"{FLAVOR}numa_nodes"),
        ({"numa_nodes": "1", "numa_cpus__0": "0-3"}, {}, f"{FLAVOR}numa_nodes"),
        (
            {"numa_nodes": "1", "numa_cpus__0": "0-2", "numa_mem__0": "2048"},
            {},
            f"{FLAVOR}numa_nodes",
        ),
        (
            {"numa_nodes": "1", "numa_cpus__0": "0-3", "numa_mem__0": "1"},
            {},
            f"{FLAVOR}numa_nodes",
        ),
        (
            {"numa_nodes": "1", "numa_cpus__0": "0-4", "numa_mem__0": "2048"},
            {},
            f"{FLAVOR}numa_cpus.0",
        ),
        ({"cpu_policy": "pinned"}, {}, f"{FLAVOR}cpu_policy"),
        ({"cpu_policy": "shared"}, {"cpu_policy": "dedicated"}, f"{IMAGE}cpu_policy"),
        ({"cpu_policy": "mixed"}, {}, f"{FLAVOR}cpu_policy"),
        (
            {"cpu_policy": "mixed", "cpu_dedicated_mask": "0-3"},
            {},
            f"{FLAVOR}cpu_dedicated_mask",
        ),
        (
            {"cpu_policy": "mixed", "cpu_dedicated_mask": "a"},
            {},
            f"{FLAVOR}cpu_dedicated_mask",
        ),
        (
            {"cpu_policy": "dedicated", "cpu_dedicated_mask": "0"},
            {},
            f"{FLAVOR}cpu_dedicated_mask",
        ),
        ({"cpu_thread_policy": "require"}, {}, f"{FLAVOR}cpu_thread_policy"),
        (
            {"cpu_policy": "dedicated", "cpu_thread_policy": "require"},
            {"cpu_thread_policy": "isolate"},
            f"{IMAGE}cpu_thread_policy",
        ),
        ({"emulator_threads_policy": "isolate"}, {}, f"{FLAVOR}emulator_threads_policy"),
        (
            {"cpu_policy": "dedicated", "emulator_threads_policy": "share"},
            {"emulator_threads_policy": "isolate"},
            f"{IMAGE}emulator_threads_policy",
        ),
        ({"mem_page_size": "huge"}, {}, f"{FLAVOR}mem_page_size"),
        ({}, {"mem_page_size": "large"}, f"{IMAGE}mem_page_size"),
        ({"mem_page_size": "small"}, {"mem_page_size": "2MB"}, f"{IMAGE}mem_page_size"),
    ],
)
def test_what_makes_no_sense_is_named(extra_specs, image, field):
    with pytest.raises(RequestError) as refused:
        topology(image, **extra_specs)
    assert refused.value.field == field


def test_nobody_counts_to_a_billion():
    with pytest.raises(RequestError, match="1 to 65536"):
        topology(vcpus=2**40, cpu_policy="dedicated")


@pytest.mark.parametrize(
    ("text", "cpus"), [("0", {0}), ("0-2,^1", {0, 2}), ("^0", {1, 2, 3}), (" 1 , 3 ", {1, 3})]
)
def test_sets_of_cpus(text, cpus):
    assert cpu_set(text, frozenset(range(4))) == cpus


@pytest.mark.parametrize("text", ["", "4", "2-1", "x", "1-", "0,,1", "^9"])
def test_no_sets_of_cpus(text):
    with pytest.raises(ValueError, match=r"."):
        cpu_set(text, frozenset(range(4)))


def test_a_request_with_a_flavor_alone_gets_its_topology():
    spec = with_topology(request_spec(vcpus=2, extra_specs={"hw:cpu_policy": "dedicated"}))
    [cell] = spec.numa_topology["cells"]
    assert sorted(cell["pcpuset"]) == [0, 1]
    assert with_topology(spec) is spec
    plain = request_spec(vcpus=2)
    assert with_topology(plain) is plain
