"""Queue priority: the boost of small, unconstrained requests."""

import pytest

from scheduler_worker.scheduling.queue_priority import (
    constraints,
    priority_boost_s,
    queue_priority,
)
from tests.support.hosts import request_spec

PLAIN = request_spec(vcpus=1, memory_mb=1024)
AS_REFERENCE = request_spec(vcpus=4, memory_mb=8192, flavor={"root_gb": 80})


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
def test_more_resources_and_constraints_lower_the_priority(harder):
    assert 0 < queue_priority(request_spec(**harder), 1) < queue_priority(PLAIN, 1)


def test_constraints_are_counted():
    assert constraints(PLAIN) == 0
    assert constraints(request_spec(pci_requests={"requests": []})) == 0
    group = {"required_traits": ["A", "B"], "forbidden_traits": ["C"]}
    assert constraints(request_spec(requested_resources=[group])) == 4


def test_the_callers_priority_scales_the_boost():
    at = {
        priority: priority_boost_s(AS_REFERENCE, 1, priority=priority, max_priority_boost_s=2.0)
        for priority in (-100, 0, 50, 100)
    }
    assert at == {-100: 0.0, 0: 0.5, 50: 0.75, 100: 1.0}
    nothing = request_spec(vcpus=0, memory_mb=0)
    assert priority_boost_s(nothing, 1, priority=100, max_priority_boost_s=2.0) == 2.0
