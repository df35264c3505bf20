"""A model of Placement's allocations: what was measured of a real one, as a few rules.

``tests/integration/test_placement.py`` compares it with a real one.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from scheduler_worker.model.providers import Amounts, Consumer
from scheduler_worker.placement import ClaimRefusal, Why
from scheduler_worker.service.requests.claim_batcher import ClaimSettings
from scheduler_worker.service.requests.claims import PlacementPorts
from tests.support.services import World, host


class PlacementModel:
    """Providers with inventories, and the consumers of them; behind the port ``Allocations``.

    ``before`` and ``after`` are called with each write, and may raise.
    """

    def __init__(self, **capacities: Mapping[str, int]) -> None:
        self.capacities = {name: dict(amounts) for name, amounts in capacities.items()}
        self.consumers: dict[str, Consumer] = {}
        self.empty: set[str] = set()
        """Consumers of generation 0, which a refusal left behind."""
        self.writes: list[list[str]] = []
        """The consumers of each write."""
        self.reads = 0
        self.read_again_of: list[set[str]] = []
        self.before: Callable[[Sequence[Consumer]], ClaimRefusal | None] = lambda consumers: None
        self.after: Callable[[Sequence[Consumer]], None] = lambda consumers: None
        self.guard = threading.RLock()

    # The port Allocations

    def write(self, consumers: Sequence[Consumer], *, timeout_s: float) -> ClaimRefusal | None:
        assert timeout_s > 0
        refusal = self.before(consumers)
        with self.guard:
            self.writes.append([each.uuid for each in consumers])
            refusal = refusal or self._refusal(consumers)
            if refusal is None:
                for each in consumers:
                    self._keep(each)
        if refusal is None:
            self.after(consumers)
        return refusal

    def read(self, uuid: str, *, timeout_s: float) -> Consumer | None:
        assert timeout_s > 0
        with self.guard:
            self.reads += 1
            found = self.consumers.get(uuid)
            return None if found is None else msgspec.structs.replace(found, mappings={})

    # What hears of contradictions

    def read_again(self, providers: Collection[str]) -> None:
        self.read_again_of.append(set(providers))

    # For tests

    def held(self) -> dict[str, dict[str, Amounts]]:
        """Consumer -> provider -> what it holds of it."""
        return {uuid: dict(each.held) for uuid, each in self.consumers.items()}

    def providers(self) -> dict[str, list[str]]:
        """Consumer -> the providers that it holds something of."""
        return {uuid: sorted(each.held) for uuid, each in self.consumers.items()}

    def generation(self, uuid: str) -> int | None:
        found = self.consumers.get(uuid)
        return found.generation if found else (0 if uuid in self.empty else None)

    def _refusal(self, consumers: Sequence[Consumer]) -> ClaimRefusal | None:
        for each in consumers:
            if each.generation != self.generation(each.uuid):
                return ClaimRefusal(why=Why.CHANGED, message="consumer generation conflict")
        for each in consumers:
            for provider in each.held:
                if provider not in self.capacities:
                    self.empty |= {one.uuid for one in consumers if one.generation is None}
                    message = f"provider {provider} does not exist"
                    return ClaimRefusal(why=Why.GONE, message=message, providers=(provider,))
        return self._lack(consumers)

    def _lack(self, consumers: Sequence[Consumer]) -> ClaimRefusal | None:
        after = self.consumers | {each.uuid: each for each in consumers}
        for provider, capacity in self.capacities.items():
            for name in {*capacity, *self._classes(consumers, provider)}:
                used = sum(each.held.get(provider, {}).get(name, 0) for each in after.values())
                if used > capacity.get(name, 0):
                    message = f"{name} on {provider} would exceed the capacity"
                    return ClaimRefusal(why=Why.FULL, message=message, providers=(provider,))
        return None

    def _classes(self, consumers: Sequence[Consumer], provider: str) -> set[str]:
        return {name for each in consumers for name in each.held.get(provider, {})}

    def _keep(self, consumer: Consumer) -> None:
        self.empty.discard(consumer.uuid)
        if consumer.held:
            self.consumers[consumer.uuid] = consumer.written()
        else:
            self.consumers.pop(consumer.uuid, None)


ROOM = {"VCPU": 4, "MEMORY_MB": 8192, "DISK_GB": 100}
"""Of each host."""
PLAIN = {"VCPU": 1, "MEMORY_MB": 1024}
"""What an instance takes unless a test says otherwise."""


def scene(
    *names: str, settings: ClaimSettings | None = None, **limits: Any
) -> tuple[World, PlacementModel]:
    """Hosts of these names, which Placement knows too; ``a`` weighs most, and so on."""
    placement = PlacementModel(**{f"uuid-{name}": ROOM for name in names})
    ports = PlacementPorts(placement, placement.read_again, settings or ClaimSettings())
    world = World(placement=ports, **limits)
    sizes = range(8192, 0, -512)
    hosts = [
        host(name, memory_mb=size, cell_uuid="cell")
        for name, size in zip(names, sizes, strict=False)
    ]
    world.report(*hosts)
    return world, placement


def held_on(placement: PlacementModel, instance: str) -> list[str]:
    """The providers of which the instance holds something."""
    return placement.providers().get(instance, [])
