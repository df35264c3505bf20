"""Statistics as rules see them, with averages, by scope, and what an evaluation hands on."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

import msgspec

from scheduler_worker.tuning.program import Program
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
    found = {scope: EntityGroup([], []) for scope in scopes}
    for host, sample in samples.items():
        for scope, group in found.items():
            _ADD[scope](group, host, sample)
    return found


def _add_host(group: EntityGroup, host: str, sample: Sample) -> None:
    group.entities.append(Entity(Scope.HOST.value, host))
    group.objects.append(sample.host)


def _add_vms(group: EntityGroup, _host: str, sample: Sample) -> None:
    shared = {HOST: sample.host.get(HOST)}
    group.entities.extend(map(Entity, repeat(Scope.VM.value), sample.vms))
    group.objects.extend([vm | shared for vm in sample.vms.values()])


def _add_disks(group: EntityGroup, _host: str, sample: Sample) -> None:
    shared = {HOST: sample.host.get(HOST)}
    for name, disks in sample.disks.items():
        inherited = sample.vms.get(name, {})
        group.entities.extend(map(Entity, repeat(Scope.DISK.value), repeat(name), disks))
        group.objects.extend([inherited | disk | shared for disk in disks.values()])


_ADD = {Scope.HOST: _add_host, Scope.VM: _add_vms, Scope.DISK: _add_disks}


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


SUFFIX = "_avg"
Windows = Mapping[str, list[float | None]]
"""``object.field`` -> its values in the last reports, oldest first; None where it was missing."""


class AveragedProperty(NamedTuple):
    """A property whose average some rule reads."""

    object: str
    field: str
    key: str
    """``object.field``."""


class MovingAverages(NamedTuple):
    """The averages that a program reads: ``<object>.<field>_avg``, means over the last reports.

    Production and dry runs compute averages here and nowhere else, so a policy sees the same
    figures in both. Their windows are all that is kept of earlier reports.
    """

    properties: Mapping[str, Sequence[AveragedProperty]]
    """By the scope of the entities whose reports have the property."""
    length: int
    """Reports in a window."""

    @classmethod
    def read_by(cls, program: Program | None, length: int) -> MovingAverages:
        """Return the averages that the rules of a program read, over ``length`` reports."""
        read = {scope: _averages_read(program, scope) for scope in Scope}
        # The host's object is shared with the rules of every scope; the host alone averages it.
        of_host = {each for found in read.values() for each in found if each.object == HOST}
        own = {scope: found - of_host for scope, found in read.items()}
        properties = {
            Scope.HOST.value: sorted(own[Scope.HOST] | of_host),
            # Disks see the objects of their VM.
            Scope.VM.value: sorted(own[Scope.VM] | own[Scope.DISK]),
            Scope.DISK.value: sorted(own[Scope.DISK]),
        }
        return cls(properties, length)

    def add_to(
        self, sample: Sample, host: str, windows: Mapping[Entity, Windows], *, is_new: bool
    ) -> dict[Entity, Windows]:
        """Add the averages to the property objects of a host's sample, in place.

        Returns the windows of the sample's entities; those of others are not carried over. Only a
        new report (``is_new``) is appended to its window. An average that the sample has already
        is kept.
        """
        return {
            entity: self._add(objects, entity.scope, windows.get(entity, {}), is_new)
            for entity, objects in sample.entities(host)
        }

    def _add(
        self, objects: dict[str, Value], scope: str, windows: Windows, is_new: bool
    ) -> Windows:
        kept: dict[str, list[float | None]] = {}
        for name, field, key in self.properties[scope]:
            reported = objects.get(name)
            fields = reported if isinstance(reported, dict) else {}
            window = windows.get(key, [])
            if is_new:
                window = [*window, _number(fields.get(field))][-self.length :]
            known = [value for value in window if value is not None]
            if known:
                objects[name] = {field + SUFFIX: sum(known) / len(known), **fields}
                kept[key] = window
        return kept


def _averages_read(program: Program | None, scope: Scope) -> set[AveragedProperty]:
    plan = program.plans.get(scope) if program else None
    names = [step.name for step in plan.steps if step.op == "property"] if plan else []
    found = set()
    for name in names:
        if len(name) == 2 and name[1].endswith(SUFFIX):
            field = name[1].removesuffix(SUFFIX)
            found.add(AveragedProperty(name[0], field, f"{name[0]}.{field}"))
    return found


def _number(value: Value) -> float | None:
    """Return a value that can be averaged; anything else in a report counts as missing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
