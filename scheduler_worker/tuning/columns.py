"""Values of many entities at once, and what expressions do to them.

A column has a number, a text or a *fault* for each entity. Faults travel with the values, so that
what goes wrong for one entity touches no other, and evaluating both sides of an ``and`` is the
same as stopping at the first that decides: a fault on the side that does not count is dropped.

A column of one value for all has shape ``()``; numpy stretches it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Truths = NDArray[np.bool_]
Codes = NDArray[np.int32]
Texts = NDArray[np.object_]


class Fault(IntEnum):
    """Why there is no value; the rule is left out for that entity in that cycle."""

    MISSING_PROPERTY = 0
    TYPE_ERROR = 1
    DIVISION_BY_ZERO = 2
    NON_FINITE = 3
    NO_CURRENT_VALUE = 4
    NEGATIVE_INFLUENCE = 5
    BAD_FACTOR = 6
    BAD_LIMIT = 7

    def at(self, step: int) -> int:
        """The code of this fault of a step; 0 is no fault."""
        return 1 + step * len(Fault) + self


def fault_of(code: int) -> tuple[Fault, int]:
    """The fault and the step that a code stands for."""
    step, fault = divmod(code - 1, len(Fault))
    return Fault(fault), step


class Column(NamedTuple):
    """``values`` are finite, and mean nothing where there is a text or a fault."""

    values: Floats
    faults: Codes | None = None
    texts: Texts | None = None
    """None where there is no text; the whole is None where there is none at all."""


Operation = Callable[..., Column]
"""Takes the number of its step, then its arguments."""


def constant(value: float | str) -> Column:
    """The same value for everybody."""
    if isinstance(value, str):
        return Column(np.zeros(()), texts=np.array(value, object))
    return Column(np.asarray(value, np.float64))


def column(cells: Sequence[object], step: int) -> Column:
    """A column of whatever statistics hold: numbers, truth values, texts, None, anything else."""
    if {float, int, bool}.issuperset(map(type, cells)):
        try:
            values = np.array(cells, np.float64)
        except OverflowError:
            return _column_of_odd_cells(cells, step)
        return _checked(values, step)
    return _column_of_odd_cells(cells, step)


def _column_of_odd_cells(cells: Sequence[object], step: int) -> Column:
    values = np.zeros(len(cells))
    faults = np.zeros(len(cells), np.int32)
    texts: Texts | None = None
    for index, cell in enumerate(cells):
        value = _value(cell)
        if isinstance(value, Fault):
            faults[index] = value.at(step)
        elif isinstance(value, float):
            values[index] = value
        else:
            texts = np.full(len(cells), None, object) if texts is None else texts
            texts[index] = value
    return Column(values, faults, texts)


def _value(cell: object) -> float | str | Fault:
    if cell is None:
        return Fault.MISSING_PROPERTY
    if isinstance(cell, str):
        return cell
    if not isinstance(cell, int | float):
        return Fault.TYPE_ERROR
    try:
        number = float(cell)
    except OverflowError:
        return Fault.NON_FINITE
    return number if math.isfinite(number) else Fault.NON_FINITE


def first(*faults: Codes | None) -> Codes | None:
    """The first fault of each entity."""
    found: Codes | None = None
    for each in faults:
        if each is not None:
            found = each if found is None else np.where(found != 0, found, each)
    return found


def numbers(given: Column, step: int) -> Column:
    """The column as numbers: a text is a type error."""
    if given.texts is None:
        return given
    wrong = np.where(_is_text(given), Fault.TYPE_ERROR.at(step), 0).astype(np.int32)
    return Column(given.values, first(given.faults, wrong))


def _is_text(given: Column) -> Truths:
    if given.texts is None:
        return np.zeros((), bool)
    return np.asarray([each is not None for each in given.texts.flat]).reshape(given.texts.shape)


def _checked(values: Floats, step: int, *faults: Codes | None) -> Column:
    """Numbers that may have become infinite, or none at all, on the way."""
    finite = np.isfinite(values)
    if finite.all():
        return Column(values, first(*faults))
    overflow = np.where(finite, 0, Fault.NON_FINITE.at(step)).astype(np.int32)
    return Column(values, first(*faults, overflow))


def _unary(operate: Callable[[Floats], Floats]) -> Operation:
    def run(step: int, given: Column) -> Column:
        given = numbers(given, step)
        return Column(operate(given.values), given.faults)

    return run


def _binary(operate: Callable[[Floats, Floats], Floats]) -> Operation:
    def run(step: int, left: Column, right: Column) -> Column:
        left, right = numbers(left, step), numbers(right, step)
        values = operate(left.values, right.values)
        return _checked(values, step, left.faults, right.faults)

    return run


def _division(operate: Callable[[Floats, Floats], Floats]) -> Operation:
    def run(step: int, left: Column, right: Column) -> Column:
        left, right = numbers(left, step), numbers(right, step)
        by_zero: Codes | None = None
        if not right.values.all():
            code = Fault.DIVISION_BY_ZERO.at(step)
            by_zero = np.where(right.values == 0, code, 0).astype(np.int32)
        values = operate(left.values, right.values)
        return _checked(values, step, left.faults, right.faults, by_zero)

    return run


def _comparison(operate: Callable[[Floats, Floats], Truths]) -> Operation:
    def run(step: int, left: Column, right: Column) -> Column:
        left, right = numbers(left, step), numbers(right, step)
        values = operate(left.values, right.values).astype(np.float64)
        return Column(values, first(left.faults, right.faults))

    return run


def _equality(*, wanted: bool) -> Operation:
    """Numbers against numbers, texts against texts."""

    def run(step: int, left: Column, right: Column) -> Column:
        equal = left.values == right.values
        mixed: Codes | None = None
        if left.texts is not None or right.texts is not None:
            lefts, rights = _is_text(left), _is_text(right)
            mixed = np.where(lefts != rights, Fault.TYPE_ERROR.at(step), 0).astype(np.int32)
            same = np.equal(_as_texts(left), _as_texts(right)).astype(np.bool_)
            equal = np.where(lefts, same, equal)
        values = (equal == wanted).astype(np.float64)
        return Column(values, first(left.faults, right.faults, mixed))

    return run


def _and(step: int, left: Column, right: Column) -> Column:
    left = numbers(left, step)
    return _select(step, left, _truth(numbers(right, step)), constant(0.0))


def _or(step: int, left: Column, right: Column) -> Column:
    left = numbers(left, step)
    return _select(step, left, constant(1.0), _truth(numbers(right, step)))


def _truth(given: Column) -> Column:
    return Column((given.values != 0).astype(np.float64), given.faults)


def _if(step: int, condition: Column, yes: Column, no: Column) -> Column:
    return _select(step, numbers(condition, step), yes, no)


def _select(step: int, condition: Column, yes: Column, no: Column) -> Column:
    """What the condition selects, with its faults; the other side's do not count."""
    truth = condition.values != 0
    faults: Codes | None = None
    if yes.faults is not None or no.faults is not None:
        faults = np.where(truth, _or_none(yes.faults), _or_none(no.faults))
    texts: Texts | None = None
    if yes.texts is not None or no.texts is not None:
        texts = np.where(truth, _as_texts(yes), _as_texts(no))
    values = np.where(truth, yes.values, no.values)
    return Column(values, first(condition.faults, faults), texts)


