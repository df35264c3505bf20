"""Evaluates the rules of an output, and combines their votes: for many entities at once.

Results keep every intermediate value in columns; ``explanations`` reads them for one entity.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import repeat

import msgspec
import numpy as np

from scheduler_worker.tuning import movement
from scheduler_worker.tuning.columns import Bools, Column, FaultCodes, Floats, ValueFault, numbers
from scheduler_worker.tuning.program import OutputPlan, RulePlan
from scheduler_worker.tuning.samples import Entity, EntityGroup, EvaluatorState
from scheduler_worker.tuning.tuning_policy import Rate

BOUNDS_CONFLICT = "bounds_conflict"
STUCK_AT_ZERO = "stuck_at_zero"


class EvaluationContext:
    """The entities of one scope in a cycle, with their state and elapsed times."""

    def __init__(
        self,
        group: EntityGroup,
        state: EvaluatorState,
        now_s: float,
        before_s: float,
        max_elapsed_s: float | None,
    ) -> None:
        """``before_s`` counts as the last evaluation of an entity that never had one."""
        self.entities, self.objects = group
        self.state = state
        evaluated_at_s = list(map(state.evaluated_at_s.get, self.entities, repeat(before_s)))
        self.elapsed_s: Floats = np.clip(now_s - np.array(evaluated_at_s), 0, max_elapsed_s)

    @cached_property
    def _index_of(self) -> dict[Entity, int]:
        return dict(zip(self.entities, range(len(self.entities)), strict=True))

    def held(self, rule: RulePlan) -> tuple[Floats, Floats]:
        """Return for each entity how long a rule's change has been held back, and its direction."""
        elapsed_s, direction = np.full((2, len(self.entities)), np.nan)
        for entity, held in self.state.held.get(rule.id, {}).items():
            index = self._index_of.get(entity)
            if index is not None:
                elapsed_s[index], direction[index] = held
        return elapsed_s, direction


class CurrentValues(msgspec.Struct, frozen=True):
    """The present values of an output: observed, else emitted last, else unknown."""

    values: Floats
    known: Bools
    faults: FaultCodes
    """Faults of observed values, which are unknown then; a missing value is no fault."""

    @classmethod
    def of(
        cls, output: OutputPlan, observed: Column, context: EvaluationContext
    ) -> "CurrentValues":
        """Return the present values of an output."""
        size = len(context.entities)
        observed = numbers(observed, output.current)
        values = np.broadcast_to(observed.values, size)
        known = np.ones(size, bool)
        if observed.faults is None:
            return cls(values, known, np.zeros(size, np.int32))
        missing = observed.faults == ValueFault.MISSING_PROPERTY.at(output.current)
        emitted = context.state.emitted.get(output.name, {})
        values = values.copy()  # a broadcast array is read-only
        for index in np.flatnonzero(missing).tolist():
            last = emitted.get(context.entities[index])
            known[index] = last is not None
            values[index] = last or 0.0
        # A missing value is no fault; any other fault makes the present value unknown.
        faults = np.where(missing, 0, observed.faults)
        return cls(values, known & (faults == 0), faults)


class RuleResult(msgspec.Struct, kw_only=True):
    """A rule's vote in one cycle; values are meaningless where it does not take part."""

    plan: RulePlan
    takes_part: Bools
    weight: Floats
    target: Floats
    elapsed_s: Floats
    proposed: Floats
    """The result of the function, before the limits."""
    value: Floats
    """The rule's vote: within the limits, and the present value where the change is held back."""
    limited: dict[str, Bools]
    """By the key of the rule that took effect: ``min``, ``max``, ``max_..._change``."""
    held: Bools
    direction: Floats
    faults: FaultCodes
    notes: dict[str, Bools]
    """By the kind of a diagnostic that is for information only."""


