"""Chooses the pools of a host that serve PCI requests, step by step.

For one request the pools are narrowed in this order:

1. to suitable devices;
2. by NUMA affinity;
3. by kinds that are only given on request: physical functions, vdpa, remote management;
4. by whether a device can migrate;
5. by the resource providers that were chosen before.

Devices are taken from the remaining pools in order. Several requests are served one by one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from scheduler_worker.conversion import convert
from scheduler_worker.errors import RequestError
from scheduler_worker.model.image_properties import is_true
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.model.sizes import MAX_GROUPS, MAX_PCI_REQUESTS, Text
from scheduler_worker.model.topology import (
    NUMACell,
    PCINUMAPolicy,
    PCIPool,
    PCIPools,
    count_devices,
    devices_taken,
)

NOT_MATCHED = frozenset({"resource_class", "traits", "rp_uuid", "rp_uuids"})
"""Keys of a spec that are meant for Placement, not matched with the device."""
_KINDS_ON_REQUEST = frozenset({"type-PF", "vdpa"})

Spec = tuple[tuple[str, str | None], ...]


class PCIRequest(msgspec.Struct, frozen=True):
    """A number of devices, each of which matches *one* of the specs."""

    count: int
    specs: tuple[Spec, ...]
    numa_policy: PCINUMAPolicy = "legacy"
    providers: tuple[str, ...] = ()
    """The resource provider of each device, if they were chosen before; empty: any."""

    def suits(self, pool: PCIPool) -> bool:
        """Whether the devices of a pool match one of the specs."""
        for spec in self.specs:  # loops take half the time of any() and all()
            for key, value in spec:
                if not _alike(pool.value(key), value):
                    break
            else:
                return True
        return False

    @property
    def is_remote_managed(self) -> bool:
        """Whether some spec requires a remote-managed device."""
        return any(is_true(dict(spec).get("remote_managed")) for spec in self.specs)

    @property
    def live_migratable(self) -> bool | None:
        """Whether all specs require devices that can be live-migrated, or that cannot; None:
        neither.
        """
        values = {dict(spec).get("live_migratable") for spec in self.specs}
        return {"true": True, "false": False}.get(values.pop() or "") if len(values) == 1 else None


def _alike(actual: str | None, required: str | None) -> bool:
    if actual == required or actual is None or required is None:
        return actual == required
    return actual.lower() == required.lower()


class _InstancePCIRequest(msgspec.Struct, frozen=True):
    """A request as it is sent; ``alias_name`` is None for a port's."""

    count: Annotated[int, Meta(ge=0)]
    spec: Annotated[tuple[dict[Text, Text | None], ...], Meta(max_length=MAX_GROUPS)] = ()
    alias_name: str | None = None
    request_id: str | None = None
    numa_policy: PCINUMAPolicy | None = None


class _InstancePCIRequests(msgspec.Struct, frozen=True):
    requests: Annotated[tuple[_InstancePCIRequest, ...], Meta(max_length=MAX_PCI_REQUESTS)] = ()


def pci_requests(spec: RequestSpec) -> tuple[PCIRequest, ...]:
    """The requested devices, in order. Raises RequestError for an invalid request."""
    asked = _asked(spec)
    if not asked:
        return ()
    mapping = {
        group.requester_id or "": group.provider_uuids
        for group in spec.requested_resources or ()
        if group.provider_uuids
    }
    return tuple(
        PCIRequest(
            request.count,
            tuple(_matched(item) for item in request.spec),
            request.numa_policy or "legacy",
            tuple(_providers(request, mapping)),
        )
        for request in asked
    )


def providers_of(spec: RequestSpec, devices: PCIPools) -> dict[str, str]:
    """The resource provider of each chosen device, by the name of its request group."""
    chosen = (pool.value("rp_uuid") for pool in devices for _ in range(pool.count))
    providers = {}
    for request in _asked(spec):
        for number, provider in zip(range(request.count), chosen, strict=False):
            if provider:
                providers[f"{request.request_id}-{number}"] = provider
    return providers


def _asked(spec: RequestSpec) -> tuple[_InstancePCIRequest, ...]:
    if not spec.pci_requests or not spec.pci_requests.get("requests"):
        return ()
    try:
        return convert(spec.pci_requests, _InstancePCIRequests).requests
    except msgspec.ValidationError as error:
        raise RequestError("spec_obj.pci_requests", str(error)) from None


