"""The tuning language: a policy, statistics over some cycles, and what is to be set."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from scheduler_worker.errors import PolicyError
from scheduler_worker.tuning import policy
from scheduler_worker.tuning.evaluate import Cycle, Options, evaluate
from scheduler_worker.tuning.samples import Entity, Memory, Sample, Value, crowds
from scheduler_worker.tuning.yaml_subset import Source

EXACT = 1e-9
HOST = "host"


class Inputs(msgspec.Struct, frozen=True):
    """Statistics; what a step leaves out is as it was in the step before."""

    host: dict[str, Value] | None = None
    vms: dict[str, dict[str, Value]] | None = None
    disks: dict[str, dict[str, dict[str, Value]]] | None = None


class Step(msgspec.Struct, frozen=True):
    """A cycle: seconds since the one before, None for a first; outputs by entity."""

    elapsed: float | None
    expected: dict[str, dict[str, float]]
    inputs: Inputs = Inputs()
    diagnostics: list[str] = []


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One step, or several under ``steps``, or an error at loading."""

    name: str
    policy_yaml: str | list[str]
    expected_error: str | None = None
    steps: list[Step] | None = None
    previous: dict[str, dict[str, float]] = {}
    initial_elapsed: float = 0.0


def recognise(document: Any) -> bool:
    return isinstance(document, dict) and "policy_yaml" in document


def run(document: Any) -> Iterator[str]:
    case = msgspec.convert(document, Case)
    texts = [case.policy_yaml] if isinstance(case.policy_yaml, str) else case.policy_yaml
    sources = [Source(f"policy {number}", text) for number, text in enumerate(texts, 1)]
    try:
        program = policy.load(sources)
    except PolicyError as error:
        kinds = {str(issue.kind) for issue in error.issues}
        if case.expected_error not in kinds:  # a text may have other issues as well
            yield f"{case.name}: is refused; expected is {case.expected_error or 'none'}: {error}"
        return
    if case.expected_error:
        yield f"{case.name}: loads; expected is {case.expected_error}"
        return
    steps = case.steps or [msgspec.convert(document, Step)]
    memory = Memory()
    sample, now_s = Sample(), 0.0
    for number, step in enumerate(steps, 1):
        told = msgspec.structs.asdict(step.inputs)
        told = {key: value for key, value in told.items() if value is not None}
        sample = msgspec.structs.replace(sample, **told)
        seen = crowds({HOST: sample})
        if number == 1:
            memory = _before(case, [each for crowd in seen.values() for each in crowd.entities])
        if step.elapsed is None:
            memory = Memory({}, memory.emitted)
        now_s += step.elapsed or 0.0
        cycle = evaluate(program, seen, memory, now_s, Options(case.initial_elapsed))
        memory = cycle.memory
        for difference in differences(cycle, step):
            yield f"{case.name}: step {number}: {difference}"


def _before(case: Case, entities: list[Entity]) -> Memory:
    """What is remembered at time 0, before the first step; everybody was evaluated then."""
    emitted: dict[str, dict[Entity, float]] = {}
    for entity in entities:
        for output, value in case.previous.get(str(entity), {}).items():
            emitted.setdefault(output, {})[entity] = value
    return Memory(dict.fromkeys(entities, 0.0), emitted)


def differences(cycle: Cycle, step: Step) -> Iterator[str]:
    """What came out otherwise than expected."""
    found = {str(entity): outputs for entity, outputs in cycle.changes.items()}
    for entity in sorted(found.keys() | step.expected.keys()):
        ours, theirs = found.get(entity, {}), step.expected.get(entity, {})
        for output in sorted(ours.keys() | theirs.keys()):
            said, wanted = ours.get(output), theirs.get(output)
            if said is None or wanted is None or not math.isclose(said, wanted, rel_tol=EXACT):
                yield f"{entity} {output} is {said}; expected is {wanted}"
    kinds = sorted({each.kind for each in cycle.diagnostics})
    if kinds != sorted(set(step.diagnostics)):
        yield f"diagnostics are {cycle.diagnostics}; expected are {step.diagnostics}"
