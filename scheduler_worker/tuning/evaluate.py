"""Evaluates a program once: statistics to changes, for all entities at once.

All rules see the statistics of the cycle's start, so their order has no meaning. An error of one
entity skips one rule for it, and is reported as a diagnostic.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, repeat

import msgspec
import numpy as np

from scheduler_worker.tuning.columns import OPERATIONS, Column, column, fault_of
from scheduler_worker.tuning.program import Name, Program, TuningPlan
from scheduler_worker.tuning.rules import EvaluationContext, OutputResult, evaluate_output
from scheduler_worker.tuning.samples import Entity, EntityGroup, EvaluatorState, HeldChange, Value
from scheduler_worker.tuning.tuning_policy import Scope


class Diagnostic(msgspec.Struct, frozen=True):
    """A rule that was skipped for an entity, or something odd about it, for information."""

    kind: str
    entity: Entity
    rule: str
    """The rule's id."""
    detail: str = ""
    """The property or operation, and its place in the policy."""


class Cycle(msgspec.Struct, frozen=True):
    """The outcome of one evaluation."""

    changes: dict[Entity, dict[str, float]]
    """The outputs to set; outputs that keep their values have no entry."""
    changed_by: dict[Entity, dict[str, tuple[str, ...]]]
    """For each of the changes the ids of the rules that voted."""
    diagnostics: list[Diagnostic]
    state: EvaluatorState
    """For the next cycle."""
    results: dict[Scope, list[OutputResult]]
    """All intermediate values, for :mod:`~.explain`."""


def evaluate(
    program: Program,
    groups: Mapping[Scope, EntityGroup],
    state: EvaluatorState,
    now_s: float,
    *,
    initial_elapsed_s: float = 0.0,
    max_elapsed_s: float | None = None,
) -> Cycle:
    """Evaluate a program once; ``now_s`` is of a clock that does not go back.

    ``state`` is that of the cycle before. ``initial_elapsed_s`` is the elapsed time of an entity's
    first evaluation; ``max_elapsed_s`` bounds all. Raises nothing, whatever the statistics hold.
    """
    cycle = Cycle({}, {}, [], EvaluatorState({}, {}, {}), {})
    with np.errstate(all="ignore"):
        for scope, plan in program.plans.items():
            group = groups.get(scope)
            if group and group.entities:
                before_s = now_s - initial_elapsed_s
                context = EvaluationContext(group, state, now_s, before_s, max_elapsed_s)
                registers = _registers(plan, context)
                results = [evaluate_output(each, registers, context) for each in plan.outputs]
                for result in results:
                    _record(result, context, cycle)
                cycle.diagnostics.extend(_diagnostics(plan, results, context))
                cycle.results[scope] = results
                cycle.state.evaluated_at_s.update(dict.fromkeys(group.entities, now_s))
    return cycle


def _registers(plan: TuningPlan, context: EvaluationContext) -> list[Column]:
    """Return the result of each step, by its number; steps that no rule needs are not run."""
    registers = [_UNUSED] * len(plan.steps)
    statistics: dict[Name, Sequence[Value]] = {(): context.objects}
    for number in plan.live:
        step = plan.steps[number]
        if step.column is not None:
            registers[number] = step.column
        elif step.op == "property":
            registers[number] = column(_cells(statistics, step.name), number)
        else:
            registers[number] = OPERATIONS[step.op](number, *(registers[arg] for arg in step.args))
    return registers


def _cells(known: dict[Name, Sequence[Value]], name: Name) -> Sequence[Value]:
    """Return the values of a name by entity, None where one lacks it.

    They are ``known`` for the next name, as are the objects on the way.
    """
    if name not in known:
        *path, last = name
        known[name] = _fields(_cells(known, tuple(path)), last)
    return known[name]


def _fields(objects: Sequence[Value], name: str) -> Sequence[Value]:
    try:
        return list(map(dict.get, objects, repeat(name)))  # type: ignore[arg-type]
    except TypeError:  # some entity has no object there; the loop below is much slower
        return [value.get(name) if isinstance(value, dict) else None for value in objects]


def _record(result: OutputResult, context: EvaluationContext, cycle: Cycle) -> None:
    """Add changes and state to the cycle."""
    output = result.plan.name
    changed = [context.entities[index] for index in np.flatnonzero(result.changed).tolist()]
    made = dict(zip(changed, result.value[result.changed].tolist(), strict=True))
    for entity, value in made.items():
        cycle.changes.setdefault(entity, {})[output] = value
    for entity, voters in zip(changed, _voters(result), strict=True):
        cycle.changed_by.setdefault(entity, {})[output] = voters
    before = context.state.emitted.get(output, {})
    kept = before and {entity: before[entity] for entity in context.entities if entity in before}
    cycle.state.emitted.setdefault(output, {}).update(kept | made)
    for rule in result.rules:
        held = {
            context.entities[index]: HeldChange(
                float(rule.elapsed_s[index]), float(rule.direction[index])
            )
            for index in np.flatnonzero(rule.held).tolist()
        }
        if held:
            cycle.state.held[rule.plan.id] = held


def _voters(result: OutputResult) -> list[tuple[str, ...]]:
    """Return for each entity whose output changes the ids of the rules that voted."""
    ids = [rule.plan.id for rule in result.rules]
    votes = np.array([rule.takes_part[result.changed] for rule in result.rules])
    if len(ids) == 1 or votes.size == 0:
        return [tuple(ids)] * votes.shape[1]  # a rule that does not vote changes nothing
    # Of thousands of entities most have the same voters: each combination is named once.
    combinations, which = np.unique(votes, axis=1, return_inverse=True)
    named = [tuple(compress(ids, voted)) for voted in combinations.T.tolist()]
    return [named[number] for number in which.ravel().tolist()]


def _diagnostics(
    plan: TuningPlan, results: Sequence[OutputResult], context: EvaluationContext
) -> Iterator[Diagnostic]:
    details: dict[int, tuple[str, str]] = {}
    for result in results:
        for rule in result.rules:
            for index in np.flatnonzero(rule.faults).tolist():
                code = int(rule.faults[index])
                if code not in details:
                    details[code] = _described(plan, code)
                kind, detail = details[code]
                yield Diagnostic(kind, context.entities[index], rule.plan.id, detail)
            for kind, mask in rule.notes.items():
                for index in np.flatnonzero(mask).tolist():
                    yield Diagnostic(kind, context.entities[index], rule.plan.id)


def _described(plan: TuningPlan, code: int) -> tuple[str, str]:
    fault, number = fault_of(code)
    step = plan.steps[number]
    name = ".".join(step.name) or step.op
    return fault.name.lower(), f"{name} ({step.place})" if step.place else name


_UNUSED = Column(np.zeros(()))
