"""From plain values and from JSON to values of a type; safe for threads.

msgspec prepares a type when it is first used. A thread that uses the type meanwhile finds a part of
it, and the process ends with a segmentation fault. So types are prepared here alone, one at a time.
"""

import threading
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

_PREPARING = threading.RLock()


@overload
def json_reader(kind: type[T]) -> Callable[[bytes | str], T]: ...
@overload
def json_reader(kind: Any) -> Callable[[bytes | str], Any]: ...
def json_reader(kind: Any) -> Callable[[bytes | str], Any]:
    """Reads JSON as a value of a type; raises msgspec.DecodeError, and ValidationError of these."""
    return _reader(kind)


@cache
def _reader(kind: Any) -> Callable[[bytes | str], Any]:
    with _PREPARING:
        return msgspec.json.Decoder(kind).decode


@overload
def convert(value: object, kind: type[T], **options: Any) -> T: ...
@overload
def convert(value: object, kind: Any, **options: Any) -> Any: ...
def convert(value: object, kind: Any, **options: Any) -> Any:
    """As ``msgspec.convert``, which has the options; raises msgspec.ValidationError."""
    try:
        _reader(kind)
    except TypeError:  # an annotation of it cannot be hashed
        with _PREPARING:
            return msgspec.convert(value, kind, **options)
    return msgspec.convert(value, kind, **options)
