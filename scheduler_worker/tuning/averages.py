"""Moving averages: ``<object>.<field>_avg``, the mean of a property over the last reports.

Production and dry runs compute averages here and nowhere else, so a policy sees the same figures
in both. Only averages that some rule reads are computed; their windows are all that is kept of
earlier reports.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scheduler_worker.tuning.columns import value_of
from scheduler_worker.tuning.program import Program
from scheduler_worker.tuning.samples import HOST, Entity, Sample, Value
from scheduler_worker.tuning.tuning_policy import Scope

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
    """The averages that a program reads."""

    properties: Mapping[str, Sequence[AveragedProperty]]
    """By the scope of the entities whose reports have the property."""
    length: int
    """Reports in a window."""

    @classmethod
    def read_by(cls, program: Program | None, length: int) -> "MovingAverages":
        """Return the averages that the rules of a program read, over ``length`` reports."""
        read = {scope: _averages_read(program, scope) for scope in Scope}
        # The host's object is shared with the rules of every scope; the host alone averages it.
        of_host = {mean for means in read.values() for mean in means if mean.object == HOST}
        own = {scope: means - of_host for scope, means in read.items()}
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

        Returns the windows of the sample's entities; windows of other entities are dropped. Only a
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
                value = fields.get(field)
                number = None if isinstance(value, bool) else value_of(value)
                # Anything else in a report counts as missing.
                window = [*window, number if isinstance(number, float) else None][-self.length :]
            known = [value for value in window if value is not None]
            if known:
                objects[name] = {field + SUFFIX: sum(known) / len(known), **fields}
                kept[key] = window
        return kept


def _averages_read(program: Program | None, scope: Scope) -> set[AveragedProperty]:
    plan = program.plans.get(scope) if program else None
    names = [step.name for step in plan.steps if step.op == "property"] if plan else []
    averages = set()
    for name in names:
        if len(name) == 2 and name[1].endswith(SUFFIX):
            field = name[1].removesuffix(SUFFIX)
            averages.add(AveragedProperty(name[0], field, f"{name[0]}.{field}"))
    return averages
