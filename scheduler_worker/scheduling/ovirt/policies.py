"""oVirt's locked policies. Their names, ids, units, factors and parameters are oVirt's."""

from collections.abc import Mapping

from scheduler_worker.model.policies import (
    BalanceUse,
    ClusterPolicy,
    FilterUse,
    SelectorUse,
    WeightUse,
)

DEFAULT_POLICY = "none"
"""oVirt's own default; clusters without a policy use ``nova`` here."""

_FILTERS = (
    *("CPU", "CPUOverloaded", "Emulated-Machine", "HA", "Swap", "Memory", "NUMA", "HugePages"),
    *("Migration", "VmAffinityGroups", "VmToHostsAffinityGroups", "Network"),
    *("HostedEngineSpares", "Migration-Tsc-Frequency", "Host-hooks"),
)
_EVEN = {"OptimalForCpuEvenDistribution": 2.0, "OptimalForMemoryEvenDistribution": 1.0}
_WEIGHTS = {
    "PreferredHosts": 99.0,
    "HA": 1.0,
    "OptimalForHaReservation": 1.0,
    "VmAffinityGroups": 1.0,
    "VmToHostsAffinityGroups": 20.0,
    "CPU for high performance VMs": 4.0,
    "CPU and NUMA pinning compatibility": 5.0,
}
_COMMON = {"CpuOverCommitDurationMinutes": "2", "HighUtilization": "80"}
_SPARES = {"HeSparesCount": "0"}


def _policy(
    name: str,
    id: str,
    description: str,
    weights: Mapping[str, float],
    parameters: Mapping[str, str],
    balance: str = "None",
    filters: tuple[str, ...] = _FILTERS,
) -> ClusterPolicy:
    first, *middle, last = filters
    return ClusterPolicy(
        id=id,
        name=name,
        version=1,
        description=description,
        filters=(
            FilterUse(unit=first, position="first"),
            *(FilterUse(unit=unit) for unit in middle),
            FilterUse(unit=last, position="last"),
        ),
        weights=tuple(
            WeightUse(unit=unit, factor=factor) for unit, factor in {**weights, **_WEIGHTS}.items()
        ),
        balance=BalanceUse(unit=balance),
        selector=SelectorUse(unit="RankSelector"),
        parameters=parameters,
    )


NONE = _policy(
    "none",
    "b4ed2332-a7ac-4d5f-9596-99a439cb2812",
    "Chooses hosts evenly and moves no running VM",
    _EVEN,
    _COMMON,
)
EVENLY_DISTRIBUTED = _policy(
    "evenly_distributed",
    "20d25257-b4bd-4589-92a6-c4c5c5d3fd1a",
    "Spreads the load over all hosts",
    _EVEN,
    {**_SPARES, **_COMMON, "VCpuToPhysicalCpuRatio": "0"},
    "OptimalForEvenDistribution",
)
POWER_SAVING = _policy(
    "power_saving",
    "5a2b0939-7d46-4b73-a469-e9c2c7fc6a53",
    "Gathers VMs on few hosts",
    {"OptimalForCpuPowerSaving": 2.0, "OptimalForMemoryPowerSaving": 1.0},
    {**_SPARES, **_COMMON, "LowUtilization": "20"},
    "OptimalForPowerSaving",
)
VM_EVENLY_DISTRIBUTED = _policy(
    "vm_evenly_distributed",
    "8d5d7bec-68de-4a67-b53e-0ac54686d579",
    "Spreads the number of VMs over all hosts",
    {"OptimalForEvenGuestDistribution": 2.0},
    {**_SPARES, **_COMMON, "HighVmCount": "10", "MigrationThreshold": "5", "SpmVmGrace": "5"},
    "OptimalForEvenGuestDistribution",
)
CLUSTER_MAINTENANCE = _policy(
    "cluster_maintenance",
    "7677771e-5eab-422e-83fa-dc04080d21b7",
    "Starts highly available VMs only",
    _EVEN,
    _COMMON,
    filters=("ClusterInMaintenance", *_FILTERS),
)

LOCKED_POLICIES: tuple[ClusterPolicy, ...] = (
    NONE,
    EVENLY_DISTRIBUTED,
    POWER_SAVING,
    VM_EVENLY_DISTRIBUTED,
    CLUSTER_MAINTENANCE,
)
"""Policies that nobody may change; ``nova`` is one more, which the options describe."""
