"""Evaluates a policy over samples of a host, with a simulated agent that sets all outputs.

It also explains the value of an output: which rules voted, for what, and what limited them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from scheduler_worker.tuning.averages import MovingAverages, Windows
from scheduler_worker.tuning.evaluate import Cycle, evaluate
from scheduler_worker.tuning.program import Program
from scheduler_worker.tuning.rules import OutputResult, RuleResult
from scheduler_worker.tuning.samples import (
    HOST,
    Entity,
    EvaluatorState,
    Sample,
    Value,
    entity_groups,
)
from scheduler_worker.tuning.tuning_policy import Scope
from scheduler_worker.wording import one_line

HISTORY = 10
"""Samples in the window of an average."""


def dry_run(
    program: Program, samples: Iterable[Sample], *, interval_s: float, history: int = HISTORY
) -> list[Cycle]:
    """Return one cycle for each sample of a host.

    An output that was set is observed from the next cycle on, whatever the samples hold. Averages
    that the samples lack are computed, as production does.
    """
    averages = MovingAverages.read_by(program, history)
    cycles: list[Cycle] = []
    applied: dict[Entity, dict[str, float]] = {}
    windows: dict[Entity, Windows] = {}
    state = EvaluatorState()
    for number, sample in enumerate(samples):
        reported = _reported(sample, applied)
        windows = averages.add_to(reported, HOST, windows, is_new=True)
        groups = entity_groups({HOST: reported}, program.plans)
        cycle = evaluate(program, groups, state, number * interval_s)
        state = cycle.state
        applied = {entity: outputs for entity, outputs in applied.items() if entity in windows}
        for entity, changes in cycle.changes.items():
            applied[entity] = applied.get(entity, {}) | changes
        cycles.append(cycle)
    return cycles


def repeated(samples: Sequence[Sample], cycles: int) -> Iterable[Sample]:
    """Return ``cycles`` samples: the given ones, and then the last one again and again."""
    last = [samples[-1]] * cycles if samples else []
    return islice([*samples, *last], cycles)


def _reported(sample: Sample, applied: Mapping[Entity, Mapping[str, float]]) -> Sample:
    """Return a copy of a sample, with the outputs that the agent has applied."""
    copy = Sample({}, {}, {name: {} for name in sample.disks})
    for entity, objects in sample.entities(HOST):
        reported = _with_outputs(objects, applied.get(entity, {}))
        if entity.scope == Scope.HOST:
            copy.host.update(reported)
        elif entity.scope == Scope.VM:
            copy.vms[entity.name] = reported
        else:
            copy.disks[entity.name][entity.device] = reported
    return copy


def _with_outputs(objects: Mapping[str, Value], outputs: Mapping[str, float]) -> dict[str, Value]:
    copy = dict(objects)
    for output, value in outputs.items():
        inner = copy
        *path, last = output.split(".")
        for part in path:
            known = inner.get(part)
            inner[part] = dict(known) if isinstance(known, dict) else {}
            inner = inner[part]  # type: ignore[assignment]
        inner[last] = value
    return copy


def outputs_over_time(cycles: Sequence[Cycle]) -> dict[str, list[float | None]]:
    """Return for each ``entity output`` its value after each cycle; None while it is unknown."""
    columns: dict[str, list[float | None]] = {}
    for number, cycle in enumerate(cycles):
        for results in cycle.results.values():
            for result in results:
                values = zip(
                    result.entities,
                    result.current.known | result.changed,
                    result.changed,
                    result.value,
                    result.current.values,
                    strict=True,
                )
                for entity, known, changed, value, before in values:
                    name = f"{entity} {result.plan.name}"
                    column = columns.setdefault(name, [None] * len(cycles))
                    column[number] = float(value if changed else before) if known else None
    return columns


def table(cycles: Sequence[Cycle], *, interval_s: float) -> Iterator[str]:
    """Yield the lines of a table: one for each cycle, with a column for each output."""
    columns = outputs_over_time(cycles)
    head = ["seconds", *map(one_line, columns)]
    lines = [
        [
            f"{number * interval_s:g}",
            *("-" if value is None else f"{value:.10g}" for value in values),
        ]
        for number, values in enumerate(zip(*columns.values(), strict=True))
    ]
    widths = [max(map(len, cells)) for cells in zip(head, *lines, strict=True)]
    rows = (zip(line, widths, strict=True) for line in [head, *lines])
    yield from ("  ".join(cell.rjust(width) for cell, width in row) for row in rows)


# Explanations


class OutputExplanation(NamedTuple):
    """One output of one entity."""

    entity: Entity
    text: str
    """How the value changes, and a line for each rule that voted."""
    inactive: list[str]
    """Rules without a vote: not triggered, or skipped for a fault that the diagnostics name."""


def explanations(cycle: Cycle) -> Iterator[OutputExplanation]:
    """Yield an explanation for each output of each entity."""
    for results in cycle.results.values():
        for result in results:
            for index, entity in enumerate(result.entities):
                votes = [_vote(rule, index) for rule in result.rules if rule.takes_part[index]]
                inactive = [rule.plan.id for rule in result.rules if not rule.takes_part[index]]
                text = "\n  ".join([f"{entity} {_change(result, index)}", *votes])
                yield OutputExplanation(entity, text, inactive)


def _change(result: OutputResult, index: int) -> str:
    before = _n(result.current.values[index]) if result.current.known[index] else "unknown"
    changed = result.changed[index]
    change = f"{before} -> {_n(result.value[index])}" if changed else f"stays {before}"
    return f"{result.plan.name}: {change}"


def _vote(rule: RuleResult, index: int) -> str:
    text = f"{rule.plan.id}: weight {_n(rule.weight[index])}, target {_n(rule.target[index])}"
    text += f", after {_n(rule.elapsed_s[index])} s: {_n(rule.proposed[index])}"
    if limited := [name for name, mask in rule.limited.items() if mask[index]]:
        text += f", limited by {' and '.join(limited)}"
    if rule.held[index]:
        return f"{text}, held back: the change is too small yet"
    return f"{text}, votes for {_n(rule.value[index])}"


def _n(number: float) -> str:
    return f"{number:.10g}"
