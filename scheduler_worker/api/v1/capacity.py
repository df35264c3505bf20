"""Capacity: how many more instances of some flavors fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from scheduler_worker.api.access import Access
from scheduler_worker.api.rights import Action
from scheduler_worker.api.v1.operations import Answer, Call, Operation
from scheduler_worker.model.capacity import FlavorCapacity


class CapacityRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Flavors in one setting, as the RPC method `capacity` takes them; nothing is reserved."""

    flavors: list[dict[str, Any]]
    """Each has `vcpus`, `ram` (MiB), and if wanted `name`, `disk`, `ephemeral` (GiB), `swap` (MiB)
    and `extra_specs`."""
    setting: dict[str, Any] | None = None
    """What narrows the hosts: `cluster`, `zone`, `project`, `image_properties`, `hints`, ..."""


class CapacityAnswer(msgspec.Struct, frozen=True):
    """The capacity for each flavor, in the order of the request."""

    flavors: list[FlavorCapacity]


CountCapacity = Callable[[CapacityRequest], list[dict[str, Any]]]
"""Gets the body; answers as the RPC method ``capacity`` does.

Raises RequestError, whose field is a path below the body; StateUnavailable.
"""


class CapacityOperations:
    """Serves capacity."""

    def __init__(self, access: Access, count: CountCapacity) -> None:
        self._access = access
        self._count = count

    def operations(self) -> Sequence[Operation]:
        """What is served."""
        return [
            Operation(
                "POST", "/capacity", "capacity",
                "How many more instances of each flavor fit, and what runs out first.",
                self.capacity, answer=CapacityAnswer, body=CapacityRequest,
            )
        ]  # fmt: skip

    def capacity(self, call: Call) -> Answer:
        self._access.check(call.caller, Action.READ, "")
        return Answer(msgspec.convert({"flavors": self._count(call.body)}, CapacityAnswer))
