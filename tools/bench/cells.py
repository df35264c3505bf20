"""Fitting an instance of eight NUMA cells to a host with many: what a search costs at most."""

import argparse
import itertools
import time
from collections.abc import Callable

import msgspec

from bench.table import percentile, show
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.model.topology import PCIPools, read_numa_topology, read_pci_pools
from scheduler_worker.scheduling.numa.cells import Ratios
from scheduler_worker.scheduling.numa.constraints import wanted
from scheduler_worker.scheduling.numa.fit import fit

_VF = {"vendor_id": "15b3", "product_id": "101e"}
_TIMES = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cells", type=int, nargs="+", default=[16, 20, 24], help="of the host")


def run(arguments: argparse.Namespace) -> list[dict]:
    rows = [
        {"cells": count, "request": request, **_row(count, request)}
        for count, request in itertools.product(arguments.cells, _REQUESTS)
    ]
    show("NUMA cells (8 of an instance, one host; ms of CPU)", rows)
    return rows


def _asked(devices: int = 0, more: int = 0, *, last_mb: int = 512) -> RequestSpec:
    """Eight cells, and devices near them: a second request means the same in other words."""
    cells = [
        {"id": number, "memory": 512, "pcpuset": [2 * number, 2 * number + 1]}
        | {"cpuset": [], "cpu_policy": "dedicated"}
        for number in range(8)
    ]
    cells[-1]["memory"] = last_mb
    counts = ((devices, _VF), (more, {"product_id": "101e"}))
    requests = [
        {"count": count, "spec": [spec], "numa_policy": "required"}
        for count, spec in counts
        if count
    ]
    plain = {
        "flavor": {"vcpus": 16, "memory_mb": 4096},
        "numa_topology": {"cells": cells},
        "pci_requests": {"requests": requests},
    }
    return msgspec.convert(plain, RequestSpec)


def _pools(count: int, *nodes: int | None) -> PCIPools:
    return read_pci_pools([_VF | {"numa_node": node, "count": count} for node in nodes])


_REQUESTS: dict[str, tuple[RequestSpec, Callable[[int], PCIPools]]] = {
    "fits": (_asked(), lambda _: ()),
    "last cell fits nowhere": (_asked(last_mb=8192), lambda _: ()),
    "device near no cell": (_asked(1), lambda cells: _pools(8, None)),
    "devices of nine cells": (_asked(9), lambda cells: _pools(1, *range(cells))),
    "gives up": (_asked(5, 5), lambda cells: _pools(1, *range(cells))),
}


def _row(count: int, request: str) -> dict:
    spec, pools_of = _REQUESTS[request]
    cells = [
        {"id": number, "memory": 4096, "cpuset": [], "pcpuset": cpus, "siblings": []}
        for number in range(count)
        for cpus in [list(range(4 * number, 4 * number + 4))]
    ]
    host, asked, pools = read_numa_topology({"cells": cells}), wanted(spec), pools_of(count)
    if host is None or asked is None:
        raise ValueError(request)
    times = []
    for _ in range(_TIMES):
        begun_s = time.process_time()
        found = fit(host, pools, asked, Ratios())
        times.append(1000 * (time.process_time() - begun_s))
    outcome = found if isinstance(found, str) else "fits"
    return {"median_ms": percentile(times, 0.5), "most_ms": max(times), "outcome": outcome}