def _matched(spec: Mapping[str, str | None]) -> Spec:
    return tuple(sorted(item for item in spec.items() if item[0] not in NOT_MATCHED))


def _providers(request: _InstancePCIRequest, mapping: Mapping[str, Sequence[str]]) -> Iterable[str]:
    """The provider of each device, from the request's groups; a port's may come from any.

    Providers that the request's spec names (``rp_uuids``) come from an earlier placement.
    """
    if request.alias_name is None or not (own := request.request_id):
        return []
    return [providers[0] for group, providers in mapping.items() if group.startswith(own)]


Cells = Sequence[NUMACell]


def devices_for(
    requests: Iterable[PCIRequest],
    pools: PCIPools,
    cells: Cells | None = None,
    host_cells: Cells = (),
) -> PCIPools | None:
    """The devices that would be taken, as pools with as many; None: there are too few.

    ``cells`` are the ``host_cells`` that the instance is on; None: it has no NUMA topology,
    and devices on any node are suitable.
    """
    devices: PCIPools = ()
    last: PCIPools = ()
    for request in requests:
        pools = devices_taken(pools, last)
        matching = matched(request, pools)
        near = matching if cells is None else _near(request, matching, cells, host_cells)
        suitable = given(request, near)
        if request.providers:
            taken = _of_providers(request, suitable, pools)
        else:
            taken = _first(suitable, request.count)
        if taken is None or not suitable:
            return None
        devices += taken
        last = taken
    return devices


def matched(request: PCIRequest, pools: PCIPools) -> list[PCIPool]:
    """The pools with devices that match, on whatever node, whether they are given or not."""
    return [pool for pool in pools if pool.count > 0 and request.suits(pool)]


def given(request: PCIRequest, pools: Iterable[PCIPool]) -> list[PCIPool]:
    """The matched pools that are given: some kinds only if the request asks for them.

    A request for devices that can migrate, or that cannot, gets devices that are tagged so.
    """
    withheld = _KINDS_ON_REQUEST - {dict(spec).get("dev_type") for spec in request.specs}
    is_remote, migrates = request.is_remote_managed, request.live_migratable
    return [
        pool
        for pool in pools
        if pool.value("dev_type") not in withheld
        and (is_remote or not is_true(pool.value("remote_managed")))
        and (migrates is None or pool.value("live_migratable") == str(migrates).lower())
    ]


def _near(
    request: PCIRequest, pools: list[PCIPool], cells: Cells, host_cells: Cells
) -> list[PCIPool]:
    """The pools that the request's NUMA policy allows, nearest first."""
    nodes = {cell.id for cell in cells}
    near = [pool for pool in pools if pool.numa_node in nodes]
    policy = request.numa_policy
    if policy == "required" or count_devices(near) >= request.count:
        return near
    if policy == "socket":
        if any(cell.socket is None for cell in host_cells):
            return []
        sockets = {cell.socket for cell in cells}
        nodes = {cell.id for cell in host_cells if cell.socket in sockets}
        return [pool for pool in pools if pool.numa_node in nodes]
    near += [pool for pool in pools if pool.numa_node is None]
    if policy == "legacy" or count_devices(near) >= request.count:
        return near
    return near + [pool for pool in pools if pool not in near]


def _first(pools: Iterable[PCIPool], missing: int) -> PCIPools | None:
    taken = []
    for pool in pools:
        if not missing:
            break
        taken.append(pool.with_count(min(pool.count, missing)))
        missing -= taken[-1].count
    return None if missing else tuple(taken)


def _of_providers(
    request: PCIRequest, suitable: Iterable[PCIPool], pools: PCIPools
) -> PCIPools | None:
    """The devices of the chosen providers, from the pool of each.

    A host with a provider whose devices are in several pools cannot serve: the pool is ambiguous.
    """
    counts: Counter[str | None] = Counter(request.providers)
    spread = Counter(pool.tags["rp_uuid"] for pool in pools if "rp_uuid" in pool.tags)
    chosen = [pool for pool in suitable if 0 < counts[pool.value("rp_uuid")] <= pool.count]
    if any(count > 1 for count in spread.values()) or count_devices(chosen) < request.count:
        return None
    return tuple(pool.with_count(counts[pool.value("rp_uuid")]) for pool in chosen)
