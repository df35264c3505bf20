"""Decodes requests that people write: a short document in place of Nova's objects.

::

    flavor: {vcpus: 4, ram: 8192, disk: 40, extra_specs: {trait:HW_CPU_X86_AVX2: required}}
    zone: az1
    why_not: [cmp7]

Sizes are those of ``openstack flavor create``: MiB of memory and swap, GiB of disk. Errors name the
fields of the document, also those that filters find later: :func:`naming`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, structs

from scheduler_worker.errors import RequestError
from scheduler_worker.model.requests import MAX_INSTANCES, RequestSpec
from scheduler_worker.model.sizes import Size
from scheduler_worker.rpc.codec.primitives import plain
from scheduler_worker.rpc.codec.requests import decode_request_spec
from scheduler_worker.rpc.codec.typed import typed

MAX_FLAVORS = 200
"""The longest list of flavors."""
_ALIAS = "pci_passthrough:alias"
_Name = Annotated[str, Meta(min_length=1, max_length=255)]
_Value = str | bool | int | float


class FlavorByHand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The size of an instance: memory and swap in MiB, disks in GiB."""

    vcpus: Size
    ram: Size
    disk: Size = 0
    ephemeral: Size = 0
    swap: Size = 0
    name: _Name | None = None
    extra_specs: dict[str, _Value] = {}

    @property
    def label(self) -> str:
        """Its name, or its figures."""
        disk = f", {self.disk:,} GiB" if self.disk else ""
        return self.name or f"{self.vcpus:,} vCPUs, {self.ram:,} MiB{disk}"


class DevicesByHand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """PCI devices that the instance needs: ``count`` of those that one of ``spec`` matches."""

    spec: tuple[dict[str, str], ...]
    count: Annotated[int, Meta(ge=1)] = 1
    numa_policy: str | None = None


class SettingByHand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What narrows the choice of a host beside the flavor."""

    image_properties: dict[str, Any] = {}
    hints: dict[str, str | tuple[str, ...]] = {}
    project: _Name | None = None
    zone: _Name | None = None
    cluster: _Name | None = None
    boots_from_volume: bool = False
    devices: tuple[DevicesByHand, ...] = ()


class RequestByHand(SettingByHand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for hosts as people write it."""

    flavor: FlavorByHand | str
    instances: Annotated[int, Meta(ge=1, le=MAX_INSTANCES)] = 1
    why_not: _Name | tuple[_Name, ...] = ()
    """The hosts of which to say why they would not be chosen."""


class Asked(NamedTuple):
    """The specification of a request by hand, and the hosts that it asks about."""

    spec: RequestSpec
    hosts: tuple[str, ...]


def decode_request_by_hand(value: Any, path: str = "request") -> Asked:
    """Decode a request that a person wrote. Raises RequestError, which names its field."""
    found = typed(plain(value, path), RequestByHand, path)
    if isinstance(found.flavor, str):
        raise RequestError(
            f"{path}.flavor",
            f"{found.flavor[:80]!r} is a name, and workers keep no flavors; give its figures, "
            "such as {vcpus: 2, ram: 4096, disk: 20}",
        )
    hosts = (found.why_not,) if isinstance(found.why_not, str) else found.why_not
    with naming(path):
        return Asked(_spec(found.flavor, found, found.instances, path), hosts)


def decode_flavors_by_hand(
    flavors: Any, setting: Any = None, path: str = "flavors"
) -> list[tuple[str, RequestSpec]]:
    """Decode a list of flavors in one setting: the name and the request of each.

    Raises RequestError, which names the field.
    """
    kind = Annotated[tuple[FlavorByHand, ...], Meta(min_length=1, max_length=MAX_FLAVORS)]
    decoded: tuple[FlavorByHand, ...] = typed(plain(flavors, path), kind, path)
    common = typed(plain(setting or {}, "setting"), SettingByHand, "setting")
    names = [each.label for each in decoded]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise RequestError(f"{path}[{number}]", f"{name!r} is listed twice")
    found = []
    for number, each in enumerate(decoded):
        with naming("setting", f"{path}[{number}]"):
            found.append((names[number], _spec(each, common, 1, "setting")))
    return found


@contextlib.contextmanager
def naming(path: str, flavor: str | None = None) -> Iterator[None]:
    """Inside, errors that name a field of the specification name that of the document instead."""
    try:
        yield
    except RequestError as error:
        raise RequestError(_renamed(error.field, path, flavor), error.problem) from None


_FIELDS = {
    "flavor.memory_mb": "flavor.ram",
    "flavor.root_gb": "flavor.disk",
    "flavor.ephemeral_gb": "flavor.ephemeral",
    "scheduler_hints": "hints",
    "image.properties": "image_properties",
    "availability_zone": "zone",
    "project_id": "project",
    "pci_requests": "devices",
}
"""Field of the specification -> field of the document, where they differ."""


def _renamed(field: str, path: str, flavor: str | None) -> str:
    whole, _, rest = field.partition("spec_obj.")
    if whole or not rest:
        return field
    for name, other in _FIELDS.items():
        if rest == name or rest.startswith((f"{name}.", f"{name}[")):
            rest = other + rest[len(name) :]
            break
    if flavor is not None and (rest == "flavor" or rest.startswith("flavor.")):
        return flavor + rest[len("flavor") :]
    return f"{path}.{rest}"


def _spec(flavor: FlavorByHand, setting: SettingByHand, instances: int, path: str) -> RequestSpec:
    if _ALIAS in flavor.extra_specs:
        problem = f"only Nova knows its aliases; list the devices in {path}.devices instead"
        raise RequestError(f"spec_obj.flavor.extra_specs.{_ALIAS}", problem)
    hints: dict[str, Any] = dict(setting.hints)
    if setting.cluster is not None:
        hints["cluster"] = setting.cluster
    requests = [structs.asdict(each) for each in setting.devices]
    fields: dict[str, Any] = {
        "flavor": {
            "name": flavor.name,
            "vcpus": flavor.vcpus,
            "memory_mb": flavor.ram,
            "root_gb": flavor.disk,
            "ephemeral_gb": flavor.ephemeral,
            "swap": flavor.swap,
            "extra_specs": {key: _text(value) for key, value in flavor.extra_specs.items()},
        },
        "num_instances": instances,
        "scheduler_hints": {
            key: [hint] if isinstance(hint, str) else list(hint) for key, hint in hints.items()
        },
        "image": {"properties": setting.image_properties} if setting.image_properties else None,
        "project_id": setting.project,
        "availability_zone": setting.zone,
        "is_bfv": setting.boots_from_volume,
        "pci_requests": msgspec.to_builtins({"requests": requests}) if requests else None,
    }
    return decode_request_spec({key: each for key, each in fields.items() if each is not None})


def _text(value: _Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
