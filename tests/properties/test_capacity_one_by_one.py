"""Capacity is what placing one by one gives, whatever limits it."""

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.compose.packages import FILTERS, POLICY_UNITS, WEIGHERS, registered
from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.policies import FilterUse
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.capacity import MOST_STEPS, Measurement, of_cluster
from scheduler_worker.scheduling.compiler import compile_policy
from scheduler_worker.scheduling.numa.constraints import with_topology
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.ovirt.policies import LOCKED_POLICIES
from scheduler_worker.scheduling.pipeline import Pipeline, Request
from scheduler_worker.service.policies.units import load_units
from tests.support.hosts import aggregate, host_record, host_table
from tests.support.trials import examples

OPTIONS = Options.of(max_instances_per_host=5, max_io_ops_per_host=4)
CATALOGUE, NOVA = load_units(
    OPTIONS, registered(FILTERS), registered(WEIGHERS), *map(registered, POLICY_UNITS)
)
LIMITS = (
    *("ComputeFilter", "AvailabilityZoneFilter", "CoreFilter", "RamFilter", "DiskFilter"),
    *("NumInstancesFilter", "IoOpsFilter", "AggregateCoreFilter", "AggregateRamFilter"),
    *("ExactRamFilter", "ExactCoreFilter", "NUMATopologyFilter", "PciPassthroughFilter"),
    *("TypeAffinityFilter", "JsonFilter"),
)
small = st.integers(0, 9)


def inventory(total, **fields):
    return {"total": total, "max_unit": total} | fields


@st.composite
def inventories(draw):
    """Inventories of a compute node, with bounds of amounts, and a child that has accelerators."""
    ratio = draw(st.sampled_from([1.0, 1.5]))
    bounds = draw(st.sampled_from([{}, {"min_unit": 2}, {"step_size": 2}, {"max_unit": 3}]))
    root = {"VCPU": inventory(draw(st.integers(1, 9)), allocation_ratio=ratio) | bounds}
    root["MEMORY_MB"] = inventory(
        draw(st.integers(1, 9)) * 512, reserved=draw(st.sampled_from([0, 512]))
    )
    if draw(st.booleans()):
        root["PCPU"] = inventory(draw(st.integers(1, 4)))
    child = {"CUSTOM_FPGA": inventory(draw(st.integers(1, 4)))}
    return [
        {"inventories": root, "usages": {"VCPU": draw(st.integers(0, 3))}},
        {"uuid": "fpga", "inventories": child},
    ]


cells = st.lists(
    st.fixed_dictionaries({"cpus": st.integers(1, 4), "memory": st.integers(1, 6)}),
    min_size=1, max_size=2,
)  # fmt: skip


def topology(found):
    first, made = 0, []
    for number, each in enumerate(found):
        cpus = list(range(first, first + each["cpus"]))
        first += each["cpus"]
        made.append(
            {"id": number, "socket": number, "memory": each["memory"] * 512,
             "cpuset": cpus, "pcpuset": cpus,
             "mempages": [{"size_kb": 4, "total": each["memory"] * 512 * 256}]}
        )  # fmt: skip
    return {"cells": made}


hosts_ = st.fixed_dictionaries(
    {
        "vcpus": small,
        "vcpus_used": small,
        "memory_mb": small.map(lambda n: n * 512),
        "memory_mb_used": small.map(lambda n: n * 256),
        "local_gb": st.integers(0, 40),
        "cpu_allocation_ratio": st.sampled_from([0.5, 1.0, 2.0]),
        "ram_allocation_ratio": st.sampled_from([0.9, 1.0, 1.5]),
        "disk_allocation_ratio": st.sampled_from([1.0, 2.0]),
        "reserved_host_memory_mb": st.sampled_from([0, 512]),
        "stats": st.fixed_dictionaries({}, optional={"num_instances": small.map(str)}),
        "service": st.sampled_from([{}, {}, {"disabled": True}]),
        "resource_providers": st.one_of(st.just([]), inventories()),
        "cells": st.one_of(st.none(), cells),
        "pci": st.integers(0, 3),
        "virt": st.sampled_from(
            [None, {"sockets": 1, "cores": 3, "threads": 6, "cpu_percent": 5, "free_mb": 3000,
                    "swap_total_mb": 0, "swap_free_mb": 0, "overcommit_percent": 150,
                    "free_hugepages": [[2048, 600]]}]
        ),
    }
)  # fmt: skip

