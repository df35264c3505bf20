"""Image properties under their present names.

Glance keeps properties as flat texts, some under names from before Nova gave them a prefix. Nova's
objects have the present names only; plain dicts and the system metadata of instances have either.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count, takewhile
from typing import Any

FORMER = {
    "architecture": "hw_architecture",
    "auto_disk_config": "hw_auto_disk_config",
    "bdm_v2": "img_bdm_v2",
    "bittorrent": "img_bittorrent",
    "block_device_mapping": "img_block_device_mapping",
    "cache_in_nova": "img_cache_in_nova",
    "hypervisor_type": "img_hv_type",
    "hypervisor_version_requires": "img_hv_requested_version",
    "ipxe_boot": "hw_ipxe_boot",
    "mappings": "img_mappings",
    "owner_id": "img_owner_id",
    "root_device_name": "img_root_device_name",
    "vm_mode": "hw_vm_mode",
    "vmware_disktype": "hw_disk_type",
    "vmware_image_version": "img_version",
    "vmware_linked_clone": "img_linked_clone",
    "vmware_ostype": "os_distro",
    "xenapi_device_id": "hw_device_id",
    "xenapi_image_compression_level": "img_compression_level",
    "xenapi_skip_agent_inject_files_at_boot": "os_skip_agent_inject_files_at_boot",
    "xenapi_skip_agent_inject_ssh": "os_skip_agent_inject_ssh",
    "xenapi_use_agent": "img_use_agent",
}
"""Former name -> present name."""

_ADAPTER = "vmware_adaptertype"
_TRAIT = "trait:"
_OF_NODES = ("hw_numa_cpus", "hw_numa_mem")
_OTHERS = (_ADAPTER, _TRAIT, *(f"{name}." for name in _OF_NODES))
"""How other names begin that Nova's object has not."""


def under_present_names(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties as Nova's image object names them; one under its present name prevails."""
    present = {
        name: value
        for name, value in properties.items()
        if name not in FORMER and not name.startswith(_OTHERS)
    }
    if len(present) == len(properties):
        return present
    found: dict[str, Any] = {}
    if adapter := properties.get(_ADAPTER):  # the model of a SCSI controller, or the bus itself
        found["hw_disk_bus"] = "ide" if adapter == "ide" else "scsi"
        if adapter != "ide":
            found["hw_scsi_model"] = adapter
    for name in _OF_NODES:
        numbered = (f"{name}.{node}" for node in count())
        if values := [properties[each] for each in takewhile(properties.__contains__, numbered)]:
            found[name] = values
    traits = [
        name.removeprefix(_TRAIT)
        for name, value in properties.items()
        if name.startswith(_TRAIT) and value == "required"
    ]
    if traits:
        found["traits_required"] = traits
    found |= {new: properties[old] for old, new in FORMER.items() if old in properties}
    return found | present
