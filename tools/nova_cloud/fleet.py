"""The computes of a cloud, and the flavors that fit them."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

RESERVED_MEMORY_MB = 512
"""Nova's default of ``reserved_host_memory_mb``."""


@dataclass(frozen=True)
class Flavor:
    """What a server of this flavor uses: CPUs, MiB, GiB."""

    vcpus: int
    memory_mb: int
    disk_gb: int

    @property
    def resources(self) -> dict[str, int]:
        """By Placement's resource class."""
        return {"VCPU": self.vcpus, "MEMORY_MB": self.memory_mb, "DISK_GB": self.disk_gb}


FLAVORS = {
    "small": Flavor(1, 512, 1),
    "medium": Flavor(2, 2048, 10),
    "half": Flavor(4, 4096, 20),
    "whole": Flavor(8, 8192, 40),
}
"""``half`` and ``whole`` of the memory that a compute of the default size has to give."""


@dataclass(frozen=True)
class Fleet:
    """Computes ``cmp1`` ... of one size: CPUs, MiB, GiB."""

    computes: int = 3
    vcpus: int = 8
    memory_mb: int = FLAVORS["whole"].memory_mb + RESERVED_MEMORY_MB
    disk_gb: int = 100

    @property
    def names(self) -> list[str]:
        return [f"cmp{number}" for number in range(1, self.computes + 1)]

    @classmethod
    def load(cls, path: Path) -> "Fleet":
        return cls(**json.loads(path.read_text()))

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))
