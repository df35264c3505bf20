"""Explains the value of an output: which rules voted, for what, and what limited them."""

from collections.abc import Iterator

import msgspec
import numpy as np

from scheduler_worker.tuning.evaluate import Cycle
from scheduler_worker.tuning.rules import OutputResult, RuleResult
from scheduler_worker.tuning.samples import Entity


class Vote(msgspec.Struct, frozen=True, kw_only=True):
    """The vote of one rule."""

    rule: str
    weight: float
    target: float
    """The target, within its bounds."""
    elapsed_s: float
    """The time for which function and limits were evaluated."""
    proposed: float
    """The result of the function."""
    value: float
    """The rule's vote: the result within the limits, or the present value if held back."""
    limited_by: tuple[str, ...]
    """The keys of the rule that limited its target (min, max) or its change (max_...)."""
    held_back: bool
    """The change is too small yet: the vote is the present value, and elapsed time accumulates."""

    def __str__(self) -> str:
        text = f"{self.rule}: weight {_n(self.weight)}, target {_n(self.target)}"
        text += f", after {_n(self.elapsed_s)} s: {_n(self.proposed)}"
        if self.limited_by:
            text += f", limited by {' and '.join(self.limited_by)}"
        if self.held_back:
            return f"{text}, held back: the change is too small yet"
        return f"{text}, votes for {_n(self.value)}"


class RuleExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """One output of one entity."""

    entity: Entity
    output: str
    before: float | None
    """The present value; None: unknown."""
    after: float | None
    changed: bool
    votes: tuple[Vote, ...]
    inactive: tuple[str, ...]
    """Rules without a vote: not triggered, or skipped for a fault that the diagnostics name."""

    def __str__(self) -> str:
        before = _n(self.before)
        change = f"{before} -> {_n(self.after)}" if self.changed else f"stays {before}"
        return "\n  ".join([f"{self.entity} {self.output}: {change}", *map(str, self.votes)])


def explanations(cycle: Cycle, *, everything: bool = False) -> Iterator[RuleExplanation]:
    """Yield an explanation for each output that changed, or of which a change was held back.

    With ``everything`` also for outputs that keep their values.
    """
    for results in cycle.results.values():
        for result in results:
            chosen = np.logical_or.reduce([result.changed, *(rule.held for rule in result.rules)])
            for index in np.flatnonzero(chosen | everything).tolist():
                yield _explained(result, index)


def _explained(result: OutputResult, index: int) -> RuleExplanation:
    before = float(result.current.values[index]) if result.current.known[index] else None
    changed = bool(result.changed[index])
    return RuleExplanation(
        entity=result.entities[index],
        output=result.plan.name,
        before=before,
        after=float(result.value[index]) if changed else before,
        changed=changed,
        votes=tuple(_vote(rule, index) for rule in result.rules if rule.takes_part[index]),
        inactive=tuple(rule.plan.id for rule in result.rules if not rule.takes_part[index]),
    )


def _vote(rule: RuleResult, index: int) -> Vote:
    return Vote(
        rule=rule.plan.id,
        weight=float(rule.weight[index]),
        target=float(rule.target[index]),
        elapsed_s=float(rule.elapsed_s[index]),
        proposed=float(rule.proposed[index]),
        value=float(rule.value[index]),
        limited_by=tuple(name for name, mask in rule.limited.items() if mask[index]),
        held_back=bool(rule.held[index]),
    )


def _n(number: float | None) -> str:
    return "unknown" if number is None else f"{number:.10g}"
