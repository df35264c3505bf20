"""Hosts and requests for the benchmarks: plain figures, not modelled on a real cloud."""

import random
import uuid
from collections.abc import Iterable, Iterator

import msgspec

from scheduler_worker.model.aggregates import Aggregate, by_host
from scheduler_worker.model.host_reports import merged
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.numa.constraints import with_topology

SHAPES = ((64, 262_144), (96, 393_216), (128, 1_048_576))
ZONES = ("az1", "az2", "az3")
INSIDE = ("NUMATopologyFilter", "PciPassthroughFilter")
"""The filters that look inside a host."""


def reports(count: int, *, room: int = 1, cluster: str = "default") -> Iterator[dict]:
    """First reports of hosts; ``room`` multiplies their capacity."""
    rng = random.Random(7)
    for number in range(count):
        vcpus, memory_mb = SHAPES[number % len(SHAPES)]
        used = rng.random() * 0.7
        yield {
            "uuid": str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{number}.{cluster}")),
            "host": f"{cluster}-{number:06d}",
            "cluster": cluster,
            "vcpus": vcpus * room,
            "memory_mb": memory_mb * room,
            "local_gb": 4000 * room,
            "vcpus_used": int(vcpus * used),
            "memory_mb_used": int(memory_mb * used),
            "local_gb_used": int(4000 * used),
            "cpu_allocation_ratio": 4.0,
            "ram_allocation_ratio": 1.0,
            "disk_allocation_ratio": 1.0,
            "hypervisor_type": "QEMU",
            "hypervisor_version": 8_002_002,
            "cell_uuid": "dddddddd-0000-4000-8000-000000000001",
            "supported_hv_specs": [["x86_64", "kvm", "hvm"], ["i686", "kvm", "hvm"]],
            "cpu_info": '{"arch": "x86_64", "features": ["aes", "avx2"]}',
            "stats": {"num_instances": str(rng.randrange(20)), "io_workload": "0"},
            "metrics": [],
        }


def aggregates(count: int) -> list[dict]:
    """One aggregate for each zone, and one for the odd hosts."""
    names = [f"default-{number:06d}" for number in range(count)]
    found = [
        {"id": at + 1, "uuid": f"agg-{at}", "name": zone, "hosts": names[at::3],
         "metadata": {"availability_zone": zone}}
        for at, zone in enumerate(ZONES)
    ]  # fmt: skip
    found.append({"id": 9, "uuid": "agg-9", "name": "odd", "hosts": names[1::2], "metadata": {}})
    return found


def reports_with_cells(count: int) -> Iterator[dict]:
    """The same hosts with two NUMA cells each, of which some CPUs and huge pages are taken."""
    rng = random.Random(11)
    for report in reports(count):
        yield report | {"numa_topology": {"cells": [_cell(at, report, rng) for at in range(2)]}}


def reports_with_loads(count: int) -> Iterator[dict]:
    """The same hosts, with what oVirt's policies read: cores, use of CPUs, free memory, swap."""
    rng = random.Random(2)
    for report in reports(count):
        yield report | {
            "virt": {
                "sockets": 2,
                "cores": report["vcpus"],
                "threads": report["vcpus"],
                "cpu_percent": rng.randrange(5, 70),
                "overcommit_percent": 150,
                "free_mb": report["memory_mb"] - report.get("memory_mb_used", 0),
                "swap_total_mb": 1024,
                "swap_free_mb": 1024,
            }
        }


def reports_with_inventories(count: int) -> Iterator[dict]:
    """The same hosts with Placement's inventories, and 20 instances each that use some of them."""
    for number, report in enumerate(reports(count)):
        yield report | {
            "resource_providers": [
                {
                    "uuid": report["uuid"],
                    "inventories": {
                        "VCPU": _inventory(report["vcpus"], 4.0),
                        "MEMORY_MB": _inventory(report["memory_mb"], 1.0),
                        "DISK_GB": _inventory(report["local_gb"], 1.0),
                    },
                    "usages": {
                        "VCPU": report["vcpus_used"],
                        "MEMORY_MB": report["memory_mb_used"],
                        "DISK_GB": report["local_gb_used"],
                    },
                    "traits": ["COMPUTE_NODE", "HW_CPU_X86_AVX2"],
                    "consumers": [str(uuid.UUID(int=20 * number + at)) for at in range(20)],
                    "read_at_s": 1.0,
                }
            ]
        }


