"""CPUs of emulator threads, and of isolated ones; recorded cases pin all others."""

from typing import Any

import pytest

from scheduler_worker.model.topology import numbers
from scheduler_worker.scheduling.numa.cells import pinned
from tests.support.topologies import host, host_cell


def pins(reported, vcpus, policy=None, reserved=0):
    [cell] = host(reported).cells
    chosen = pinned(cell, vcpus, reserved, policy)
    return None if chosen is None else list(numbers(chosen))


def test_isolate_cannot_keep_siblings_idle_that_others_share():
    assert pins(host_cell(cpuset=[0], pcpuset=[1, 2, 3]), 1, "isolate") is None


@pytest.mark.parametrize(
    ("policy", "chosen"),
    [(None, [0, 1, 2]), ("require", [0, 1, 2]), ("isolate", [0, 1, 2, 3, 4, 5])],
)
def test_emulator_threads_have_a_cpu_of_their_own(policy, chosen):
    assert pins(host_cell(cores=3), 2, policy, reserved=1) == chosen


def test_emulator_threads_take_the_rest_of_a_core_of_their_own_instance():
    split: dict[str, Any] = {
        "cpuset": [0, 1, 2, 3],
        "pcpuset": [0, 1, 2, 3],
        "siblings": [[0, 2], [1, 3]],
    }
    for policy in (None, "prefer", "require"):
        assert pins(host_cell(**split), 1, policy, reserved=1) == [0, 2]
        taken = host_cell(**split, pinned_cpus=[0, 2])
        assert pins(taken, 1, policy, reserved=1) == [1, 3]


def test_emulator_threads_take_the_first_free_thread_in_the_order_of_cores():
    reported = host_cell(siblings=[[2, 3], [0, 1]], pinned_cpus=[3])
    assert pins(reported, 1, "require", reserved=1) == [0, 2]


def test_emulator_threads_take_a_core_that_isolated_vcpus_leave():
    assert pins(host_cell(cores=3, pinned_cpus=[0]), 2, "isolate", reserved=1) == [1, 2, 3, 4, 5]
    assert pins(host_cell(cores=1), 1, "isolate", reserved=1) is None


def test_siblings_are_required_even_of_no_vcpu():
    assert pins(host_cell(pinned_cpus=[0, 2]), 0, "require") is None
