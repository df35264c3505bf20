"""Migrations that oVirt's balances propose, and hosts between which they move VMs."""

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from conformance import ovirt
from conformance.reading import Malformed
from scheduler_worker.model.cluster_load import BalanceMemory, ClusterLoad, HostLoad
from scheduler_worker.scheduling.ovirt.cluster_load import cluster_load

_EVEN, _POWER = "OptimalForEvenDistribution", "OptimalForPowerSaving"
_GUESTS = "OptimalForEvenGuestDistribution"
_TESTS = {"EvenDistributionBalance": _EVEN, "PowerSavingBalance": _POWER}
"""The balance, by what the source of its cases says."""
_SETTINGS: Mapping[str, Mapping[str, str]] = {
    _EVEN: {
        "HighUtilization": "HighUtilizationForEvenlyDistribute",
        "CpuOverCommitDurationMinutes": "CpuOverCommitDurationMinutes",
    },
    _POWER: {
        "HighUtilization": "HighUtilizationForPowerSave",
        "LowUtilization": "LowUtilizationForPowerSave",
        "CpuOverCommitDurationMinutes": "CpuOverCommitDurationMinutes",
    },
}
"""The engine's settings that stand in for parameters that a case leaves open."""


def recognise(document: Any) -> bool:
    return ovirt.is_case(document, "now", "hosts", "vms") or _is_about_guests(document)


def run(document: Any) -> Iterator[str]:
    if _is_about_guests(document):
        yield from _guests(document)
        return
    source, config = document.get("source", ""), document.get("engine_config", {})
    name = next((unit for tests, unit in _TESTS.items() if tests in source), None)
    if name is None:
        raise Malformed(f"`source` must name one of {', '.join(_TESTS)}")
    given = {
        key: str(config[setting]) for key, setting in _SETTINGS[name].items() if setting in config
    }
    unit: Any = ovirt.balance_unit(name, given | document["parameters"])
    unit.vcpu_percent = float(config.get("VcpuConsumptionPercentage", unit.vcpu_percent))
    plan = unit.plan(_load(document), BalanceMemory(), _seconds(document["now"]))
    found = [
        {"vm": migration.vm, "hosts": sorted(migration.candidates)} for migration in plan.migrations
    ]
    expected = [{"vm": each["vm"], "hosts": sorted(each["hosts"])} for each in document["expected"]]
    if found != expected:
        yield f"{name} proposes {found or plan.nothing_because}; expected are {expected}"


def _load(document: Any) -> ClusterLoad:
    vms: dict[str, list[dict[str, Any]]] = {}
    for vm in document["vms"]:
        vms.setdefault(vm["run_on"], []).append(
            {
                "id": vm["id"],
                "vcpus": vm["cpus"],
                "memory_mb": vm["mem_mb"],
                "cpu_percent": vm["cpu_percent"],
                "migratable": vm["migratable"],
            }
        )
    records = [ovirt.measured(host, vms=vms.get(host["id"], [])) for host in document["hosts"]]
    load = cluster_load(ovirt.table(records), math.inf)
    # The cases count VMs that they do not list, and give times of their own.
    return ClusterLoad(
        hosts=tuple(
            structs.replace(
                each,
                num_vms=host["vm_count"],
                out_of_bounds_since_s=_seconds(host["cpu_overcommit_since"]),
            )
            for each, host in zip(load.hosts, document["hosts"], strict=True)
        )
    )


def _seconds(text: str | None) -> float | None:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() if text else None


def _is_about_guests(document: Any) -> bool:
    return ovirt.is_case(document, "occupied", "expected_sources", "expected_destinations")


def _guests(document: Any) -> Iterator[str]:
    unit: Any = ovirt.balance_unit(_GUESTS, document["parameters"])
    hosts = [
        HostLoad(name=host["id"], num_vms=host["vm_active"], is_manager=_is_manager(host))
        for host in document["hosts"]
    ]
    [stage] = unit.stages(hosts, ovirt.NOW_S)
    found = {
        "occupied": {host.name: unit.occupied(host) for host in hosts},
        "expected_sources": [source.host.name for source in stage.sources],
        "expected_destinations": [host.name for host in stage.destinations],
    }
    for key, value in found.items():
        if value != document[key]:
            yield f"{key.removeprefix('expected_')} are {value}; expected are {document[key]}"


def _is_manager(host: Mapping[str, Any]) -> bool:
    status = host.get("spm_status", "None")
    return bool(host.get("is_spm") or host.get("spm") or status not in {"None", None})
