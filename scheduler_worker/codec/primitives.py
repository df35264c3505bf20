"""Unwraps Nova's object primitives to plain values, and wraps them again.

A primitive is ``{"nova_object.name", "nova_object.namespace", "nova_object.version",
"nova_object.data"}``; it may be anywhere in a message. An :class:`ObjectKind` describes one object:
which of its fields are read, which are ignored, and which objects are in them.

Senders may be newer or older than the versions named here: another minor version is read as far as
it is known, another major version is refused. Unknown fields are ignored, and logged once.
"""

import difflib
import logging
import threading
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from scheduler_worker.codec.typed import quoted, wrong
from scheduler_worker.errors import RequestError
from scheduler_worker.model.sizes import OF_REPORT, MostOf
from scheduler_worker.wording import cut, listed

LOG = logging.getLogger(__name__)

NAME = "nova_object.name"
NAMESPACE = "nova_object.namespace"
VERSION = "nova_object.version"
DATA = "nova_object.data"
CHANGES = "nova_object.changes"

MAX_DEPTH = 32
"""The deepest nesting of a message."""
_MAX_LOGGED = 1000
_SCALARS = frozenset({str, int, float, bool, type(None)})


class ObjectKind(msgspec.Struct, frozen=True, kw_only=True):
    """Describes one kind of object."""

    name: str = ""
    """Empty: any object is accepted."""
    version: str = ""
    list_version: str = ""
    """The version of the object that lists this kind, if Nova has one."""
    read: Collection[str] | None = None
    """The fields that are read; None: all."""
    ignored: Collection[str] = frozenset()
    """Fields that are known and not needed here."""
    parts: "Mapping[str, ObjectKind]" = {}
    """The kind of object in a field, or in the list in it."""
    never_null: Collection[str] = frozenset()
    """Fields that Nova leaves out when they have no value; it refuses null."""
    keeps_null: Collection[str] = frozenset()
    """Fields where null means something else than absence."""

    @property
    def list_name(self) -> str:
        """The name of the object that lists this kind."""
        return f"{self.name}List"


ANYTHING = ObjectKind()


def plain(
    value: Any,
    path: str,
    kind: ObjectKind = ANYTHING,
    *,
    is_strict: bool = False,
    bounds: MostOf = OF_REPORT,
) -> Any:
    """Unwrap every object primitive in a value to a dict (a list object to a list).

    Drops fields that ``kind`` does not read; ``is_strict``: a plain dict must not have others.

    Raises RequestError: an object of another kind or major version, a broken primitive, nesting
    deeper than MAX_DEPTH, or more in it than ``bounds``.
    """
    return _Unwrapping(is_strict, bounds).value(value, path, kind, 0)


def is_primitive(value: Any) -> bool:
    """Whether a value is, or claims to be, an object primitive."""
    return isinstance(value, dict) and (NAME in value or DATA in value)


def members(value: Any, path: str, kind: ObjectKind) -> list[tuple[Any, str]]:
    """The elements, each with its path, of a list, a list object, or a single object."""
    if is_primitive(value) and value.get(NAME) == kind.list_name:
        value = _opened(value, path, kind)
    elif isinstance(value, dict):
        return [(value, path)]
    if not isinstance(value, (list, tuple)):
        raise wrong(path, f"a list of {kind.name} objects", value)
    return [(element, f"{path}[{number}]") for number, element in enumerate(value)]


