"""NUMA cells and PCI devices in one line each, for tests of scheduling."""

from collections.abc import Iterable
from typing import Any

import msgspec

from scheduler_worker.model.topology import (
    InstanceNUMATopology,
    NUMATopology,
    PCIPool,
    PCIPools,
    read_numa_topology,
    read_pci_pools,
)
from scheduler_worker.scheduling.numa.fit import NumaRequest
from scheduler_worker.scheduling.pci.pools import PCIRequest

Plain = dict[str, Any]


def host_cell(id: int = 0, *, cores: int = 2, threads: int = 2, **fields: Any) -> Plain:
    """A reported cell of so many cores, 8 GiB and no pages; cell 1 begins where cell 0 ends."""
    start = id * cores * threads
    numbers = list(range(start, start + cores * threads))
    siblings = [numbers[at : at + threads] for at in range(0, len(numbers), threads)]
    cell: Plain = {"id": id, "memory": 8192, "cpuset": numbers, "pcpuset": numbers}
    return cell | {"siblings": siblings} | fields


def pages(*sizes: tuple[int, int], used: int = 0) -> list[Plain]:
    """Pages of (KiB, total)."""
    return [{"size_kb": size, "total": total, "used": used} for size, total in sizes]


def host(*cells: Plain) -> NUMATopology:
    """A host of these cells."""
    found = read_numa_topology({"cells": cells})
    assert found is not None
    return found


def instance_cell(
    id: int = 0, *, pinned: int = 0, shared: int = 0, memory: int = 1024, **fields: Any
) -> Plain:
    """A cell of an instance; its vCPUs determine the policy."""
    policy = ("mixed" if shared else "dedicated") if pinned else "shared"
    vcpus = list(range(10 * id, 10 * id + pinned + shared))
    cell = {"id": id, "memory": memory, "pcpuset": vcpus[:pinned], "cpuset": vcpus[pinned:]}
    return cell | {"cpu_policy": policy} | fields


def asked(*cells: Plain, **fields: Any) -> Plain:
    """The topology of a request."""
    return {"cells": list(cells)} | fields


def wanted(*cells: Plain, emulator: str | None = None, **fields: Any) -> NumaRequest:
    """The topology that an instance with these cells requests."""
    plain = asked(*cells, emulator_threads_policy=emulator)
    return NumaRequest(topology=msgspec.convert(plain, InstanceNUMATopology), **fields)


def pool(count: int = 1, numa_node: int | None = None, **tags: str) -> PCIPool:
    """Devices 8086:1520, unless the tags name others."""
    vendor, product = tags.pop("vendor_id", "8086"), tags.pop("product_id", "1520")
    return PCIPool(
        vendor_id=vendor, product_id=product, numa_node=numa_node, count=count, tags=dict(tags)
    )


def pools(*some: PCIPool) -> PCIPools:
    """The pools of a host, as they are read from a report."""
    return read_pci_pools(msgspec.to_builtins(some))


def devices(count: int = 1, *specs: Plain, **fields: Any) -> PCIRequest:
    """A request for devices of one of the specs; of vendor 8086 when there are none."""
    given: Iterable[Plain] = specs or ({"vendor_id": "8086"},)
    return PCIRequest(count, tuple(tuple(sorted(spec.items())) for spec in given), **fields)
