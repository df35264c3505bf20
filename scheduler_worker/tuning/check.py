"""Compiles policies to a program: resolves names and checks the ranges of constants.

All expressions of one scope become one list of steps with common subexpressions merged: a var that
many rules use, or the same quotient in two files, is computed once. Constants are folded here.

A condition that is a comparison, or uses ``and``, ``or``, ``not`` or ``valid``, is 1 or 0 and may
be used as a number. A condition that is a number, such as a lone property, is only tested for
being non-zero: whether a numeric use of its name means the number or 1 is ambiguous, and refused.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import reduce

import numpy as np

from scheduler_worker.model.issues import Kind
from scheduler_worker.tuning.columns import OPERATIONS, Column, constant
from scheduler_worker.tuning.expressions import UNKNOWN, Expr, Step
from scheduler_worker.tuning.issues import Issues, closest, hinted, quoted
from scheduler_worker.tuning.program import OutputPlan, PlanStep, RulePlan, TuningPlan
from scheduler_worker.tuning.tuning_policy import Condition, Joined, Named, Rate, Rule, TuningPolicy
from scheduler_worker.tuning.yaml_subset import Scalar

_BOOLEAN_RESULTS = frozenset({"<", "<=", ">", ">=", "==", "!=", "and", "or", "not", "valid"})
_BOOLEAN_ARGUMENTS = frozenset({"and", "or", "not", "valid"})
"""Operations that test whether their arguments are true, or present."""
_SELECTED_FROM = {"if": 1, "default": 0, "positive": 0}
"""Operations whose result is one of their arguments -> the index of the first such argument.

