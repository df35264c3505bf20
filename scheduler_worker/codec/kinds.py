"""Names, versions and fields of Nova's objects.

The fields of the model are read. Other fields are listed here. Versions are the newest
that is known; answers carry them, and Nova 34 reads them.
"""

from typing import Any

import msgspec

from scheduler_worker.codec.primitives import ObjectKind
from scheduler_worker.model import requests
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.decisions import Selection
from scheduler_worker.model.host_reports import HostReport
from scheduler_worker.model.sizes import Name, Size

_STAMPS = frozenset({"created_at", "updated_at", "deleted_at", "deleted"})
_OF_COMPUTE_NODE = frozenset(
    {
        *("created_at", "deleted", "deleted_at"),
        *("current_workload", "id", "mapped", "running_vms", "service_id"),
    }
)


def _fields(struct: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(struct.__struct_encode_fields__)


def _of(struct: type[msgspec.Struct], version: str, *more: str, **facts: Any) -> ObjectKind:
    """What a struct is read from, by default the object of its name; ``more`` fields are read."""
    own = {"name": struct.__name__, "version": version, "read": _fields(struct).union(more)}
    return ObjectKind(**own | facts)


class Instance(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The facts of an instance that are stored."""

    uuid: Name
    host: str | None = None
    node: str | None = None
    instance_type_id: int | None = None
    project_id: str | None = None
    vm_state: str | None = None
    task_state: str | None = None
    system_metadata: dict[str, str | None] = {}
    memory_mb: Size | None = None
    vcpus: Size | None = None
    root_gb: Size | None = None
    ephemeral_gb: Size | None = None


class Service(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The facts of a service that are read."""

    disabled: bool | None = None
    disabled_reason: str | None = None
    forced_down: bool | None = None
    up: bool | None = None
    last_seen_up: float | None = None
    created_at: float | None = None
    updated_at: float | None = None


# In requests

FLAVOR = _of(requests.Flavor, "1.2", ignored=_STAMPS)
IMAGE_PROPERTIES = ObjectKind(name="ImageMetaProps", version="1.44")
IMAGE = _of(requests.ImageMeta, "1.8", parts={"properties": IMAGE_PROPERTIES})
INSTANCE_GROUP = _of(requests.InstanceGroup, "1.11", "policies", "rules", ignored=_STAMPS)
NUMA_CELL = ObjectKind(
    name="InstanceNUMACell",
    version="1.6",
    parts={"cpu_topology": ObjectKind(name="VirtCPUTopology", version="1.0")},
)
NUMA_TOPOLOGY = ObjectKind(name="InstanceNUMATopology", version="1.3", parts={"cells": NUMA_CELL})
PCI_REQUESTS = ObjectKind(
    name="InstancePCIRequests",
    version="1.1",
    parts={"requests": ObjectKind(name="InstancePCIRequest", version="1.4")},
)
NETWORK_METADATA = _of(requests.NetworkMetadata, "1.0")
NUMA_LIMITS = ObjectKind(
    name="NUMATopologyLimits", version="1.1", parts={"network_metadata": NETWORK_METADATA}
)
LIMITS = _of(requests.SchedulerLimits, "1.0", parts={"numa_topology": NUMA_LIMITS})
CELL_MAPPING = ObjectKind(name="CellMapping", version="1.1")
DESTINATION = _of(requests.Destination, "1.4", parts={"cell": CELL_MAPPING})
RETRIED_HOST = _of(
    requests.RetriedHost,
    "1.19",
    name="ComputeNode",
    list_version="1.17",
    ignored=_fields(HostReport) | _OF_COMPUTE_NODE,
)
RETRIES = _of(requests.SchedulerRetries, "1.1", parts={"hosts": RETRIED_HOST})
REQUEST_GROUP = _of(requests.RequestGroup, "1.3")
REQUEST_LEVEL_PARAMS = _of(requests.RequestLevelParams, "1.1")
NETWORK_REQUEST = _of(requests.NetworkRequest, "1.3", list_version="1.1")
SECURITY_GROUP = ObjectKind(name="SecurityGroup", version="1.2", list_version="1.1")
REQUEST_SPEC = _of(
    requests.RequestSpec,
    "1.15",
    keeps_null=frozenset({"numa_topology"}),
    parts={
        "flavor": FLAVOR,
        "image": IMAGE,
        "instance_group": INSTANCE_GROUP,
        "limits": LIMITS,
        "network_metadata": NETWORK_METADATA,
        "numa_topology": NUMA_TOPOLOGY,
        "pci_requests": PCI_REQUESTS,
        "request_level_params": REQUEST_LEVEL_PARAMS,
        "requested_destination": DESTINATION,
        "requested_networks": NETWORK_REQUEST,
        "requested_resources": REQUEST_GROUP,
        "retry": RETRIES,
        "security_groups": SECURITY_GROUP,
    },
)

LEGACY_REQUEST = ObjectKind(
    parts={
        "image": IMAGE,
        "instance_type": FLAVOR,
        "instance_properties": ObjectKind(
            parts={
                "numa_topology": NUMA_TOPOLOGY,
                "pci_requests": PCI_REQUESTS,
                "security_groups": SECURITY_GROUP,
            }
        ),
    }
)
LEGACY_PROPERTIES = ObjectKind(
    parts={"limits": LIMITS, "requested_destination": DESTINATION, "retry": RETRIES}
)

# In answers

SELECTION = ObjectKind(
    name="Selection",
    version="1.1",
    read=(_fields(Selection) - {"allocation"})
    | {"allocation_request", "allocation_request_version"},
    parts={"limits": LIMITS},
    never_null=frozenset({"cell_uuid"}),
)

# In reports of hosts and announcements of Nova's services

AGGREGATE = _of(Aggregate, "1.3", list_version="1.3", ignored=_STAMPS)
INSTANCE = _of(
    Instance,
    "2.8",
    "flavor",
    list_version="2.6",
    ignored=_STAMPS
    | {
        *("access_ip_v4", "access_ip_v6", "architecture", "auto_disk_config", "availability_zone"),
        *("cell_name", "cleaned", "compute_id", "config_drive", "default_ephemeral_device"),
        *("default_swap_device", "device_metadata", "disable_terminate", "display_description"),
        *("display_name", "ec2_ids", "ephemeral_key_uuid", "fault", "hidden", "hostname", "id"),
        *("image_ref", "info_cache", "kernel_id", "key_data", "key_name", "keypairs"),
        *("launch_index", "launched_at", "launched_on", "locked", "locked_by", "metadata"),
        *("migration_context", "new_flavor", "numa_topology", "old_flavor", "os_type"),
        *("pci_devices", "pci_requests", "power_state", "progress", "ramdisk_id"),
        *("reservation_id", "resources", "root_device_name", "security_groups", "services"),
        *("shutdown_terminate", "tags", "terminated_at", "trusted_certs", "user_data", "user_id"),
        *("vcpu_model", "vm_mode"),
    },
    parts={"flavor": FLAVOR},
)
SERVICE = _of(
    Service,
    "1.22",
    ignored=frozenset(
        {
            *("availability_zone", "binary", "compute_node", "deleted", "deleted_at", "host"),
            *("id", "report_count", "topic", "uuid", "version"),
        }
    ),
)
COMPUTE_NODE = _of(
    HostReport,
    "1.19",
    name="ComputeNode",
    list_version="1.17",
    ignored=_OF_COMPUTE_NODE,
    parts={
        "supported_hv_specs": ObjectKind(name="HVSpec", version="1.2"),
        "pci_device_pools": ObjectKind(name="PciDevicePool", version="1.1", list_version="1.1"),
        "metrics": ObjectKind(name="MonitorMetric", version="1.1", list_version="1.1"),
        "service": SERVICE,
        "instances": INSTANCE,
        "numa_topology": ObjectKind(name="NUMATopology", version="1.2"),
    },
    keeps_null=_fields(HostReport),
)
