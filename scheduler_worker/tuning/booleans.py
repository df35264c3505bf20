"""Distinguishes boolean from numeric expressions, and boolean from numeric uses of a name.

A condition that is a comparison, or uses ``and``, ``or``, ``not`` or ``valid``, is 1 or 0 and may
be used as a number. A condition that is a number, such as a lone property, is only tested for
being non-zero: whether a numeric use of its name means the number or 1 is ambiguous, so
:mod:`~.check` refuses it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from scheduler_worker.tuning.expressions import UNKNOWN, Expr

_BOOLEAN_RESULTS = frozenset({"<", "<=", ">", ">=", "==", "!=", "and", "or", "not", "valid"})
_BOOLEAN_ARGUMENTS = frozenset({"and", "or", "not", "valid"})
"""Operations that test whether their arguments are true, or present."""
_SELECTED_FROM = {"if": 1, "default": 0, "positive": 0}
"""Operations whose result is one of their arguments -> the index of the first such argument.

The arguments before it are tested: ``if`` has its condition first.
"""


def is_boolean(expr: Expr, numbers: Collection[str]) -> bool:
    """Whether an expression is always true or false; ``numbers`` are the names that may not be."""
    found: list[bool] = []
    for step in expr.steps:
        if step.op == "name":
            found.append(step.value not in numbers)
        elif step.op == "constant":
            found.append(step.value in {0.0, 1.0})
        elif step.op == "property":
            # UNKNOWN stands for an expression with an issue, which should not cause a second one.
            found.append(step.value == UNKNOWN)
        elif step.op in _SELECTED_FROM:
            found.append(all(found[each] for each in step.args[_SELECTED_FROM[step.op] :]))
        else:
            found.append(step.op in _BOOLEAN_RESULTS)
    return found[-1]


def numeric_uses(expr: Expr, *, is_numeric: bool) -> Iterator[int]:
    """Return the steps that are names used as numbers.

    ``is_numeric``: whether the value of the whole expression is used as a number.
    """
    numeric = [False] * len(expr.steps)
    numeric[-1] = is_numeric
    # From the result back to the arguments, which always come before the step that takes them.
    for number in reversed(range(len(expr.steps))):
        step = expr.steps[number]
        for index, each in enumerate(step.args):
            if step.op in _SELECTED_FROM:
                numeric[each] = numeric[number] and index >= _SELECTED_FROM[step.op]
            else:
                numeric[each] = step.op not in _BOOLEAN_ARGUMENTS
    names = (number for number, step in enumerate(expr.steps) if step.op == "name")
    return (number for number in names if numeric[number])
