"""Hosts and requests for the benchmarks: plain figures, no pretence of a real cloud."""

import random
import uuid
from collections.abc import Iterator

import msgspec

from scheduler_worker.model.aggregates import Aggregate, by_host
from scheduler_worker.model.host_records import merged
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.requests import RequestSpec

SHAPES = ((64, 262_144), (96, 393_216), (128, 1_048_576))
ZONES = ("az1", "az2", "az3")


def reports(count: int, *, room: int = 1, cluster: str = "default") -> Iterator[dict]:
    """First reports; ``room`` multiplies the capacity."""
    dice = random.Random(7)
    for number in range(count):
        vcpus, memory_mb = SHAPES[number % len(SHAPES)]
        used = dice.random() * 0.7
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
            "stats": {"num_instances": str(dice.randrange(20)), "io_workload": "0"},
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


def table(count: int) -> HostTable:
    """A host table with aggregates, judged at once."""
    hosts = HostTable()
    for version, report in enumerate(reports(count), 1):
        report["supported_hv_specs"] = tuple(map(tuple, report["supported_hv_specs"]))
        stamp = {"nodename": report["host"], "cluster": "default", "reported_at_s": 1.0}
        hosts.put(merged(None, report, **stamp), version)
    hosts.set_aggregates(by_host(msgspec.convert(aggregates(count), list[Aggregate])))
    hosts.now_s = 2.0
    return hosts


def plain(vcpus: int = 2, memory_mb: int = 4096) -> dict:
    """A request that asks for a flavor and nothing else."""
    return {
        "flavor": {"vcpus": vcpus, "memory_mb": memory_mb, "root_gb": 20, "name": "m1.medium"},
        "image": {"id": "img", "properties": {}},
        "num_instances": 1,
    }


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


def spec_of(plain_spec: dict) -> RequestSpec:
    return msgspec.convert(plain_spec, RequestSpec)
