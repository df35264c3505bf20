"""Policies and cycles in few words."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_worker.errors import PolicyError
from scheduler_worker.tuning import policy
from scheduler_worker.tuning.evaluate import DEFAULTS, Cycle, Options, evaluate
from scheduler_worker.tuning.issues import Issue
from scheduler_worker.tuning.program import Program
from scheduler_worker.tuning.samples import Memory, Sample, crowds
from scheduler_worker.tuning.yaml_subset import Source

RULE = """\
scope: VM
rules:
  r:
    output: x.out
"""


def load(*texts: str) -> Program:
    """The program of some files, called 1.yaml, 2.yaml and so on."""
    return policy.load(Source(f"{number}.yaml", text) for number, text in enumerate(texts, 1))


def rule(*lines: str, head: str = "") -> str:
    """A policy of one rule with the output x.out."""
    return head + RULE + "".join(f"    {line}\n" for line in lines)


def issues(*texts: str) -> list[Issue]:
    """What is wrong with a policy."""
    with pytest.raises(PolicyError) as refused:
        load(*texts)
    return list(refused.value.issues)


def kinds(*texts: str) -> list[str]:
    """The kinds of its issues, in the order of the text."""
    return [str(each.kind) for each in issues(*texts)]


def cycle_of(
    program: Program,
    sample: Sample,
    memory: Memory | None = None,
    now_s: float = 0.0,
    options: Options = DEFAULTS,
) -> Cycle:
    """One evaluation."""
    return evaluate(program, crowds({"h": sample}), memory or Memory(), now_s, options)


def one_vm(**objects: Any) -> Sample:
    """A host with a VM vm1."""
    return Sample(vms={"vm1": objects})


def outputs(cycle: Cycle) -> dict[str, dict[str, float]]:
    """What is set, by the entity's name."""
    return {str(entity): made for entity, made in cycle.changes.items()}


def diagnosed(cycle: Cycle) -> list[str]:
    """The kinds of the diagnostics."""
    return [each.kind for each in cycle.diagnostics]


def value_of(expression: str, **objects: Any) -> float | str:
    """What an expression is for a VM, or the kind of its fault."""
    cycle = cycle_of(load(rule(f"target: {expression}")), one_vm(**objects))
    return diagnosed(cycle)[0] if cycle.diagnostics else cycle.changes.popitem()[1]["x.out"]
