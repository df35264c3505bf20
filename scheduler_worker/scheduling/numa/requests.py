"""What a request asks of a host's NUMA cells."""

from __future__ import annotations

import msgspec

from scheduler_worker.errors import RequestError
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.model.topology import InstanceNUMACell, InstanceNUMATopology
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
