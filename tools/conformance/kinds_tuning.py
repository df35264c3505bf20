"""The tuning language: a policy, statistics over some cycles, and the expected outputs."""

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from scheduler_worker.errors import TuningPolicyError
from scheduler_worker.tuning import loader
from scheduler_worker.tuning.evaluate import Cycle, evaluate
from scheduler_worker.tuning.samples import Entity, EvaluatorState, Sample, Value, entity_groups
from scheduler_worker.tuning.yaml_subset import Source

EXACT = 1e-9
HOST = "host"


class Inputs(msgspec.Struct, frozen=True):
    """Statistics; a step inherits what it leaves out from the step before."""

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
        program = loader.load(sources)
    except TuningPolicyError as error:
        kinds = {str(issue.kind) for issue in error.issues}
        if case.expected_error not in kinds:  # a text may have other issues as well
            yield f"{case.name}: is refused; expected is {case.expected_error or 'none'}: {error}"
        return
    if case.expected_error:
        yield f"{case.name}: loads; expected is {case.expected_error}"
        return
    steps = case.steps or [msgspec.convert(document, Step)]
    state = EvaluatorState()
    sample, now_s = Sample(), 0.0
    for number, step in enumerate(steps, 1):
        inputs = msgspec.structs.asdict(step.inputs)
        inputs = {key: value for key, value in inputs.items() if value is not None}
        sample = msgspec.structs.replace(sample, **inputs)
        seen = entity_groups({HOST: sample})
        if number == 1:
            state = _before(case, [entity for group in seen.values() for entity in group.entities])
        if step.elapsed is None:
            state = EvaluatorState({}, state.emitted)
        now_s += step.elapsed or 0.0
        cycle = evaluate(program, seen, state, now_s, initial_elapsed_s=case.initial_elapsed)
        state = cycle.state
        for difference in differences(cycle, step):
            yield f"{case.name}: step {number}: {difference}"


def _before(case: Case, entities: list[Entity]) -> EvaluatorState:
    """The state at time 0, before the first step: everything was evaluated then."""
    emitted: dict[str, dict[Entity, float]] = {}
    for entity in entities:
        for output, value in case.previous.get(str(entity), {}).items():
            emitted.setdefault(output, {})[entity] = value
    return EvaluatorState(dict.fromkeys(entities, 0.0), emitted)


def differences(cycle: Cycle, step: Step) -> Iterator[str]:
    """The differences from the expected outputs."""
    found = {str(entity): outputs for entity, outputs in cycle.changes.items()}
    for entity in sorted(found.keys() | step.expected.keys()):
        ours, theirs = found.get(entity, {}), step.expected.get(entity, {})
        for output in sorted(ours.keys() | theirs.keys()):
            value, wanted = ours.get(output), theirs.get(output)
            if value is None or wanted is None or not math.isclose(value, wanted, rel_tol=EXACT):
                yield f"{entity} {output} is {value}; expected is {wanted}"
    kinds = sorted({diagnostic.kind for diagnostic in cycle.diagnostics})
    if kinds != sorted(set(step.diagnostics)):
        yield f"diagnostics are {cycle.diagnostics}; expected are {step.diagnostics}"
