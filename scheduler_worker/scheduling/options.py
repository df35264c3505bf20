"""The operator's options of placement, under Nova's names.

Units declare their own parameters, options included (``plugin.py``); nothing here
reads a configuration file. ``DEFAULT_FILTERS`` are not Nova's: without Placement, filters of the
worker's own decide capacity and zones.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from scheduler_worker.options import Opt

ALL_FILTERS = "scheduler_worker.filters.all_filters"
ALL_WEIGHERS = "scheduler_worker.weights.all_weighers"
NOVA_ALL_FILTERS = "nova.scheduler.filters.all_filters"
NOVA_ALL_WEIGHERS = "nova.scheduler.weights.all_weighers"

DEFAULT_FILTERS = (
    *("ComputeFilter", "AvailabilityZoneFilter", "CoreFilter", "RamFilter", "DiskFilter"),
    *("ComputeCapabilitiesFilter", "ImagePropertiesFilter"),
    *("ServerGroupAntiAffinityFilter", "ServerGroupAffinityFilter"),
)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Which units the policy ``nova`` uses, and the values of units' parameters."""

    available_filters: Annotated[tuple[str, ...], Opt(form="multi")] = (ALL_FILTERS,)
    """Filters that may be enabled: names under which packages register them, module.Class paths, or
    scheduler_worker.filters.all_filters for all registered ones."""
    enabled_filters: Annotated[tuple[str, ...], Opt()] = DEFAULT_FILTERS
    """The filters that a host must pass, in this order."""
    weight_classes: Annotated[tuple[str, ...], Opt()] = (ALL_WEIGHERS,)
    """The weighers: names under which packages register them, module.Class paths, or
    scheduler_worker.weights.all_weighers for all registered ones."""
    values: Mapping[str, Any] = {}
    """What operators set of units' parameters, by name, and the factors of weights."""

    @classmethod
    def of(cls, **values: Any) -> "Options":
        """Options by name, units' parameters included."""
        own = {name: values.pop(name) for name in cls.__struct_fields__ if name in values}
        return cls(**own, values=values)


def _multiplier(kind: str, what: str, least: float | None = None) -> Opt:
    return Opt(
        min=least,
        mutable=True,
        help=f"Multiplier of the weigher that prefers {what}; negative reverses it, 0 turns it "
        f"off. The aggregate metadata key {kind}_weight_multiplier overrides it.",
    )


_METRICS = Opt(
    group="metrics",
    name="weight_multiplier",
    mutable=True,
    help="Multiplier of the metrics weigher.",
)


class Multipliers(msgspec.Struct, frozen=True, kw_only=True):
    """The factors of weights in the policy ``nova``."""

    ram_weight_multiplier: Annotated[float, _multiplier("ram", "hosts with more free memory")] = 1.0
    cpu_weight_multiplier: Annotated[float, _multiplier("cpu", "hosts with more free vCPUs")] = 1.0
    disk_weight_multiplier: Annotated[
        float, _multiplier("disk", "hosts with more free local disk")
    ] = 1.0
    io_ops_weight_multiplier: Annotated[
        float, _multiplier("io_ops", "hosts with more I/O operations under way")
    ] = -1.0
    pci_weight_multiplier: Annotated[
        float, _multiplier("pci", "hosts with fewer free PCI devices", 0)
    ] = 1.0
    num_instances_weight_multiplier: Annotated[
        float, _multiplier("num_instances", "hosts with more instances")
    ] = 0.0
    soft_affinity_weight_multiplier: Annotated[
        float, _multiplier("soft_affinity", "hosts with more members of the group", 0)
    ] = 1.0
    soft_anti_affinity_weight_multiplier: Annotated[
        float, _multiplier("soft_anti_affinity", "hosts with fewer members of the group", 0)
    ] = 1.0
    build_failure_weight_multiplier: Annotated[
        float, _multiplier("build_failure", "hosts with fewer failed builds")
    ] = 1_000_000.0
    cross_cell_move_weight_multiplier: Annotated[
        float, _multiplier("cross_cell_move", "hosts in the instance's present cell")
    ] = 1_000_000.0
    hypervisor_version_weight_multiplier: Annotated[
        float, _multiplier("hypervisor_version", "hosts with newer hypervisors")
    ] = 1.0
    image_props_weight_multiplier: Annotated[
        float, _multiplier("image_props", "hosts whose instances have similar images")
    ] = 0.0
    metrics_weight_multiplier: Annotated[float, _METRICS] = 1.0


MULTIPLIERS = Multipliers()
"""The factors of weights that no option changes."""
