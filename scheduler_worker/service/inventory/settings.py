"""Settings of the inventory."""

from typing import Annotated

import msgspec

from scheduler_worker.model.host_records import SERVICE_DOWN_TIME_S
from scheduler_worker.options import Opt
from scheduler_worker.service.inventory.reports import DefaultRatios

_REPORTS_BEFORE_DOWN = 2.5
"""How many reports of a host are missing before it counts as down, at least."""


def _ratio(kind: str, what: str) -> Opt:
    text = f"Allocation ratio of {what} for hosts that report none. Unset or 0.0: "
    return Opt(min=0, help=f"{text}initial_{kind}_allocation_ratio.")


def _initial(kind: str) -> Opt:
    return Opt(min=0, help=f"Used while {kind}_allocation_ratio is unset or 0.0.")


class InventorySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What host reports may name, and what they may leave out."""

    clusters: Annotated[tuple[str, ...], Opt()] = ()
    """The only clusters that a host report may name. Empty: any; a new name makes a new cluster."""
    cpu_allocation_ratio: Annotated[float | None, _ratio("cpu", "vCPUs")] = None
    ram_allocation_ratio: Annotated[float | None, _ratio("ram", "memory")] = None
    disk_allocation_ratio: Annotated[float | None, _ratio("disk", "local disk")] = None
    initial_cpu_allocation_ratio: Annotated[float, _initial("cpu")] = 4.0
    initial_ram_allocation_ratio: Annotated[float, _initial("ram")] = 1.0
    initial_disk_allocation_ratio: Annotated[float, _initial("disk")] = 1.0

    @property
    def ratios(self) -> DefaultRatios:
        """The ratios of hosts that report none."""
        return DefaultRatios(
            cpu=self.cpu_allocation_ratio or self.initial_cpu_allocation_ratio or 1.0,
            ram=self.ram_allocation_ratio or self.initial_ram_allocation_ratio or 1.0,
            disk=self.disk_allocation_ratio or self.initial_disk_allocation_ratio or 1.0,
        )


class HeartbeatSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How often hosts report, and when a silent one is down; times in seconds."""

    service_down_time_s: Annotated[float, Opt(min=1, mutable=True)] = SERVICE_DOWN_TIME_S
    """Seconds without a report after which a host counts as down."""
    report_interval_s: Annotated[int, Opt(min=0, mutable=True)] = 10
    """Seconds between two reports of a host. A service_down_time that is not longer than this is
    taken as 2.5 times this."""

    @property
    def down_after_s(self) -> float:
        """After how long a silent host is down: long enough for it to report in the meantime."""
        if self.service_down_time_s <= self.report_interval_s:
            return float(int(_REPORTS_BEFORE_DOWN * self.report_interval_s))
        return self.service_down_time_s
