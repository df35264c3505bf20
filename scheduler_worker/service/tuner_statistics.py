"""From what hosts report to what rules see: property objects, parameters, averages.

Of ``load`` and of a VM's entry in ``vms``, what is a mapping is a property object; what is not is
a field of the object ``host``, or ``vm``. A VM's ``disks`` are objects by the disk's name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.tuning.document import Scope
from scheduler_worker.tuning.program import Program
from scheduler_worker.tuning.samples import HOST, Entity, Sample, Value

AVERAGE = "_avg"
VM, DISKS, POLICY = "vm", "disks", "policy"

Figures = dict[str, dict[str, Value]]
"""Property objects of one entity that may be changed."""
Rows = Mapping[str, list[float | None]]
"""``object.field`` -> its figure in the last reports, None where one had none."""


class Average(NamedTuple):
    """A figure of which some rule wants the mean."""

    object: str
    field: str
    key: str
    """``object.field``."""


def averages(program: Program | None) -> dict[str, list[Average]]:
    """For the entities of each scope, the figures to keep; nothing else is averaged."""
    read = {scope: _averages_of(program, scope) for scope in Scope}
    everyones = {each for some in read.values() for each in some if each.object == HOST}
    own = {scope: some - everyones for scope, some in read.items()}
    return {
        Scope.HOST.value: sorted(own[Scope.HOST] | everyones),
        # Disks see the objects of their VM.
        Scope.VM.value: sorted(own[Scope.VM] | own[Scope.DISK]),
        Scope.DISK.value: sorted(own[Scope.DISK]),
    }


def _averages_of(program: Program | None, scope: Scope) -> set[Average]:
    plan = program.plans.get(scope) if program else None
    names = [step.name for step in plan.steps if step.op == "property"] if plan else []
    found = set()
    for name in names:
        if len(name) == 2 and name[1].endswith(AVERAGE):
            field = name[1].removesuffix(AVERAGE)
            found.add(Average(name[0], field, f"{name[0]}.{field}"))
    return found


def sample_of(record: HostRecord, parameters: Mapping[str, Value], only: Iterable[str]) -> Sample:
    """What a host reported of itself, and of ``only`` these of its VMs.

    A host's, a VM's or a disk's own ``policy`` goes before the cluster's parameters.
    """
    host = _objects(record.load, HOST)
    host[HOST] = {"id": record.uuid, "name": record.host} | host.get(HOST, {})
    host[POLICY] = {**parameters, **host.get(POLICY, {})}
    vms: dict[str, Figures] = {}
    disks: dict[str, dict[str, Figures]] = {}
    reported = dict(vms_of(record))
    for uuid in only:
        objects = _objects(reported[uuid], VM)
        named = objects.pop(DISKS, {})
        objects[VM] = {"id": uuid} | objects.get(VM, {})
        objects[POLICY] = {**parameters, **objects.get(POLICY, {})}
        vms[uuid] = objects
        if named:
            disks[uuid] = {name: _disk(name, said, objects[POLICY]) for name, said in named.items()}
    return Sample(dict(host), _plain(vms), {uuid: _plain(each) for uuid, each in disks.items()})


def vms_of(record: HostRecord) -> Iterator[tuple[str, dict[str, Any]]]:
    """The VMs of a report by uuid, whether it has a mapping or a list of them."""
    said = record.vms
    if isinstance(said, dict):
        pairs: Iterable[tuple[Any, Any]] = said.items()
    else:
        pairs = ((each.get("uuid"), each) for each in said if isinstance(each, dict))
    for uuid, each in pairs:
        if isinstance(uuid, str) and isinstance(each, dict):
            yield uuid, each


def _disk(name: str, said: Value, policy: Mapping[str, Value]) -> Figures:
    objects = _objects(said if isinstance(said, dict) else {}, "disk")
    objects["disk"] = {"name": name} | objects.get("disk", {})
    if POLICY in objects:
        objects[POLICY] = {**policy, **objects[POLICY]}
    return objects


def _objects(said: Mapping[str, Any], loose: str) -> Figures:
    found = {name: dict(value) for name, value in said.items() if isinstance(value, dict)}
    fields = {name: value for name, value in said.items() if not isinstance(value, dict)}
    if fields:
        found[loose] = fields | found.get(loose, {})
    return found


def _plain(figures: Mapping[str, Figures]) -> dict[str, dict[str, Value]]:
    return {name: dict(objects) for name, objects in figures.items()}


class Averaging(NamedTuple):
    """Puts averages into samples, and keeps the figures that they are of."""

    wanted: Mapping[str, Sequence[Average]]
    length: int
    """How many reports an average is over."""

    def over(
        self, host: str, sample: Sample, kept: Mapping[Entity, Rows], *, is_new: bool
    ) -> dict[Entity, Rows]:
        """Average in place; returns what to keep. Only a new report adds to what was kept."""
        return {
            entity: self._over(objects, entity, kept.get(entity, {}), is_new)
            for entity, objects in entities(host, sample)
        }

    def _over(self, objects: dict[str, Value], entity: Entity, kept: Rows, is_new: bool) -> Rows:
        rows: dict[str, list[float | None]] = {}
        for name, field, key in self.wanted[entity.scope]:
            within = objects.get(name)
            within = within if isinstance(within, dict) else {}
            row = kept.get(key, [])
            if is_new:
                row = [*row, _number(within.get(field))][-self.length :]
            known = [figure for figure in row if figure is not None]
            if known:
                objects[name] = {field + AVERAGE: sum(known) / len(known), **within}
                rows[key] = row
        return rows


def entities(host: str, sample: Sample) -> Iterator[tuple[Entity, dict[str, Value]]]:
    """Everything in a sample that rules are about, with its objects."""
    yield Entity(Scope.HOST.value, host), sample.host
    for name, objects in sample.vms.items():
        yield Entity(Scope.VM.value, name), objects
    for name, disks in sample.disks.items():
        for device, objects in disks.items():
            yield Entity(Scope.DISK.value, name, device), objects


def _number(value: Value) -> float | None:
    """A figure that can be averaged; whatever else a report holds there counts as missing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
