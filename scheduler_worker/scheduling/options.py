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

DEFAULT_FILTERS = (
    *("ComputeFilter", "AvailabilityZoneFilter", "CoreFilter", "RamFilter", "DiskFilter"),
    *("ComputeCapabilitiesFilter", "ImagePropertiesFilter"),
    *("ServerGroupAntiAffinityFilter", "ServerGroupAffinityFilter"),
)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Which units the policy ``nova`` uses, and the values of units' parameters."""

    available_filters: Annotated[tuple[str, ...], Opt(form="multi")] = (ALL_FILTERS,)
    """Filters that may be enabled: names under which packages register them, module.Class paths, or
    scheduler_worker.filters.all_filters for all registered ones. A path in nova.scheduler stands
    for the name at its end."""
    enabled_filters: Annotated[tuple[str, ...], Opt()] = DEFAULT_FILTERS
    """The filters that a host must pass, in this order."""
    weight_classes: Annotated[tuple[str, ...], Opt()] = (ALL_WEIGHERS,)
    """The weighers: names under which packages register them, module.Class paths, or
    scheduler_worker.weights.all_weighers for all registered ones. A path in nova.scheduler stands
    for the name at its end."""
    values: Mapping[str, Any] = {}
    """What operators set of units' parameters, by name, and the factors of weights."""

    @classmethod
    def of(cls, **values: Any) -> "Options":
        """Options by name, units' parameters included."""
        own = {name: values.pop(name) for name in cls.__struct_fields__ if name in values}
        return cls(**own, values=values)


def _multiplier(
    kind: str, what: str, default: float = 1.0, least: float | None = None
) -> tuple[str, Any, float]:
    annotated: Any = Annotated
    opt = Opt(
        min=least,
        mutable=True,
        help=f"Multiplier of the weigher that prefers {what}; negative reverses it, 0 turns it "
        f"off. The aggregate metadata key {kind}_weight_multiplier overrides it.",
    )
    return f"{kind}_weight_multiplier", annotated[float, opt], default


_METRICS = Opt(
    group="metrics",
    name="weight_multiplier",
    mutable=True,
    help="Multiplier of the metrics weigher.",
)

Multipliers = msgspec.defstruct(
    "Multipliers",
    [
        _multiplier("ram", "hosts with more free memory"),
        _multiplier("cpu", "hosts with more free vCPUs"),
        _multiplier("disk", "hosts with more free local disk"),
        _multiplier("io_ops", "hosts with more I/O operations under way", -1.0),
        _multiplier("pci", "hosts with fewer free PCI devices", least=0),
        _multiplier("num_instances", "hosts with more instances", 0.0),
        _multiplier("soft_affinity", "hosts with more members of the group", least=0),
        _multiplier("soft_anti_affinity", "hosts with fewer members of the group", least=0),
        _multiplier("build_failure", "hosts with fewer failed builds", 1_000_000.0),
        _multiplier("cross_cell_move", "hosts in the instance's present cell", 1_000_000.0),
        _multiplier("hypervisor_version", "hosts with newer hypervisors"),
        _multiplier("image_props", "hosts whose instances have similar images", 0.0),
        ("metrics_weight_multiplier", Annotated[float, _METRICS], 1.0),
    ],
    module=__name__,
    frozen=True,
)
"""The factors of weights in the policy ``nova``."""
MULTIPLIERS: Any = Multipliers()
"""The factors of weights that no option changes."""
