"""Fitting instances to hosts: cells, pages, overcommitment, order, near networks and devices."""

import numpy as np

from scheduler_worker.model.requests import NetworkMetadata
from scheduler_worker.model.topology import numbers
from scheduler_worker.scheduling.numa.cells import HostCells, Ratios, pinned
from scheduler_worker.scheduling.numa.fit import MOST_IN_VAIN, NumaAssignment, fit
from tests.support.topologies import (
    devices,
    host,
    host_cell,
    instance_cell,
    pages,
    pool,
    pools,
    wanted,
)

GIB = 1024
SMALL, LARGE, ANY = -1, -2, -3


def fitted(where, what, *, cpu=1.0, ram=1.0, pci=(), packs=False):
    """What is fitted; where counting the host's cells is enough, the count agrees."""
    found = fit(where, pools(*pci), what, Ratios(cpu, ram), packs=packs)
    if what.alike:
        count, cell, reserved = what.alike
        room = HostCells([where]).with_room(cell, reserved, np.array([cpu]), np.array([ram]))
        assert (room[0] >= count) == isinstance(found, NumaAssignment)
    return found


def cells_of(found):
    """The chosen host cells; else the reason."""
    return [use.id for use in found.cells] if isinstance(found, NumaAssignment) else found


# CPUs and memory


def test_pinned_cpus_and_memory_are_never_overcommitted():
    one = host(host_cell(pinned_cpus=[0], memory_usage=7 * GIB))
    assert cells_of(fitted(one, wanted(instance_cell(pinned=3)), cpu=16.0)) == [0]
    assert "4 CPUs to pin, 3 are free" in fitted(one, wanted(instance_cell(pinned=4)), cpu=16.0)
    much = wanted(instance_cell(pinned=1, memory=2 * GIB))
    assert "7168 are used of 8192" in fitted(one, much, ram=4.0)


def test_shared_cpus_and_memory_are_overcommitted_by_the_ratios():
    one = host(host_cell(cpu_usage=5, memory_usage=7 * GIB))
    what = wanted(instance_cell(shared=2, memory=2 * GIB))
    assert cells_of(fitted(one, what, cpu=2.0, ram=1.5)) == [0]
    assert "2 CPUs, 5 are used of 4 x 1.5" in fitted(one, what, cpu=1.5, ram=1.5)
    assert "7168 are used of 8192 x 1" in fitted(one, what, cpu=2.0, ram=1.0)


def test_one_instance_never_exceeds_the_cell_whatever_the_ratios():
    whole = wanted(instance_cell(shared=4, memory=8 * GIB))
    assert cells_of(fitted(host(host_cell()), whole)) == [0]
    assert "needs 5 CPUs" in fitted(host(host_cell()), wanted(instance_cell(shared=5)), cpu=16.0)
    much = wanted(instance_cell(shared=1, memory=9 * GIB))
    assert "needs 9216 MiB" in fitted(host(host_cell()), much, ram=16.0)


# CPUs of emulator threads, and of isolated ones; recorded cases pin all others


def pins(reported, vcpus, policy=None, reserved=0):
    [cell] = host(reported).cells
    chosen = pinned(cell, vcpus, reserved, policy)
    return None if chosen is None else list(numbers(chosen))


def test_isolate_cannot_keep_siblings_idle_that_others_share():
    assert pins(host_cell(cpuset=[0], pcpuset=[1, 2, 3]), 1, "isolate") is None


def test_siblings_are_required_even_of_no_vcpu():
    assert pins(host_cell(pinned_cpus=[0, 2]), 0, "require") is None


# Pages


def test_large_pages_are_not_the_smallest():
    one = host(host_cell(mempages=pages((4, 2**21))))
    assert "larger than the smallest" in fitted(
        one, wanted(instance_cell(shared=1, pagesize=LARGE))
    )
    assert cells_of(fitted(one, wanted(instance_cell(shared=1, pagesize=ANY)))) == [0]


