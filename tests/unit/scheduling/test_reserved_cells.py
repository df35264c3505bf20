"""Reserved cells, devices and providers: taken one by one, reported, kept, and given back."""

import msgspec
import pytest

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.claims import Resources
from scheduler_worker.model.decisions import Decision
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.scheduling.filters.numa_topology import (
    NUMATopologyFilter,
    PciPassthroughFilter,
)
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.weighers.resources import PCIWeigher
from tests.support.hosts import host_record, host_table, request_spec
from tests.support.topologies import asked, host_cell, instance_cell, pages
from tests.support.units import decided, pipeline_of

PIPELINE = pipeline_of([NUMATopologyFilter(), PciPassthroughFilter()], [PCIWeigher()], Options())


def pool(node: int, count: int, provider: str) -> dict:
    return {
        "vendor_id": "8086",
        "product_id": "1520",
        "numa_node": node,
        "count": count,
        "tags": {"dev_type": "type-VF", "rp_uuid": provider},
    }


PAGES = pages((4, 2**20), (2048, 2048))
REPORT = host_record(
    vcpus=8,
    memory_mb=16384,
    numa_topology=asked(*(host_cell(number, mempages=PAGES) for number in range(2))),
    pci_device_pools=[pool(0, 2, "p"), pool(1, 1, "q")],
    resource_providers=[
        {"uuid": f"gpu{number}", "inventories": {"VGPU": {"total": 1}}} for number in range(3)
    ],
)
SPEC = request_spec(
    vcpus=2,
    memory_mb=1024,
    numa_topology=asked(instance_cell(pinned=2, pagesize=2048)),
    pci_requests={
        "requests": [
            {"count": 1, "spec": [{"vendor_id": "8086"}], "alias_name": "a", "request_id": "x"}
        ]
    },
    requested_resources=[
        {"requester_id": "x-0"},
        {"requester_id": "gpu", "resources": {"VGPU": 1}},
    ],
)


@pytest.fixture
def hosts() -> HostTable:
    """One host with three devices in two cells and three GPUs, and one that reports none."""
    return host_table([REPORT, host_record(host="plain")])


def decide(hosts: HostTable, *uuids: str) -> Decision:
    return decided(PIPELINE, hosts, SPEC, *uuids)


def test_no_cpu_device_or_provider_goes_to_two_instances_of_a_request(hosts):
    decision = decide(hosts, "a", "b", "c")
    taken = [claim.resources for claim in decision.claims]
    pinned = [cpu for each in taken for used in each.numa for cpu in used.pinned]
    assert len(pinned) == len(set(pinned)) == 6
    chosen = [each[0].allocation for each in decision.selections]
    assert sorted(each.mappings["x-0"] for each in chosen) == [["p"], ["p"], ["q"]]
    assert sorted(each.mappings["gpu"] for each in chosen) == [["gpu0"], ["gpu1"], ["gpu2"]]
    assert hosts.state(0).free_pci_devices == 0
    with pytest.raises(NoValidHost):
        decide(hosts, "d")


def test_a_reservation_round_trips_through_the_store(hosts):
    [claim] = decide(hosts, "a").claims
    written = msgspec.json.encode(claim.resources)
    assert msgspec.json.decode(written, type=Resources) == claim.resources
