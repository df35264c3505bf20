"""What a VM takes of its host beside memory and vCPUs: huge pages, CPUs of its own, devices."""

from __future__ import annotations

from collections import Counter

import msgspec

Counts = tuple[tuple[str, int], ...]


class VirtUse(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What one VM takes, or all pending VMs of a host together."""

    hugepages: tuple[tuple[int, int], ...] = ()
    """Pairs of page size in KiB and number of pages."""
    exclusive_vcpus: int = 0
    """How many CPUs no other VM may share."""
    devices: Counts = ()
    """Host devices by name, each once."""
    mediated_devices: Counts = ()
    """Mediated devices by type."""
    virtual_functions: Counts = ()
    """SR-IOV functions by network."""

    def pages_of(self, size_kb: int) -> int:
        """The huge pages of a size."""
        return dict(self.hugepages).get(size_kb, 0)

    def plus(self, other: VirtUse, times: int) -> VirtUse:
        """The sum; ``times`` is -1 to take the other away."""
        pages = Counter(dict(self.hugepages))
        for size, count in other.hugepages:
            pages[size] += times * count
        return VirtUse(
            hugepages=tuple(sorted((size, count) for size, count in pages.items() if count)),
            exclusive_vcpus=self.exclusive_vcpus + times * other.exclusive_vcpus,
            devices=_sum(self.devices, other.devices, times),
            mediated_devices=_sum(self.mediated_devices, other.mediated_devices, times),
            virtual_functions=_sum(self.virtual_functions, other.virtual_functions, times),
        )


def _sum(these: Counts, others: Counts, times: int) -> Counts:
    found = Counter(dict(these))
    for name, count in others:
        found[name] += times * count
    return tuple(sorted((name, count) for name, count in found.items() if count))


NO_USE = VirtUse()
