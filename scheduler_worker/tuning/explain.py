"""Explains the value of an output: which rules voted, for what, and what limited them."""

from collections.abc import Iterator
from typing import NamedTuple

from scheduler_worker.tuning.evaluate import Cycle
from scheduler_worker.tuning.rules import OutputResult, RuleResult
from scheduler_worker.tuning.samples import Entity


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
