"""Columns: one value for each entity, and the operations of expressions on them.

A column holds a number, a text or a *fault* for each entity. Faults are propagated with the values,
so an error of one entity affects no other. Both sides of ``and``, ``or`` and ``if`` are evaluated;
faults of the side that is not selected are dropped, which equals short-circuit evaluation.

A column with one value for all entities has shape ``()``; numpy broadcasts it.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
FaultCodes = NDArray[np.int32]
Texts = NDArray[np.object_]


class ValueFault(IntEnum):
    """Why there is no value; the rule is skipped for that entity in that cycle."""

    MISSING_PROPERTY = 0
    TYPE_ERROR = 1
    DIVISION_BY_ZERO = 2
    NON_FINITE = 3
    NO_CURRENT_VALUE = 4
    NEGATIVE_INFLUENCE = 5
    BAD_FACTOR = 6
    BAD_LIMIT = 7

    def at(self, step: int) -> int:
        """Return the code of this fault at a step; 0 is no fault."""
        return 1 + step * len(ValueFault) + self


def fault_of(code: int) -> tuple[ValueFault, int]:
    """Return the fault and the step that a code stands for."""
    step, fault = divmod(code - 1, len(ValueFault))
    return ValueFault(fault), step


class Column(NamedTuple):
    """One value for each entity; ``values`` are meaningless where there is a text or a fault."""

    values: Floats
    faults: FaultCodes | None = None
    texts: Texts | None = None
    """None for entities without a text; None as a whole if no entity has one."""


Operation = Callable[..., Column]
"""Takes the number of its step, for fault codes, and then its arguments."""


def constant(value: float | str) -> Column:
    """Return a column with the same value for all entities."""
    if isinstance(value, str):
        return Column(np.zeros(()), texts=np.array(value, object))
    return Column(np.asarray(value, np.float64))


def column(cells: Sequence[object], step: int) -> Column:
    """Return a column of statistics: numbers, booleans, texts, None or anything else."""
    if {float, int, bool}.issuperset(map(type, cells)):
        with contextlib.suppress(OverflowError):
            return _checked(np.array(cells, np.float64), step)
    return _column_of_mixed_cells(cells, step)


def _column_of_mixed_cells(cells: Sequence[object], step: int) -> Column:
    values = np.zeros(len(cells))
    faults = np.zeros(len(cells), np.int32)
    texts: Texts | None = None
    for index, cell in enumerate(cells):
        value = value_of(cell)
        if isinstance(value, ValueFault):
            faults[index] = value.at(step)
        elif isinstance(value, float):
            values[index] = value
        else:
            texts = np.full(len(cells), None, object) if texts is None else texts
            texts[index] = value
    return Column(values, faults, texts)


def value_of(cell: object) -> float | str | ValueFault:
    """Return what a cell of statistics holds for rules, or why it holds nothing."""
    if cell is None:
        return ValueFault.MISSING_PROPERTY
    if isinstance(cell, str):
        return cell
    if not isinstance(cell, int | float):
        return ValueFault.TYPE_ERROR
    try:
        number = float(cell)
    except OverflowError:
        return ValueFault.NON_FINITE
    return number if math.isfinite(number) else ValueFault.NON_FINITE


def first(*faults: FaultCodes | None) -> FaultCodes | None:
    """Return the first fault of each entity."""
    earliest: FaultCodes | None = None
    for fault in faults:
        if fault is not None:
            earliest = fault if earliest is None else np.where(earliest != 0, earliest, fault)
    return earliest


def numbers(operand: Column, step: int) -> Column:
    """Return the column as numbers: texts become type errors."""
    if operand.texts is None:
        return operand
    wrong = np.where(_is_text(operand), ValueFault.TYPE_ERROR.at(step), 0).astype(np.int32)
    return Column(operand.values, first(operand.faults, wrong))


def _is_text(operand: Column) -> Bools:
    if (texts := operand.texts) is None:
        return np.zeros((), bool)
    return np.asarray([text is not None for text in texts.flat]).reshape(texts.shape)


def _checked(values: Floats, step: int, *faults: FaultCodes | None) -> Column:
    """Return a column of results; infinite values and NaN become faults."""
    finite = np.isfinite(values)
    if finite.all():
        return Column(values, first(*faults))
    overflow = np.where(finite, 0, ValueFault.NON_FINITE.at(step)).astype(np.int32)
    return Column(values, first(*faults, overflow))


def _unary(operate: Callable[[Floats], Floats]) -> Operation:
    def run(step: int, operand: Column) -> Column:
        operand = numbers(operand, step)
        return Column(operate(operand.values), operand.faults)

    return run


def _binary(
    operate: Callable[[Floats, Floats], Floats | Bools], *, divides: bool = False
) -> Operation:
    def run(step: int, left: Column, right: Column) -> Column:
        left, right = numbers(left, step), numbers(right, step)
        by_zero: FaultCodes | None = None
        if divides and not right.values.all():
            code = ValueFault.DIVISION_BY_ZERO.at(step)
            by_zero = np.where(right.values == 0, code, 0).astype(np.int32)
        values = np.asarray(operate(left.values, right.values), np.float64)
        return _checked(values, step, left.faults, right.faults, by_zero)

    return run


def _equality(*, expected: bool) -> Operation:
    """Compare numbers with numbers and texts with texts; a mix is a type error."""

    def run(step: int, left: Column, right: Column) -> Column:
        # Texts have the value 0 in ``values``, so these are compared first and overwritten below.
        equal = left.values == right.values
        mixed: FaultCodes | None = None
        if left.texts is not None or right.texts is not None:
            lefts, rights = _is_text(left), _is_text(right)
            mixed = np.where(lefts != rights, ValueFault.TYPE_ERROR.at(step), 0).astype(np.int32)
            same = np.equal(_texts_of(left), _texts_of(right)).astype(np.bool_)
            equal = np.where(lefts, same, equal)
        values = (equal == expected).astype(np.float64)
        return Column(values, first(left.faults, right.faults, mixed))

    return run


def _and(step: int, left: Column, right: Column) -> Column:
    left = numbers(left, step)
    return _select(step, left, _truth(numbers(right, step)), constant(0.0))


def _or(step: int, left: Column, right: Column) -> Column:
    left = numbers(left, step)
    return _select(step, left, constant(1.0), _truth(numbers(right, step)))


def _truth(operand: Column) -> Column:
    return Column((operand.values != 0).astype(np.float64), operand.faults)


def _select(step: int, condition: Column, yes: Column, no: Column) -> Column:
    """Return the side that the condition selects, with the faults of that side alone."""
    truth = condition.values != 0
    faults: FaultCodes | None = None
    if yes.faults is not None or no.faults is not None:
        faults = np.where(truth, _or_none(yes.faults), _or_none(no.faults))
    texts: Texts | None = None
    if yes.texts is not None or no.texts is not None:
        texts = np.where(truth, _texts_of(yes), _texts_of(no))
    values = np.where(truth, yes.values, no.values)
    return Column(values, first(condition.faults, faults), texts)


def _or_none(faults: FaultCodes | None) -> FaultCodes:
    return np.zeros((), np.int32) if faults is None else faults


def _texts_of(operand: Column) -> Texts:
    return np.array(None, object) if operand.texts is None else operand.texts


def _missing(operand: Column) -> Bools:
    if operand.faults is None:
        return np.zeros((), bool)
    kinds = (operand.faults - 1) % len(ValueFault)
    missing: Bools = (operand.faults != 0) & (kinds == ValueFault.MISSING_PROPERTY)
    return missing


def _valid(step: int, operand: Column) -> Column:
    missing = _missing(operand)
    faults = None if operand.faults is None else np.where(missing, 0, operand.faults)
    return Column((~missing).astype(np.float64), faults)


def _default(step: int, operand: Column, fallback: Column) -> Column:
    return _select(step, Column(_missing(operand).astype(np.float64)), fallback, operand)


OPERATIONS: dict[str, Operation] = {
    "not": _unary(lambda values: (values == 0).astype(np.float64)),
    "negative": _unary(np.negative),
    "positive": _unary(np.positive),
    "abs": _unary(np.abs),
    "floor": _unary(np.floor),
    "ceil": _unary(np.ceil),
    "+": _binary(np.add),
    "-": _binary(np.subtract),
    "*": _binary(np.multiply),
    "max": _binary(np.maximum),
    "min": _binary(np.minimum),
    "/": _binary(np.divide, divides=True),
    "%": _binary(np.mod, divides=True),
    "<": _binary(np.less),
    "<=": _binary(np.less_equal),
    ">": _binary(np.greater),
    ">=": _binary(np.greater_equal),
    "==": _equality(expected=True),
    "!=": _equality(expected=False),
    "and": _and,
    "or": _or,
    "if": lambda step, condition, yes, no: _select(step, numbers(condition, step), yes, no),
    "valid": _valid,
    "default": _default,
}
"""The operators and functions of expressions, by the ``op`` of their steps."""
