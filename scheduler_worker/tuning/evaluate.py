"""One cycle: a program and statistics to changes, for all entities at once.

Rules see the statistics of the cycle's start, whatever their order; what goes wrong for one entity
leaves out one rule of it and is told in the diagnostics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat

import msgspec
import numpy as np

from scheduler_worker.tuning.columns import OPERATIONS, Column, column, fault_of
from scheduler_worker.tuning.document import Scope
from scheduler_worker.tuning.program import Name, Plan, Program
from scheduler_worker.tuning.samples import Crowd, Entity, Held, Memory, Value
from scheduler_worker.tuning.turns import Moment, OutputTurn, output_turn


class Options(msgspec.Struct, frozen=True):
    """How time counts."""

    initial_elapsed_s: float = 0.0
    """What the first evaluation of an entity takes for the time since the one before it."""
    max_elapsed_s: float | None = None
    """No evaluation takes more for it; None: there is no bound."""


DEFAULTS = Options()


class Diagnostic(msgspec.Struct, frozen=True):
    """A rule that was left out for an entity, or, as information, something odd about it."""

    kind: str
    entity: Entity
    rule: str
    """The rule's id."""
    detail: str = ""
    """What it is about and where that was written."""


class Cycle(msgspec.Struct, frozen=True):
    """What came of an evaluation."""

    changes: dict[Entity, dict[str, float]]
    """What is to be set; outputs that stay as they are have no entry."""
    diagnostics: list[Diagnostic]
    memory: Memory
    """For the next cycle."""
    turns: dict[Scope, list[OutputTurn]]
    """How it came about, for :mod:`~.explain`."""


def evaluate(
    program: Program,
    crowds: Mapping[Scope, Crowd],
    memory: Memory,
    now_s: float,
    options: Options = DEFAULTS,
) -> Cycle:
    """Evaluate a program once; ``now_s`` is of a clock that does not go back.

    ``memory`` is what the cycle before returned. Whatever the statistics hold, nothing is raised.
    """
    cycle = Cycle({}, [], Memory({}, {}, {}), {})
    with np.errstate(all="ignore"):
        for scope, plan in program.plans.items():
            crowd = crowds.get(scope)
            if crowd and crowd.entities:
                before_s = now_s - options.initial_elapsed_s
                moment = Moment(crowd, memory, now_s, before_s, options.max_elapsed_s)
                cycle.turns[scope] = _turns(plan, moment, cycle)
                cycle.memory.evaluated_at_s.update(dict.fromkeys(crowd.entities, now_s))
    return cycle


def _turns(plan: Plan, moment: Moment, cycle: Cycle) -> list[OutputTurn]:
    """All outputs of one scope; what comes of them goes into the cycle."""
    registers = _registers(plan, moment)
    turns = [output_turn(each, registers, moment) for each in plan.outputs]
    for turn in turns:
        _settle(turn, moment, cycle)
    cycle.diagnostics.extend(_diagnostics(plan, turns, moment))
    return turns


def _registers(plan: Plan, moment: Moment) -> list[Column]:
    """The result of each step; of steps that nobody needs, nothing."""
    registers = [_NOTHING] * len(plan.steps)
    statistics = _Statistics(moment.objects)
    for number in plan.live:
        step = plan.steps[number]
        if step.column is not None:
            registers[number] = step.column
        elif step.op == "property":
            registers[number] = column(statistics.cells(step.name), number)
        else:
            args = [registers[each] for each in step.args]
            registers[number] = OPERATIONS[step.op](number, *args)
    return registers


class _Statistics:
    """Properties of everybody; None where there is none."""

    def __init__(self, objects: Sequence[Value]) -> None:
        self._found: dict[Name, Sequence[Value]] = {(): objects}

    def cells(self, name: Name) -> Sequence[Value]:
        """The values of a name; those of the object that it is in are kept for the next."""
        if name not in self._found:
            *path, last = name
            self._found[name] = _fields(self.cells(tuple(path)), last)
        return self._found[name]


def _fields(objects: Sequence[Value], name: str) -> Sequence[Value]:
    try:
        return list(map(dict.get, objects, repeat(name)))  # type: ignore[arg-type]
    except TypeError:  # not everybody has an object there
        return [each.get(name) if isinstance(each, dict) else None for each in objects]


def _settle(turn: OutputTurn, moment: Moment, cycle: Cycle) -> None:
    """Write down what an output is to be set to, and what to remember of it."""
    output = turn.plan.name
    changed = [moment.entities[index] for index in np.flatnonzero(turn.changed).tolist()]
    made = dict(zip(changed, turn.value[turn.changed].tolist(), strict=True))
    for entity, value in made.items():
        cycle.changes.setdefault(entity, {})[output] = value
    before = moment.memory.emitted.get(output, {})
    kept = {each: before[each] for each in moment.entities if each in before} if before else {}
    cycle.memory.emitted.setdefault(output, {}).update(kept | made)
    for rule in turn.rules:
        waits = {
            moment.entities[index]: Held(float(rule.elapsed_s[index]), float(rule.direction[index]))
            for index in np.flatnonzero(rule.held).tolist()
        }
        if waits:
            cycle.memory.held[rule.plan.id] = waits


def _diagnostics(plan: Plan, turns: Sequence[OutputTurn], moment: Moment) -> Iterator[Diagnostic]:
    details: dict[int, tuple[str, str]] = {}
    for turn in turns:
        for rule in turn.rules:
            for index in np.flatnonzero(rule.faults).tolist():
                code = int(rule.faults[index])
                if code not in details:
                    details[code] = _told(plan, code)
                kind, detail = details[code]
                yield Diagnostic(kind, moment.entities[index], rule.plan.id, detail)
            for kind, mask in rule.notes.items():
                for index in np.flatnonzero(mask).tolist():
                    yield Diagnostic(kind, moment.entities[index], rule.plan.id)


def _told(plan: Plan, code: int) -> tuple[str, str]:
    """The kind of a fault, and what it is about."""
    fault, number = fault_of(code)
    step = plan.steps[number]
    about = ".".join(step.name) or step.op
    return fault.name.lower(), f"{about} ({step.place})" if step.place else about


_NOTHING = Column(np.zeros(()))
