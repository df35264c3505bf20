"""An image's properties, as Nova's image object has them: their present names, and their types.

Images store texts, and instances keep the texts of their images. Nova compares values: ``yes`` is
``True``, ``amd64`` is ``x86_64``, ``02`` is 2. A text that is no value of its type stays as it is.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
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

LISTED = frozenset(
    {
        *("hw_numa_cpus", "hw_numa_mem", "img_bdm_v2", "img_block_device_mapping", "img_mappings"),
        *("img_hv_requested_version", "traits_required"),
    }
)
"""The properties that may be lists; all others are text, numbers or booleans."""

_BOOLEANS = frozenset(
    {
        *("hw_boot_menu", "hw_ephemeral_encryption", "hw_firmware_stateless", "hw_ipxe_boot"),
        *("hw_locked_memory", "hw_mem_encryption", "hw_pmu", "hw_qemu_guest_agent"),
        *("hw_time_hpet", "hw_vif_multiqueue_enabled", "hw_virtio_packed_ring", "img_bdm_v2"),
        *("img_bittorrent", "img_cache_in_nova", "img_hide_hypervisor_id", "img_linked_clone"),
        *("img_use_agent", "os_require_quiesce", "os_skip_agent_inject_files_at_boot"),
        "os_skip_agent_inject_ssh",
    }
)
_NUMBERS = frozenset(
    {
        *("hw_cpu_cores", "hw_cpu_max_cores", "hw_cpu_max_sockets", "hw_cpu_max_threads"),
        *("hw_cpu_sockets", "hw_cpu_threads", "hw_device_id", "hw_maxphysaddr_bits"),
        *("hw_numa_mem", "hw_numa_nodes", "hw_redirected_usb_ports", "hw_serial_port_count"),
        *("hw_video_ram", "img_compression_level", "img_version"),
    }
)
_ARCHITECTURES = {"amd64": "x86_64"} | dict.fromkeys(
    ("i386", "i486", "i586", "x86_32", "x86_32p"), "i686"
)
_ALIASES: Mapping[str, Mapping[str, str]] = {
    "hw_architecture": _ARCHITECTURES,
    "hw_emulation_architecture": _ARCHITECTURES,
    "hw_scsi_model": {"lsilogicsas": "lsisas1068", "paravirtual": "vmpvscsi"},
    "hw_vif_model": {
        "virtuale1000": "e1000",
        "virtuale1000e": "e1000e",
        "virtualpcnet32": "pcnet",
        "virtualsriovethernetcard": "sriov",
        "virtualvmxnet": "vmxnet",
        "virtualvmxnet3": "vmxnet3",
    },
    "hw_vm_mode": {"pv": "xen", "hv": "hvm", "baremetal": "hvm"},
    "img_hv_type": {"xapi": "xen"},
    "os_type": {},
}
"""The properties whose values are names in lower case, and other names of these."""
_MOST = 2**63 - 1
"""The greatest number that the store keeps."""
_CPUS = re.compile(r"\s*([0-9]{1,4})(?:-([0-9]{1,4}))?\s*\Z")
_TRUE = frozenset({"1", "t", "true", "on", "y", "yes"})

_ADAPTER = "vmware_adaptertype"
_TRAIT = "trait:"
_OF_NODES = ("hw_numa_cpus", "hw_numa_mem")
_OTHERS = (_ADAPTER, _TRAIT, *(f"{name}." for name in _OF_NODES))
"""How other names begin that Nova's object has not."""


def image_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties as Nova's image object has them; one under its present name prevails."""
    named = _under_present_names(properties)
    return {name: _typed(name, value) for name, value in named.items()}


def is_true(text: str | None) -> bool:
    """Whether a text means yes."""
    return text is not None and text.strip().lower() in _TRUE


def canonical(name: str, value: str) -> str:
    """A value of a property whose values are names, such as ``hw_architecture``, in Nova's form."""
    lowered = value.lower()
    return _ALIASES[name].get(lowered, lowered)


def _typed(name: str, value: Any) -> Any:
    if isinstance(value, list) and name in _OF_NODES:
        return [_typed_text(name, item) if isinstance(item, str) else item for item in value]
    return _typed_text(name, value) if isinstance(value, str) else value


@lru_cache(maxsize=4096)
def _typed_text(name: str, text: str) -> Any:
    if name in _BOOLEANS:
        return is_true(text)
    if name in _NUMBERS:
        return _number(text)
    if name == "hw_numa_cpus":
        return _cpus(text)
    return canonical(name, text) if name in _ALIASES else text


def _number(text: str) -> int | str:
    try:
        number = int(text)
    except ValueError:
        return text
    return number if abs(number) <= _MOST else text


def _cpus(text: str) -> list[int] | str:
    """The CPUs of a list such as ``0,2-3``, in order."""
    cpus: set[int] = set()
    for item in map(_CPUS.match, text.split(",")):
        if item is None:
            return text
        cpus.update(range(int(item[1]), int(item[2] or item[1]) + 1))
    return sorted(cpus)


def _under_present_names(properties: Mapping[str, Any]) -> dict[str, Any]:
    present = {
        name: value
        for name, value in properties.items()
        if name not in FORMER and not name.startswith(_OTHERS)
    }
    if len(present) == len(properties):
        return present
    renamed: dict[str, Any] = {}
    if adapter := properties.get(_ADAPTER):  # the model of a SCSI controller, or the bus itself
        renamed["hw_disk_bus"] = "ide" if adapter == "ide" else "scsi"
        if adapter != "ide":
            renamed["hw_scsi_model"] = adapter
    for name in _OF_NODES:
        numbered = (f"{name}.{node}" for node in count())
        if values := [properties[key] for key in takewhile(properties.__contains__, numbered)]:
            renamed[name] = values
    traits = [
        name.removeprefix(_TRAIT)
        for name, value in properties.items()
        if name.startswith(_TRAIT) and value == "required"
    ]
    if traits:
        renamed["traits_required"] = traits
    renamed |= {new: properties[old] for old, new in FORMER.items() if old in properties}
    return renamed | present
