"""Flavors, images and machines of the example cloud.

The sizes and shares of flavors are published (``distributions.json``); disks, images and machines
are chosen as vendors sell them. Data only, nothing random.
"""

from typing import Any, NamedTuple

from generate.figures import Figures

FEATURES = {
    "Intel": ["aes", "avx", "avx2", "avx512f", "ssse3", "vmx", "x2apic"],
    "AMD": ["aes", "avx", "avx2", "ssse3", "svm", "x2apic"],
    "Ampere": ["aes", "asimd", "crc32", "sha2"],
}
TRAITS = {
    "Intel": ["COMPUTE_VOLUME_MULTI_ATTACH", "HW_CPU_X86_AVX2", "HW_CPU_X86_AVX512F"],
    "AMD": ["COMPUTE_VOLUME_MULTI_ATTACH", "HW_CPU_X86_AVX2", "HW_CPU_X86_AMD_SVM"],
    "Ampere": ["COMPUTE_VOLUME_MULTI_ATTACH"],
}


class Machine(NamedTuple):
    """A kind of host: two sockets of ``cores`` cores; the lists are its possible configurations."""

    share: float
    vendor: str
    model: str
    cores: int
    threads: int
    memory_gib: tuple[int, ...]
    local_gb: tuple[int, ...]
    disk_class: str
    cpu_ratios: tuple[float, ...]

    @property
    def vcpus(self) -> int:
        """Hardware threads, which a hypervisor reports as its vCPUs."""
        return 2 * self.cores * self.threads

    @property
    def arch(self) -> str:
        return "aarch64" if self.vendor == "Ampere" else "x86_64"


MACHINES = (
    Machine(0.34, "Intel", "Icelake-Server", 32, 2, (256, 384, 512), (3500,), "hdd", (1.0, 1.5)),
    Machine(0.16, "Intel", "Icelake-Server", 32, 2, (256, 512), (7000,), "nvme", (1.0, 2.0)),
    Machine(0.22, "AMD", "EPYC-Milan", 48, 2, (384, 768), (3500, 7000), "ssd", (1.0, 2.0)),
    Machine(0.12, "AMD", "EPYC-Milan", 48, 2, (768,), (14000,), "nvme", (2.0,)),
    Machine(0.12, "AMD", "EPYC-Genoa", 64, 2, (1024,), (7000, 14000), "nvme", (1.5, 2.0)),
    Machine(0.04, "Ampere", "Neoverse-N1", 64, 1, (512,), (3500,), "ssd", (1.0, 2.0)),
)

HYPERVISOR_VERSIONS = ((0.2, 6002000), (0.5, 8002002), (0.3, 9001000))


def flavors(figures: Figures) -> list[tuple[float, dict[str, Any]]]:
    """Every published size as (share, flavor), in Nova's fields."""
    return [
        (size.share, flavor(number, size.vcpus, size.ram_gb))
        for number, size in enumerate(figures.sizes, start=1)
    ]


def flavor(number: int, vcpus: int, ram_gb: int) -> dict[str, Any]:
    """One flavor; larger ones have larger disks."""
    return {
        "id": number,
        "flavorid": f"s{vcpus}.{ram_gb}g",
        "name": f"s{vcpus}.{ram_gb}g",
        "vcpus": vcpus,
        "memory_mb": 1024 * ram_gb,
        "root_gb": 20 if vcpus <= 2 else 40 if vcpus <= 4 else 80,
        "ephemeral_gb": 0 if vcpus < 16 else 5 * vcpus,
        "swap": 0 if vcpus < 8 else 2048,
        "extra_specs": {},
    }


def variant(flavor: dict[str, Any], kind: int, suffix: str, **changes: Any) -> dict[str, Any]:
    """Another flavor of the same size: it has its own id and name."""
    name = flavor["name"] + suffix
    return {**flavor, "id": flavor["id"] + 100 * kind, "flavorid": name, "name": name, **changes}


VARIANTS: tuple[tuple[float, tuple[str, dict[str, str]]], ...] = (
    (0.900, ("", {})),
    (
        0.050,
        (
            ".nvme",
            {
                "capabilities:disk_class": "nvme",
                "aggregate_instance_extra_specs:disk_class": "nvme",
            },
        ),
    ),
    (0.020, (".avx512", {"capabilities:cpu_info:features": "<in> avx512f"})),
    (0.015, (".new", {"capabilities:hypervisor_version": ">= 8000000"})),
    (0.015, (".amd", {"capabilities:cpu_info:vendor": "AMD"})),
)
"""(share, (suffix of the flavor's name, extra specs)): the flavors that want special hosts."""


def image(number: int, name: str, **properties: Any) -> dict[str, Any]:
    """One image in Nova's fields."""
    return {
        "id": f"10000000-0000-4000-8000-{number:012d}",
        "name": name,
        "disk_format": "qcow2",
        "container_format": "bare",
        "status": "active",
        "min_ram": 0,
        "min_disk": 0,
        "properties": properties,
    }


IMAGES = (
    (0.44, image(1, "ubuntu-24.04", hw_architecture="x86_64", os_distro="ubuntu")),
    (0.20, image(2, "debian-12", hw_architecture="x86_64", os_distro="debian")),
    (0.20, image(3, "rocky-9", hw_architecture="x86_64", img_hv_type="kvm", hw_vm_mode="hvm")),
    (
        0.12,
        image(
            4,
            "windows-2022",
            hw_architecture="x86_64",
            img_hv_type="kvm",
            hw_firmware_type="uefi",
            os_type="windows",
        ),
    ),
    (0.04, image(5, "ubuntu-24.04-arm64", hw_architecture="aarch64", os_distro="ubuntu")),
)
