"""Nova's object primitives, unwrapped to plain values and wrapped again.

A primitive is ``{"nova_object.name", "nova_object.namespace", "nova_object.version",
"nova_object.data"}``; it may sit anywhere in a message. A :class:`Kind` says what is known of one
object: which of its fields are read, which are known and of no use, and what sits in them. What a
field means is not decided here.

Senders may be newer or older than the versions named here: another minor version is read for what
it has, another major version is refused. What is not known is ignored, and said once in the log.
"""

from __future__ import annotations

import difflib
import logging
import threading
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from scheduler_worker.errors import RequestError
from scheduler_worker.rpc.codec.typed import cut, quoted, wrong

LOG = logging.getLogger(__name__)

NAME = "nova_object.name"
NAMESPACE = "nova_object.namespace"
VERSION = "nova_object.version"
DATA = "nova_object.data"
CHANGES = "nova_object.changes"

MAX_DEPTH = 32
"""How deep a message may be nested."""
MAX_VALUES = 1_000_000
"""How many values one argument (of a list of hosts: one host) may hold."""
_MAX_TOLD = 1000
_SCALARS = frozenset({str, int, float, bool, type(None)})


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one kind of object."""

    name: str = ""
    """Empty: any object may come."""
    version: str = ""
    list_version: str = ""
    """The version of the object that lists this kind, if Nova has one."""
    read: Collection[str] | None = None
    """The fields that are read; None: all."""
    ignored: Collection[str] = frozenset()
    """Fields that are known and of no use here."""
    parts: Mapping[str, Kind] = {}
    """What sits in a field, or in the list in it."""
    lists: Collection[str] = frozenset()
    """Fields that hold a list object rather than a plain list."""
    never_null: Collection[str] = frozenset()
    """Fields that Nova leaves out when they have no value; it refuses a null."""
    keeps_null: bool = False
    """Whether null says something that an absent field does not."""

    @property
    def list_name(self) -> str:
        """The name of the object that lists this kind."""
        return f"{self.name}List"


ANYTHING = Kind()


def plain(value: Any, path: str, kind: Kind = ANYTHING) -> Any:
    """The value with every object primitive in it unwrapped to a dict (a list object to a list).

    Where ``kind`` says which fields are read, the others are dropped.

    Raises:
        RequestError: an object of another kind or major version, a broken primitive, or too much:
            deeper than MAX_DEPTH, more than MAX_VALUES values.

    """
    return _Unwrapping().value(value, path, kind, 0)


def is_primitive(value: Any) -> bool:
    """Whether a value is (or claims to be) an object primitive."""
    return isinstance(value, dict) and (NAME in value or DATA in value)


def members(value: Any, path: str, kind: Kind) -> list[tuple[Any, str]]:
    """The elements, each with its path, of a list, of a list object, or of one lone object."""
    if is_primitive(value) and value.get(NAME) == kind.list_name:
        value = _opened(value, path, kind)
    elif isinstance(value, dict):
        return [(value, path)]
    if not isinstance(value, (list, tuple)):
        raise wrong(path, f"a list of {kind.name} objects", value)
    return [(each, f"{path}[{number}]") for number, each in enumerate(value)]


class _Unwrapping:
    """One value being unwrapped, with what is left of the bound on its size."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_VALUES

    def value(self, value: Any, path: str, kind: Kind, depth: int) -> Any:
        version = ""
        if isinstance(value, dict) and (NAME in value or DATA in value):
            version = value.get(VERSION, "")
            value = _opened(value, path, kind)
        if isinstance(value, dict):
            self._count(value, path, depth)
            if kind.read is None:
                return self._everything(value, path, kind, depth)
            found, unknown = self._known(value, path, kind, kind.read, depth)
            if unknown or (version and _parsed(version[:32]) > _parsed(kind.version)):
                _tell(kind, version, unknown)
            return found
        if isinstance(value, (list, tuple)):
            self._count(value, path, depth)
            return [
                each
                if each.__class__ in _SCALARS
                else self.value(each, f"{path}[{number}]", kind, depth + 1)
                for number, each in enumerate(value)
            ]
        return value

    def _count(self, container: Collection[Any], path: str, depth: int) -> None:
        self.left -= len(container)
        if depth >= MAX_DEPTH:
            raise RequestError(cut(path), f"is nested more than {MAX_DEPTH} deep")
        if self.left < 0:
            raise RequestError(cut(path), f"more than {MAX_VALUES} values came with it")

    def _everything(self, value: dict[Any, Any], path: str, kind: Kind, depth: int) -> Any:
        parts = kind.parts
        return {
            key: item
            if item.__class__ in _SCALARS
            else self.value(item, f"{path}.{key}", parts.get(key, ANYTHING), depth + 1)
            for key, item in value.items()
        }

    def _known(
        self,
        value: dict[Any, Any],
        path: str,
        kind: Kind,
        read: Collection[str],
        depth: int,
    ) -> tuple[dict[str, Any], list[str]]:
        """The fields that are read, and the names of those that are not known."""
        found, unknown = {}, []
        for key, item in value.items():
            if key not in read:
                if key not in kind.ignored:
                    unknown.append(str(key))
            elif item.__class__ in _SCALARS:
                if item is not None or kind.keeps_null:
                    found[key] = item
            else:
                part = kind.parts.get(key, ANYTHING)
                found[key] = self.value(item, f"{path}.{key}", part, depth + 1)
        return found, unknown


