"""The NUMA and PCI filters and the PCI weigher on tables of hosts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from scheduler_worker.errors import RequestError
from scheduler_worker.scheduling.filters import numa_topology
from scheduler_worker.scheduling.filters.numa_topology import NUMATopologyFilter
from scheduler_worker.scheduling.filters.pci_passthrough import PciPassthroughFilter
from scheduler_worker.scheduling.numa.hosts import taken_by, topology_of
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.weighers.pci import PCIWeigher
from tests.support.hosts import host_record, host_table, request_spec
from tests.support.topologies import asked, host_cell, instance_cell

NUMA, PCI = NUMATopologyFilter(), PciPassthroughFilter()
VF = {"vendor_id": "8086", "product_id": "1520", "tags": {"dev_type": "type-VF"}}


def cells(*said):
    return {"cells": list(said)}


def hosts(**reports):
    return host_table([host_record(host=name, **said) for name, said in reports.items()])


def verdicts(unit, table, spec):
    """Of the column face, after the row face was seen to say the same."""
    passed = unit.passes(table, spec).tolist()
    assert passed == [unit.host_passes(host, spec) for host in table.states()]
    return passed


def pinning(pinned=2, **fields):
    return request_spec(numa_topology=asked(instance_cell(pinned=pinned)), **fields)


def devices(count=1, **said):
    return {"requests": [{"count": count, "spec": [{"vendor_id": "8086"}]} | said]}


# NUMATopologyFilter


def test_hosts_with_room_in_a_cell_pass():
    table = hosts(
        a={"numa_topology": cells(host_cell(pinned_cpus=[0, 1, 2]))},
        b={"numa_topology": cells(host_cell())},
        c={},
        d={"numa_topology": "{"},
        e={"numa_topology": json.dumps(cells(host_cell()))},
    )
    assert verdicts(NUMA, table, pinning()) == [False, True, False, False, True]
    reasons = [NUMA.reason(host, pinning()) for host in table.states()]
    assert reasons[0] == "NUMA cell 0 needs 2 CPUs to pin, 1 are free"
    assert reasons[2] == reasons[3] == "reports no NUMA topology"


def test_requests_without_a_topology_pass_everywhere():
    assert not NUMA.applies(request_spec())
    assert not NUMA.applies(request_spec(numa_topology=None, extra_specs={"hw:numa_nodes": "2"}))


@pytest.mark.parametrize("in_image", [False, True])
def test_required_threads_need_cores_with_threads_whatever_else_is_asked(in_image):
    extra = {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "require"}
    image = {"hw_cpu_policy": "dedicated", "hw_cpu_thread_policy": "require"}
    spec = request_spec(image_properties=image) if in_image else request_spec(extra_specs=extra)
    table = hosts(
        a={"numa_topology": cells(host_cell(threads=1))},
        b={"numa_topology": cells(host_cell(threads=1), host_cell(1, threads=2))},
        c={},
    )
    assert NUMA.applies(spec)
    assert verdicts(NUMA, table, spec) == [False, True, True]
    assert NUMA.reason(table.state(0), spec) == "has one thread for each core"


def test_each_hosts_own_ratios_count():
    said = {"numa_topology": cells(host_cell(cpu_usage=4))}
    table = hosts(a=said | {"cpu_allocation_ratio": 1.0}, b=said | {"cpu_allocation_ratio": 2.0})
    spec = request_spec(numa_topology=asked(instance_cell(shared=1)))
    assert verdicts(NUMA, table, spec) == [False, True]


def test_equal_hosts_are_fitted_once(monkeypatch):
    fits = []
    fit = numa_topology.fit
    monkeypatch.setattr(numa_topology, "fit", lambda *args: fits.append(args) or fit(*args))
    same = {"numa_topology": cells(host_cell())}
    other = {"numa_topology": cells(host_cell(pinned_cpus=[0]))}
    table = hosts(a=same, b=same, c=other, d=same | {"pci_device_pools": [VF | {"count": 1}]})
    assert NUMA.passes(table, pinning()).all()
    assert len(fits) == 2


def test_devices_have_to_be_near():
    pool = VF | {"numa_node": 1, "count": 1}
    full = cells(host_cell(0), host_cell(1, pinned_cpus=[4, 5, 6]))
    table = hosts(
        a={"numa_topology": full, "pci_device_pools": [pool]},
        b={"numa_topology": cells(host_cell(0), host_cell(1)), "pci_device_pools": [pool]},
    )
    assert verdicts(NUMA, table, pinning(pci_requests=devices())) == [False, True]
    far = pinning(pci_requests=devices(numa_policy="preferred"))
    assert verdicts(NUMA, table, far) == [True, True]


def test_limits_are_the_ratios_and_the_networks():
    table = hosts(a={"cpu_allocation_ratio": 4.0, "ram_allocation_ratio": 1.5})
    ratios = {"cpu_allocation_ratio": 4.0, "ram_allocation_ratio": 1.5}
    assert NUMA.limits(table.state(0), pinning()) == {"numa_topology": ratios}
    network = {"physnets": ["a"], "tunneled": True}
    limits = NUMA.limits(table.state(0), pinning(network_metadata=network))
    assert json.loads(json.dumps(limits)) == {
        "numa_topology": ratios | {"network_metadata": network}
    }
    assert NUMA.limits(table.state(0), request_spec()) == {}


def test_requests_for_the_same_are_of_one_class():
    one = pinning(project_id="p", pci_requests=devices(request_id="1"))
    assert NUMA.reads(one) == NUMA.reads(pinning(pci_requests=devices(request_id="2")))
    assert hash(NUMA.reads(one)) is not None
    assert NUMA.reads(one) != NUMA.reads(pinning(3, pci_requests=devices()))
    assert NUMA.reads(one) != NUMA.reads(pinning(pci_requests=devices(2)))


@pytest.mark.parametrize(
    "cell",
    [1, {}]
    + [
        instance_cell(pinned=1) | wrong
        for wrong in ({"memory": -1}, {"pagesize": -4}, {"cpu_policy": "pinned"}, {"cpuset": [-1]})
    ],
)
def test_a_topology_that_cannot_be_read_is_refused(cell):
    spec = request_spec(numa_topology=asked(cell))
    with pytest.raises(RequestError, match=r"spec_obj\.numa_topology"):
        NUMA.passes(hosts(a={}), spec)


def test_old_cells_pin_what_they_list():
    old = {"id": 0, "memory": 1024, "cpuset": [0, 1, 2], "cpu_policy": "dedicated"}
    table = hosts(
        a={"numa_topology": cells(host_cell(pinned_cpus=[0, 1]))},
        b={"numa_topology": cells(host_cell(pinned_cpus=[0]))},
    )
    assert verdicts(NUMA, table, request_spec(numa_topology={"cells": [old]})) == [False, True]


@pytest.mark.parametrize(
    ("said", "passes"),
    [
        (host_cell(), True),
        ({key: value for key, value in host_cell().items() if key != "pcpuset"}, True),
        ({key: value for key, value in host_cell().items() if key != "memory"}, False),
        (host_cell(cpuset=[2**40]), False),
        (host_cell(siblings=[0]), False),
        ([], False),
    ],
)
def test_reports_that_cannot_be_read_are_none(said, passes):
    table = hosts(a={"numa_topology": cells(said)})
    assert verdicts(NUMA, table, pinning()) == [passes]


# PciPassthroughFilter


def test_hosts_with_enough_devices_pass():
    table = hosts(
        a={"pci_device_pools": [VF | {"count": 1}]},
        b={"pci_device_pools": [VF | {"count": 1}, VF | {"count": 1, "numa_node": 1}]},
        c={},
        d={"pci_device_pools": [VF | {"count": 2}]},
    )
    assert verdicts(PCI, table, request_spec(pci_requests=devices(2))) == [False, True, False, True]


def test_the_reason_names_the_request_that_is_not_served():
    table = hosts(a={"pci_device_pools": [VF | {"count": 1}]})
    plain = {"requests": [*devices()["requests"], {"count": 3, "spec": [{"vendor_id": "10de"}]}]}
    reason = PCI.reason(table.state(0), request_spec(pci_requests=plain))
    assert reason == "has too few devices for 3 of vendor_id=10de"


@pytest.mark.parametrize("requests", [None, {}, {"requests": []}, {"requests": None}])
def test_requests_for_no_device_pass_everywhere(requests):
    assert not PCI.applies(request_spec(pci_requests=requests))


# PCIWeigher


def test_the_fewest_devices_weigh_most_and_a_hundred_are_as_bad_as_99():
    counts = (0, 3, 99, 500)
    table = hosts(
        **{f"h{count}": {"pci_device_pools": [VF | {"count": count}]} for count in counts}
    )
    unit = PCIWeigher(Options(pci_weight_multiplier=2.0))
    assert unit.weigh(table, request_spec()).tolist() == [100, 97, 1, 1]
    assert [unit.weigh_host(host, request_spec()) for host in table.states()] == [100, 97, 1, 1]
    assert unit.weigh(table.take(np.array([3, 0])), request_spec()).tolist() == [1, 100]
    assert unit.multiplier(table) == 2.0


# What the chosen host gives


def test_a_claim_takes_cells_and_devices():
    pool = VF | {"count": 1, "numa_node": 1}
    table = hosts(
        a={"numa_topology": cells(host_cell(0), host_cell(1)), "pci_device_pools": [pool]}
    )
    fitted = taken_by(pinning(pci_requests=devices()), table.state(0))
    assert [(use.id, use.pinned) for use in fitted.cells] == [(1, (4, 5))]
    assert [each.count for each in fitted.devices] == [1]


def test_a_claim_without_a_topology_takes_devices_anywhere():
    table = hosts(a={"pci_device_pools": [VF | {"count": 1, "numa_node": 1}]})
    fitted = taken_by(request_spec(pci_requests=devices()), table.state(0))
    assert (len(fitted.cells), len(fitted.devices)) == (0, 1)


def test_of_a_host_that_was_forced_and_has_no_room_nothing_is_taken():
    table = hosts(a={"numa_topology": cells(host_cell(pinned_cpus=[0, 1, 2, 3]))})
    assert taken_by(pinning(pci_requests=devices()), table.state(0)) == taken_by(
        request_spec(), table.state(0)
    )


def test_packing_is_an_option():
    said = cells(host_cell(0), host_cell(1, pinned_cpus=[4, 5]))
    table = hosts(a={"numa_topology": said})
    assert taken_by(pinning(), table.state(0)).cells[0].id == 0
    assert taken_by(pinning(), table.state(0), packs=True).cells[0].id == 1


def test_a_new_report_is_seen():
    table = hosts(a={"numa_topology": cells(host_cell())})
    assert topology_of(table.state(0)).cells[0].free_pcpus == 0b1111
    table.put(host_record(host="a", numa_topology=cells(host_cell(pinned_cpus=[0]))), 2)
    assert topology_of(table.state(0)).cells[0].free_pcpus == 0b1110
