"""Draws hosts and their aggregates. Host reports have the form that ``docs/rpc.md`` describes."""

import json
from random import Random
from typing import Any

from generate.catalogue import FEATURES, HYPERVISOR_VERSIONS, MACHINES, TRAITS, Machine, flavors
from generate.figures import Figures, pick, uuid4

ZONES = ("az1", "az2", "az3")
HOSTS_PER_RACK = 20
DISABLED_SHARE, DOWN_SHARE, EMPTY_SHARE = 0.02, 0.01, 0.01
FILL = (0.84, 0.985)
"""How full a host is at the start, between these shares of its scarcest resource."""

Report = dict[str, Any]


def make_hosts(rng: Random, figures: Figures, count: int) -> list[Report]:
    """``count`` host reports; most of them are used by instances that no request stands for."""
    machines = [(machine.share, machine) for machine in MACHINES]
    hosts = [_host(rng, number, pick(rng, machines)) for number in range(count)]
    sold = [(share, flavor) for share, flavor in flavors(figures) if flavor["vcpus"] <= 16]
    for host in hosts:
        if rng.random() >= EMPTY_SHARE:
            _fill(rng, host, sold, rng.uniform(*FILL))
    return hosts


def place_of(number: int) -> tuple[str, int, int]:
    """Zone, rack and position of a host: racks of a zone are filled one after the other."""
    zone, within = ZONES[number % len(ZONES)], number // len(ZONES)
    return zone, 1 + within // HOSTS_PER_RACK, 1 + within % HOSTS_PER_RACK


def _host(rng: Random, number: int, machine: Machine) -> Report:
    zone, rack, position = place_of(number)
    host = f"{zone}-r{rack:02d}-n{position:02d}"
    memory_mb = 1024 * pick(rng, [(1, gib) for gib in machine.memory_gib])
    return {
        "uuid": uuid4(rng),
        "host": host,
        "hypervisor_hostname": f"{host}.cloud.example",
        "host_ip": f"10.{ZONES.index(zone)}.{rack}.{position}",
        "vcpus": machine.vcpus,
        "vcpus_used": 0,
        "memory_mb": memory_mb,
        "memory_mb_used": 0,
        "local_gb": pick(rng, [(1, gb) for gb in machine.local_gb]),
        "local_gb_used": 0,
        "cpu_allocation_ratio": pick(rng, [(1, ratio) for ratio in machine.cpu_ratios]),
        "ram_allocation_ratio": 1.0,
        "disk_allocation_ratio": 1.0,
        "reserved_host_cpus": 4,
        "reserved_host_memory_mb": memory_mb // 64,
        "reserved_host_disk_mb": 50 * 1024,
        "hypervisor_type": "QEMU",
        "hypervisor_version": pick(rng, HYPERVISOR_VERSIONS),
        "cpu_info": _cpu_info(machine),
        "supported_hv_specs": _supported(machine),
        "traits": TRAITS[machine.vendor],
        "networks": ["physnet1"],
        "stats": {
            "num_instances": 0,
            "io_workload": 0,
            "failed_builds": pick(rng, [(0.97, 0), (0.03, 1)]),
            "disk_class": machine.disk_class,
        },
        "service": _service(rng),
    }


def _cpu_info(machine: Machine) -> str:
    topology = {"cells": 2, "sockets": 1, "cores": machine.cores, "threads": machine.threads}
    return json.dumps(
        {
            "arch": machine.arch,
            "vendor": machine.vendor,
            "model": machine.model,
            "features": FEATURES[machine.vendor],
            "topology": topology,
            "maxphysaddr": {"mode": "emulate", "bits": 46},
        }
    )


def _supported(machine: Machine) -> list[list[str]]:
    older = [["i686", "kvm", "hvm"]] if machine.arch == "x86_64" else []
    return [*older, [machine.arch, "kvm", "hvm"], [machine.arch, "qemu", "hvm"]]


def _service(rng: Random) -> dict[str, Any]:
    point = rng.random()
    if point < DISABLED_SHARE:
        return {"disabled": True, "disabled_reason": "maintenance: replacing a DIMM", "up": True}
    if point < DISABLED_SHARE + DOWN_SHARE:
        return {"disabled": False, "disabled_reason": None, "forced_down": True, "up": False}
    return {"disabled": False, "disabled_reason": None, "up": True}


def _fill(rng: Random, host: Report, sold: list[tuple[float, Report]], target: float) -> None:
    """Use whole flavors of the host until one resource is at ``target`` of its limit."""
    limits = {
        "vcpus_used": (host["vcpus"] - host["reserved_host_cpus"]) * host["cpu_allocation_ratio"],
        "memory_mb_used": host["memory_mb"] - host["reserved_host_memory_mb"],
        "local_gb_used": host["local_gb"] - host["reserved_host_disk_mb"] // 1024,
    }
    while True:
        flavor = pick(rng, sold)
        takes = {
            "vcpus_used": flavor["vcpus"],
            "memory_mb_used": flavor["memory_mb"],
            "local_gb_used": flavor["root_gb"] + flavor["ephemeral_gb"] + flavor["swap"] // 1024,
        }
        if any(host[name] + takes[name] > target * limits[name] for name in takes):
            return
        for name, amount in takes.items():
            host[name] += amount
        host["stats"]["num_instances"] += 1


def make_aggregates(rng: Random, hosts: list[Report]) -> list[dict[str, Any]]:
    """Zones, disk classes, racks and a class with a policy of its own, as Nova's aggregates."""
    groups = [({"availability_zone": zone}, zone, _members(hosts, zone + "-")) for zone in ZONES]
    groups += [
        (
            {"disk_class": kind, "ssd": str(kind != "hdd").lower()},
            f"disk-{kind}",
            _disks(hosts, kind),
        )
        for kind in ("hdd", "ssd", "nvme")
    ]
    large = [host["host"] for host in hosts if host["memory_mb"] >= 1024 * 1024]
    groups.append(({"class": "large", "ram_weight_multiplier": "-1.0"}, "class-large", large))
    racks = sorted({host["host"].rsplit("-", 1)[0] for host in hosts})
    groups += [({"rack": rack}, f"rack-{rack}", _members(hosts, rack + "-")) for rack in racks]
    return [
        {"id": number, "uuid": uuid4(rng), "name": name, "hosts": members, "metadata": metadata}
        for number, (metadata, name, members) in enumerate(groups, start=1)
    ]


def _members(hosts: list[Report], prefix: str) -> list[str]:
    return [host["host"] for host in hosts if host["host"].startswith(prefix)]


def _disks(hosts: list[Report], kind: str) -> list[str]:
    return [host["host"] for host in hosts if host["stats"]["disk_class"] == kind]
