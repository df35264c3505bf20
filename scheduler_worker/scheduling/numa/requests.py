"""The NUMA requirements of a request, and what its instance takes of a host's topology."""

from __future__ import annotations

import msgspec

from scheduler_worker.errors import RequestError
from scheduler_worker.model.claims import Resources
from scheduler_worker.model.hosts import HostState
from scheduler_worker.model.requests import RequestSpec, SchedulerLimits
from scheduler_worker.model.topology import InstanceNUMACell, InstanceNUMATopology
from scheduler_worker.scheduling.numa.cells import Ratios
from scheduler_worker.scheduling.numa.constraints import instance_topology
from scheduler_worker.scheduling.numa.fit import Fitted, Wanted, fit
from scheduler_worker.scheduling.pci.pools import devices_for, pci_requests


def wanted(spec: RequestSpec) -> Wanted | None:
    """The requirements; None: no topology is requested. Raises RequestError for an invalid one."""
    if not spec.numa_topology:
        return None
    try:
        sent = msgspec.convert(spec.numa_topology, InstanceNUMATopology)
    except msgspec.ValidationError as error:
        raise RequestError("spec_obj.numa_topology", str(error)) from None
    topology = msgspec.structs.replace(sent, cells=tuple(map(_as_pinned, sent.cells)))
    return Wanted(topology=topology, network=spec.network_metadata, devices=pci_requests(spec))


def with_topology(spec: RequestSpec) -> RequestSpec:
    """The request with the topology that flavor and image ask for, if it has none.

    Raises RequestError, which names the invalid field.
    """
    if spec.numa_topology is not None:
        return spec
    asked = instance_topology(spec.flavor, spec.image_properties)
    if asked is None:
        return spec
    return msgspec.structs.replace(spec, numa_topology=msgspec.to_builtins(asked))


def with_page_sizes(spec: RequestSpec, taken: Resources) -> RequestSpec:
    """The request for its next instance, with the page sizes that the first one got."""
    if spec.numa_topology is None or not taken.numa:
        return spec
    if not any((cell.get("pagesize") or 0) < 0 for cell in spec.numa_topology["cells"]):
        return spec
    cells = [
        cell | {"pagesize": used.page_kb} if (cell.get("pagesize") or 0) < 0 else cell
        for cell, used in zip(spec.numa_topology["cells"], taken.numa, strict=True)
    ]
    return msgspec.structs.replace(spec, numa_topology=spec.numa_topology | {"cells": cells})


def _as_pinned(cell: InstanceNUMACell) -> InstanceNUMACell:
    """Callers older than ``pcpuset`` send pinned vCPUs in ``cpuset``."""
    if cell.cpu_policy != "dedicated" or cell.pcpuset:
        return cell
    return msgspec.structs.replace(cell, cpuset=frozenset(), pcpuset=cell.cpuset)


def wants_threads(spec: RequestSpec) -> bool:
    """Whether flavor or image require pinned CPUs that are threads of one core."""
    extra, image = spec.flavor.extra_specs, spec.image_properties
    pins = "dedicated" in {extra.get("hw:cpu_policy"), image.get("hw_cpu_policy")}
    threads = {extra.get("hw:cpu_thread_policy"), image.get("hw_cpu_thread_policy")}
    return pins and "require" in threads


def ratios_of(host: HostState) -> Ratios:
    """The host's allocation ratios."""
    return Ratios(host.cpu_allocation_ratio, host.ram_allocation_ratio)


def taken_by(
    spec: RequestSpec, host: HostState, limits: SchedulerLimits, *, packs: bool = False
) -> Fitted:
    """What an instance takes from the cells and devices of the host that was chosen for it.

    ``limits`` are its selection's. Without limits of NUMATopologyFilter, because it is not
    enabled or an administrator forced the host, cells may be overcommitted and networks be on other
    cells. If the topology does not even fit then, no cell is taken, and devices on any node are; if
    the host has too few for all requests, devices of the first ones.
    """
    if not (spec.numa_topology or spec.pci_requests):
        return Fitted()
    asked, topology, pools = wanted(spec), host.numa_topology, host.pci_pools
    if asked is not None and topology is not None:
        ratios = _ratios_within(limits)
        if ratios is None:
            asked = msgspec.structs.replace(asked, network=None)
        fitted = fit(topology, pools, asked, ratios, packs=packs)
        if packs and isinstance(fitted, str):  # the filter does not pack, and may have found more
            fitted = fit(topology, pools, asked, ratios)
        if isinstance(fitted, Fitted):
            return fitted
    requests = pci_requests(spec)
    served = (devices_for(requests[:count], pools) for count in range(len(requests), 0, -1))
    return Fitted((), next(filter(None, served), ()))


def _ratios_within(limits: SchedulerLimits) -> Ratios | None:
    ratios = limits.numa_topology
    if ratios is None:
        return None
    return Ratios(ratios["cpu_allocation_ratio"], ratios["ram_allocation_ratio"])
