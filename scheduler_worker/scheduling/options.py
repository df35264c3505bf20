"""The options that judgement reads, under Nova's names and with Nova's defaults.

``conf/`` documents each one for the operator and fills this in; judgement itself never sees a
configuration file.
"""

from __future__ import annotations

import msgspec

ALL_FILTERS = "scheduler_worker.filters.all_filters"
ALL_WEIGHERS = "scheduler_worker.weights.all_weighers"
NOVA_ALL_FILTERS = "nova.scheduler.filters.all_filters"
NOVA_ALL_WEIGHERS = "nova.scheduler.weights.all_weighers"

DEFAULT_FILTERS = (
    "ComputeFilter",
    "AvailabilityZoneFilter",
    "CoreFilter",
    "RamFilter",
    "DiskFilter",
    "ComputeCapabilitiesFilter",
    "ImagePropertiesFilter",
    "ServerGroupAntiAffinityFilter",
    "ServerGroupAffinityFilter",
)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that filters, weighers and the pipeline can be told."""

    available_filters: tuple[str, ...] = (ALL_FILTERS,)
    enabled_filters: tuple[str, ...] = DEFAULT_FILTERS
    weight_classes: tuple[str, ...] = (ALL_WEIGHERS,)

    max_attempts: int = 3
    host_subset_size: int = 1
    shuffle_best_same_weighed_hosts: bool = False

    service_down_time_s: float = 60.0
    default_availability_zone: str = "nova"
    image_properties_default_architecture: str | None = None

    limit_tenants_to_placement_aggregate: bool = False
    placement_aggregate_required_for_tenants: bool = False
    query_placement_for_image_type_support: bool = False
    enable_isolated_aggregate_filtering: bool = False
    image_metadata_prefilter: bool = False
    query_placement_for_routed_network_aggregates: bool = False

    max_io_ops_per_host: int = 8
    max_instances_per_host: int = 50
    isolated_images: tuple[str, ...] = ()
    isolated_hosts: tuple[str, ...] = ()
    restrict_isolated_hosts_to_isolated_images: bool = True
    aggregate_image_properties_isolation_namespace: str | None = None
    aggregate_image_properties_isolation_separator: str = "."

    ram_weight_multiplier: float = 1.0
    cpu_weight_multiplier: float = 1.0
    disk_weight_multiplier: float = 1.0
    io_ops_weight_multiplier: float = -1.0
    pci_weight_multiplier: float = 1.0
    num_instances_weight_multiplier: float = 0.0
    soft_affinity_weight_multiplier: float = 1.0
    soft_anti_affinity_weight_multiplier: float = 1.0
    build_failure_weight_multiplier: float = 1000000.0
    cross_cell_move_weight_multiplier: float = 1000000.0
    hypervisor_version_weight_multiplier: float = 1.0
    image_props_weight_multiplier: float = 0.0
    image_props_weight_setting: tuple[str, ...] = ()

    metrics_weight_multiplier: float = 1.0
    metrics_weight_setting: tuple[str, ...] = ()
    metrics_required: bool = True
    metrics_weight_of_unavailable: float = -10000.0

    packing_host_numa_cells_allocation_strategy: bool = False
    """Fills NUMA cells one after the other instead of evenly."""
