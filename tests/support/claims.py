"""Hosts that Placement knows too, and what instances hold of them there."""

from __future__ import annotations

from typing import Any

from scheduler_worker.service.placement.claims import PlacementPorts
from tests.support.placement_model import PlacementModel
from tests.support.services import World, host

ROOM = {"VCPU": 4, "MEMORY_MB": 8192, "DISK_GB": 100}
"""Of each host."""
PLAIN = {"VCPU": 1, "MEMORY_MB": 1024}
"""What an instance takes unless a test says otherwise."""


def scene(*names: str, **limits: Any) -> tuple[World, PlacementModel]:
    """Hosts of these names, which Placement knows too; ``a`` weighs most, and so on."""
    placement = PlacementModel(**{f"uuid-{name}": ROOM for name in names})
    world = World(placement=PlacementPorts(placement, placement), **limits)
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
