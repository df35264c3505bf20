"""Two units for cluster policies: a filter and a cost, both about memory, each with a parameter.

They are the two examples of oVirt's design of policy units, as columns: one decides which hosts
have memory for a VM, the other which of these hosts is the best. Amounts are in MiB.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from scheduler_worker.model.hosts import Hosts, HostState, Mask, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter, Weigher

# The fields are the parameters, under the names that policies give them.


class SpareMemory(msgspec.Struct, frozen=True):
    """How much memory stays free on every host, in MiB."""

    SpareMemoryMb: Annotated[int, Meta(ge=0)] = 1024


class MemoryTarget(msgspec.Struct, frozen=True):
    """How much of a host's memory is best used, in percent; 0 spreads VMs, 100 packs them."""

    MemoryTargetPercent: Annotated[int, Meta(ge=0, le=100)] = 0


class SpareMemoryFilter(Filter):
    """Passes hosts that have memory for the VM and keep some to spare.

    The parameter ``SpareMemoryMb`` says how much, in MiB.
    """

    parameters_type = SpareMemory

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.flavor.memory_mb

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        enough: Mask = hosts.free_ram_mb >= self._needed_mb(spec)
        return enough

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return (
            f"has {host_state.free_ram_mb:.0f} MiB free, needs {self._needed_mb(spec)} MiB: "
            f"{spec.flavor.memory_mb} for the VM, {self.parameters.SpareMemoryMb} to spare"
        )

    def _needed_mb(self, spec: RequestSpec) -> int:
        spare_mb: int = self.parameters.SpareMemoryMb
        return spec.flavor.memory_mb + spare_mb


class MemoryUseCost(Weigher):
    """Prefers hosts whose use of memory, with the VM, is close to a target.

    The parameter ``MemoryTargetPercent`` is the target; the distance from it, in percent, is the
    cost.
    """

    lower_is_better = True
    parameters_type = MemoryTarget

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.flavor.memory_mb

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        total = hosts.total_usable_ram_mb
        used = total - hosts.free_ram_mb + spec.flavor.memory_mb
        full = np.full(len(hosts), 100.0)  # a host without memory counts as full
        percent = np.divide(used * 100.0, total, out=full, where=total > 0)
        cost: Values = np.abs(percent - self.parameters.MemoryTargetPercent)
        return cost
