"""The NUMA and PCI filters and the PCI weigher on tables of hosts."""

import json

import pytest

from scheduler_worker.errors import RequestError
from scheduler_worker.model.requests import SchedulerLimits
from scheduler_worker.model.topology import count_devices
from scheduler_worker.scheduling.filters import numa_topology
from scheduler_worker.scheduling.filters.numa_topology import (
    NUMATopologyFilter,
    PciPassthroughFilter,
)
from scheduler_worker.scheduling.numa import constraints
from scheduler_worker.scheduling.numa.constraints import taken_by
from scheduler_worker.scheduling.numa.fit import fit
from tests.support.hosts import host_record, host_table, request_spec
from tests.support.topologies import asked, host_cell, instance_cell

NUMA, PCI = NUMATopologyFilter(), PciPassthroughFilter()
VF = {"vendor_id": "8086", "product_id": "1520", "tags": {"dev_type": "type-VF"}}


def hosts(**reports):
    return host_table([host_record(host=name, **reported) for name, reported in reports.items()])


def verdicts(unit, table, spec):
    """The column method's answer, which the row method must agree with."""
    passed = unit.passes(table, spec).tolist()
    assert passed == [unit.host_passes(host, spec) for host in table.states()]
    return passed


def pinning(pinned=2, **fields):
    return request_spec(numa_topology=asked(instance_cell(pinned=pinned)), **fields)


def devices(count=1, **reported):
    return {"requests": [{"count": count, "spec": [{"vendor_id": "8086"}]} | reported]}


# NUMATopologyFilter


def test_hosts_with_room_in_a_cell_pass():
    table = hosts(
        a={"numa_topology": asked(host_cell(pinned_cpus=[0, 1, 2]))},
        b={"numa_topology": asked(host_cell())},
        c={},
        d={"numa_topology": "{"},
        e={"numa_topology": json.dumps(asked(host_cell()))},
    )
    assert verdicts(NUMA, table, pinning()) == [False, True, False, False, True]
    reasons = [NUMA.reason(host, pinning()) for host in table.states()]
    assert reasons[0] == "NUMA cell 0 needs 2 CPUs to pin, 1 are free"
    assert reasons[2] == reasons[3] == "reports no NUMA topology"


def test_requests_without_a_topology_pass_everywhere():
    assert not NUMA.applies(request_spec())
    assert not NUMA.applies(request_spec(numa_topology=None, extra_specs={"hw:numa_nodes": "2"}))


@pytest.mark.parametrize("in_image", [False, True])
def test_required_threads_need_cores_with_threads_even_without_a_topology(in_image):
    extra = {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "require"}
    image = {"hw_cpu_policy": "dedicated", "hw_cpu_thread_policy": "require"}
    spec = request_spec(image_properties=image) if in_image else request_spec(extra_specs=extra)
    table = hosts(
        a={"numa_topology": asked(host_cell(threads=1))},
        b={"numa_topology": asked(host_cell(threads=1), host_cell(1, threads=2))},
        c={},
    )
    assert NUMA.applies(spec)
    assert verdicts(NUMA, table, spec) == [False, True, True]
    assert NUMA.reason(table.state(0), spec) == "has one thread for each core"


def test_equal_hosts_are_fitted_once(monkeypatch):
    asked_about = []
    monkeypatch.setattr(numa_topology, "fit", lambda *args: asked_about.append(args) or fit(*args))
    same = {"numa_topology": asked(host_cell())}
    other = {"numa_topology": asked(host_cell(pinned_cpus=[0]))}
    table = hosts(a=same, b=same, c=other, d=same | {"pci_device_pools": [VF | {"count": 1}]})
    assert NUMA.passes(table, pinning()).all()
    assert len(asked_about) == 2


def test_requests_for_the_same_are_of_one_class():
    one = pinning(project_id="p", pci_requests=devices(request_id="1"))
    assert NUMA.reads(one) == NUMA.reads(pinning(pci_requests=devices(request_id="2")))
    assert hash(NUMA.reads(one)) is not None
    assert NUMA.reads(one) != NUMA.reads(pinning(3, pci_requests=devices()))
    assert NUMA.reads(one) != NUMA.reads(pinning(pci_requests=devices(2)))


