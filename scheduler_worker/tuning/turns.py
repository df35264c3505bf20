"""What one rule wants of its output, and what its rules make of an output: for many entities.

A turn keeps everything that had a say, in columns; :mod:`~.explain` tells it of one entity.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import repeat

import msgspec
import numpy as np

from scheduler_worker.tuning import movement
from scheduler_worker.tuning.columns import Codes, Column, Fault, Floats, Truths, numbers
from scheduler_worker.tuning.program import Limit, OutputPlan, RulePlan
from scheduler_worker.tuning.samples import Crowd, Entity, Memory

BOUNDS_CONFLICT = "bounds_conflict"
STUCK_AT_ZERO = "stuck_at_zero"


class Moment:
    """Who takes part in a cycle, with what is remembered of them and the time gone by."""

    def __init__(
        self,
        crowd: Crowd,
        memory: Memory,
        now_s: float,
        before_s: float,
        max_elapsed_s: float | None,
    ) -> None:
        """``before_s`` is when who was never evaluated counts as having been."""
        self.entities, self.objects = crowd
        self.memory = memory
        evaluated_at_s = list(map(memory.evaluated_at_s.get, self.entities, repeat(before_s)))
        self.elapsed_s: Floats = np.clip(now_s - np.array(evaluated_at_s), 0, max_elapsed_s)

    @cached_property
    def _index_of(self) -> dict[Entity, int]:
        return dict(zip(self.entities, range(len(self.entities)), strict=True))

    def held(self, rule: RulePlan) -> tuple[Floats, Floats]:
        """For how long and which way each one's change by a rule has been held back already."""
        elapsed_s, direction = np.full((2, len(self.entities)), np.nan)
        for entity, held in self.memory.held.get(rule.id, {}).items():
            index = self._index_of.get(entity)
            if index is not None:
                elapsed_s[index], direction[index] = held
        return elapsed_s, direction


class Current(msgspec.Struct, frozen=True):
    """The values that an output has: observed, else emitted last, else not known."""

    values: Floats
    known: Truths
    faults: Codes
    """What is wrong with an observed value, which is not known then; a missing one is not wrong."""

    @classmethod
    def of(cls, output: OutputPlan, observed: Column, moment: Moment) -> Current:
        """The current values of an output."""
        size = len(moment.entities)
        observed = numbers(observed, output.current)
        values = np.broadcast_to(observed.values, size)
        known = np.ones(size, bool)
        if observed.faults is None:
            return cls(values, known, np.zeros(size, np.int32))
        missing = observed.faults == Fault.MISSING_PROPERTY.at(output.current)
        emitted = moment.memory.emitted.get(output.name, {})
        values = values.copy()
        for index in np.flatnonzero(missing).tolist():
            last = emitted.get(moment.entities[index])
            known[index] = last is not None
            values[index] = last or 0.0
        faults = np.where(missing, 0, observed.faults)
        return cls(values, known & (faults == 0), faults)


class RuleTurn(msgspec.Struct, kw_only=True):
    """What a rule says in one cycle; figures mean nothing where it does not take part."""

    plan: RulePlan
    takes_part: Truths
    weight: Floats
    target: Floats
    elapsed_s: Floats
    wanted: Floats
    """Where the function goes."""
    value: Floats
    """What the limits leave of it: the rule's vote."""
    limited: dict[str, Truths]
    """By the key of the rule that limits: its target, or its change."""
    held: Truths
    direction: Floats
    faults: Codes
    notes: dict[str, Truths]


class OutputTurn(msgspec.Struct, kw_only=True):
    """What all rules of an output say together."""

    plan: OutputPlan
    entities: list[Entity]
    current: Current
    rules: list[RuleTurn]
    value: Floats
    changed: Truths


def output_turn(plan: OutputPlan, registers: Sequence[Column], moment: Moment) -> OutputTurn:
    """Ask all rules of an output, and join their votes."""
    current = Current.of(plan, registers[plan.current], moment)
    rules = [_RuleAsked(rule, plan, registers, current, moment).turn() for rule in plan.rules]
    value = _joined(rules)
    takes_part = np.logical_or.reduce([each.takes_part for each in rules])
    changed = takes_part & (~current.known | (value != current.values))
    return OutputTurn(
        plan=plan,
        entities=moment.entities,
        current=current,
        rules=rules,
        value=value,
        changed=changed,
    )


def _joined(rules: Sequence[RuleTurn]) -> Floats:
    """The mean of the votes by their weights; never outside of them, whatever the rounding."""
    if len(rules) == 1:
        return rules[0].value
    takes_part = np.array([each.takes_part for each in rules])
    values = np.array([each.value for each in rules])
    weights = np.where(takes_part, [each.weight for each in rules], 0.0)
    exponent = np.frexp(weights.max(axis=0))[1]
    weights = np.ldexp(weights, -exponent)  # exact, and the sums stay finite
    mean: Floats = (weights * values).sum(axis=0) / weights.sum(axis=0)
    least = np.where(takes_part, values, np.inf).min(axis=0)
    most = np.where(takes_part, values, -np.inf).max(axis=0)
    joined: Floats = np.clip(mean, least, most)
    return joined


