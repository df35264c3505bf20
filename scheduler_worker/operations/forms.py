"""The parameters and answers of operations as plain values: what every edge reads and writes."""

import re
import types
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from scheduler_worker.conversion import convert
from scheduler_worker.errors import RequestError
from scheduler_worker.operations.operation import DOCUMENT, Operation, Page


def parsed(operation: Operation[Any, Any], values: Mapping[str, Any]) -> Any:
    """The parameters of an operation. Raises RequestError, which names the field."""
    from scheduler_worker.codec.typed import check_characters, typed

    try:
        check_characters(dict(values))
        return typed(dict(values), operation.parameters, "")
    except RequestError as error:
        raise RequestError(error.field.removeprefix(".") or operation.name, error.problem) from None


def plain(operation: Operation[Any, Any], answer: Any) -> Any:
    """An answer as JSON has it; a list is ``{noun: items, "next": marker}``.

    Numbers that are not finite become null.
    """
    if isinstance(answer, Page):
        answer = {operation.noun: answer.items, "next": answer.next}
    return msgspec.json.decode(msgspec.json.encode(answer))


def answered(operation: Operation[Any, Any], answer: Any) -> Any:
    """What :func:`plain` was made of."""
    if operation.answer is None:
        return None
    if operation.is_list:
        answer = {"items": answer[operation.noun], "next": answer["next"]}
    return convert(answer, operation.answer)


def members(kind: Any) -> Iterator[Any]:
    """The types that a value of an annotated type or a union may have."""
    origin = get_origin(kind)
    if origin is Annotated:
        yield from members(get_args(kind)[0])
    elif origin in {Union, types.UnionType}:
        for argument in get_args(kind):
            yield from members(argument)
    else:
        yield kind


def choices(kind: Any) -> list[str]:
    """The texts that a parameter may have; empty: any."""
    literals = (member for member in members(kind) if get_origin(member) is Literal)
    return [text for literal in literals for text in get_args(literal)]


def is_time(kind: Any) -> bool:
    """Whether a parameter is a time."""
    return datetime in members(kind)


def from_text(kind: Any, text: str) -> Any:
    """A parameter that came as a text; one that is no value of its type stays a text."""
    kinds = set(members(kind)) - {type(None)}
    if str in kinds or choices(kind) or datetime in kinds:
        return text  # "null" is a text, too
    if kinds == {int} and not re.fullmatch(r"-?[0-9]{1,18}", text):
        return text
    try:
        return convert(text, kind, strict=False)
    except msgspec.ValidationError:
        return text


def description(field: msgspec.structs.FieldInfo) -> str:
    """What a parameter says of itself; empty: nothing."""
    return next((meta.description for meta in _metas(field) if meta.description), "")


def is_document(field: msgspec.structs.FieldInfo) -> bool:
    """Whether a parameter is a text of many lines."""
    return any(meta.extra == DOCUMENT for meta in _metas(field))


def _metas(field: msgspec.structs.FieldInfo) -> Iterator[msgspec.Meta]:
    if get_origin(field.type) is Annotated:
        yield from (meta for meta in get_args(field.type)[1:] if isinstance(meta, msgspec.Meta))
