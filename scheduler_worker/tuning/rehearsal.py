"""A policy tried out over some cycles, with an agent that does as it is told."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from scheduler_worker.tuning.evaluate import DEFAULTS, Cycle, Options, evaluate
from scheduler_worker.tuning.program import Program
from scheduler_worker.tuning.samples import Entity, Memory, Sample, Value, crowds, with_averages

HISTORY = 10
"""Samples that averages are over."""


def rehearse(
    program: Program,
    samples: Iterable[Sample],
    *,
    interval_s: float,
    options: Options = DEFAULTS,
    history: int = HISTORY,
) -> list[Cycle]:
    """One cycle for each sample of a host.

    An output that was set is observed from the next cycle on, whatever the samples say of it; the
    averages that the samples do not have are computed.
    """
    cycles: list[Cycle] = []
    applied: dict[Entity, dict[str, float]] = {}
    rows: dict[Entity, deque[Mapping[str, Value]]] = {}
    memory = Memory()
    for number, sample in enumerate(samples):
        seen = crowds({"host": sample}, program.plans)
        for crowd in seen.values():
            for index, entity in enumerate(crowd.entities):
                row = rows.setdefault(entity, deque(maxlen=history))
                row.append(_applied(crowd.objects[index], applied.get(entity, {})))
                crowd.objects[index] = with_averages(row)
        for gone in rows.keys() - {each for crowd in seen.values() for each in crowd.entities}:
            del rows[gone]
            applied.pop(gone, None)
        cycle = evaluate(program, seen, memory, number * interval_s, options)
        memory = cycle.memory
        for entity, made in cycle.changes.items():
            applied.setdefault(entity, {}).update(made)
        cycles.append(cycle)
    return cycles


def repeated(samples: Sequence[Sample], cycles: int) -> Iterable[Sample]:
    """So many samples: those that there are, and then the last one for ever."""
    last = [samples[-1]] * cycles if samples else []
    return islice([*samples, *last], cycles)


def _applied(objects: Mapping[str, Value], outputs: Mapping[str, float]) -> dict[str, Value]:
    found = dict(objects)
    for output, value in outputs.items():
        within = found
        *path, last = output.split(".")
        for part in path:
            inner = within.get(part)
            within[part] = dict(inner) if isinstance(inner, dict) else {}
            within = within[part]  # type: ignore[assignment]
        within[last] = value
    return found


def outputs_over_time(cycles: Sequence[Cycle]) -> dict[str, list[float | None]]:
    """For each output, ``entity output``, its value after each cycle; None while it is unknown."""
    found: dict[str, list[float | None]] = {}
    for number, cycle in enumerate(cycles):
        for turns in cycle.turns.values():
            for turn in turns:
                values = zip(
                    turn.entities,
                    turn.current.known | turn.changed,
                    turn.changed,
                    turn.value,
                    turn.current.values,
                    strict=True,
                )
                for entity, known, changed, value, before in values:
                    column = found.setdefault(f"{entity} {turn.plan.name}", [None] * len(cycles))
                    column[number] = float(value if changed else before) if known else None
    return found


def table(cycles: Sequence[Cycle], *, interval_s: float) -> str:
    """The outputs of a rehearsal: a line for each cycle, a column for each output."""
    columns = outputs_over_time(cycles)
    head = ["seconds", *columns]
    lines = [
        [f"{number * interval_s:g}", *("-" if each is None else f"{each:.10g}" for each in values)]
        for number, values in enumerate(zip(*columns.values(), strict=True))
    ]
    widths = [max(map(len, cells)) for cells in zip(head, *lines, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in [head, *lines]
    )
