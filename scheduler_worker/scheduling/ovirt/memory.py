"""Filters for memory, swap and huge pages."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.ovirt import demand, figures, formulas
from scheduler_worker.scheduling.ovirt.parameters import Swap
from scheduler_worker.scheduling.plugin import Filter, only


class MemoryFilter(Filter):
    """Passes hosts whose free memory and swap hold the VM, and whose overcommit limit does.

    Paused VMs need nothing, nor does a VM on its own host. A host that does not know its free
    memory is rejected. A request that fits but for pending VMs waits for them, as under every
    policy.

    Reads: ``virt.free_mb``, ``virt.swap_free_mb``, ``virt.committed_mb``,
    ``virt.overcommit_percent``, reserved memory, pending VMs; the flavor's memory,
    ``vm.static_overhead_mb``, ``vm.possible_overhead_mb``.
    Example: 64 GiB at 200 % take VMs of 128 GiB in all, if half of that is swapped or not touched.
    """

    momentary = True
    unit_id = "c9ddbb34-0e1d-4061-a8d7-b0893fa80932"

    def applies(self, spec: RequestSpec) -> bool:
        return not spec.machine.paused

    def reads(self, spec: RequestSpec) -> Hashable:
        pages = demand.hugepage_kb(spec), demand.hugepages(spec)
        return demand.real_mb(spec), demand.total_mb(spec), pages, spec.machine.run_on

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        free, pages = figures.free_mb(hosts), _new_pages_mb(hosts, spec)
        swap = np.nan_to_num(figures.swap_free_mb(hosts), nan=0.0)
        fits = formulas.fits_physically(
            free, figures.pending_real_mb(hosts), swap, pages, demand.real_mb(spec)
        )
        fits &= formulas.fits_overcommitted(
            figures.schedulable_mb(hosts), pages, demand.total_mb(spec)
        )
        return fits if spec.machine.run_on is None else fits | demand.is_there(hosts, spec)

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        if spec_obj.machine.run_on == host_state.host or spec_obj.machine.paused:
            return True
        if demand.hugepage_kb(spec_obj):
            return bool(self.passes(only(host_state), spec_obj)[0])
        free = figures.free_mb_of(host_state.record)
        if free is None:
            return False
        left = free - figures.pending_real_mb_of(host_state)
        swap = figures.facts_of(host_state).swap_free_mb or 0
        fits = left >= 0 and left + swap >= demand.real_mb(spec_obj)
        return fits and demand.total_mb(spec_obj) <= figures.schedulable_mb_of(host_state)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        host = only(host_state)
        free, schedulable = figures.free_mb(host)[0], figures.schedulable_mb(host)[0]
        if np.isnan(free):
            return "does not report its free memory"
        if schedulable < demand.total_mb(spec):
            return (
                f"needs {demand.total_mb(spec)} MiB with overhead, "
                f"{schedulable:.0f} MiB may still be scheduled"
            )
        pending = figures.pending_real_mb(host)[0]
        return (
            f"needs {demand.real_mb(spec)} MiB, {free:.0f} MiB are free "
            f"of which pending VMs take {pending:.0f}"
        )


def _new_pages_mb(hosts: Hosts, spec: RequestSpec) -> Values | float:
    """The memory of the huge pages that would have to be made on each host."""
    size_kb = demand.hugepage_kb(spec)
    if not size_kb:
        return 0.0
    missing: Values = np.maximum(0.0, demand.hugepages(spec) - free_pages(hosts, size_kb))
    return missing * (size_kb / 1024)


def free_pages(hosts: Hosts, size_kb: int) -> Values:
    """Free huge pages of a size, less those of pending VMs of that size; never negative."""
    reported = figures.of_facts(
        hosts, ("pages", size_kb), lambda virt: dict(virt.free_hugepages).get(size_kb, 0), "i8"
    )
    pending = np.fromiter((use.pages_of(size_kb) for use in hosts.virt_use), "i8", len(hosts))
    free: Values = np.maximum(0, reported - np.maximum(0, pending))
    return free


class HugePagesFilter(Filter):
    """Passes hosts with enough free huge pages of the VM's size.

    Reads: ``virt.free_hugepages``, those of pending VMs; ``vm.hugepage_kb`` or the flavor's
    ``hw:mem_page_size``.
    Example: 1 GiB in pages of 2048 KiB needs 512 of them.
    """

    momentary = True
    unit_id = "23e07b34-66dd-4735-bc45-bcddded02c05"

    def applies(self, spec: RequestSpec) -> bool:
        return demand.hugepages(spec) > 0

    def reads(self, spec: RequestSpec) -> Hashable:
        return demand.hugepage_kb(spec), demand.hugepages(spec)

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        size_kb = demand.hugepage_kb(spec)
        if not size_kb:
            return np.ones(len(hosts), bool)
        enough: Mask = free_pages(hosts, size_kb) >= demand.hugepages(spec)
        return enough

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        size_kb = demand.hugepage_kb(spec) or 0
        free = free_pages(only(host_state), size_kb)[0]
        return f"needs {demand.hugepages(spec)} pages of {size_kb} KiB, {free} are free"


class SwapFilter(Filter):
    """Passes hosts that have not swapped out more than allowed beyond their free memory.

    A host of which a figure is unknown passes.

    Reads: ``virt.swap_total_mb``, ``virt.swap_free_mb``, ``virt.free_mb``, its memory.
    Example: ``MaximumAllowedSwapUsage`` 0 keeps VMs off hosts that swap.
    """

    momentary = True
    unit_id = "43b9e654-337f-4b0d-a896-cbb22ce5a7fc"
    parameters_type = Swap
    reads_request = False
    reads_use = False

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        return formulas.swap_is_low(
            figures.swap_total_mb(hosts),
            figures.swap_free_mb(hosts),
            figures.free_mb(hosts),
            hosts.total_usable_ram_mb,
            int(self.parameters.MaximumAllowedSwapUsage),
        )

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        virt = figures.facts_of(host_state)
        return (
            f"{(virt.swap_total_mb or 0) - (virt.swap_free_mb or 0)} MiB are swapped out, "
            f"{virt.free_mb} MiB are free, "
            f"{self.parameters.MaximumAllowedSwapUsage} % of memory are allowed"
        )