class _Unwrapping:
    """Unwraps one value; counts down the number of values that it may hold."""

    __slots__ = ("bounds", "is_strict", "spare")

    def __init__(self, is_strict: bool, bounds: MostOf) -> None:
        self.spare = bounds.values
        self.bounds = bounds
        self.is_strict = is_strict

    def value(self, value: Any, path: str, kind: ObjectKind, depth: int) -> Any:
        version = ""
        if isinstance(value, dict) and (NAME in value or DATA in value):
            version = value.get(VERSION, "")
            value = _opened(value, path, kind)
        if not isinstance(value, (dict, list, tuple)):
            return value
        self._count(value, path, depth)
        if isinstance(value, dict):
            if kind.read is None:
                return self._everything(value, path, kind, depth)
            fields, unknown = self._known(value, path, kind, kind.read, depth)
            if unknown and self.is_strict and not version:
                near = _nearest(unknown[0], kind, "; the nearest known is {!r}")
                raise RequestError(f"{path}.{cut(unknown[0])}", f"is not known here{near}")
            if unknown or (version and _parsed(version[:32]) > _parsed(kind.version)):
                _log_unknown(kind, version, unknown)
            return fields
        return [
            element
            if element.__class__ in _SCALARS
            else self.value(element, f"{path}[{number}]", kind, depth + 1)
            for number, element in enumerate(value)
        ]

    def _count(self, value: Collection[Any], path: str, depth: int) -> None:
        """Raises RequestError where the message holds more than the bounds."""
        named = isinstance(value, dict)
        most = self.bounds.names if named else self.bounds.elements
        self.spare -= len(value)
        if depth >= MAX_DEPTH:
            raise RequestError(cut(path), f"is nested more than {MAX_DEPTH} deep")
        if len(value) > most:
            what = "names" if named else "elements"
            raise RequestError(cut(path), f"at most {most} {what}, got {len(value)}")
        if self.spare < 0:
            raise RequestError(cut(path), f"more than {self.bounds.values} values came with it")

    def _everything(self, value: dict[Any, Any], path: str, kind: ObjectKind, depth: int) -> Any:
        parts = kind.parts
        return {
            key: item
            if item.__class__ in _SCALARS
            else self.value(item, f"{path}.{key}", parts.get(key, ANYTHING), depth + 1)
            for key, item in value.items()
        }

    def _known(
        self, value: dict[Any, Any], path: str, kind: ObjectKind, read: Collection[str], depth: int
    ) -> tuple[dict[str, Any], list[str]]:
        """The fields that are read, and the names of unknown ones."""
        fields, unknown = {}, []
        for key, item in value.items():
            if key not in read:
                if key not in kind.ignored:
                    unknown.append(str(key))
            elif item.__class__ in _SCALARS:
                if item is not None or key in kind.keeps_null:
                    fields[key] = item
            else:
                part = kind.parts.get(key, ANYTHING)
                fields[key] = self.value(item, f"{path}.{key}", part, depth + 1)
        return fields, unknown


def _opened(value: dict[str, Any], path: str, kind: ObjectKind) -> dict[Any, Any] | list[Any]:
    """The fields of a primitive, or the elements of a list object."""
    name, version, data = value.get(NAME), value.get(VERSION), value.get(DATA)
    if not (isinstance(name, str) and isinstance(version, str) and isinstance(data, dict)):
        raise RequestError(cut(path), "is a broken Nova object: it needs a name, version and data")
    if kind.name and name not in (kind.name, kind.list_name):
        raise wrong(path, f"a Nova {kind.name}", name)
    listing = name.endswith("List")
    known = kind.list_version if listing else kind.version
    if known and _parsed(version[:32])[0] != _parsed(known)[0]:
        raise RequestError(
            cut(path), f"{name} {quoted(version)} cannot be read here; version {known} can"
        )
    if not listing:
        return data
    elements = data.get("objects")
    if elements is not None and not isinstance(elements, (list, tuple)):
        raise wrong(f"{path}.objects", "a list", elements)
    return list(elements or ())


@lru_cache(256)
def _parsed(version: str) -> tuple[int, int]:
    """Major and minor version; the major one is -1 for a text that is no version."""
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (-1, 0)


_logged: set[tuple[str, str]] = set()
_logging = threading.Lock()


def _first_time(kind: str, subject: str) -> bool:
    """True once per subject, and never after the thousandth: senders cannot flood the log."""
    # Without the lock first: nearly every message has been seen before.
    if (kind, subject) in _logged or len(_logged) >= _MAX_LOGGED:
        return False
    with _logging:
        first = (kind, subject) not in _logged
        _logged.add((kind, subject))
    return first


def _log_unknown(kind: ObjectKind, version: str, unknown: list[str]) -> None:
    """Log once per object and version; for plain dicts, which have no version, once per field."""
    if version:
        is_new = _first_time(kind.name, version[:64])
    else:
        unknown = [field for field in unknown if _first_time(kind.name, f".{field[:64]}")]
        is_new = bool(unknown)
    if is_new:
        hint = " (the nearest known is {!r})"
        LOG.warning(
            "%s %s (known here: %s): fields that are not known are ignored: %s",
            kind.name,
            cut(version) or "as a plain dict",
            kind.version,
            listed([f"{cut(each)!r}{_nearest(each, kind, hint)}" for each in unknown], 10)
            or "none",
        )


def _nearest(field: str, kind: ObjectKind, hint: str) -> str:
    """The hint with the known field whose name is most like this one; "" where none is."""
    known = [*(kind.read or ()), *kind.ignored]
    return "".join(map(hint.format, difflib.get_close_matches(field[:64], known, 1)))


def wrapped(value: Any, kind: ObjectKind) -> Any:
    """Wrap a plain dict, and the objects in it, as a primitive of ``kind``; other values stay."""
    if not isinstance(value, dict):
        return value
    data = {
        key: wrapped(item, kind.parts[key]) if key in kind.parts else item
        for key, item in value.items()
        if item is not None or key not in kind.never_null
    }
    name, version = kind.name, kind.version
    return {NAME: name, NAMESPACE: "nova", VERSION: version, DATA: data, CHANGES: list(data)}
