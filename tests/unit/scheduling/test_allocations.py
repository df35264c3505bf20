"""What Placement is asked to allocate for a selection: amounts, providers and mappings."""

import pytest

from scheduler_worker.model.decisions import Allocation, Decision
from scheduler_worker.model.requests import SchedulerLimits
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.prefilters.needs import amounts_of
from scheduler_worker.scheduling.selections import allocation_on
from tests.support.hosts import host_record, host_table, request_spec
from tests.support.topologies import asked, instance_cell
from tests.support.units import decided, pipeline_of


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"flavor": {"swap": 1024}}, {"VCPU": 2, "MEMORY_MB": 512, "DISK_GB": 1}),
        ({"flavor": {"swap": 1025}}, {"VCPU": 2, "MEMORY_MB": 512, "DISK_GB": 2}),
        (
            {"flavor": {"root_gb": 10, "ephemeral_gb": 5}, "is_bfv": True},
            {"VCPU": 2, "MEMORY_MB": 512, "DISK_GB": 5},
        ),
        (
            {"numa_topology": asked(instance_cell(pinned=1, shared=1))},
            {"PCPU": 1, "VCPU": 1, "MEMORY_MB": 512},
        ),
        (
            {"numa_topology": asked(instance_cell(pinned=2), emulator_threads_policy="isolate")},
            {"PCPU": 3, "MEMORY_MB": 512},
        ),
        # Of a group with a suffix: not of the flavor's own, unless that is set too.
        ({"extra_specs": {"resources1:VCPU": "5", "resources:VGPU": "1"}}, {"MEMORY_MB": 512}),
        (
            {"extra_specs": {"resources1:VCPU": "5", "resources:VCPU": "3"}},
            {"VCPU": 3, "MEMORY_MB": 512},
        ),
        # In place of the flavor's vCPUs.
        ({"extra_specs": {"resources:PCPU": "2"}}, {"MEMORY_MB": 512}),
        ({"extra_specs": {"resources1:PCPU": "2"}}, {"MEMORY_MB": 512}),
        # The CPU policy prevails, as no amount but 0 may be set beside it.
        (
            {
                "extra_specs": {"resources:PCPU": "0", "resources:VCPU": "0"},
                "numa_topology": asked(instance_cell(pinned=1, shared=1)),
            },
            {"PCPU": 1, "VCPU": 1, "MEMORY_MB": 512},
        ),
    ],
)
def test_what_placement_is_asked_for(fields, expected):
    assert dict(amounts_of(request_spec(**{"vcpus": 2, "memory_mb": 512} | fields))) == expected


CLAIMING = pipeline_of([], [], Options.of(claims_in_placement=True))
PLAIN = {"VCPU": 1, "MEMORY_MB": 1024}
PORT = {"requester_id": "port", "resources": {"NET_BW_EGR_KILOBIT_PER_SEC": 5}}


def decide(hosts, *uuids: str, **fields) -> Decision:
    return decided(CLAIMING, hosts, request_spec(**fields), *uuids)


def allocations(decision: Decision) -> list[Allocation | None]:
    return [each.allocation for some in decision.selections for each in some]


def test_a_rebuild_check_has_none():
    hosts = host_table([host_record()])
    hints = {"_nova_check_type": ["rebuild"]}
    assert allocations(decide(hosts, scheduler_hints=hints)) == [None]


def test_a_group_is_mapped_to_the_provider_that_serves_it():
    nic = {"uuid": "nic", "inventories": {"NET_BW_EGR_KILOBIT_PER_SEC": {"total": 9}}}
    hosts = host_table([host_record(resource_providers=[nic])])
    [found] = allocations(decide(hosts, requested_resources=[PORT]))
    assert found.allocations == {
        "uuid-h": {"resources": PLAIN},
        "nic": {"resources": {"NET_BW_EGR_KILOBIT_PER_SEC": 5}},
    }
    assert found.mappings == {"": ["uuid-h"], "port": ["nic"]}


def test_each_instance_of_a_request_takes_another_provider_and_a_repeated_one_the_same():
    gpus = [{"uuid": f"gpu{n}", "inventories": {"VGPU": {"total": 1}}} for n in range(2)]
    hosts = host_table([host_record(resource_providers=gpus)])
    spec = request_spec(extra_specs={"resources:VGPU": "1"})
    found = allocations(decided(CLAIMING, hosts, spec, "one", "two"))
    providers = [sorted(each.allocations) for each in found]
    assert sorted(providers) == [["gpu0", "uuid-h"], ["gpu1", "uuid-h"]]
    again = decided(CLAIMING, hosts, spec, "two", reserved={"two": 0})
    assert allocations(again) == [found[1]]


def test_devices_in_placement():
    pool = {
        "vendor_id": "8086",
        "product_id": "1",
        "count": 1,
        "tags": {"rp_uuid": "device", "resource_class": "CUSTOM_NIC"},
    }
    hosts = host_table([host_record(pci_device_pools=[pool])])
    request = {"count": 1, "spec": [{"vendor_id": "8086"}], "alias_name": "a", "request_id": "x"}
    group = {"requester_id": "x-0", "resources": {"CUSTOM_NIC": 1}}
    [found] = allocations(
        decide(hosts, pci_requests={"requests": [request]}, requested_resources=[group])
    )
    assert found.allocations == {
        "uuid-h": {"resources": PLAIN},
        "device": {"resources": {"CUSTOM_NIC": 1}},
    }
    assert found.mappings == {"": ["uuid-h"], "x-0": ["device"]}


def test_what_inventories_give_is_in_the_allocation_once():
    inventories = {"VCPU": {"total": 8}, "MEMORY_MB": {"total": 8192}, "VGPU": {"total": 1}}
    record = host_record(resource_providers=[{"uuid": "uuid-h", "inventories": inventories}])
    hosts = host_table([record])
    pinned = asked(instance_cell(pinned=2))
    spec = request_spec(vcpus=2, numa_topology=pinned, extra_specs={"resources:VGPU": "1"})
    claim = pipeline_of().selections.claim(hosts.state(0), spec, SchedulerLimits(), "")
    found = allocation_on(hosts.state(0), spec, claim.resources)
    assert found.allocations == {"uuid-h": {"resources": {"VCPU": 2, "MEMORY_MB": 1024, "VGPU": 1}}}
    assert found.mappings == {"": ["uuid-h"]}
