"""Documents to a program: names get their meaning, and numbers their range.

All expressions of one scope become one list of steps, in which what is written twice is done once:
a var that many rules use, or the same quotient in two files. What is constant is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches

import numpy as np

from scheduler_worker.tuning import program
from scheduler_worker.tuning.columns import OPERATIONS, Column, constant
from scheduler_worker.tuning.document import (
    All,
    Any,
    Condition,
    Constant,
    Document,
    Exponential,
    Growth,
    Linear,
    Named,
    Rate,
    Rule,
    Scope,
)
from scheduler_worker.tuning.expressions import Expr, Step
from scheduler_worker.tuning.issues import Issues, Kind, quoted
from scheduler_worker.tuning.program import Limit, Movement, Operation, OutputPlan, Plan, RulePlan

_AMBIGUOUS = {"True": "true", "False": "false", "yes": "true", "no": "false"}


def check(documents: Sequence[Document], issues: Issues) -> program.Program:
    """The program of all documents together.

    Raises:
        PolicyError: there are issues, found here or before; it holds all of them.
    """
    plans: dict[Scope, Plan] = {}
    for scope in Scope:
        chosen = [each for each in documents if each.scope is scope]
        if chosen:
            plans[scope] = _Planner(issues).plan(chosen)
    issues.settle()
    return program.Program(plans)


def expressions(condition: Condition | None) -> Iterator[Expr]:
    """All expressions of a condition, from left to right."""
    if isinstance(condition, Any | All):
        for member in condition.members:
            yield from expressions(member)
    elif condition is not None:
        yield condition


def in_order(names: dict[str, Named], issues: Issues) -> list[str]:
    """The names so that each comes after those it uses; those on a cycle are left out."""
    ordered: list[str] = []
    state: dict[str, str] = {}
    for start, named in names.items():
        path = [(start, _used(named, names))] if start not in state else []
        state.setdefault(start, "open")
        while path:
            name, uses = path[-1]
            used = next(uses, None)
            if used is None:
                path.pop()
                if state[name] == "open":
                    ordered.append(name)
                    state[name] = "done"
            elif used not in state:
                state[used] = "open"
                path.append((used, _used(names[used], names)))
            elif state[used] == "open":
                cycle = [each for each, _ in path]
                cycle = cycle[cycle.index(used) :]
                state.update(dict.fromkeys(cycle, "cyclic"))
                said = " uses ".join(quoted(each) for each in [*cycle, used][:10])
                issues.add(Kind.CYCLE, names[used].key.place, names[used].path, said)
    return ordered


def _used(named: Named, names: dict[str, Named]) -> Iterator[str]:
    for expr in expressions(named.means):
        for step in expr.steps:
            if step.op == "name" and step.value in names:
                yield str(step.value)


class _Planner:
    """Collects the steps of one scope."""

    def __init__(self, issues: Issues) -> None:
        self._issues = issues
        self._steps: list[Operation] = []
        self._known: dict[object, int] = {}
        self._names: dict[str, int] = {}
        self._document: Document

    def plan(self, documents: Sequence[Document]) -> Plan:
        """The plan of the documents of one scope."""
        rules: dict[str, list[RulePlan]] = {}
        for document in documents:
            self._document, self._names = document, {}
            for name in in_order(document.names, self._issues):
                self._names[name] = self._condition(document.names[name].means)
            for rule in document.rules:
                rules.setdefault(rule.output.text, []).append(self._rule(rule))
        outputs = tuple(
            OutputPlan(name, self._property(name), tuple(chosen)) for name, chosen in rules.items()
        )
        return Plan(tuple(self._steps), self._live(outputs), outputs)

    def _rule(self, rule: Rule) -> RulePlan:
        self._property(rule.output.text)
        lower = self._folded("max", [self._expr(each) for each in rule.minima])
        upper = self._folded("min", [self._expr(each) for each in rule.maxima])
        target = self._optional(rule.target)
        bound = lower if lower is not None else upper
        limits = (
            self._limit("absolute", rule.max_absolute_change),
            self._limit("value", rule.max_relative_change),
        )
        return RulePlan(
            id=f"{self._document.source.name}:{rule.name}",
            name=rule.name,
            movement=self._movement(rule.function),
            target=target if target is not None else bound or 0,
            lower=lower,
            upper=upper,
            when=None if rule.when is None else self._condition(rule.when),
            influence=self._ranged(rule.influence, Kind.SCHEMA, _negative, "cannot be negative"),
            limits=tuple(each for each in limits if each),
            min_absolute_change=self._amount(rule.min_absolute_change),
            min_relative_change=self._amount(rule.min_relative_change),
        )

    def _movement(self, function: Constant | Linear | Exponential) -> Movement:
        if isinstance(function, Linear):
            change = self._expr(function.change)
            return Movement(kind="linear", parameter=change, time_s=function.time_s)
        if isinstance(function, Exponential):
            factor = self._factor(function.factor, Kind.FUNCTION)
            return Movement(kind="exponential", parameter=factor, time_s=function.time_s)
        return Movement(kind="constant")

    def _limit(self, kind: str, limit: Rate | Growth | None) -> Limit | None:
        if limit is None:
            return None
        if isinstance(limit, Growth):
            return Limit("factor", self._factor(limit.factor, Kind.SCHEMA), limit.time_s)
        return Limit(kind, self._amount(limit.value) or 0, limit.time_s)

    def _factor(self, expr: Expr, kind: Kind) -> int:
        message = "a factor is above 0, and 1 would change nothing"
        return self._ranged(expr, kind, _no_factor, message) or 0

    def _amount(self, expr: Expr | None) -> int | None:
        return self._ranged(expr, Kind.SCHEMA, _negative, "cannot be negative")

    def _ranged(
        self, expr: Expr | None, kind: Kind, is_wrong: Callable[[float], bool], message: str
    ) -> int | None:
        """An expression whose value, if it is known by now, is in some range."""
        if expr is None:
            return None
        step = self._expr(expr)
        known = self._steps[step].column
        if known and known.faults is None and known.texts is None and is_wrong(float(known.values)):
            self._issues.add(kind, expr.place(-1), expr.path, message)
        return step

    def _condition(self, condition: Condition) -> int:
        if isinstance(condition, Expr):
            return self._expr(condition)
        op = "or" if isinstance(condition, Any) else "and"
        members = [self._condition(each) for each in condition.members]
        truth = self._constant(float(op == "and"))
        return self._folded(op, [*members, truth] if len(members) < 2 else members) or 0

    def _optional(self, expr: Expr | None) -> int | None:
        return None if expr is None else self._expr(expr)

    def _expr(self, expr: Expr) -> int:
        numbers: list[int] = []
        for origin, step in enumerate(expr.steps):
            args = tuple(numbers[each] for each in step.args)
            numbers.append(self._step(step, args, expr, origin))
        return numbers[-1]

    def _step(self, step: Step, args: tuple[int, ...], expr: Expr, origin: int) -> int:
        if step.op == "constant":
            return self._constant(step.value)
        if step.op == "name":
            return self._name(str(step.value), expr, origin)
        if step.op == "property":
            return self._property(str(step.value), expr, origin)
        return self._add(step.op, args, expr, origin)

    def _name(self, name: str, expr: Expr, origin: int) -> int:
        if name not in self._document.names:
            close = get_close_matches(name[:60], self._document.names, 1)
            meant = _AMBIGUOUS.get(name) or "".join(close)
            hint = f"; did you mean {meant[:60]}?" if meant else ""
            message = f"{quoted(name)} is no var or condition of this file{hint}"
            self._issues.add(Kind.NAME, expr.place(origin), expr.path, message)
        step = self._names.get(name)
        return self._property(name, expr, origin) if step is None else step

    def _property(self, name: str, expr: Expr | None = None, origin: int = 0) -> int:
        parts = tuple(name.split("."))
        made = Operation("property", name=parts, expr=expr, origin=origin)
        return self._once(("property", name), made)

    def _constant(self, value: float | str) -> int:
        return self._once(value, Operation("constant", column=constant(value)))

    def _folded(self, op: str, steps: list[int]) -> int | None:
        if not steps:
            return None
        result = steps[0]
        for each in steps[1:]:
            result = self._add(op, (result, each))
        return result

    def _add(
        self, op: str, args: tuple[int, ...], expr: Expr | None = None, origin: int = 0
    ) -> int:
        column = self._computed(op, args)
        return self._once((op, args), Operation(op, args, (), column, expr, origin))

    def _computed(self, op: str, args: tuple[int, ...]) -> Column | None:
        known = [column for each in args if (column := self._steps[each].column) is not None]
        if len(known) < len(args):
            return None
        with np.errstate(all="ignore"):
            return OPERATIONS[op](len(self._steps), *known)

    def _once(self, key: object, operation: Operation) -> int:
        number = self._known.setdefault(key, len(self._steps))
        if number == len(self._steps):
            self._steps.append(operation)
        return number

    def _live(self, outputs: tuple[OutputPlan, ...]) -> tuple[int, ...]:
        """The steps that some rule needs, directly or not."""
        wanted = {step for output in outputs for step in _steps_of(output)}
        for number in reversed(range(len(self._steps))):
            if number in wanted and self._steps[number].column is None:
                wanted.update(self._steps[number].args)
        return tuple(sorted(wanted))


def _steps_of(output: OutputPlan) -> Iterator[int]:
    yield output.current
    for rule in output.rules:
        optional = (
            rule.target, rule.lower, rule.upper, rule.when, rule.influence, rule.movement.parameter,
            rule.min_absolute_change, rule.min_relative_change,
        )  # fmt: skip
        yield from (each for each in optional if each is not None)
        yield from (limit.step for limit in rule.limits)


def _negative(value: float) -> bool:
    return value < 0


def _no_factor(value: float) -> bool:
    return value <= 0 or value == 1
