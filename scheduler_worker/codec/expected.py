"""What a field of a type accepts, for errors: its bounds, its lengths, its values."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from msgspec import inspect

Step = tuple[str, str]
"""A field's name, or the index of an element; the other is empty."""
_NAMES: dict[type, str] = {
    inspect.IntType: "an integer",
    inspect.FloatType: "a number",
    inspect.StrType: "text",
    inspect.BoolType: "a boolean",
    inspect.NoneType: "null",
    inspect.ListType: "a list",
    inspect.SetType: "a list",
    inspect.FrozenSetType: "a list",
    inspect.VarTupleType: "a list",
    inspect.DictType: "an object",
    inspect.StructType: "an object",
    inspect.DateTimeType: "a time with its zone (2026-01-31T12:00:00Z)",
}


def expectation(kind: Any, steps: Sequence[Step]) -> str:
    """What the field at a path accepts, such as ``an integer from 1 to 9``; empty: not known."""
    try:
        found = _alternatives(_inspected(kind))
    except TypeError:  # an annotation of it cannot be hashed
        found = _alternatives(inspect.type_info(kind))
    for step in steps:
        found = [each for info in found for inner in _within(info, step) for each in inner]
    described = [_described(info) for info in found]
    return " or ".join(dict.fromkeys(described)) if all(described) else ""


@cache
def _inspected(kind: Any) -> inspect.Type:
    return inspect.type_info(kind)


def _alternatives(info: inspect.Type) -> list[inspect.Type]:
    if isinstance(info, inspect.Metadata):
        return _alternatives(info.type)
    if isinstance(info, inspect.UnionType):
        return [each for member in info.types for each in _alternatives(member)]
    return [info]


def _within(info: inspect.Type, step: Step) -> list[list[inspect.Type]]:
    """The alternatives of a field, or of an element."""
    name, number = step
    found: list[inspect.Type] = []
    if isinstance(info, inspect.StructType):
        found = [field.type for field in info.fields if field.encode_name == name]
    elif isinstance(info, inspect.DictType):
        found = [info.value_type]
    elif isinstance(info, inspect.TupleType):
        found = list(info.item_types[int(number) :][:1] if number.isdigit() else info.item_types)
    elif isinstance(info, inspect.CollectionType) and number:
        found = [info.item_type]
    return [_alternatives(each) for each in found]


def _described(info: inspect.Type) -> str:
    if isinstance(info, inspect.LiteralType):
        return _choice(info.values)
    if isinstance(info, inspect.EnumType):
        return _choice([member.value for member in info.cls])
    if isinstance(info, inspect.TupleType):
        return f"a list of length {len(info.item_types)}"
    name = _NAMES.get(type(info), "")
    if isinstance(info, inspect.IntType | inspect.FloatType):
        return name + _bounds(info.ge, info.le, info.gt, info.lt)
    length = _bounds(getattr(info, "min_length", None), getattr(info, "max_length", None))
    pattern = getattr(info, "pattern", None)
    name += f" of length{length}" if length else ""
    return name + (f" matching regex {pattern!r}" if pattern else "")


def _choice(values: Sequence[Any]) -> str:
    texts = [f"{value!r}" for value in values]
    return f"one of {', '.join(texts)}" if len(texts) > 1 else texts[0]


def _bounds(least: Any, most: Any, above: Any = None, below: Any = None) -> str:
    if least is not None and most is not None:
        return f" from {least} to {most}"
    signs = {">=": least, ">": above, "<=": most, "<": below}
    return " and".join(f" {sign} {bound}" for sign, bound in signs.items() if bound is not None)
