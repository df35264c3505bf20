"""The traits that a request requires without naming them, as Nova's request filters derive them.

Some are required of the compute node itself, others of any provider that serves the flavor.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec

from scheduler_worker.errors import NoValidHost, RequestError
from scheduler_worker.model.image_properties import is_true
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.options import Opt
from scheduler_worker.scheduling.numa.constraints import HYPERTHREADING, cpu_thread_policy
from scheduler_worker.scheduling.pci.pools import pci_requests


class RequestFilterParameters(msgspec.Struct, frozen=True):
    """Which rules apply, by the names of the options in ``[scheduler]``."""

    limit_tenants_to_placement_aggregate: Annotated[bool, Opt(mutable=True)] = False
    """Whether a project for which there are aggregates (their metadata has a key that begins with
    filter_tenant_id, and the project's id as its value) may use only their hosts."""
    placement_aggregate_required_for_tenants: Annotated[bool, Opt(mutable=True)] = False
    """Whether a project without such an aggregate may use no host at all. Only together with
    limit_tenants_to_placement_aggregate."""
    query_placement_for_image_type_support: Annotated[bool, Opt(mutable=True)] = False
    """Whether a host must have the trait COMPUTE_IMAGE_TYPE_<disk format> of the image."""
    enable_isolated_aggregate_filtering: Annotated[bool, Opt(mutable=True)] = False
    """Whether hosts of an aggregate with the metadata trait:<name>=required take only requests that
    require that trait."""
    image_metadata_prefilter: Annotated[bool, Opt(mutable=True)] = False
    """Whether image properties such as hw_disk_bus and hw_video_model require the matching traits
    of a host."""
    query_placement_for_routed_network_aggregates: Annotated[bool, Opt(mutable=True)] = False
    """Whether a host must report every requested network."""


DISABLED = "COMPUTE_STATUS_DISABLED"
"""The trait of hosts with a disabled service, which every request forbids."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


DISK_FORMATS = _words("aki ami ari iso ploop qcow2 raw vdi vhd vhdx vmdk")
"""The disk formats that have a trait."""

_BUSES = _words("FDC IDE LXC SATA SCSI UML USB VIRTIO XEN")
_MODELS = _words("BOCHS CIRRUS GOP NONE QXL VGA VIRTIO VMVGA XEN")
_CARDS = _words(
    "E1000 E1000E IGB LAN9118 NE2K_PCI NETFRONT PCNET RTL8139 SPAPR_VLAN SRIOV VIRTIO VMXNET "
    "VMXNET3"
)
_ARCHITECTURES = _words(
    "AARCH64 ALPHA ARMV6 ARMV7 ARMV7B CRIS I686 IA64 LM32 M68K MICROBLAZE MICROBLAZEEL MIPS MIPS64 "
    "MIPS64EL MIPSEL OPENRISC PARISC PARISC64 PPC PPC64 PPC64LE PPCEMB PPCLE S390 S390X SH4 SH4EB "
    "SPARC SPARC64 UNICORE32 X86_64 XTENSA XTENSAEB"
)
_EMULATED = _words("AARCH64 MIPSEL PPC64LE RISCV64 S390X X86_64")

IMAGE_TRAITS: Mapping[str, tuple[str, frozenset[str]]] = {
    "hw_cdrom_bus": ("COMPUTE_STORAGE_BUS", _BUSES),
    "hw_disk_bus": ("COMPUTE_STORAGE_BUS", _BUSES),
    "hw_video_model": ("COMPUTE_GRAPHICS_MODEL", _MODELS),
    "hw_vif_model": ("COMPUTE_NET_VIF_MODEL", _CARDS),
    "hw_architecture": ("HW_ARCH", _ARCHITECTURES),
    "hw_emulation_architecture": ("COMPUTE_ARCH", _EMULATED),
    "hw_viommu_model": ("COMPUTE_VIOMMU_MODEL", _words("AUTO INTEL SMMUV3 VIRTIO")),
}
"""Image property -> the prefix of its trait, and the values for which there is one."""


def root_traits(spec: RequestSpec, parameters: RequestFilterParameters) -> frozenset[str]:
    """The traits that the compute node itself must have.

    Raises:
        RequestError: an extra spec or image property is invalid, or they contradict.
        NoValidHost: a request filter refuses the request, as Nova's does.
    """
    traits = {*_devices(spec), *_emulated_devices(spec)}
    if parameters.query_placement_for_image_type_support:
        traits.update(_image_type(spec))
    if parameters.image_metadata_prefilter:
        traits.update(_image_metadata(spec))
    return frozenset(traits)


def derived_traits(spec: RequestSpec) -> frozenset[str]:
    """The traits that the providers of the flavor's resources must have. Raises RequestError."""
    return frozenset((*_trusted_boot(spec), *_memory_encryption(spec), *_machine(spec)))


def thread_traits(spec: RequestSpec) -> tuple[frozenset[str], frozenset[str]]:
    """Whether providers of pinned CPUs must have several threads for each core, or one: the
    required and forbidden traits.

    A trait that stands for a thread policy is not derived; it holds for the group that names it.
    Raises RequestError.
    """
    policy = cpu_thread_policy(spec.flavor, spec.image_properties)
    threads, none = frozenset({HYPERTHREADING}), frozenset[str]()
    return threads if policy == "require" else none, threads if policy == "isolate" else none


def encrypts_memory(spec: RequestSpec) -> bool:
    """Whether the memory is encrypted, which takes one of the host's encryption contexts."""
    return _flag(spec, "mem_encryption")


# Of the compute node, by option


def _image_type(spec: RequestSpec) -> Iterable[str]:
    """The image's disk format; volumes have none, and some formats have no trait."""
    disk_format = ((spec.image and spec.image.disk_format) or "").lower()
    if not spec.is_bfv and disk_format in DISK_FORMATS:
        yield f"COMPUTE_IMAGE_TYPE_{disk_format.upper()}"


def _image_metadata(spec: RequestSpec) -> Iterable[str]:
    """Buses, models and architectures; if one value has no trait, none is required."""
    traits = []
    for name, (beginning, values) in IMAGE_TRAITS.items():
        sent = spec.image_properties.get(name)
        if sent is not None:
            value = str(sent).upper().replace("-", "_")
            if value not in values:
                return []
            traits.append(f"{beginning}_{value}")
    return traits


# Of the compute node, always


def _devices(spec: RequestSpec) -> Iterable[str]:
    """A device profile, packed virtqueues, a port on a remote-managed device."""
    if spec.flavor.extra_specs.get("accel:device_profile"):
        yield "COMPUTE_ACCELERATORS"
    if _flag(spec, "virtio_packed_ring"):
        yield "COMPUTE_NET_VIRTIO_PACKED"
    if spec.pci_requests and any(request.is_remote_managed for request in pci_requests(spec)):
        yield "COMPUTE_REMOTE_MANAGED_PORTS"


def _emulated_devices(spec: RequestSpec) -> Iterable[str]:
    """Encrypted local disks, a virtio sound device, the place of the secret of a virtual TPM."""
    if _flag(spec, "ephemeral_encryption"):
        yield "COMPUTE_EPHEMERAL_ENCRYPTION"
        formats = ("plain", "luks", "luksv2")
        if chosen := _choice(spec, "ephemeral_encryption_format", formats):
            yield f"COMPUTE_EPHEMERAL_ENCRYPTION_{chosen.upper()}"
    models = ("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio")
    if _choice(spec, "sound_model", models) == "virtio":
        yield "COMPUTE_SOUND_MODEL_VIRTIO"
    if _tpm(spec):
        keeper = spec.flavor.extra_specs.get("hw:tpm_secret_security", "user")
        if keeper not in {"user", "host", "deployment"}:
            reason = f"Scheduling failed: TPM secret security '{keeper[:80]}' is not supported."
            raise NoValidHost(reason)
        yield f"COMPUTE_SECURITY_TPM_SECRET_SECURITY_{keeper.upper()}"


# Of the providers that serve the flavor


def _trusted_boot(spec: RequestSpec) -> Iterable[str]:
    """What the image requires, secure boot, the version and model (TIS by default) of a TPM."""
    listed = _image(spec, "traits_required")
    if isinstance(listed, (list, tuple)):
        yield from map(str, listed)
    if _choice(spec, "secure_boot", ("required", "optional", "disabled"), "os") == "required":
        yield "COMPUTE_SECURITY_UEFI_SECURE_BOOT"
    if version := _tpm(spec):
        model = _choice(spec, "tpm_model", ("tpm-tis", "tpm-crb")) or "tpm-tis"
        if (version, model) == ("1.2", "tpm-crb"):
            raise _wrong(spec, "tpm_model", "tpm-crb needs version 2.0")
        yield f"COMPUTE_SECURITY_TPM_{version.replace('.', '_')}"
        yield f"COMPUTE_SECURITY_TPM_{model.removeprefix('tpm-').upper()}"


_MEMORY_ENCRYPTION = {
    "amd-sev": "HW_CPU_X86_AMD_SEV",
    "amd-sev-es": "HW_CPU_X86_AMD_SEV_ES",
    "amd-sev-snp": "HW_CPU_X86_AMD_SEV_SNP",
    "intel-tdx": "HW_CPU_X86_INTEL_TDX",
}


def _memory_encryption(spec: RequestSpec) -> Iterable[str]:
    """The CPU feature that encrypts memory, unless the firmware rules it out."""
    if encrypts_memory(spec):
        model = _choice(spec, "mem_encryption_model", tuple(_MEMORY_ENCRYPTION)) or "amd-sev"
        if model == "amd-sev-snp" and not is_true(str(_image(spec, "hw_firmware_stateless"))):
            raise RequestError(
                "spec_obj.image.properties.hw_firmware_stateless",
                "must be true for memory that is encrypted by amd-sev-snp",
            )
        yield _MEMORY_ENCRYPTION[model]


def _machine(spec: RequestSpec) -> Iterable[str]:
    """How the guest sees the width of physical addresses, UEFI firmware without variables, PCI
    devices on any NUMA node of the socket.
    """
    modes = {"passthrough": "PASSTHROUGH", "emulate": "EMULATED"}
    if mode := _choice(spec, "maxphysaddr_mode", tuple(modes)):
        yield f"COMPUTE_ADDRESS_SPACE_{modes[mode]}"
    if _image(spec, "hw_firmware_stateless") and _image(spec, "hw_firmware_type") == "uefi":
        yield "COMPUTE_SECURITY_STATELESS_FIRMWARE"
    policies = ("required", "legacy", "preferred", "socket")
    if _choice(spec, "pci_numa_affinity_policy", policies) == "socket":
        yield "COMPUTE_SOCKET_PCI_NUMA_AFFINITY"


# Values of flavor and image under the same name


def _image(spec: RequestSpec, name: str) -> object:
    return spec.image_properties.get(name)


def _tpm(spec: RequestSpec) -> str | None:
    return _choice(spec, "tpm_version", ("1.2", "2.0"))


def _flag(spec: RequestSpec, name: str) -> bool:
    """A boolean of the flavor or the image. Raises RequestError if they contradict."""
    flavor, image = spec.flavor.extra_specs.get(f"hw:{name}"), _image(spec, f"hw_{name}")
    if flavor is None or image is None:
        return is_true(flavor) or is_true(None if image is None else str(image))
    if is_true(flavor) != is_true(str(image)):
        raise _wrong(spec, name, f"flavor has {flavor[:40]!r}, image has {str(image)[:40]!r}")
    return is_true(flavor)


def _choice(spec: RequestSpec, name: str, known: tuple[str, ...], prefix: str = "hw") -> str | None:
    """A value of the flavor or the image. Raises RequestError if they contradict.

    An empty extra spec is ignored.
    """
    flavor = spec.flavor.extra_specs.get(f"{prefix}:{name}") or None
    image = _image(spec, f"{prefix}_{name}")
    chosen = image if flavor is None else flavor
    if chosen is None:
        return None
    if image is not None and image != chosen:
        problem = f"flavor has {str(flavor)[:40]!r}, image has {str(image)[:40]!r}"
        raise _wrong(spec, name, problem, prefix)
    if chosen not in known:
        problem = f"{str(chosen)[:40]!r} is none of {', '.join(known)}"
        raise _wrong(spec, name, problem, prefix)
    return str(chosen)


def _wrong(spec: RequestSpec, name: str, problem: str, prefix: str = "hw") -> RequestError:
    if spec.flavor.extra_specs.get(f"{prefix}:{name}"):
        return RequestError(f"spec_obj.flavor.extra_specs.{prefix}:{name}", problem)
    return RequestError(f"spec_obj.image.properties.{prefix}_{name}", problem)
