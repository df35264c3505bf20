"""The PCI requirements of a request, without the ids that differ from request to request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from scheduler_worker.errors import RequestError
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.model.topology import PCINUMAPolicy, PCIPool, PCIPools

NOT_MATCHED = frozenset({"resource_class", "traits", "rp_uuid", "rp_uuids"})
"""Keys of a spec that are meant for Placement, not matched with the device."""

_TRUE = frozenset({"1", "t", "true", "on", "y", "yes"})

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
            for key, wanted in spec:
                if not _alike(pool.value(key), wanted):
                    break
            else:
                return True
        return False

    def asks_for(self, key: str, value: str) -> bool:
        """Whether some spec requires this value."""
        return any((key, value) in spec for spec in self.specs)

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


def _alike(found: str | None, wanted: str | None) -> bool:
    if found == wanted or found is None or wanted is None:
        return found == wanted
    return found.lower() == wanted.lower()


def is_true(text: str | None) -> bool:
    """Whether a text means yes."""
    return text is not None and text.strip().lower() in _TRUE


class _InstancePCIRequest(msgspec.Struct, frozen=True):
    """A request as it is sent; ``alias_name`` is None for a port's."""

    count: Annotated[int, Meta(ge=0)]
    spec: tuple[dict[str, str | None], ...] = ()
    alias_name: str | None = None
    request_id: str | None = None
    numa_policy: PCINUMAPolicy | None = None


class _InstancePCIRequests(msgspec.Struct, frozen=True):
    requests: tuple[_InstancePCIRequest, ...] = ()


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
            each.count,
            tuple(_matched(some) for some in each.spec),
            each.numa_policy or "legacy",
            tuple(_providers(each, mapping)),
        )
        for each in asked
    )


def providers_of(spec: RequestSpec, devices: PCIPools) -> dict[str, str]:
    """The resource provider of each chosen device, by the name of its request group."""
    chosen = (pool.value("rp_uuid") for pool in devices for _ in range(pool.count))
    found = {}
    for request in _asked(spec):
        for number, provider in zip(range(request.count), chosen, strict=False):
            if provider:
                found[f"{request.request_id}-{number}"] = provider
    return found


def _asked(spec: RequestSpec) -> tuple[_InstancePCIRequest, ...]:
    if not spec.pci_requests or not spec.pci_requests.get("requests"):
        return ()
    try:
        return msgspec.convert(spec.pci_requests, _InstancePCIRequests).requests
    except msgspec.ValidationError as error:
        raise RequestError("spec_obj.pci_requests", str(error)) from None


def _matched(spec: Mapping[str, str | None]) -> Spec:
    return tuple(sorted(item for item in spec.items() if item[0] not in NOT_MATCHED))


def _providers(request: _InstancePCIRequest, mapping: Mapping[str, Sequence[str]]) -> Iterable[str]:
    """The provider of each device, from the request's groups; a port's may come from any.

    Providers that the request's spec names (``rp_uuids``) are those of an earlier placement.
    """
    if request.alias_name is None or not request.request_id:
        return []
    return [
        providers[0]
        for requester, providers in mapping.items()
        if requester.startswith(request.request_id)
    ]