The arguments before it are tested: ``if`` has its condition first.
"""


def is_boolean(expr: Expr, numbers: Collection[str]) -> bool:
    """Whether an expression is always true or false; ``numbers`` are the names that may not be."""
    booleans: list[bool] = []
    for step in expr.steps:
        if step.op == "name":
            booleans.append(step.value not in numbers)
        elif step.op == "constant":
            booleans.append(step.value in {0.0, 1.0})
        elif step.op == "property":
            # UNKNOWN stands for an expression with an issue, which should not cause a second one.
            booleans.append(step.value == UNKNOWN)
        elif step.op in _SELECTED_FROM:
            booleans.append(all(booleans[arg] for arg in step.args[_SELECTED_FROM[step.op] :]))
        else:
            booleans.append(step.op in _BOOLEAN_RESULTS)
    return booleans[-1]


def numeric_uses(expr: Expr, *, is_numeric: bool) -> Iterator[int]:
    """Return the steps that are names used as numbers.

    ``is_numeric``: whether the value of the whole expression is used as a number.
    """
    numeric = [False] * len(expr.steps)
    numeric[-1] = is_numeric
    # From the result back to the arguments, which always come before the step that takes them.
    for number in reversed(range(len(expr.steps))):
        step = expr.steps[number]
        for index, arg in enumerate(step.args):
            if step.op in _SELECTED_FROM:
                numeric[arg] = numeric[number] and index >= _SELECTED_FROM[step.op]
            else:
                numeric[arg] = step.op not in _BOOLEAN_ARGUMENTS
    names = (number for number, step in enumerate(expr.steps) if step.op == "name")
    return (number for number in names if numeric[number])


_FACTOR = (lambda value: value > 0 and value != 1, "a factor must be above 0 and not 1")
_LIMIT = (lambda value: value > 0, "a limit must be above 0, or the output would never move")
_PACES: dict[str, tuple[Callable[[float], bool], str]] = {
    "linear": (bool, "a change cannot be 0: the output would never move"),
    "exponential": _FACTOR,
    "factor": _FACTOR,
    "absolute": _LIMIT,
    "value": _LIMIT,
}
"""Kind of a pace -> whether an amount is valid, and the issue of one that is not."""
_MOST_SHOWN = 10
"""Names of a cycle that its message lists."""
_AMBIGUOUS = {"True": "true", "False": "false", "yes": "true", "no": "false"}


def expressions(condition: Condition | None) -> Iterator[Expr]:
    """Yield the expressions of a condition, from left to right."""
    if isinstance(condition, Joined):
        for member in condition.members:
            yield from expressions(member)
    elif condition is not None:
        yield condition


def in_order(names: dict[str, Named], issues: Issues) -> list[str]:
    """Return the names, each after those it uses; a cycle is an issue.

    A depth-first search with its own stack (``path``): a policy may chain thousands of names.
    """
    ordered: list[str] = []
    seen: set[str] = set()
    for start in names:
        path = {} if start in seen else {start: _used(start, names)}
        while path:
            name, uses = next(reversed(path.items()))
            used = next(uses, None)
            if used is None:
                del path[name]
                seen.add(name)
                ordered.append(name)
            elif used in path:
                cycle = list(path)[list(path).index(used) :]
                last = quoted(used) if len(cycle) <= _MOST_SHOWN else "..."
                message = " uses ".join([*map(quoted, cycle[:_MOST_SHOWN]), last])
                issues.add(Kind.CYCLE, names[used].key.place, names[used].path, message)
            elif used not in seen:
                path[used] = _used(used, names)
    return ordered


def _used(name: str, names: dict[str, Named]) -> Iterator[str]:
    for expr in expressions(names[name].definition):
        for step in expr.steps:
            if step.op == "name" and step.value in names:
                yield str(step.value)


class Planner:
    """Plans one scope: appends steps, each once."""

    def __init__(self, issues: Issues) -> None:
        self._issues = issues
        self._steps: list[PlanStep] = []
        self._number_of: dict[object, int] = {}
        """What a step computes -> its number, for merging common subexpressions."""
        self._names: dict[str, int] = {}
        self._numbers: set[str] = set()
        """The names whose values are not always true or false."""
        self._policy: TuningPolicy

    def plan(self, policies: Sequence[TuningPolicy]) -> TuningPlan:
        """The plan of all policies of the scope together; worth nothing if there are issues."""
        rules: dict[int, list[RulePlan]] = {}
        for policy in policies:
            # Vars and conditions are local to their file.
            self._policy, self._names, self._numbers = policy, {}, set()
            for name in in_order(policy.names, self._issues):
                self._names[name] = self._named(policy.names[name])
                definition = policy.names[name].definition
                if isinstance(definition, Expr) and not is_boolean(definition, self._numbers):
                    self._numbers.add(name)
            for rule in policy.rules:
                planned = self._rule(rule)
                output = self._property(rule.output.text, rule.output, 0)
                rules.setdefault(output, []).append(planned)
        outputs = tuple(
            OutputPlan(".".join(self._steps[output].name), output, tuple(chosen))
            for output, chosen in rules.items()
        )
        return TuningPlan(tuple(self._steps), self._live(outputs), outputs)

    def _rule(self, rule: Rule) -> RulePlan:
        lower = self._folded("max", [self._ranged(bound) for bound in rule.minima])
        upper = self._folded("min", [self._ranged(bound) for bound in rule.maxima])
        target = self._maybe(self._ranged, rule.target)
        bounds = [bound for bound in (target, lower, upper) if bound is not None]
        limits = [rule.max_absolute_change, rule.max_relative_change]
        return RulePlan(
            id=f"{self._policy.source.name}:{rule.name}",
            limits=tuple(self._pace(limit) for limit in limits if limit),
            function=None if rule.function is None else self._pace(rule.function),
            target=bounds[0] if bounds else self._constant(0.0),
            lower=lower,
            upper=upper,
            when=None if rule.when is None else self._condition(rule.when),
            influence=self._maybe(self._amount, rule.influence),
            min_absolute_change=self._maybe(self._amount, rule.min_absolute_change),
            min_relative_change=self._maybe(self._amount, rule.min_relative_change),
        )

    def _maybe(self, plan: Callable[[Expr], int], expr: Expr | None) -> int | None:
        return None if expr is None else plan(expr)

    def _pace(self, pace: Rate[Expr]) -> Rate[int]:
        kind = Kind.FUNCTION if pace.kind in {"linear", "exponential"} else Kind.SCHEMA
        step = self._ranged(pace.amount, *_PACES[pace.kind], kind)
        return Rate(pace.kind, step, pace.time_s)

    def _amount(self, expr: Expr) -> int:
        return self._ranged(expr, lambda value: value >= 0, "cannot be negative")

    def _ranged(
        self,
        expr: Expr,
        is_valid: Callable[[float], bool] = lambda _: True,
        message: str = "",
        kind: Kind = Kind.SCHEMA,
    ) -> int:
        """Plan an expression that is a number, and check its value, if that is constant."""
        issues = len(self._issues.found)
        step = self._expr(expr)
        known = self._steps[step].column
        if known is None or known.faults is not None or len(self._issues.found) > issues:
            return step
        if known.texts is not None:
            message = "is a text; a number is needed here"
            self._issues.add(Kind.SCHEMA, expr.place(-1), expr.path, message)
        elif not is_valid(float(known.values)):
            self._issues.add(kind, expr.place(-1), expr.path, message)
        return step

    def _named(self, named: Named) -> int:
        if isinstance(named.definition, Expr) and not named.is_condition:
            return self._expr(named.definition)
        return self._condition(named.definition)

    def _condition(self, condition: Condition) -> int:
        if isinstance(condition, Expr):
            return self._expr(condition, is_numeric=False)
        result = self._constant(float(condition.op == "and"))
        for member in condition.members:
            result = self._add(condition.op, (result, self._condition(member)))
        return result

    def _expr(self, expr: Expr, *, is_numeric: bool = True) -> int:
        """Return the step of an expression; ``is_numeric`` unless only its truth is used."""
        for origin in numeric_uses(expr, is_numeric=is_numeric):
            name = str(expr.steps[origin].value)
            if name in self._numbers and self._policy.names[name].is_condition:
                needed = "a number is needed here; define it under vars"
                message = f"{quoted(name)} is a condition, and {needed}"
                self._issues.add(Kind.NAME, expr.place(origin), expr.path, message)
        numbers: list[int] = []
        for origin, step in enumerate(expr.steps):
            args = tuple(numbers[arg] for arg in step.args)
            numbers.append(self._step(step, args, expr, origin))
        return numbers[-1]

    def _step(self, step: Step, args: tuple[int, ...], expr: Expr, origin: int) -> int:
        if step.op == "constant":
            return self._constant(step.value)
        if step.op == "name":
            return self._name(str(step.value), expr, origin)
        if step.op == "property":
            return self._property(str(step.value), expr.scalar, step.at)
        return self._add(step.op, args, (expr.scalar, step.at))

    def _name(self, name: str, expr: Expr, origin: int) -> int:
        if name not in self._policy.names and self._policy.complete:
            hint = hinted(_AMBIGUOUS.get(name) or closest(name, self._policy.names))
            message = f"{quoted(name)} is not a var or condition of this file{hint}"
            self._issues.add(Kind.NAME, expr.place(origin), expr.path, message)
        step = self._names.get(name)
        # An unknown name has an issue by now; as a property it lets planning go on.
        return self._property(name, expr.scalar, 0) if step is None else step

    def _property(self, name: str, scalar: Scalar, at: int) -> int:
        step = PlanStep("property", name=tuple(name.split(".")), origin=(scalar, at))
        return self._once(("property", name), step)

    def _constant(self, value: float | str) -> int:
        return self._once(value, PlanStep("constant", column=constant(value)))

    def _folded(self, op: str, steps: list[int]) -> int | None:
        return reduce(lambda *args: self._add(op, args), steps) if steps else None

    def _add(self, op: str, args: tuple[int, ...], origin: tuple[Scalar, int] | None = None) -> int:
        computed: Column | None = None
        # Constant folding: as soon as all arguments are constants, so is the result.
        known = [column for arg in args if (column := self._steps[arg].column) is not None]
        if len(known) == len(args):
            with np.errstate(all="ignore"):
                computed = OPERATIONS[op](len(self._steps), *known)
        return self._once((op, args), PlanStep(op, args, (), computed, origin))

    def _once(self, key: object, operation: PlanStep) -> int:
        number = self._number_of.setdefault(key, len(self._steps))
        if number == len(self._steps):
            self._steps.append(operation)
        return number

    def _live(self, outputs: tuple[OutputPlan, ...]) -> tuple[int, ...]:
        """Return the steps that some rule needs, directly or through others."""
        needed = {step for output in outputs for step in _steps_of(output)}
        # Arguments precede the steps that take them, so one pass from the end finds all.
        for number in reversed(range(len(self._steps))):
            if number in needed and self._steps[number].column is None:
                needed.update(self._steps[number].args)
        return tuple(sorted(needed))


def _steps_of(output: OutputPlan) -> Iterator[int]:
    yield output.current
    for rule in output.rules:
        optional = (
            rule.target, rule.lower, rule.upper, rule.when, rule.influence,
            rule.min_absolute_change, rule.min_relative_change,
        )  # fmt: skip
        yield from (step for step in optional if step is not None)
        yield from (pace.amount for pace in (rule.function, *rule.limits) if pace is not None)
