"""Statistics as rules see them, their entities by scope, and what an evaluation hands on."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import msgspec

from scheduler_worker.tuning.tuning_policy import Scope

Value = object
"""A number, a boolean, a text, None (missing), or an object with more of these."""
Objects = Mapping[str, Value]
"""Property objects: ``{"memory": {"balloon": 1048576}}``."""
HOST = "host"
"""The object of a host's flat statistics, which rules of every scope see."""


class Entity(NamedTuple):
    """Something that has outputs: a host, a VM, or a disk of a VM."""

    scope: str
    """The value of a :class:`~.tuning_policy.Scope`."""
    name: str
    """The name of the host or VM."""
    device: str = ""

    def __str__(self) -> str:
        return f"{self.name}/{self.device}" if self.device else self.name


class Sample(msgspec.Struct, frozen=True):
    """The statistics of a host, of its VMs and of their disks at one moment."""

    host: dict[str, Value] = {}
    vms: dict[str, dict[str, Value]] = {}
    disks: dict[str, dict[str, dict[str, Value]]] = {}
    """By VM, then by disk."""

    def entities(self, host: str) -> Iterator[tuple[Entity, dict[str, Value]]]:
        """Yield each entity with its own property objects; ``host`` is the name of the host."""
        yield Entity(Scope.HOST.value, host), self.host
        for name, objects in self.vms.items():
            yield Entity(Scope.VM.value, name), objects
        for name, disks in self.disks.items():
            for device, objects in disks.items():
                yield Entity(Scope.DISK.value, name, device), objects


class EntityGroup(NamedTuple):
    """The entities of one scope, and for each of them the property objects that its rules see."""

    entities: list[Entity]
    objects: list[Objects]


def entity_groups(
    samples: Mapping[str, Sample], scopes: Collection[Scope] = tuple(Scope)
) -> dict[Scope, EntityGroup]:
    """Return the entities of some scopes in the samples, which are by the name of the host.

    Every entity sees the flat statistics of its host. A disk also sees the objects of its VM that
    it lacks itself, so that a threshold can be given for a VM.
    """
    groups = {scope: EntityGroup([], []) for scope in scopes}
    by_name = {scope.value: group for scope, group in groups.items()}
    for host, sample in samples.items():
        shared = {HOST: sample.host.get(HOST)}
        for entity, objects in sample.entities(host):
            if group := by_name.get(entity.scope):
                of_vm = sample.vms.get(entity.name, {}) if entity.scope == Scope.DISK else {}
                is_host = entity.scope == Scope.HOST
                group.entities.append(entity)
                group.objects.append(objects if is_host else of_vm | objects | shared)
    return groups


class HeldChange(NamedTuple):
    """A change that is still too small to emit: how long it has accumulated, and its direction."""

    elapsed_s: float
    direction: float


class EvaluatorState(msgspec.Struct, frozen=True):
    """State of the entities of the last evaluation; entities that are gone have none."""

    evaluated_at_s: dict[Entity, float] = {}
    emitted: dict[str, dict[Entity, float]] = {}
    """By output: the last value that was emitted."""
    held: dict[str, dict[Entity, HeldChange]] = {}
    """By the id of a rule."""
