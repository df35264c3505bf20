"""What a request asks of a host's NUMA cells."""

from __future__ import annotations

import msgspec

from scheduler_worker.errors import RequestError
from scheduler_worker.model.claims import PendingResource
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.model.topology import InstanceNUMACell, InstanceNUMATopology
from scheduler_worker.scheduling.numa.constraints import instance_topology
from scheduler_worker.scheduling.numa.fit import Wanted
from scheduler_worker.scheduling.pci.requests import pci_requests


def wanted(spec: RequestSpec) -> Wanted | None:
    """None when no topology is asked for. Raises RequestError when it cannot be read."""
    if not spec.numa_topology:
        return None
    try:
        said = msgspec.convert(spec.numa_topology, InstanceNUMATopology)
    except msgspec.ValidationError as error:
        raise RequestError("spec_obj.numa_topology", str(error)) from None
    topology = msgspec.structs.replace(said, cells=tuple(map(_as_pinned, said.cells)))
    return Wanted(topology=topology, network=spec.network_metadata, devices=pci_requests(spec))


def with_topology(spec: RequestSpec) -> RequestSpec:
    """The request of a caller that sends a flavor alone, with the topology that it asks for.

    Raises RequestError: names what makes no sense.
    """
    if spec.numa_topology is not None:
        return spec
    asked = instance_topology(spec.flavor, spec.image_properties)
    if asked is None:
        return spec
    return msgspec.structs.replace(spec, numa_topology=msgspec.to_builtins(asked))


def with_page_sizes(spec: RequestSpec, taken: PendingResource) -> RequestSpec:
    """The request as its next instance sees it: what the first one got, the others get too."""
    if spec.numa_topology is None or not taken.numa:
        return spec
    cells = [
        cell | {"pagesize": used.page_kb} if (cell.get("pagesize") or 0) < 0 else cell
        for cell, used in zip(spec.numa_topology["cells"], taken.numa, strict=True)
    ]
    return msgspec.structs.replace(spec, numa_topology=spec.numa_topology | {"cells": cells})


def _as_pinned(cell: InstanceNUMACell) -> InstanceNUMACell:
    """Callers that know no ``pcpuset`` list pinned vCPUs among the others."""
    if cell.cpu_policy != "dedicated" or cell.pcpuset:
        return cell
    return msgspec.structs.replace(cell, cpuset=frozenset(), pcpuset=cell.cpuset)


def wants_threads(spec: RequestSpec) -> bool:
    """Whether flavor or image ask for pinned CPUs that are threads of one core."""
    extra, image = spec.flavor.extra_specs, spec.image_properties
    pins = "dedicated" in {extra.get("hw:cpu_policy"), image.get("hw_cpu_policy")}
    threads = {extra.get("hw:cpu_thread_policy"), image.get("hw_cpu_thread_policy")}
    return pins and "require" in threads