class OutputResult(msgspec.Struct, kw_only=True):
    """The combined votes of all rules of an output."""

    plan: OutputPlan
    entities: list[Entity]
    current: CurrentValues
    rules: list[RuleResult]
    value: Floats
    changed: Bools


def evaluate_output(
    plan: OutputPlan, registers: Sequence[Column], context: EvaluationContext
) -> OutputResult:
    """Evaluate all rules of an output and combine their votes."""
    current = CurrentValues.of(plan, registers[plan.current], context)
    rules = [
        _RuleEvaluator(rule, plan, registers, current, context).result() for rule in plan.rules
    ]
    value = _combined(rules)
    takes_part = np.logical_or.reduce([rule.takes_part for rule in rules])
    changed = takes_part & (~current.known | (value != current.values))
    return OutputResult(
        plan=plan,
        entities=context.entities,
        current=current,
        rules=rules,
        value=value,
        changed=changed,
    )


def _combined(rules: Sequence[RuleResult]) -> Floats:
    """Return the weighted mean of the votes, clipped to their range against rounding errors."""
    if len(rules) == 1:
        return rules[0].value
    takes_part = np.array([rule.takes_part for rule in rules])
    values = np.array([rule.value for rule in rules])
    weights = np.where(takes_part, [rule.weight for rule in rules], 0.0)
    exponent = np.frexp(weights.max(axis=0))[1]
    weights = np.ldexp(weights, -exponent)  # scaling by powers of 2 is exact; sums stay finite
    mean: Floats = (weights * values).sum(axis=0) / weights.sum(axis=0)
    least = np.where(takes_part, values, np.inf).min(axis=0)
    most = np.where(takes_part, values, -np.inf).max(axis=0)
    combined: Floats = np.clip(mean, least, most)
    return combined


