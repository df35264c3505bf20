"""Capacity: how many more instances of some flavors fit."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from scheduler_worker.errors import RequestError
from scheduler_worker.model.capacity import FlavorCapacity
from scheduler_worker.operations.operation import Call, operation

if TYPE_CHECKING:
    from scheduler_worker.model.requests import RequestSpec

MAX_FLAVORS = 200


class CapacityRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Flavors, each to be counted by itself; nothing is reserved."""

    flavors: Annotated[
        list[dict[str, Any]],
        Meta(
            min_length=1,
            max_length=MAX_FLAVORS,
            description="Each with the fields of Nova's Flavor: `vcpus`, `memory_mb`, and if "
            "wanted `name`, `root_gb`, `ephemeral_gb`, `swap`, `extra_specs`.",
        ),
    ]
    spec_obj: Annotated[
        dict[str, Any],
        Meta(description="What narrows the hosts: fields of Nova's RequestSpec beside `flavor`."),
    ] = {}


class CapacityAnswer(msgspec.Struct, frozen=True):
    """The capacity for each flavor, in the order of the request."""

    flavors: list[FlavorCapacity]


@operation("POST", "/capacity")
def capacity(call: Call, asked: CapacityRequest) -> CapacityAnswer:
    """Count how many more instances of each flavor fit, and say what runs out first.

    The count is that of placing instances one by one until one is refused, under each cluster's
    policy; flavors are counted independently of each other. Nothing is reserved.
    """
    from scheduler_worker import codec

    specs: dict[str, RequestSpec] = {}
    for number, flavor in enumerate(asked.flavors):
        where = f"flavors[{number}]"
        spec = codec.decode_request_spec(
            {**asked.spec_obj, "flavor": flavor}, paths={"flavor": where}, is_strict=True
        )
        disk = f", {spec.flavor.root_gb:,} GiB" if spec.flavor.root_gb else ""
        figures = f"{spec.flavor.vcpus:,} vCPUs, {spec.flavor.memory_mb:,} MiB{disk}"
        name = spec.flavor.name or figures
        if name in specs:
            raise RequestError(where, f"{name!r} is listed twice")
        specs[name] = spec
    return CapacityAnswer(list(call.services.capacity.of(list(specs.items()))))
