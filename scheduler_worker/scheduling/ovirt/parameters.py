"""The parameters of oVirt's units: texts, each with the expression that a value must match."""

from typing import Annotated

import msgspec
from msgspec import Meta

from scheduler_worker.model.host_records import SERVICE_DOWN_TIME_S
from scheduler_worker.scheduling.catalogue import UNLISTED

High = Annotated[str, Meta(pattern=r"^([5-9][0-9])$")]
Minutes = Annotated[
    str,
    Meta(
        pattern=r"^([1-9][0-9]*(\.[0-9]+)?|0\.[0-9]*[1-9])$",
        extra={"ovirt_regex": r"^([1-9][0-9]*)$"},
    ),
]
"""Also parts of a minute, as clients of version 3 give durations in seconds."""
Ratio = Annotated[str, Meta(pattern=r"^([0-2](\.([0-9]+))?)$")]
Megabytes = Annotated[str, Meta(pattern=r"^([1-9][0-9]*)$")]
Grace = Annotated[str, Meta(pattern=r"^([0-9]|[1-9][0-9]+)$")]

# The fields are the names under which oVirt's clients set them.


class Overload(msgspec.Struct, frozen=True):
    """From which load, in percent, and after how many minutes a host takes no more VMs."""

    CpuOverCommitDurationMinutes: Minutes = "2"
    HighUtilization: High = "90"


class Swap(msgspec.Struct, frozen=True):
    """How much of the memory, in percent, may be swapped out beyond what is free."""

    MaximumAllowedSwapUsage: Annotated[str, Meta(pattern=r"^1?[0-9]?[0-9]$")] = "0"


class EngineSpares(msgspec.Struct, frozen=True):
    """On how many hosts there must be room for the management VM; 0: none."""

    HeSparesCount: Annotated[str, Meta(pattern=r"^([0-9][0-9]*)$")] = "0"
    service_down_time_s: Annotated[float, UNLISTED] = SERVICE_DOWN_TIME_S


class CpuRatio(msgspec.Struct, frozen=True):
    """From how many vCPUs for each CPU a host is a thousand times worse; 0: never."""

    VCpuToPhysicalCpuRatio: Ratio = "0"


class Utilization(msgspec.Struct, frozen=True):
    """Above which load, in percent, a host is not filled further; None: any."""

    HighUtilization: High | None = None


class FreeMemory(msgspec.Struct, frozen=True):
    """Between which amounts of free memory, in MiB, a host is used best; None: unlimited."""

    MaxFreeMemoryForOverUtilized: Megabytes | None = None
    MinFreeMemoryForUnderUtilized: Megabytes | None = None


class ManagerGrace(msgspec.Struct, frozen=True):
    """How many VMs the role of storage pool manager counts for."""

    SpmVmGrace: Grace = "5"


class ScaleDown(msgspec.Struct, frozen=True):
    """By what the score is divided."""

    ScaleDown: Annotated[str, Meta(pattern=r"(100|[1-9]|[1-9][0-9])$")] = "1"


class EvenLimits(FreeMemory, frozen=True):
    """From which load, after how many minutes, and below which free memory hosts give up VMs.

    ``VCpuToPhysicalCpuRatio``: from how many vCPUs for each CPU they do, too; 0: from none.
    """

    CpuOverCommitDurationMinutes: Minutes = "2"
    HighUtilization: High = "75"
    VCpuToPhysicalCpuRatio: Ratio = "0"


class PowerLimits(FreeMemory, frozen=True):
    """Between which loads and amounts of free memory hosts are to be; how many empty ones run."""

    CpuOverCommitDurationMinutes: Minutes = "2"
    HighUtilization: High = "75"
    LowUtilization: Annotated[str, Meta(pattern=r"^([0-9]|[1-4][0-9])$")] = "20"
    EnableAutomaticHostPowerManagement: Annotated[str, Meta(pattern=r"^(true|false)$")] = "false"
    HostsInReserve: Annotated[str, Meta(pattern=r"^[0-9][0-9]*$")] = "0"


class GuestLimits(FreeMemory, frozen=True):
    """From how many VMs, and from which difference to another host, hosts give up VMs."""

    HighVmCount: Grace = "10"
    MigrationThreshold: Annotated[str, Meta(pattern=r"^([2-9]|[1-9][0-9]+)$")] = "5"
    SpmVmGrace: Grace = "5"
    HighUtilization: Annotated[High, UNLISTED] = "75"
    """oVirt's unit reads it without declaring it."""
