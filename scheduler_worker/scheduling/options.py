"""The operator's options of placement, under Nova's names.

``conf/`` documents each option and fills this in; nothing here reads a configuration file. Units
declare their own parameters, defaults included (``plugin.py``): ``values`` has what the operator
set of these, by name, and the factors of weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    """Which units the policy ``nova`` uses, and the values of units' parameters."""

    available_filters: tuple[str, ...] = (ALL_FILTERS,)
    enabled_filters: tuple[str, ...] = DEFAULT_FILTERS
    weight_classes: tuple[str, ...] = (ALL_WEIGHERS,)
    values: Mapping[str, Any] = {}

    @classmethod
    def of(cls, **values: Any) -> Options:
        """Options by name, units' parameters included."""
        own = {name: values.pop(name) for name in cls.__struct_fields__ if name in values}
        return cls(**own, values=values)