def _opened(value: dict[str, Any], path: str, kind: Kind) -> dict[Any, Any] | list[Any]:
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
    """Major and minor; what is no version at all has the major version -1."""
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (-1, 0)


_told: set[tuple[str, str]] = set()
_telling = threading.Lock()


def _first_time(kind: str, subject: str) -> bool:
    """True once per subject, and never after the thousandth: a log is no place for an attack."""
    if (kind, subject) in _told or len(_told) >= _MAX_TOLD:
        return False
    with _telling:
        first = (kind, subject) not in _told
        _told.add((kind, subject))
    return first


def _tell(kind: Kind, version: str, unknown: list[str]) -> None:
    """Once per object and version; a plain dict has no version, so there once per field."""
    if version:
        news = _first_time(kind.name, version[:64])
    else:
        unknown = [each for each in unknown if _first_time(kind.name, f".{each[:64]}")]
        news = bool(unknown)
    if news:
        LOG.warning(
            "%s %s (known here: %s): fields that are not known are ignored: %s",
            kind.name,
            cut(version) or "as a plain dict",
            kind.version,
            ", ".join(_with_nearest(each, kind) for each in unknown[:10]) or "none",
        )


def _with_nearest(field: str, kind: Kind) -> str:
    near = difflib.get_close_matches(field[:64], [*(kind.read or ()), *kind.ignored], 1)
    return f"{cut(field)!r}" + (f" (the nearest known is {near[0]!r})" if near else "")


def wrapped(value: Any, kind: Kind) -> Any:
    """A plain dict as the primitive of ``kind``, with what sits in it; others stay as they are."""
    if not isinstance(value, dict):
        return value
    data = {
        key: _wrapped_part(item, key, kind)
        for key, item in value.items()
        if item is not None or key not in kind.never_null
    }
    return _primitive(kind.name, kind.version, data)


def _wrapped_part(value: Any, key: str, kind: Kind) -> Any:
    part = kind.parts.get(key)
    if part is None or not part.name:
        return value
    if not isinstance(value, (list, tuple)):
        return wrapped(value, part)
    elements = [wrapped(each, part) for each in value]
    if key not in kind.lists:
        return elements
    return _primitive(part.list_name, part.list_version, {"objects": elements})


def _primitive(name: str, version: str, data: dict[str, Any]) -> dict[str, Any]:
    return {
        NAME: name,
        NAMESPACE: "nova",
        VERSION: version,
        DATA: data,
        CHANGES: list(data),
    }
