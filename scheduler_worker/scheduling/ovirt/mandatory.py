"""The filters of oVirt that are asked first under every policy; no policy names them."""

from collections.abc import Mapping

from scheduler_worker.scheduling.ovirt.host_facts import (
    CompatibilityVersionFilter,
    HostDeviceFilter,
    LeasesReadyFilter,
    MediatedDevicesFilter,
    MigrationDomainFilter,
    PinToHostFilter,
)
from scheduler_worker.scheduling.ovirt.resources import (
    CpuLevelFilter,
    CpuPinningFilter,
    CpuTopologyFilter,
)
from scheduler_worker.scheduling.plugin import Filter

MANDATORY: Mapping[str, type[Filter]] = {
    "Compatibility-Version": CompatibilityVersionFilter,
    "CPU-Level": CpuLevelFilter,
    "CPUTopology": CpuTopologyFilter,
    "CpuPinning": CpuPinningFilter,
    "HostDevice": HostDeviceFilter,
    "PinToHost": PinToHostFilter,
    "VM leases ready": LeasesReadyFilter,
    "MDevice": MediatedDevicesFilter,
}
"""By oVirt's name. They concern requests that say what they need of a host in ``vm``."""
UP = "MigrationDomain"
"""The filter for hosts that are up: asked first too, but under ``nova``, which names its own."""
OF_HOSTS: Mapping[str, type[Filter]] = {UP: MigrationDomainFilter}
