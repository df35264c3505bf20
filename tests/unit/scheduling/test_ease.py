"""Easy requests get a head start, and how much."""

import pytest

from scheduler_worker.scheduling.ease import REFERENCE, constraints, ease, head_start_s
from tests.support.hosts import request_spec

PLAIN = request_spec(vcpus=1, memory_mb=1024)
AS_REFERENCE = request_spec(vcpus=4, memory_mb=8192, flavor={"root_gb": 80})


def test_the_reference_flavor_is_half_as_easy_as_nothing():
    assert AS_REFERENCE.flavor == REFERENCE
    assert ease(AS_REFERENCE, 1) == 0.5
    assert ease(request_spec(vcpus=0, memory_mb=0), 1) == 1.0


@pytest.mark.parametrize(
    "harder",
    [
        {"vcpus": 2},
        {"memory_mb": 2048},
        {"flavor": {"root_gb": 1}},
        {"extra_specs": {"trait:HW_CPU_X86_AVX": "required"}},
        {"availability_zone": "az1"},
        {"instance_group": {"policy": "affinity"}},
        {"requested_destination": {"host": "h"}},
        {"force_hosts": ["h"]},
        {"force_nodes": ["h"]},
        {"ignore_hosts": ["h"]},
        {"scheduler_hints": {"same_host": ["i"]}},
        {"numa_topology": {"cells": []}},
        {"pci_requests": {"requests": [{"count": 1}]}},
        {"request_level_params": {"root_required": ["HW"]}},
        {"request_level_params": {"root_forbidden": ["HW"]}},
        {"requested_resources": [{"resources": {"VGPU": 1}}]},
    ],
)
def test_more_resources_and_more_wishes_are_harder(harder):
    assert 0 < ease(request_spec(**harder), 1) < ease(PLAIN, 1)


def test_more_instances_are_harder():
    assert 0 < ease(PLAIN, 10_000) < ease(PLAIN, 2) < ease(PLAIN, 1)


def test_wishes_are_counted():
    assert constraints(PLAIN) == 0
    assert constraints(request_spec(pci_requests={"requests": []})) == 0
    group = {"required_traits": ["A", "B"], "forbidden_traits": ["C"]}
    assert constraints(request_spec(requested_resources=[group])) == 4


def test_priority_adds_and_the_largest_head_start_bounds():
    at = {
        priority: head_start_s(AS_REFERENCE, 1, priority=priority, max_head_start_s=2.0)
        for priority in (-100, 0, 50, 100)
    }
    assert at == {-100: 0.0, 0: 0.5, 50: 0.75, 100: 1.0}
    nothing = request_spec(vcpus=0, memory_mb=0)
    assert head_start_s(nothing, 1, priority=100, max_head_start_s=2.0) == 2.0
