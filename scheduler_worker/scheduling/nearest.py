"""The host that came nearest to being chosen: it fails the fewest filters, and lacks least."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scheduler_worker.model.decisions import NearMiss
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.granular import amount_set
from scheduler_worker.scheduling.plugin import Filter, only


def nearest(filters: Sequence[Filter], hosts: HostTable, spec: RequestSpec) -> NearMiss | None:
    """The nearest host of a request that no host passes; None: there are no hosts.

    ``filters`` are those that the request concerns. Each is asked about every host, but for units
    of others that do not say what they read, since these may be slow: they count as passed. A
    shortage counts as a share of what the host would have to have beside what it has.
    """
    asked = [unit for unit in filters if unit.is_internal() or unit.declares_reads()]
    if not len(hosts) or not asked:
        return None
    failed, lacking = np.zeros(len(hosts)), np.zeros(len(hosts))
    for unit in asked:
        failed += ~unit.passes(hosts, spec)
        for name, amounts in unit.shortages(hosts, spec).items():
            wanted = max(1, _wanted(spec, name))
            lacking += amounts / wanted
    row = int(np.lexsort((lacking, failed))[0])
    host, alone = hosts.state(row), only(hosts.state(row))
    shortages: dict[str, int] = {}
    reasons: list[str] = []
    for unit in asked:
        if not unit.host_passes(host, spec):
            lacked = {name: int(amount[0]) for name, amount in unit.shortages(alone, spec).items()}
            lacked = {name: amount for name, amount in lacked.items() if amount > 0}
            shortages |= {name: max(n, shortages.get(name, 0)) for name, n in lacked.items()}
            if not lacked:
                reasons.append(unit.reason(host, spec))
    return NearMiss(host=host.host, shortages=shortages, reasons=tuple(dict.fromkeys(reasons)))


def _wanted(spec: RequestSpec, resource_class: str) -> int:
    flavor, amount = spec.flavor, amount_set(spec.flavor, resource_class)
    if amount is not None:
        return amount
    of_class = {"MEMORY_MB": flavor.memory_mb, "DISK_GB": flavor.disk_mb // 1024}
    return of_class.get(resource_class, flavor.vcpus)
