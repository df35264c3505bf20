"""NUMA cells and PCI devices that are promised: taken one by one, told, kept, and given back."""

from __future__ import annotations

import random

import msgspec
import pytest

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.claims import PendingResource
from scheduler_worker.model.decisions import Decision
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.scheduling.filters.numa_topology import NUMATopologyFilter
from scheduler_worker.scheduling.filters.pci_passthrough import PciPassthroughFilter
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.pipeline import Pipeline, Request
from scheduler_worker.scheduling.weighers.pci import PCIWeigher
from tests.support.hosts import host_record, host_table, request_spec

PIPELINE = Pipeline([NUMATopologyFilter(), PciPassthroughFilter()], [PCIWeigher()], Options())


def cell(number: int) -> dict:
    cpus = list(range(4 * number, 4 * number + 4))
    pages = [{"size_kb": 4, "total": 2**20}, {"size_kb": 2048, "total": 2048}]
    return {
        "id": number,
        "cpuset": cpus,
        "pcpuset": cpus,
        "memory": 8192,
        "siblings": [cpus[:2], cpus[2:]],
        "mempages": pages,
    }


def pool(node: int, count: int, provider: str) -> dict:
    return {
        "vendor_id": "8086",
        "product_id": "1520",
        "numa_node": node,
        "count": count,
        "tags": {"dev_type": "type-VF", "rp_uuid": provider},
    }


REPORT = host_record(
    vcpus=8,
    memory_mb=16384,
    numa_topology={"cells": [cell(0), cell(1)]},
    pci_device_pools=[pool(0, 2, "p"), pool(1, 1, "q")],
)
PINNED = {"id": 0, "cpuset": [], "pcpuset": [0, 1], "memory": 1024, "pagesize": 2048}
SPEC = request_spec(
    vcpus=2,
    memory_mb=1024,
    numa_topology={"cells": [PINNED | {"cpu_policy": "dedicated"}]},
    pci_requests={
        "requests": [
            {"count": 1, "spec": [{"vendor_id": "8086"}], "alias_name": "a", "request_id": "x"}
        ]
    },
    requested_resources=[{"requester_id": "x-0"}],
)


@pytest.fixture
def hosts() -> HostTable:
    """One host with three devices in two cells, and one that reports neither."""
    return host_table([REPORT, host_record(host="plain")])


def decide(hosts: HostTable, *uuids: str) -> Decision:
    request = Request(spec=SPEC, instance_uuids=uuids)
    return PIPELINE.decide(hosts, request, random.Random(1))


def inside(hosts: HostTable) -> tuple:
    host = hosts.state(0)
    return host.numa_topology, host.pci_pools, host.free_pci_devices


def test_no_cpu_and_no_device_goes_to_two_instances_of_a_request(hosts):
    decision = decide(hosts, "a", "b", "c")
    taken = [claim.resources for claim in decision.claims]
    pinned = [cpu for each in taken for used in each.numa for cpu in used.pinned]
    assert len(pinned) == len(set(pinned)) == 6
    chosen = [msgspec.json.decode(each[0].allocation_request) for each in decision.selections]
    assert sorted(each["mappings"]["x-0"] for each in chosen) == [["p"], ["p"], ["q"]]
    assert hosts.state(0).free_pci_devices == 0
    with pytest.raises(NoValidHost):
        decide(hosts, "d")


def test_the_selection_tells_the_limits_of_the_topology(hosts):
    [[selection]] = decide(hosts, "a").selections
    assert selection.limits.numa_topology == {
        "cpu_allocation_ratio": 1.0,
        "ram_allocation_ratio": 1.0,
    }


def test_a_promise_survives_its_way_through_the_store(hosts):
    [claim] = decide(hosts, "a").claims
    written = msgspec.json.encode(claim.resources)
    assert msgspec.json.decode(written, type=PendingResource) == claim.resources


def test_a_report_keeps_what_is_promised(hosts):
    decide(hosts, "a", "b", "c")
    hosts.put(REPORT, 7)
    with pytest.raises(NoValidHost):
        decide(hosts, "d")


def test_what_is_given_back_is_as_it_was(hosts):
    before = inside(hosts)
    claims = decide(hosts, "a", "b", "c").claims
    assert inside(hosts) != before
    assert inside(hosts.without_pending()) == before
    for claim in claims:
        hosts.end_promise(claim.id)
    assert inside(hosts) == before


def test_a_request_that_fails_takes_nothing(hosts):
    before = inside(hosts)
    with pytest.raises(NoValidHost):
        decide(hosts, "a", "b", "c", "d")
    assert inside(hosts) == before


def test_later_instances_get_pages_of_the_size_that_the_first_one_got():
    any_pages = [PINNED | {"pagesize": -3, "cpu_policy": "dedicated"}]
    mixed = host_record(
        vcpus=16,
        memory_mb=2**15,
        numa_topology={
            "cells": [
                cell(0) | {"mempages": [{"size_kb": 4, "total": 2**20}]},
                cell(1) | {"mempages": [{"size_kb": 2048, "total": 2048}]},
            ]
        },
    )
    hosts = host_table([mixed])
    spec = request_spec(vcpus=2, memory_mb=1024, numa_topology={"cells": any_pages})
    request = Request(spec=spec, instance_uuids=("a", "b"))
    claims = PIPELINE.decide(hosts, request, random.Random(1)).claims
    sizes = {used.page_kb for claim in claims for used in claim.resources.numa}
    assert len(sizes) == 1
    with pytest.raises(NoValidHost):
        PIPELINE.decide(
            host_table([mixed]),
            Request(spec=spec, instance_uuids=("a", "b", "c")),
            random.Random(1),
        )