@pytest.mark.parametrize(
    ("cell", "place"),
    [
        (1, "$.cells[0]"),
        ({}, "$.cells[0]"),
        ({"memory": -1}, "$.cells[0].memory"),
        ({"pagesize": -4}, "$.cells[0].pagesize"),
        ({"pagesize": 2**40 + 1}, "$.cells[0].pagesize"),
        ({"cpu_policy": "pinned"}, "$.cells[0].cpu_policy"),
        (
            {"cpu_thread_policy": "some"},
            "$.cells[0].cpu_thread_policy",
        ),
        ({"cpuset": [-1]}, "$.cells[0].cpuset[0]"),
        ({"pcpuset": [2**16]}, "$.cells[0].pcpuset[0]"),
    ],
)
def test_an_invalid_topology_is_refused(cell, place):
    reported = instance_cell(pinned=1) | cell if cell and isinstance(cell, dict) else cell
    spec = request_spec(numa_topology=asked(reported))
    with pytest.raises(RequestError) as refused:
        NUMA.passes(hosts(a={}), spec)
    assert refused.value.field == "spec_obj.numa_topology"
    assert refused.value.problem.endswith(f" - at `{place}`")


def test_an_unknown_emulator_threads_policy_is_refused():
    spec = request_spec(numa_topology=asked(instance_cell(), emulator_threads_policy="alone"))
    with pytest.raises(RequestError, match=r"'alone' - at `\$\.emulator_threads_policy`"):
        NUMA.passes(hosts(a={}), spec)


@pytest.mark.parametrize(
    ("reported", "passes"),
    [
        (host_cell(), True),
        ({key: value for key, value in host_cell().items() if key != "pcpuset"}, True),
        ({key: value for key, value in host_cell().items() if key != "memory"}, False),
        (host_cell(cpuset=[2**40]), False),
        (host_cell(siblings=[0]), False),
        ([], False),
    ],
)
def test_an_invalid_reported_topology_counts_as_none(reported, passes):
    table = hosts(a={"numa_topology": asked(reported)})
    assert verdicts(NUMA, table, pinning()) == [passes]


# PciPassthroughFilter


def test_the_reason_names_the_request_that_is_not_served():
    table = hosts(a={"pci_device_pools": [VF | {"count": 1}]})
    plain = {"requests": [*devices()["requests"], {"count": 3, "spec": [{"vendor_id": "10de"}]}]}
    reason = PCI.reason(table.state(0), request_spec(pci_requests=plain))
    assert reason == "has too few devices for 3 of vendor_id=10de"


@pytest.mark.parametrize("requests", [None, {}, {"requests": []}, {"requests": None}])
def test_requests_for_no_device_pass_everywhere(requests):
    assert not PCI.applies(request_spec(pci_requests=requests))


# What the chosen host gives


LIMITED = SchedulerLimits(numa_topology={"cpu_allocation_ratio": 1.0, "ram_allocation_ratio": 1.0})
"""As NUMATopologyFilter sets them."""


def test_a_claim_without_a_topology_takes_devices_anywhere():
    table = hosts(a={"pci_device_pools": [VF | {"count": 1, "numa_node": 1}]})
    fitted = taken_by(request_spec(pci_requests=devices()), table.state(0), SchedulerLimits())
    assert (len(fitted.cells), len(fitted.devices)) == (0, 1)


def test_devices_of_the_first_requests_are_taken_where_there_are_too_few_for_all():
    table = hosts(a={"pci_device_pools": [VF | {"count": 3}]})
    requests = {"requests": [*devices(2)["requests"], *devices(2)["requests"]]}
    fitted = taken_by(request_spec(pci_requests=requests), table.state(0), SchedulerLimits())
    assert count_devices(fitted.devices) == 2


def test_cells_are_taken_as_the_filter_found_them_where_packing_finds_none(monkeypatch):
    def gives_up(*given, packs=False):
        return "gave up" if packs else fit(*given)

    monkeypatch.setattr(constraints, "fit", gives_up)
    table = hosts(a={"numa_topology": asked(host_cell(0))})
    spec = request_spec(numa_topology=asked(instance_cell(pinned=1)))
    assert [use.id for use in taken_by(spec, table.state(0), LIMITED, packs=True).cells] == [0]


def test_packing_is_an_option():
    reported = asked(host_cell(0), host_cell(1, pinned_cpus=[4, 5]))
    table = hosts(a={"numa_topology": reported})
    assert taken_by(pinning(), table.state(0), LIMITED).cells[0].id == 0
    assert taken_by(pinning(), table.state(0), LIMITED, packs=True).cells[0].id == 1


def test_a_new_report_is_read():
    table = hosts(a={"numa_topology": asked(host_cell())})
    assert table.state(0).numa_topology.cells[0].free_pcpus == 0b1111
    table.put(host_record(host="a", numa_topology=asked(host_cell(pinned_cpus=[0]))), 2)
    assert table.state(0).numa_topology.cells[0].free_pcpus == 0b1110
