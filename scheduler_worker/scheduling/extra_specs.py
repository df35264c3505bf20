"""The grammar of requirements in extra specs: an operator and its operands, matched with a value.

::

    requirement := literal                    exactly the value
                 | NUMERIC number             '=' and '>=' at least, '==', '!=', '<='
                 | TEXT word                  's==' 's!=' 's<' 's<=' 's>' 's>='
                 | '<in>' word                a substring of the value (or an element of a list)
                 | '<all-in>' word+           each is part of the value
                 | '<or>' word ('<or>' word)* equal to one of the words

Words are separated by white space. A text that does not begin with an operator is a literal; there
is no '<' and no '>'.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

Value = str | Sequence[str] | None

_NUMERIC: dict[str, Callable[[float, float], bool]] = {
    "=": operator.ge,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
}
_TEXT: dict[str, Callable[[str, str], bool]] = {
    "s==": operator.eq,
    "s!=": operator.ne,
    "s<": operator.lt,
    "s<=": operator.le,
    "s>": operator.gt,
    "s>=": operator.ge,
}


def match(value: Value, requirement: str) -> bool:
    """Whether a value meets a requirement.

    Raises:
        ValueError: a numeric operator with a value or operand that is no number, a comparison of a
            text with a list, or ``<or>`` without words.
    """
    name, *operands = requirement.split() or [""]
    if name in _NUMERIC or name in _TEXT:
        return bool(operands) and value is not None and _compare(name, value, operands[0])
    if name == "<in>":
        return bool(operands) and value is not None and operands[0] in value
    if name == "<all-in>":
        return bool(operands) and value is not None and all(word in value for word in operands)
    if name == "<or>":
        return _is_one_of(value, operands)
    return value == requirement


def _compare(name: str, value: Any, operand: str) -> bool:
    try:
        if name in _TEXT:
            return _TEXT[name](value, operand)
        return _NUMERIC[name](float(value), float(operand))
    except TypeError:
        raise ValueError("a list has no order and is no number") from None


def _is_one_of(value: Value, operands: Sequence[str]) -> bool:
    """The words at even indexes are the alternatives; those between them are ignored."""
    if value is None:
        return False
    if not operands:
        raise ValueError("<or> without alternatives")
    return value in operands[::2]
