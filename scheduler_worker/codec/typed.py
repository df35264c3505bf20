"""Converts plain values to typed structs; errors name the field, the expectation and the value.

msgspec converts; its messages are rewritten here. Values of secret fields never get into an error
or a log: :func:`redacted`.
"""

import contextlib
import operator
import re
from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import Any, TypeVar

import msgspec

from scheduler_worker.codec.expected import Step, expectation
from scheduler_worker.conversion import convert
from scheduler_worker.errors import RequestError
from scheduler_worker.redaction import MASK, SECRET_NAME, without_user
from scheduler_worker.wording import cut

T = TypeVar("T")

_MAX_PATH = 200
_MAX_REDACTED_DEPTH = 32

_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "int": ("an integer", (int,)),
    "float": ("a number", (int, float)),
    "str": ("text", (str,)),
    "bool": ("a boolean", (bool,)),
    "null": ("null", (type(None),)),
    "array": ("a list", (list, tuple)),
    "object": ("an object", (dict,)),
}
"""msgspec's names of types, as errors name them, and Python's classes of them."""

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")
_ESCAPED = re.compile(rb"\\u00[01]|\\[bf]")
_AT_KEY = re.compile(r" - at `key` in `(.*)`$")
_AT = re.compile(r" - at `(.*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_EXPECTED = re.compile(r"Expected `([a-z |]+)`(.*)", re.DOTALL)
_BOUND = re.compile(r" (?:of length )?(<=|>=|<|>) ([-0-9.e]+)\Z")
_WITHIN = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
_FIELD = re.compile(r"Object (missing required|contains unknown) field `(.*)`")


def typed(value: Any, kind: type[T], path: str, *, paths: Mapping[str, str] | None = None) -> T:
    """Convert a plain value to ``kind``; ``paths`` are other paths for some of its fields.

    Raises RequestError: a field is missing, of the wrong type or out of its bounds.
    """
    try:
        converted = convert(value, kind)
        msgspec.json.encode(converted)  # refuse here what could not be stored later
    except msgspec.ValidationError as error:
        raise explained(error, value, kind, path, paths or {}) from None
    except (OverflowError, TypeError, UnicodeError):
        raise RequestError(path, "holds a name or a text that JSON cannot hold") from None
    return converted


def check_characters(value: Any) -> None:
    """Check the names and texts in a plain value. Raises RequestError for a control character.

    Not every store keeps one; the ends of lines and tabs of a text are none.
    """
    # A large body is checked in a piece first: JSON escapes each control character.
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        if not _ESCAPED.search(msgspec.json.encode(value)):
            return
    left = [("", value)]
    while left:
        path, each = left.pop()
        if isinstance(each, str) and _CONTROL.search(each):
            raise RequestError(cut(path, _MAX_PATH), "holds a control character")
        if isinstance(each, dict):
            left += [(path, name) for name in each]
            left += [(f"{path}.{name}", item) for name, item in each.items()]
        elif isinstance(each, (list, tuple)):
            left += [(f"{path}[{number}]", item) for number, item in enumerate(each)]


def wrong(path: str, expected: str, value: Any) -> RequestError:
    """The error for a value that the field does not accept."""
    return RequestError(cut(path, _MAX_PATH), f"expected {expected}, got {quoted(value, path)}")


def quoted(value: Any, path: str = "") -> str:
    """A value for an error or a log: secrets masked, at most some 80 characters."""
    if SECRET_NAME.search(path):
        return MASK
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    return cut(repr(redacted(value)))


def redacted(value: Any, depth: int = 0) -> Any:
    """A copy of a plain value or struct for logs, secret fields and passwords in URLs masked."""
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
    """Whether to mask a field; numbers, such as a fencing ``token``, are no secrets."""
    return isinstance(item, (str, list, dict)) and bool(SECRET_NAME.search(str(key)))


def explained(
    error: msgspec.ValidationError,
    value: Any,
    kind: Any,
    path: str = "",
    paths: Mapping[str, str] = {},
) -> RequestError:
    """The error that names the field of a plain value, and what it accepts."""
    message = str(error)
    at_key = _AT_KEY.search(message)
    at = at_key or _AT.search(message)
    steps = _STEP.findall(at[1]) if at else []
    message = message[: at.start()] if at else message
    if at_key:
        expected = _EXPECTED.match(message)
        bound = re.sub(r", got.*", "", expected[2]) if expected else ""
        return RequestError(_named(steps, path, paths), f"its names must be text{bound}")
    field = _FIELD.match(message)
    if field:
        problem = "is missing" if field[1].startswith("missing") else "is not known here"
        return RequestError(_named([*steps, (field[2], "")], path, paths), problem)
    expected, accepted = _EXPECTED.match(message), expectation(kind, steps)
    candidates = list(_candidates(value, steps, []))
    if not expected and not (message.startswith("Invalid ") and accepted):  # a check of the type
        return RequestError(_named(steps, path, paths), message)
    if not expected:
        where, actual = candidates[0]
        return wrong(_named(where, path, paths), accepted, actual)
    kinds, bound = expected[1].split(" | "), re.sub(r", got.*", "", expected[2])
    misfits = (candidate for candidate in candidates if not _fits(candidate[1], kinds, bound))
    where, actual = next(misfits, candidates[0])
    # ``an integer or null``, ``an integer >= 0``, ``text of length <= 255``
    described = " or ".join(_KINDS[kind][0] if kind in _KINDS else kind for kind in kinds) + bound
    named, accepted = _named(where, path, paths), accepted or described
    if bound.startswith(" of length <="):
        return RequestError(named, f"expected {accepted}, got a length of {len(actual)}")
    return wrong(named, accepted, actual)


def _named(steps: Sequence[Step], path: str, paths: Mapping[str, str]) -> str:
    if steps and steps[0][0] in paths:
        path, steps = paths[steps[0][0]], steps[1:]
    tail = "".join(f".{name}" if name else f"[{number}]" for name, number in steps)
    return cut(path + tail, _MAX_PATH)


def _candidates(value: Any, steps: Sequence[Step], walked: list[Step]) -> Iterator[tuple[Any, Any]]:
    """Each (path, value) that msgspec may have meant; ``[...]`` stands for any value of a dict."""
    if not steps:
        yield walked, value
        return
    (name, number), rest = steps[0], steps[1:]
    if number == "...":
        for key, item in value.items():
            yield from _candidates(item, rest, [*walked, (str(key), "")])
    elif name:
        yield from _candidates(value.get(name), rest, [*walked, (name, "")])
    elif int(number) < len(value):
        yield from _candidates(value[int(number)], rest, [*walked, ("", number)])


def _fits(value: Any, kinds: Sequence[str], bound: str) -> bool:
    """Whether a value is of an expected class, and within the bound."""
    classes = tuple(each for kind in kinds if kind in _KINDS for each in _KINDS[kind][1])
    if isinstance(value, bool) and bool not in classes:
        return False
    if not isinstance(value, classes) or not bound:
        return isinstance(value, classes)
    matched = _BOUND.match(bound)
    if not matched:
        return False
    measured: Any = len(value) if isinstance(value, Sized) else value
    return bool(_WITHIN[matched[1]](measured, float(matched[2])))
