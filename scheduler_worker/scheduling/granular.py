"""The extra specs that name resource classes and traits.

::

    resources[S]:CLASS = amount               the amount of a resource class; 0: none
    trait[S]:TRAIT = 'required' | 'forbidden' a trait that its provider must or must not have

``S``, the suffix, consists of letters, digits, ``_`` and ``-``. Amounts that are no numbers,
unknown classes and other values are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from scheduler_worker.model.requests import Flavor
from scheduler_worker.model.sizes import MAX_SIZE

_STANDARD_CLASSES = frozenset(
    {
        *("VCPU", "MEMORY_MB", "DISK_GB", "PCPU", "PCI_DEVICE", "SRIOV_NET_VF", "VGPU", "FPGA"),
        *("PGPU", "VGPU_DISPLAY_HEAD", "MEM_ENCRYPTION_CONTEXT", "IPV4_ADDRESS"),
        *("NUMA_SOCKET", "NUMA_CORE", "NUMA_THREAD", "NUMA_MEMORY_MB"),
        *("NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC"),
        "NET_PACKET_RATE_KILOPACKET_PER_SEC",
        "NET_PACKET_RATE_EGR_KILOPACKET_PER_SEC",
        "NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC",
    }
)
_SPEC = re.compile(r"(resources|trait)([A-Za-z0-9_-]{0,64}):(.+)\Z")
_CUSTOM = "CUSTOM_"
_AMOUNT = re.compile(r"\s*\+?[0-9]{1,12}\s*\Z")
_TRAIT_VALUES = frozenset({"required", "forbidden"})


def parsed(
    extra_specs: Mapping[str, str],
) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, str]]]:
    """By suffix: resource class -> amount, and trait -> required or forbidden."""
    resources: dict[str, dict[str, int]] = {}
    traits: dict[str, dict[str, str]] = {}
    for key, value in extra_specs.items():
        found = _SPEC.match(key) if key.startswith(("resources", "trait")) else None
        if found is None:
            continue
        kind, suffix, name = found.groups()
        if kind == "trait":
            if value in _TRAIT_VALUES:
                traits.setdefault(suffix, {})[name] = value
        elif name in _STANDARD_CLASSES or name.startswith(_CUSTOM):
            amount = _amount(value)
            if amount is not None:
                resources.setdefault(suffix, {})[name] = amount
    return resources, traits


def amount_set(flavor: Flavor, resource_class: str) -> int | None:
    """The amount that ``resources:CLASS`` sets for Placement; None: it sets none."""
    return _amount(flavor.extra_specs.get(f"resources:{resource_class}", ""))


def _amount(text: str) -> int | None:
    return min(int(text), MAX_SIZE) if _AMOUNT.match(text) else None
