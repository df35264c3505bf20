"""Whether memory holds a VM, physically and as overcommitted; and whether a host swaps too much."""

from collections.abc import Iterator
from typing import Any

from conformance import ovirt
from scheduler_worker.scheduling.ovirt import formulas


def recognise(document: Any) -> bool:
    return ovirt.is_case(document, "check", "host", "vm") or ovirt.is_case(
        document, "host", "allowed_percent"
    )


def run(document: Any) -> Iterator[str]:
    if "allowed_percent" in document:
        yield from _swap(document)
        return
    host, vm = document["host"], document["vm"]
    pages_mb = document.get("dynamic_hugepage_mem_mb") or 0
    needed = vm.get("static_overhead_mb") or 0
    needed += 0 if vm.get("hugepages_kb") else vm["mem_mb"]
    if document["check"] == "physical":
        free = host.get("mem_free_mb")
        fits = formulas.fits_physically(
            float("nan") if free is None else free,
            document.get("pending_real_mem_mb") or 0,
            host.get("swap_free_mb") or 0,
            pages_mb,
            needed,
        )
    else:
        schedulable = formulas.schedulable_mb(
            host["physical_mem_mb"],
            host["max_overcommit_percent"],
            host["mem_committed_mb"],
            host["reserved_mem_mb"],
        )
        left = max(0.0, schedulable - (host.get("pending_mem_mb") or 0))
        total = needed + (vm.get("possible_overhead_mb") or 0)
        fits = formulas.fits_overcommitted(left, pages_mb, total)
    if bool(fits) != document["expected"]:
        yield f"the {document['check']} check says {bool(fits)}"


def _swap(document: Any) -> Iterator[str]:
    unit = ovirt.filter_unit("Swap", {"MaximumAllowedSwapUsage": str(document["allowed_percent"])})
    hosts = ovirt.table([ovirt.measured(document["host"])])
    kept = bool(ovirt.kept(unit, hosts, ovirt.request()))
    if kept != document["expected_kept"]:
        yield f"Swap {'keeps' if kept else 'drops'} the host"
