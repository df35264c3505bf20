"""Chooses the CPUs of a host cell that an instance's vCPUs are pinned to.

Threads of one core are siblings. With ``require`` vCPUs must be siblings, with ``isolate`` each
gets a core of its own, with ``prefer`` (the default) they fill cores if possible and else get any
CPU. CPUs for emulator threads are chosen after those of the vCPUs.
"""

from __future__ import annotations

from scheduler_worker.model.topology import CPUs, CPUThreadPolicy, NUMACell, first


def pinned(
    cell: NUMACell, vcpus: int, reserved: int, policy: CPUThreadPolicy | None
) -> CPUs | None:
    """The CPUs that the instance gets for itself, ``reserved`` ones included; None: none fit.

    The caller has checked that enough are free. A cell of a ``mixed`` instance may pin none of its
    vCPUs; as in Nova, it does not fit then with ``isolate``.
    """
    if not vcpus and (reserved or policy == "isolate"):
        return None
    isolates = policy == "isolate"
    if isolates:
        chosen = _isolated(cell, vcpus)
    else:
        chosen = _packed(cell, vcpus, fewest=2 if policy == "require" else 1)
        if chosen is None and policy != "require":
            chosen = first(vcpus, cell.free_pcpus)
    if chosen is None or not reserved:
        return chosen
    return _with_reserved(cell, chosen, reserved, whole_cores=isolates)


def _isolated(cell: NUMACell, cores: int) -> CPUs | None:
    """All threads of so many idle cores; one of each runs a vCPU, its siblings stay idle.

    With a separate CPU set for shared vCPUs, siblings may be in that set and could not be kept
    idle.
    """
    if cell.threads_per_core > 1 and cell.pcpuset != cell.cpuset:
        return None
    idle = cell.cores_with[-1][:cores] if cell.cores_with else ()
    return sum(idle) if len(idle) == cores else None


def _packed(cell: NUMACell, vcpus: int, fewest: int) -> CPUs | None:
    """As many threads per core as possible, at least ``fewest``, on the first cores."""
    for threads in range(cell.threads_per_core, fewest - 1, -1):
        cores = cell.cores_with[threads - 1]
        if cores and threads * len(cores) >= vcpus:
            full, rest = divmod(vcpus, threads)
            chosen = sum(first(threads, core) for core in cores[:full])
            return chosen + first(rest, cores[full]) if rest else chosen
    return None


def _with_reserved(cell: NUMACell, chosen: CPUs, count: int, *, whole_cores: bool) -> CPUs | None:
    """The chosen CPUs and the first free threads beside them, in the order of cores.

    Mostly that is the rest of a core that the vCPUs use in part.
    """
    for core in cell.siblings or (cell.pcpuset,):
        free = core & cell.free_pcpus & ~chosen
        some = first(count, free)
        count -= some.bit_count()
        chosen |= free if whole_cores and some else some
    return None if count else chosen