def _inventory(total: int, ratio: float) -> dict:
    return {"total": total, "max_unit": total, "allocation_ratio": ratio}


def _cell(number: int, report: dict, rng: random.Random) -> dict:
    """Half of the host: cores of two threads, half of the memory in pages of 2 MiB."""
    cores, memory_mb = report["vcpus"] // 4, report["memory_mb"] // 2
    siblings = [[core, core + 2 * cores] for core in range(cores * number, cores * (number + 1))]
    cpus = [cpu for core in siblings for cpu in core]
    huge = memory_mb // 4
    return {
        "id": number,
        "socket": number,
        "memory": memory_mb,
        "memory_usage": 0,
        "cpuset": [],
        "pcpuset": cpus,
        "cpu_usage": 0,
        "pinned_cpus": rng.sample(cpus, int(len(cpus) * rng.random() * 0.7)),
        "siblings": siblings,
        "mempages": [
            {"size_kb": 4, "total": 128 * memory_mb, "used": 0, "reserved": 0},
            {"size_kb": 2048, "total": huge, "used": int(huge * rng.random() * 0.7)}
            | {"reserved": 0},
        ],
    }


def table(reports: Iterable[dict], groups: list[dict]) -> HostTable:
    """A host table of these reports and aggregates."""
    hosts = HostTable()
    for version, report in enumerate(reports, 1):
        pairs = tuple(map(tuple, report["supported_hv_specs"]))
        stamp = {"nodename": report["host"], "cluster": "default", "reported_at_s": 1.0}
        hosts.put(merged(None, report | {"supported_hv_specs": pairs}, **stamp), version)
    hosts.set_aggregates(by_host(msgspec.convert(groups, list[Aggregate])))
    hosts.now_s = 2.0
    return hosts


def plain(vcpus: int = 2, memory_mb: int = 4096) -> dict:
    """A request for a flavor without constraints."""
    return {
        "flavor": {"vcpus": vcpus, "memory_mb": memory_mb, "root_gb": 20, "name": "m1.medium"},
        "image": {"id": "img", "properties": {}},
        "num_instances": 1,
    }


def highly_available(vcpus: int = 2, memory_mb: int = 4096) -> dict:
    """A request that oVirt's policies have a host for, also while a cluster is in maintenance."""
    return plain(vcpus, memory_mb) | {"vm": {"highly_available": True}}


def constrained(vcpus: int = 2, memory_mb: int = 4096) -> dict:
    """A request with a zone, capabilities, image properties and an anti-affinity group."""
    spec = plain(vcpus, memory_mb)
    spec["flavor"]["extra_specs"] = {
        "capabilities:hypervisor_type": "s== QEMU",
        "capabilities:cpu_info:arch": "x86_64",
    }
    spec["availability_zone"] = "az1"
    spec["image"]["properties"] = {"hw_architecture": "x86_64", "img_hv_type": "kvm"}
    spec["instance_group"] = {"uuid": "g", "policy": "anti-affinity", "members": ["m1", "m2"]}
    return spec


def pinned(vcpus: int = 2, memory_mb: int = 4096) -> dict:
    """A request for two vCPUs of their own and huge pages, in one NUMA cell."""
    spec = plain(2, memory_mb)
    spec["flavor"]["extra_specs"] = {"hw:cpu_policy": "dedicated", "hw:mem_page_size": "large"}
    return spec


def spec_of(plain_spec: dict) -> RequestSpec:
    """The request as the pipeline gets it."""
    return with_topology(msgspec.convert(plain_spec, RequestSpec))