specs = st.fixed_dictionaries(
    {
        "flavor": st.fixed_dictionaries(
            {
                "vcpus": st.integers(1, 4),
                "memory_mb": st.integers(0, 4).map(lambda n: n * 300),
                "root_gb": st.sampled_from([0, 0, 7]),
                "swap": st.sampled_from([0, 300]),
                "extra_specs": st.sampled_from(
                    [
                        {},
                        {},
                        {"resources:CUSTOM_FPGA": "1"},
                        {"resources1:VCPU": "1", "resources2:CUSTOM_FPGA": "2",
                         "group_policy": "none"},
                        {"hw:numa_nodes": "1"},
                        {"hw:cpu_policy": "dedicated"},
                        {"hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "isolate"},
                        {"resources:VCPU": "0"},
                    ]
                ),
            }
        ),
        "availability_zone": st.sampled_from([None, None, "az1"]),
        "pci_requests": st.sampled_from(
            [None, None, {"requests": [{"count": 1, "spec": [{"vendor_id": "8086"}]}]}]
        ),
        "vm": st.sampled_from(
            [None, None, {"pinning": "dedicated"}, {"hugepage_kb": 2048}]
        ),
    }
)  # fmt: skip


def table(reports):
    records = []
    for number, report in enumerate(reports):
        fields = {key: value for key, value in report.items() if value is not None}
        name, count = f"h{number}", fields.pop("pci")
        if found := fields.pop("cells", None):
            fields["numa_topology"] = topology(found)
        if count:
            fields["pci_device_pools"] = [
                {"vendor_id": "8086", "product_id": "1", "numa_node": 0, "count": count, "tags": {}}
            ]
        fields["resource_providers"] = [
            {**each, "uuid": f"{name}-{each['uuid']}" if "uuid" in each else f"uuid-{name}"}
            for each in fields["resource_providers"]
        ]
        records.append(host_record(host=name, **fields))
    return host_table(
        records,
        aggregates=[
            aggregate("h0", "h2", id=1, availability_zone="az1"),
            aggregate("h1", id=2, cpu_allocation_ratio="1.0", ram_allocation_ratio="0.5"),
        ],
    )


def placed_one_by_one(pipeline: Pipeline, hosts, spec, most: int) -> dict[str, int]:
    """Host -> how many instances it got before one was refused."""
    found: dict[str, int] = {}
    for number in range(most + 1):
        request = Request(spec=spec, instance_uuids=(f"i{number}",))
        try:
            decision = pipeline.decide(hosts, request, random.Random(number))
        except NoValidHost:
            return found
        [[chosen]] = decision.selections
        found[chosen.service_host] = found.get(chosen.service_host, 0) + 1
    return found


POLICIES = st.one_of(
    st.lists(st.sampled_from(LIMITS), unique=True, max_size=6), st.sampled_from(LOCKED_POLICIES)
)


@examples(200)
@given(reports=st.lists(hosts_, min_size=1, max_size=3), plain=specs, chosen=POLICIES)
def test_it_is_what_placing_one_by_one_gives(reports, plain, chosen):
    policy = chosen
    if isinstance(chosen, list):
        uses = tuple(FilterUse(unit=name) for name in chosen)
        policy = msgspec.structs.replace(NOVA, filters=uses)
    pipeline = compile_policy(policy, CATALOGUE, OPTIONS)
    hosts = table(reports)
    fields = {key: value for key, value in plain.items() if value is not None}
    spec = with_topology(msgspec.convert(fields, RequestSpec))
    room = Measurement(pipeline, hosts, spec).finish(iter(range(MOST_STEPS)))
    found = of_cluster("c", policy.reference, room)
    if found.instances is None:
        got = placed_one_by_one(pipeline, hosts, spec, 200)
        assert sum(got.values()) == 201
        return
    got = placed_one_by_one(pipeline, hosts, spec, found.instances + 5)
    by_room = {
        hosts.records[row].host: count
        for row, count in enumerate(room.instances.tolist())
        if count and room.lost_to[row] < 0
    }
    assert (sum(got.values()), got) == (found.instances, by_room)
    assert sum(zone or 0 for zone in found.zones.values()) == found.instances
