"""Statistics as rules see them, and what the engine remembers of the entities that have them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

import msgspec

from scheduler_worker.tuning.document import Scope

Value = object
"""A number, a truth value, a text, None (missing), or an object with more of these."""
Objects = Mapping[str, Value]
"""Property objects: ``{"memory": {"balloon": 1048576}}``."""
HOST = "host"
"""The object of a host's flat statistics, which rules of every scope see."""


class Entity(NamedTuple):
    """What has outputs: a host, a VM, or a disk of a VM."""

    scope: str
    """The value of a :class:`~.document.Scope`."""
    name: str
    """The host's or the VM's."""
    device: str = ""

    def __str__(self) -> str:
        return f"{self.name}/{self.device}" if self.device else self.name


class Sample(msgspec.Struct, frozen=True):
    """A host's statistics, with its VMs' and their disks', at one moment."""

    host: dict[str, Value] = {}
    vms: dict[str, dict[str, Value]] = {}
    disks: dict[str, dict[str, dict[str, Value]]] = {}
    """By VM, then by disk."""


class Crowd(NamedTuple):
    """Entities of one scope, and for each of them the objects that its rules see."""

    entities: list[Entity]
    objects: list[Objects]


def crowds(
    samples: Mapping[str, Sample], scopes: Collection[Scope] = tuple(Scope)
) -> dict[Scope, Crowd]:
    """Everything in the samples of some hosts that rules of some scopes are about.

    Everybody sees the flat statistics of the host. A disk's rules also see the objects of its VM
    that the disk has not got itself, so that a threshold can be given for a VM.
    """
    found = {scope: Crowd([], []) for scope in scopes}
    for host, sample in samples.items():
        for scope, crowd in found.items():
            _JOIN[scope](crowd, host, sample)
    return found


def _join_host(crowd: Crowd, host: str, sample: Sample) -> None:
    crowd.entities.append(Entity(Scope.HOST.value, host))
    crowd.objects.append(sample.host)


def _join_vms(crowd: Crowd, _host: str, sample: Sample) -> None:
    shared = {HOST: sample.host.get(HOST)}
    crowd.entities.extend(map(Entity, repeat(Scope.VM.value), sample.vms))
    crowd.objects.extend([vm | shared for vm in sample.vms.values()])


def _join_disks(crowd: Crowd, _host: str, sample: Sample) -> None:
    shared = {HOST: sample.host.get(HOST)}
    for name, disks in sample.disks.items():
        inherited = sample.vms.get(name, {})
        crowd.entities.extend(map(Entity, repeat(Scope.DISK.value), repeat(name), disks))
        crowd.objects.extend([inherited | disk | shared for disk in disks.values()])


_JOIN = {Scope.HOST: _join_host, Scope.VM: _join_vms, Scope.DISK: _join_disks}


def with_averages(history: Sequence[Objects]) -> dict[str, Value]:
    """The last of some samples of one entity, with ``<field>_avg`` beside each number.

    A sample that lacks the figure is left out of its mean; an average is there as long as one of
    the samples has the figure. Averages that are there already are kept.
    """
    found: dict[str, Value] = dict(history[-1]) if history else {}
    for name in {name for sample in history for name in sample}:
        rows = [row for sample in history if isinstance(row := sample.get(name), dict)]
        fields = {field for row in rows for field in row if not field.endswith("_avg")}
        means = {
            f"{field}_avg": mean for field in fields if (mean := _mean(rows, field)) is not None
        }
        last = found.get(name)
        found[name] = means | last if isinstance(last, dict) else means or last
    return found


def _mean(rows: Sequence[dict[str, Value]], field: str) -> float | None:
    values = [
        value
        for row in rows
        if isinstance(value := row.get(field), int | float) and not isinstance(value, bool)
    ]
    try:
        return sum(values) / len(values) if values else None
    except OverflowError:
        return None


class Held(NamedTuple):
    """A change that is too small yet: for how long it has been growing, and which way."""

    elapsed_s: float
    direction: float


class Memory(msgspec.Struct, frozen=True):
    """What is remembered from one evaluation to the next; nothing of who is gone."""

    evaluated_at_s: dict[Entity, float] = {}
    emitted: dict[str, dict[Entity, float]] = {}
    """By output: the last value that each was given."""
    held: dict[str, dict[Entity, Held]] = {}
    """By the id of a rule."""