class _RuleEvaluator:
    """Evaluates one rule for all entities of a scope.

    A rule takes part for an entity while it is triggered there and has no fault. Each step below
    narrows that down: an entity that is out neither collects faults nor comes back.
    """

    def __init__(
        self,
        plan: RulePlan,
        output: OutputPlan,
        registers: Sequence[Column],
        current: CurrentValues,
        context: EvaluationContext,
    ) -> None:
        self._plan = plan
        self._output = output
        self._registers = registers
        self._current = current
        self._context = context
        self._triggered = np.ones(len(context.entities), bool)
        self._faults = np.zeros(len(context.entities), np.int32)
        self._notes: dict[str, Bools] = {}
        self._limits: dict[str, Bools] = {}

    def result(self) -> RuleResult:
        """Evaluate condition, weight, target, function, limits and minimum changes in turn."""
        if self._plan.when is not None:
            self._restrict_to(self._number(self._plan.when) != 0)
        weight = self._weight()
        target = self._target()
        current = self._known_current()
        elapsed_s, direction = self._elapsed_s(target)
        proposed = self._moved(target, elapsed_s)
        value = self._limited(proposed, elapsed_s)
        self._fault_where(~np.isfinite(value), ValueFault.NON_FINITE, self._plan.target)
        held = self._held(value)
        takes_part = self._takes_part
        return RuleResult(
            plan=self._plan,
            takes_part=takes_part,
            weight=weight,
            target=target,
            elapsed_s=elapsed_s,
            proposed=proposed,
            value=np.where(takes_part, np.where(held, current, value), 0.0),
            limited=self._limits,
            held=held & takes_part,
            direction=direction,
            faults=self._faults,
            notes={name: mask & takes_part for name, mask in self._notes.items()},
        )

    def _weight(self) -> Floats:
        if self._plan.influence is None:
            return np.ones(len(self._context.entities))
        weight = self._number(self._plan.influence)
        self._fault_where(weight < 0, ValueFault.NEGATIVE_INFLUENCE, self._plan.influence)
        self._restrict_to(weight != 0)
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
        self._add_faults(self._current.faults)
        if self._plan.function or self._plan.limits:
            unknown = ~self._current.known
            self._fault_where(unknown, ValueFault.NO_CURRENT_VALUE, self._output.current)
        return self._current.values

    def _elapsed_s(self, target: Floats) -> tuple[Floats, Floats]:
        """Return the elapsed time and the direction of the change.

        The time of a held-back change is added only while its direction is the same: otherwise an
        hour near one target would be credit for a jump towards another.
        """
        direction = np.sign(target - self._current.values)
        held_s, held_direction = self._context.held(self._plan)
        since_s = np.where(held_direction == direction, held_s, 0.0)
        return self._context.elapsed_s + since_s, direction

    def _moved(self, target: Floats, elapsed_s: Floats) -> Floats:
        if (function := self._plan.function) is None:
            return target
        amount = self._number(function.amount)
        current, periods = self._current.values, elapsed_s / function.time_s
        if function.kind == "linear":
            return movement.linear(current, target, amount, periods)
        self._check_factor(amount, ValueFault.BAD_FACTOR, function.amount)
        self._note(STUCK_AT_ZERO, (current == 0) & (target != 0))
        return movement.exponential(current, target, amount, periods)

    def _limited(self, value: Floats, elapsed_s: Floats) -> Floats:
        for limit in self._plan.limits:
            tighter = self._within(limit, value, elapsed_s / limit.time_s)
            self._limits[f"max_{_KEYS[limit.kind]}_change"] = tighter != value
            value = tighter
        return value

    def _within(self, limit: Rate[int], value: Floats, periods: Floats) -> Floats:
        amount, current = self._number(limit.amount), self._current.values
        if limit.kind == "factor":
            self._check_factor(amount, ValueFault.BAD_LIMIT, limit.amount)
        else:
            self._fault_where(amount < 0, ValueFault.BAD_LIMIT, limit.amount)
        if limit.kind != "absolute":
            self._note(STUCK_AT_ZERO, (current == 0) & (value != 0))
        return _WITHIN[limit.kind](value, current, amount, periods)

    def _held(self, value: Floats) -> Bools:
        """Whether there is a change, but not more than both minimum changes."""
        plan, current = self._plan, self._current
        change = np.abs(value - current.values)
        enough: Bools = change > 0
        relative_to = ((plan.min_absolute_change, 1.0), (plan.min_relative_change, current.values))
        for step, unit in relative_to:
            if step is not None:
                minimum = self._number(step)
                self._fault_where(minimum < 0, ValueFault.BAD_LIMIT, step)
                enough = enough & (change > minimum * np.abs(unit))
        held: Bools = current.known & (change > 0) & ~enough
        return held

    @property
    def _takes_part(self) -> Bools:
        takes_part: Bools = self._triggered & (self._faults == 0)
        return takes_part

    def _number(self, step: int) -> Floats:
        """Return the values of a step; its faults are added for entities that still take part."""
        column = numbers(self._registers[step], step)
        if column.faults is not None:
            self._add_faults(column.faults)
        return np.broadcast_to(column.values, len(self._context.entities))

    def _restrict_to(self, mask: Bools) -> None:
        self._triggered = self._triggered & mask

    def _add_faults(self, faults: FaultCodes) -> None:
        self._faults = np.where(self._takes_part, faults, self._faults)

    def _fault_where(self, mask: Bools, fault: ValueFault, step: int) -> None:
        if mask.any():
            self._add_faults(np.where(mask, fault.at(step), 0).astype(np.int32))

    def _check_factor(self, factor: Floats, fault: ValueFault, step: int) -> None:
        self._fault_where((factor <= 0) | (factor == 1), fault, step)

    def _note(self, name: str, mask: Bools) -> None:
        self._notes[name] = self._notes[name] | mask if name in self._notes else mask


_KEYS = {"absolute": "absolute", "value": "relative", "factor": "relative"}
_WITHIN = {
    "absolute": movement.within_amount,
    "value": movement.within_fraction,
    "factor": movement.within_factor,
}
