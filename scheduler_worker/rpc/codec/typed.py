"""Plain values into typed words, and errors that name the field, what was expected and what came.

msgspec does the work; its messages are turned into ours here and nowhere else. Values of fields
that hold secrets never get into an error or a log: :func:`redacted`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from scheduler_worker.errors import RequestError
from scheduler_worker.redaction import MASK, SECRET_NAME, without_user

T = TypeVar("T")

SHOWN_CHARACTERS = 80
"""No value takes more room than this in an error."""
_MAX_PATH = 200
_MAX_REDACTED_DEPTH = 32

_NAMES = {
    "int": "an integer",
    "float": "a number",
    "str": "text",
    "bool": "a boolean",
    "null": "null",
    "array": "a list",
    "object": "an object",
}
_CLASSES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "bool": (bool,),
    "null": (type(None),),
    "array": (list, tuple),
    "object": (dict,),
}

_AT_KEY = re.compile(r" - at `key` in `(.*)`$")
_AT = re.compile(r" - at `(.*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_EXPECTED = re.compile(r"Expected `([a-z |]+)`(.*)", re.DOTALL)
_FIELD = re.compile(r"Object (missing required|contains unknown) field `(.*)`")


def typed(value: Any, wanted: type[T], path: str, *, places: Mapping[str, str] | None = None) -> T:
    """A plain value as ``wanted``; ``places`` are other paths for some of its fields.

    Raises:
        RequestError: a field is missing, of the wrong type or out of its bounds.

    """
    try:
        word = msgspec.convert(value, wanted)
        msgspec.json.encode(word)  # what cannot be stored is refused here, not found out later
    except msgspec.ValidationError as error:
        raise _request_error(str(error), value, path, places or {}) from None
    except (OverflowError, TypeError, UnicodeError):
        raise RequestError(path, "holds a name or a text that JSON cannot hold") from None
    return word


def wrong(path: str, expected: str, value: Any) -> RequestError:
    """The error for a value that is not what the field needs."""
    return RequestError(cut(path, _MAX_PATH), f"expected {expected}, got {quoted(value, path)}")


def quoted(value: Any, path: str = "") -> str:
    """A value for an error or a log: secrets masked, at most about 80 characters."""
    if SECRET_NAME.search(path):
        return MASK
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    return cut(repr(redacted(value)))


def cut(text: str, characters: int = SHOWN_CHARACTERS) -> str:
    """The text, or its beginning and three dots."""
    return text if len(text) <= characters else text[: characters - 3] + "..."


def redacted(value: Any, depth: int = 0) -> Any:
    """A copy of a plain value (or word) for logs, secret fields and passwords in URLs masked."""
    if isinstance(value, str):
        return without_user(value)
    if depth > _MAX_REDACTED_DEPTH:
        return "..."
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        return {
            key: MASK if _hides(key, item) else redacted(item, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redacted(item, depth + 1) for item in value]
    return value


def _hides(key: Any, item: Any) -> bool:
    """Whether a field may not be shown; numbers, such as a fencing ``token``, are no secrets."""
    return isinstance(item, (str, list, dict)) and bool(SECRET_NAME.search(str(key)))


def _request_error(message: str, value: Any, path: str, places: Mapping[str, str]) -> RequestError:
    at_key = _AT_KEY.search(message)
    at = at_key or _AT.search(message)
    steps = _STEP.findall(at[1]) if at else []
    message = message[: at.start()] if at else message
    if at_key:
        return RequestError(_named(steps, path, places), "its names must be text")
    field = _FIELD.match(message)
    if field:
        problem = "is missing" if field[1].startswith("missing") else "is not known here"
        return RequestError(_named([*steps, (field[2], "")], path, places), problem)
    expected = _EXPECTED.match(message)
    if not expected:
        return RequestError(_named(steps, path, places), message)
    culprits = list(_culprits(value, steps, []))
    kinds, bound = expected[1].split(" | "), re.sub(r", got.*", "", expected[2])
    where, found = next(
        (each for each in culprits if not _fits(each[1], kinds, bound)), culprits[0]
    )
    return wrong(_named(where, path, places), _described(kinds, bound), found)


Step = tuple[str, str]
"""A field's name, or the number of an element; the other is empty."""


def _named(steps: Sequence[Step], path: str, places: Mapping[str, str]) -> str:
    if steps and steps[0][0] in places:
        path, steps = places[steps[0][0]], steps[1:]
    tail = "".join(f".{name}" if name else f"[{number}]" for name, number in steps)
    return cut(path + tail, _MAX_PATH)


def _culprits(value: Any, steps: Sequence[Step], done: list[Step]) -> Iterator[tuple[Any, Any]]:
    """Every (path, value) that msgspec can have meant; ``[...]`` stands for any value of a dict."""
    if not steps:
        yield done, value
        return
    (name, number), rest = steps[0], steps[1:]
    if number == "...":
        for key, item in value.items():
            yield from _culprits(item, rest, [*done, (str(key), "")])
    elif name:
        yield from _culprits(value.get(name), rest, [*done, (name, "")])
    elif int(number) < len(value):
        yield from _culprits(value[int(number)], rest, [*done, ("", number)])


def _fits(value: Any, kinds: Sequence[str], bound: str) -> bool:
    """Whether a value is of an expected class; with a bound nothing fits, for it was exceeded."""
    classes = tuple(one for kind in kinds for one in _CLASSES.get(kind, ()))
    if isinstance(value, bool) and bool not in classes:
        return False
    return isinstance(value, classes) and not bound


def _described(kinds: Sequence[str], bound: str) -> str:
    """``an integer or null``, ``an integer >= 0``, ``text of length <= 255``."""
    return " or ".join(_NAMES.get(kind, kind) for kind in kinds) + bound
