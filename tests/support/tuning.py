"""Short ways to write tuning policies and run cycles."""

from typing import Any

import pytest

from scheduler_worker.errors import TuningPolicyError
from scheduler_worker.model.issues import Issue
from scheduler_worker.model.policies import TuningProblem, TuningText
from scheduler_worker.ports import TuningPolicyTexts
from scheduler_worker.tuning import loader
from scheduler_worker.tuning.evaluate import Cycle, evaluate
from scheduler_worker.tuning.program import Program
from scheduler_worker.tuning.samples import EvaluatorState, Sample, entity_groups
from scheduler_worker.tuning.yaml_subset import Source


class FakePolicySource:
    """The operator's files, in memory."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts
        self.clusters: str | None = 'parameters: {"*": {balloon_min: 500}}'
        self.problems: tuple[TuningProblem, ...] = ()

    def read(self) -> TuningPolicyTexts:
        policies = (TuningText(name, text, f"/{name}.yaml") for name, text in self.texts.items())
        clusters = self.clusters and TuningText("tuning", self.clusters, "/tuning.yaml")
        return TuningPolicyTexts(
            policies=tuple(policies), clusters=clusters or None, problems=self.problems
        )


RULE = """\
scope: VM
rules:
  r:
    output: x.out
"""


def load(*texts: str) -> Program:
    """Return the program of some policies, called 1.yaml, 2.yaml and so on."""
    return loader.load(Source(f"{number}.yaml", text) for number, text in enumerate(texts, 1))


def rule(*lines: str, head: str = "") -> str:
    """Return a policy of one rule with the output x.out."""
    return head + RULE + "".join(f"    {line}\n" for line in lines)


def issues(*texts: str) -> list[Issue]:
    with pytest.raises(TuningPolicyError) as refused:
        load(*texts)
    return list(refused.value.issues)


def kinds(*texts: str) -> list[str]:
    return [str(each.kind) for each in issues(*texts)]


def cycle_of(
    program: Program, sample: Sample, state: EvaluatorState | None = None, now_s: float = 0.0
) -> Cycle:
    groups = entity_groups({"h": sample})
    state = state or EvaluatorState()
    return evaluate(program, groups, state, now_s)


def one_vm(**objects: Any) -> Sample:
    return Sample(vms={"vm1": objects})


def outputs(cycle: Cycle) -> dict[str, dict[str, float]]:
    return {str(entity): made for entity, made in cycle.changes.items()}


def diagnosed(cycle: Cycle) -> list[str]:
    return [each.kind for each in cycle.diagnostics]


def value_of(expression: str, **objects: Any) -> float | str:
    """Return the value of an expression for a VM, or the kind of its fault."""
    cycle = cycle_of(load(rule(f"target: {expression}")), one_vm(**objects))
    return diagnosed(cycle)[0] if cycle.diagnostics else cycle.changes.popitem()[1]["x.out"]
