"""Reads Alibaba's cluster trace gpu-v2023 ("openb"): one CSV file of nodes, one of pods.

A pod stands for an instance, a thousandth of a CPU is rounded up to whole vCPUs. Devices are not
resources here: a node's are in its ``stats`` (``gpu``, ``gpu_model``), a pod's are ignored.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from random import Random
from uuid import UUID

from replay.streams import Arrival, Plain, Stream, flavor


def read(nodes: Path, pods: Path, limit: int | None = None, seed: int = 0) -> Stream:
    """Read both files; pods are put in order of their creation. ``seed`` makes the uuids."""
    rng = Random(seed)
    hosts = [_host(row, rng) for row in _rows(nodes)]
    rows = sorted(_rows(pods), key=lambda row: float(row["creation_time"]))[:limit]
    arrivals = [_arrival(row, rng) for row in rows]
    return Stream(hosts, [], arrivals, len(arrivals))


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="") as lines:
        yield from csv.DictReader(lines)


def _host(row: dict[str, str], rng: Random) -> Plain:
    return {
        "uuid": str(UUID(int=rng.getrandbits(128), version=4)),
        "host": row["sn"],
        "hypervisor_hostname": row["sn"],
        "vcpus": int(row["cpu_milli"]) // 1000,
        "memory_mb": int(row["memory_mib"]),
        "local_gb": 0,
        "cpu_allocation_ratio": 1.0,
        "ram_allocation_ratio": 1.0,
        "disk_allocation_ratio": 1.0,
        "stats": {"gpu": int(row["gpu"] or 0), "gpu_model": row["model"]},
    }


def _arrival(row: dict[str, str], rng: Random) -> Arrival:
    vcpus, memory_mb = -(-int(row["cpu_milli"]) // 1000), int(row["memory_mib"])
    created_s, deleted = float(row["creation_time"]), row["deletion_time"]
    return Arrival(
        at_s=created_s,
        lifetime_s=max(0.0, float(deleted) - created_s) if deleted else None,
        instance_uuid=str(UUID(int=rng.getrandbits(128), version=4)),
        spec={
            "project_id": row["qos"],
            "flavor": flavor(f"openb-{vcpus}c-{memory_mb}m", vcpus, memory_mb),
        },
    )