def test_reserved_pages_are_not_free():
    reported = [{"size_kb": 2048, "total": 1024, "used": 256, "reserved": 256}]
    one = host(host_cell(mempages=reported))
    assert cells_of(fitted(one, wanted(instance_cell(shared=1, pagesize=2048)))) == [0]
    more = wanted(instance_cell(shared=1, memory=1026, pagesize=2048))
    assert "in pages of 2048 KiB" in fitted(one, more)


def test_a_cell_without_pages_has_none_to_give():
    assert "in pages" in fitted(host(host_cell()), wanted(instance_cell(shared=1, pagesize=SMALL)))


def test_small_pages_are_overcommitted_for_shared_cpus_only():
    one = host(host_cell(mempages=pages((4, 2**21), used=2**21)))
    assert cells_of(fitted(one, wanted(instance_cell(shared=1)))) == [0]
    assert "in pages" in fitted(one, wanted(instance_cell(pinned=1)))


# Which cells


def test_more_cells_than_the_host_has():
    what = wanted(instance_cell(0, pinned=1), instance_cell(1, pinned=1))
    assert fitted(host(host_cell()), what) == "has 1 NUMA cells, the instance 2"


def test_the_cell_that_fits_nowhere_is_named():
    both = wanted(instance_cell(0, pinned=4), instance_cell(1, pinned=4))
    assert "NUMA cell 1" in fitted(host(host_cell(0), host_cell(1, pinned_cpus=[4])), both)


# What is near


def test_networks_are_on_the_cells_that_have_them():
    first, second = ({"physnets": [name]} for name in ("a", "b"))
    where = host(host_cell(0, network_metadata=first), host_cell(1, network_metadata=second))
    network = NetworkMetadata(physnets=("a", "b"))
    found = fitted(where, wanted(instance_cell(shared=1), network=network))
    assert found == "has the networks on other NUMA cells"


# Hosts of many cells: trying all arrangements would never end


def many_cells(**each):
    return host(*(host_cell(number, **each) for number in range(40)))


TWENTY = [instance_cell(number, pinned=2) for number in range(20)]
REQUIRED = devices(numa_policy="required")


def test_one_cell_that_fits_nowhere_is_found_at_once():
    what = wanted(*TWENTY, instance_cell(20, pinned=2, memory=9 * GIB))
    assert "needs 9216 MiB" in fitted(many_cells(), what)


def test_devices_on_too_many_cells_are_found_at_once():
    what = wanted(*TWENTY, devices=(devices(11, numa_policy="required"),) * 2)
    pci = [pool(1, numa_node=number) for number in range(40)]
    assert fitted(many_cells(), what, pci=pci) == "has too few PCI devices near the NUMA cells"


def test_the_one_cell_with_the_device_and_the_one_with_the_network_are_chosen_last():
    others = [pool(9, numa_node=number, vendor_id="10de") for number in range(39)]
    here, there = ({"physnets": names} for names in ([], ["a"]))
    where = host(
        *(host_cell(each, network_metadata=there if each == 38 else here) for each in range(40))
    )
    what = wanted(*TWENTY, devices=(REQUIRED,), network=NetworkMetadata(physnets=("a",)))
    found = fitted(where, what, pci=[*others, pool(numa_node=39)])
    assert cells_of(found) == [*range(18), 38, 39]


def test_a_search_among_cells_that_all_differ_gives_up_and_says_so():
    alike = {"vendor_id": "8086", "product_id": "1520"}
    twice = devices(11, numa_policy="required"), devices(11, alike, numa_policy="required")
    pci = [pool(1, numa_node=number) for number in range(40)]
    rejection = fitted(many_cells(), wanted(*TWENTY, devices=twice), pci=pci)
    assert "PCI devices" in rejection
    assert f"gave up after {MOST_IN_VAIN} choices" in rejection
