"""What the VM of a request takes: from its field ``vm``, else from Nova's flavor and image."""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from scheduler_worker.model.hosts import Hosts, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.model.virt import NO_USE, VCPU_LOAD_PERCENT, Counts, VirtUse
from scheduler_worker.scheduling.numa.constraints import page_kb
from scheduler_worker.scheduling.ovirt.formulas import possible_overhead_mb, static_overhead_mb

_LARGE_KB = 2048


def hugepage_kb(spec: RequestSpec) -> int | None:
    """The size of the huge pages that back the VM; None: normal pages do."""
    asked = spec.machine.hugepage_kb
    if asked is not None:
        return asked or None
    text = spec.flavor.extra_specs.get("hw:mem_page_size", "").strip()
    size_kb = _LARGE_KB if text == "large" else page_kb(text.upper())
    return size_kb if size_kb is not None and size_kb > 4 else None


def hugepages(spec: RequestSpec) -> int:
    """How many huge pages the VM needs."""
    size_kb = hugepage_kb(spec)
    return -(-spec.flavor.memory_mb * 1024 // size_kb) if size_kb else 0


def virt_use_of(spec: RequestSpec) -> VirtUse | None:
    """What it takes of its host beside memory and vCPUs; None: nothing."""
    vm, pages = spec.machine, hugepages(spec)
    functions = (nic.network or "" for nic in vm.nics if nic.passthrough and nic.plugged)
    use = VirtUse(
        hugepages=((hugepage_kb(spec) or 0, pages),) if pages else (),
        exclusive_vcpus=spec.flavor.vcpus if is_exclusive(spec) else 0,
        devices=_counted(vm.host_devices),
        mediated_devices=_counted(vm.mediated_devices),
        virtual_functions=_counted(functions),
    )
    return None if use == NO_USE else use


def _counted(names: Iterable[str]) -> Counts:
    return tuple(sorted(Counter(names).items()))


def real_mb(spec: RequestSpec) -> int:
    """The memory that it takes in any case, without huge pages."""
    overhead = spec.machine.static_overhead_mb
    static = static_overhead_mb(spec.flavor.memory_mb) if overhead is None else overhead
    return static + (0 if hugepage_kb(spec) else spec.flavor.memory_mb)


def total_mb(spec: RequestSpec) -> int:
    """The memory that it may take at most, without huge pages."""
    vm = spec.machine
    possible = vm.possible_overhead_mb
    if possible is None:
        possible = possible_overhead_mb(spec.flavor.vcpus, vm.io_threads, vm.video_ram_mb)
    return real_mb(spec) + possible


def is_exclusive(spec: RequestSpec) -> bool:
    """Whether it takes CPUs that no other VM shares."""
    return spec.machine.pinning not in {"none", "manual"}


def load_percent(spec: RequestSpec) -> float:
    """The load that it brings to the host that runs it."""
    vm = spec.machine
    percent = VCPU_LOAD_PERCENT
    if vm.run_on is not None and vm.cpu_percent is not None:
        percent = vm.cpu_percent
    return percent * spec.flavor.vcpus


def is_there(hosts: Hosts, spec: RequestSpec) -> Mask:
    """The host on which it runs already."""
    if spec.machine.run_on is None:
        return np.zeros(len(hosts), bool)
    return hosts.rows_of([spec.machine.run_on])


def topology(spec: RequestSpec) -> tuple[int, int, int]:
    """Its sockets, cores for each socket and threads for each core."""
    vm, vcpus = spec.machine, spec.flavor.vcpus
    cores, threads = vm.cores_per_socket or 1, vm.threads_per_core or 1
    return vm.sockets or max(1, vcpus // (cores * threads)), cores, threads
