"""Why an output got its value, or did not: which rules voted, how, and what limited them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from scheduler_worker.tuning.evaluate import Cycle
from scheduler_worker.tuning.samples import Entity
from scheduler_worker.tuning.turns import OutputTurn, RuleTurn


class Vote(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule said."""

    rule: str
    weight: float
    target: float
    """The target, within its bounds."""
    elapsed_s: float
    """The time that the function and the limits were given."""
    wanted: float
    """Where the function went."""
    value: float
    """What became of it: the rule's vote."""
    limited_by: tuple[str, ...]
    """The keys of the rule that limited its target (min, max) or its change (max_...)."""
    held_back: bool
    """The change is too small yet; the rule votes for the present value, and time adds up."""

    def __str__(self) -> str:
        said = f"{self.rule}: weight {_n(self.weight)}, towards {_n(self.target)}"
        said += f", {_n(self.elapsed_s)} s: {_n(self.wanted)}"
        if self.limited_by:
            said += f", limited by {' and '.join(self.limited_by)}"
        if self.held_back:
            return f"{said}, held back: too small a change yet"
        return f"{said}, votes for {_n(self.value)}"


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """One output of one entity."""

    entity: Entity
    output: str
    before: float | None
    """The present value; None: not known."""
    after: float | None
    changed: bool
    votes: tuple[Vote, ...]
    silent: tuple[str, ...]
    """Rules without a say: they do not count now, or were left out as the diagnostics tell."""

    def __str__(self) -> str:
        before = _n(self.before)
        became = f"{before} -> {_n(self.after)}" if self.changed else f"stays {before}"
        return "\n  ".join([f"{self.entity} {self.output}: {became}", *map(str, self.votes)])


def explanations(cycle: Cycle, *, everything: bool = False) -> Iterator[Explanation]:
    """An explanation for each output that was changed, or of which a change was held back.

    With ``everything`` also for those that stay as they are.
    """
    for turns in cycle.turns.values():
        for turn in turns:
            told = np.logical_or.reduce([turn.changed, *(rule.held for rule in turn.rules)])
            for index in np.flatnonzero(told | everything).tolist():
                yield _explained(turn, index)


def _explained(turn: OutputTurn, index: int) -> Explanation:
    before = float(turn.current.values[index]) if turn.current.known[index] else None
    changed = bool(turn.changed[index])
    return Explanation(
        entity=turn.entities[index],
        output=turn.plan.name,
        before=before,
        after=float(turn.value[index]) if changed else before,
        changed=changed,
        votes=tuple(_vote(rule, index) for rule in turn.rules if rule.takes_part[index]),
        silent=tuple(rule.plan.id for rule in turn.rules if not rule.takes_part[index]),
    )


def _vote(rule: RuleTurn, index: int) -> Vote:
    return Vote(
        rule=rule.plan.id,
        weight=float(rule.weight[index]),
        target=float(rule.target[index]),
        elapsed_s=float(rule.elapsed_s[index]),
        wanted=float(rule.wanted[index]),
        value=float(rule.value[index]),
        limited_by=tuple(name for name, mask in rule.limited.items() if mask[index]),
        held_back=bool(rule.held[index]),
    )


def _n(number: float | None) -> str:
    return "unknown" if number is None else f"{number:.10g}"
