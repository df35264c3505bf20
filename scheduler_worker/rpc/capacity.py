"""The RPC method for capacity, in namespace ``scheduler_worker``; see ``docs/rpc.md``."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler_worker.rpc import codec
from scheduler_worker.rpc.contract import Context, Endpoint
from scheduler_worker.rpc.worker import NAMESPACE, VERSION
from scheduler_worker.service.placement.capacity import Capacity


class CapacityEndpoint:
    """Counts how many more instances fit."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity

    def endpoint(self) -> Endpoint:
        """The method, in namespace ``scheduler_worker``."""
        return Endpoint(NAMESPACE, VERSION, {"capacity": self.capacity})

    def capacity(
        self, context: Context, flavors: Any = None, setting: Any = None
    ) -> list[dict[str, Any]]:
        """Return how many more instances of each flavor fit, and what runs out first."""
        return capacity_of(self._capacity, flavors, setting)


def capacity_of(capacity: Capacity, flavors: Any, setting: Any) -> list[dict[str, Any]]:
    """The capacity for flavors in wire form, as RPC and REST serve it.

    Raises:
        RequestError: an argument is invalid; names its field.
        StateUnavailable: the store cannot be reached.
    """
    asked = codec.decode_flavors_by_hand(flavors, setting)
    counted, found = capacity.of(asked), []
    for number in range(len(asked)):
        with codec.naming("setting", f"flavors[{number}]"):
            found.append(msgspec.to_builtins(next(counted)))
    return found