class _RuleAsked:
    """One rule, asked about everybody; whoever has a fault, or is not meant, takes no part."""

    def __init__(
        self,
        plan: RulePlan,
        output: OutputPlan,
        registers: Sequence[Column],
        current: Current,
        moment: Moment,
    ) -> None:
        self._plan = plan
        self._output = output
        self._registers = registers
        self._current = current
        self._moment = moment
        self._meant = np.ones(len(moment.entities), bool)
        self._faults = np.zeros(len(moment.entities), np.int32)
        self._notes: dict[str, Truths] = {}
        self._limits: dict[str, Truths] = {}

    def turn(self) -> RuleTurn:
        """Condition and weight, target, function, limits, and whether it is worth the while."""
        if self._plan.when is not None:
            self._only(self._number(self._plan.when) != 0)
        weight = self._weight()
        target = self._target()
        current = self._known_current()
        elapsed_s, direction = self._elapsed_s(target)
        wanted = self._moved(target, elapsed_s)
        value = self._limited(wanted, elapsed_s)
        self._refuse(~np.isfinite(value), Fault.NON_FINITE, self._plan.target)
        held = self._held(value)
        takes_part = self._takes_part
        return RuleTurn(
            plan=self._plan,
            takes_part=takes_part,
            weight=weight,
            target=target,
            elapsed_s=elapsed_s,
            wanted=wanted,
            value=np.where(takes_part, np.where(held, current, value), 0.0),
            limited=self._limits,
            held=held & takes_part,
            direction=direction,
            faults=self._faults,
            notes={name: mask & takes_part for name, mask in self._notes.items()},
        )

    def _weight(self) -> Floats:
        if self._plan.influence is None:
            return np.ones(len(self._moment.entities))
        weight = self._number(self._plan.influence)
        self._refuse(weight < 0, Fault.NEGATIVE_INFLUENCE, self._plan.influence)
        self._only(weight != 0)
        return weight

    def _target(self) -> Floats:
        target = self._number(self._plan.target)
        lower = upper = None
        if self._plan.lower is not None:
            lower = self._number(self._plan.lower)
            self._limits["min"] = lower > target
            target = np.maximum(target, lower)
        if self._plan.upper is not None:
            upper = self._number(self._plan.upper)
            self._limits["max"] = upper < target
            target = np.minimum(target, upper)
        if lower is not None and upper is not None:
            self._notes[BOUNDS_CONFLICT] = lower > upper
        return target

    def _known_current(self) -> Floats:
        self._blame(self._current.faults)
        if self._plan.movement.kind != "constant" or self._plan.limits:
            unknown = ~self._current.known
            self._refuse(unknown, Fault.NO_CURRENT_VALUE, self._output.current)
        return self._current.values

    def _elapsed_s(self, target: Floats) -> tuple[Floats, Floats]:
        """The time that counts, and the direction; a turn makes what was held back void."""
        direction = np.sign(target - self._current.values)
        held_s, held_direction = self._moment.held(self._plan)
        since_s = np.where(held_direction == direction, held_s, 0.0)
        return self._moment.elapsed_s + since_s, direction

    def _moved(self, target: Floats, elapsed_s: Floats) -> Floats:
        move = self._plan.movement
        if move.parameter is None:
            return target
        parameter = self._number(move.parameter)
        current, periods = self._current.values, elapsed_s / move.time_s
        if move.kind == "linear":
            return movement.linear(current, target, parameter, periods)
        self._refuse_factor(parameter, Fault.BAD_FACTOR, move.parameter)
        self._note(STUCK_AT_ZERO, (current == 0) & (target != 0))
        return movement.exponential(current, target, parameter, periods)

    def _limited(self, value: Floats, elapsed_s: Floats) -> Floats:
        for limit in self._plan.limits:
            tighter = self._within(limit, value, elapsed_s / limit.time_s)
            self._limits[f"max_{_KEYS[limit.kind]}_change"] = tighter != value
            value = tighter
        return value

    def _within(self, limit: Limit, value: Floats, periods: Floats) -> Floats:
        amount, current = self._number(limit.step), self._current.values
        if limit.kind == "factor":
            self._refuse_factor(amount, Fault.BAD_LIMIT, limit.step)
        else:
            self._refuse(amount < 0, Fault.BAD_LIMIT, limit.step)
        if limit.kind != "absolute":
            self._note(STUCK_AT_ZERO, (current == 0) & (value != 0))
        return _WITHIN[limit.kind](value, current, amount, periods)

    def _held(self, value: Floats) -> Truths:
        """Whether there is a change, and one of the least changes is not exceeded."""
        change = np.abs(value - self._current.values)
        least = self._least(self._plan.min_absolute_change)
        fraction = self._least(self._plan.min_relative_change)
        enough = movement.is_big_enough(change, self._current.values, least, fraction)
        held: Truths = self._current.known & (change > 0) & ~enough
        return held

    def _least(self, step: int | None) -> Floats | None:
        if step is None:
            return None
        least = self._number(step)
        self._refuse(least < 0, Fault.BAD_LIMIT, step)
        return least

    @property
    def _takes_part(self) -> Truths:
        takes_part: Truths = self._meant & (self._faults == 0)
        return takes_part

    def _number(self, step: int) -> Floats:
        """A step's values; its faults count for those who still take part."""
        found = numbers(self._registers[step], step)
        if found.faults is not None:
            self._blame(found.faults)
        return np.broadcast_to(found.values, len(self._moment.entities))

    def _only(self, mask: Truths) -> None:
        self._meant = self._meant & mask

    def _blame(self, faults: Codes) -> None:
        self._faults = np.where(self._takes_part, faults, self._faults)

    def _refuse(self, mask: Truths, fault: Fault, step: int) -> None:
        if mask.any():
            self._blame(np.where(mask, fault.at(step), 0).astype(np.int32))

    def _refuse_factor(self, factor: Floats, fault: Fault, step: int) -> None:
        self._refuse((factor <= 0) | (factor == 1), fault, step)

    def _note(self, name: str, mask: Truths) -> None:
        self._notes[name] = self._notes[name] | mask if name in self._notes else mask


_KEYS = {"absolute": "absolute", "value": "relative", "factor": "relative"}
_WITHIN = {
    "absolute": movement.within_amount,
    "value": movement.within_fraction,
    "factor": movement.within_factor,
}