def _or_none(faults: Codes | None) -> Codes:
    return np.zeros((), np.int32) if faults is None else faults


def _as_texts(given: Column) -> Texts:
    return np.array(None, object) if given.texts is None else given.texts


def _missing(given: Column) -> Truths:
    if given.faults is None:
        return np.zeros((), bool)
    kinds = (given.faults - 1) % len(Fault)
    missing: Truths = (given.faults != 0) & (kinds == Fault.MISSING_PROPERTY)
    return missing


def _valid(step: int, given: Column) -> Column:
    missing = _missing(given)
    faults = None if given.faults is None else np.where(missing, 0, given.faults)
    return Column((~missing).astype(np.float64), faults)


def _default(step: int, given: Column, other: Column) -> Column:
    return _select(step, Column(_missing(given).astype(np.float64)), other, given)


OPERATIONS: dict[str, Operation] = {
    "not": _unary(lambda given: (given == 0).astype(np.float64)),
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
    "/": _division(np.divide),
    "%": _division(np.mod),
    "<": _comparison(np.less),
    "<=": _comparison(np.less_equal),
    ">": _comparison(np.greater),
    ">=": _comparison(np.greater_equal),
    "==": _equality(wanted=True),
    "!=": _equality(wanted=False),
    "and": _and,
    "or": _or,
    "if": _if,
    "valid": _valid,
    "default": _default,
}
"""What each operator and function of expressions does, by the ``op`` of its step."""
