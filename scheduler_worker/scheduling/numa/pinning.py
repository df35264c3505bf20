"""Which CPUs of a host cell an instance's vCPUs are pinned to.

Threads of one core are siblings. ``require`` wants vCPUs to be siblings, ``isolate`` wants cores
of their own, ``prefer`` (the default) fills cores where it can and takes any CPU where it cannot.
"""

from __future__ import annotations

from scheduler_worker.model.topology import CPUs, CPUThreadPolicy, NUMACell, first


def pinned(
    cell: NUMACell, vcpus: int, reserved: int, policy: CPUThreadPolicy | None
) -> CPUs | None:
    """The CPUs that nobody else may have then, ``reserved`` ones included; None: it cannot be.

    At least as many as are asked for are free.
    """
    if policy == "isolate":
        return _isolated(cell, vcpus + reserved)
    chosen = _packed(cell, vcpus, fewest=2 if policy == "require" else 1)
    if chosen is None:
        if policy == "require":
            return None
        chosen = first(vcpus, cell.free_pcpus)
    return chosen | first(reserved, cell.free_pcpus & ~chosen)


def _isolated(cell: NUMACell, cores: int) -> CPUs | None:
    """One thread of each of so many idle cores, and their siblings, which stay idle.

    With a CPU set for shared vCPUs apart, siblings may be in that set and cannot be kept idle.
    """
    if cell.threads_per_core > 1 and cell.pcpuset != cell.cpuset:
        return None
    idle = cell.cores_with[-1][:cores] if cell.cores_with else ()
    return sum(idle) if len(idle) == cores else None


def _packed(cell: NUMACell, vcpus: int, fewest: int) -> CPUs | None:
    """As many threads of each core as possible, at least ``fewest``; of equal cores the first."""
    for threads in range(cell.threads_per_core, fewest - 1, -1):
        cores = cell.cores_with[threads - 1]
        if threads * len(cores) >= vcpus:
            full, rest = divmod(vcpus, threads)
            chosen = sum(first(threads, core) for core in cores[:full])
            return chosen + first(rest, cores[full]) if rest else chosen
    return None
