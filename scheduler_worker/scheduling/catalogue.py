"""The catalogue of units that policies may name, with their kinds and parameters."""

import difflib
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import inspect as types
from msgspec import structs

from scheduler_worker.conversion import convert
from scheduler_worker.model.policies import ParameterFacts
from scheduler_worker.scheduling.plugin import Balance, Filter, Unit, Weigher
from scheduler_worker.scheduling.selectors import Selector

UNLISTED = msgspec.Meta(extra={"listed": False})
"""Marks a parameter that a unit reads under policies where other units declare it."""
_BOUNDS = ("ge", "gt", "le", "lt")
_NAMESPACE = uuid.UUID("5d3c0b52-7f0e-5c39-9c0a-6a5f6d4f4d11")


class UnitKind(StrEnum):
    """The role of a unit in a policy."""

    FILTER = "filter"
    WEIGHT = "weight"
    BALANCE = "balance"
    SELECTOR = "selector"


_KINDS: tuple[tuple[UnitKind, type[Unit]], ...] = (
    (UnitKind.FILTER, Filter),
    (UnitKind.WEIGHT, Weigher),
    (UnitKind.BALANCE, Balance),
    (UnitKind.SELECTOR, Selector),
)


class Parameter(ParameterFacts, frozen=True, kw_only=True):
    """A parameter that a unit declares, with its default."""

    default: Any
    bounds: Mapping[str, float] = {}
    """Of a number, by the names of :class:`msgspec.Meta`."""
    is_listed: bool = True
    """False for one that the unit only reads: it is another unit's to list and to demand."""
    ovirt_regex: str | None = None
    """What oVirt's clients are told if more is accepted; None: ``regex``."""


class CatalogueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A unit and what policies need to know of it."""

    name: str
    unit: type[Unit]
    kinds: frozenset[UnitKind]
    is_mandatory: bool = False
    """Used under every policy, and named by none."""
    is_enabled: bool = True
    """Policies that use a disabled unit cannot be compiled."""
    problem: str | None = None
    """Why it cannot be used at all."""

    @property
    def description(self) -> str:
        """The first paragraph of the class's docstring, on one line."""
        paragraph = (self.unit.__doc__ or "").strip().partition("\n\n")[0]
        return " ".join(paragraph.split())

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters that it lists."""
        declared = declared_parameters(self.unit.parameters_type)
        return tuple(parameter for parameter in declared if parameter.is_listed)

    def id_as(self, kind: UnitKind) -> str:
        """The unit's id as a kind; a unit of several kinds has an id for each."""
        if self.unit.unit_id is not None and len(self.kinds) == 1:
            return self.unit.unit_id
        return unit_id(kind, self.name)


def unit_id(kind: UnitKind, name: str) -> str:
    """The id of a unit that declares none."""
    return str(uuid.uuid5(_NAMESPACE, f"{kind}/{name}"))


class Catalogue:
    """All units of this process, by kind and name: a filter and a weight may share a name."""

    def __init__(self, entries: Iterable[CatalogueEntry]) -> None:
        self.entries = {(kind, entry.name): entry for entry in entries for kind in entry.kinds}
        """By kind and name."""

    def __iter__(self) -> Iterator[CatalogueEntry]:
        """Each unit once, also one of several kinds."""
        return iter({id(entry): entry for entry in self.entries.values()}.values())

    def find(self, name: str, kind: UnitKind) -> CatalogueEntry | None:
        """The unit of that name, if it can be used as that kind."""
        return self.entries.get((kind, name))

    def limited_to(self, enabled: Collection[str]) -> "Catalogue":
        """The same, but units that need to be enabled are so only if their ids are given."""

        def limited(entry: CatalogueEntry) -> CatalogueEntry:
            ids = {entry.id_as(kind) for kind in entry.kinds}
            return structs.replace(entry, is_enabled=entry.is_enabled and ids <= set(enabled))

        return Catalogue(limited(entry) if entry.unit.needs_enabling else entry for entry in self)

    def names(self, kind: UnitKind) -> list[str]:
        """The names that a policy may use as that kind, sorted."""
        return sorted(each.name for each in self if kind in each.kinds and not each.is_mandatory)

    def problem(self, name: str, kind: UnitKind) -> str | None:
        """Why a policy cannot use the unit as that kind, with the closest name; None: it can."""
        entry = self.find(name, kind)
        if entry is None:
            kinds = sorted(known for known, unit_name in self.entries if unit_name == name)
            if kinds:
                return f"is a {' and a '.join(kinds)}, not a {kind}"
            near = difflib.get_close_matches(name, self.names(kind), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            return f"there is no {kind} of this name{hint}"
        if entry.is_mandatory:
            return "is asked under every policy and cannot be named by one"
        if entry.problem is not None:
            return f"cannot be used: {entry.problem}"
        if entry.is_enabled:
            return None
        command = f"; enable it: scheduler-worker-manage unit enable {name}"
        return f"is disabled{command if entry.unit.needs_enabling else ''}"


def entry(name: str, unit: type[Unit], *, is_mandatory: bool = False) -> CatalogueEntry:
    """The catalogue entry of a class.

    Raises TypeError: the class is no unit, or one of its parameters has no default.
    """
    kinds = frozenset(kind for kind, base in _KINDS if issubclass(unit, base))
    if not kinds:
        raise TypeError(
            f"{unit.__module__}.{unit.__name__} is no filter, weigher, balance or selector"
        )
    declared_parameters(unit.parameters_type)
    return CatalogueEntry(name=name, unit=unit, kinds=kinds, is_mandatory=is_mandatory)


@lru_cache(maxsize=1024)
def declared_parameters(declared: type[msgspec.Struct]) -> tuple[Parameter, ...]:
    """The parameters of a unit. Raises TypeError for one without a default."""
    return tuple(_parameter(declared, field) for field in structs.fields(declared))


def _parameter(declared: type, field: structs.FieldInfo) -> Parameter:
    if field.required:
        raise TypeError(f"{declared.__name__}.{field.name} needs a default")
    default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    info = types.type_info(field.type)
    plain = _plain_type(info)
    bounds = {name: getattr(plain, name, None) for name in _BOUNDS}
    extra = (info.extra if isinstance(info, types.Metadata) else None) or {}
    return Parameter(
        name=field.name,
        type=_TYPE_NAMES.get(type(plain), "text"),
        default=default,
        regex=getattr(plain, "pattern", None),
        bounds={name: bound for name, bound in bounds.items() if bound is not None},
        is_listed=extra.get("listed", True),
        ovirt_regex=extra.get("ovirt_regex"),
    )


def _plain_type(declared: types.Type) -> types.Type:
    """The type without metadata and without None as an alternative."""
    if isinstance(declared, types.Metadata):
        return _plain_type(declared.type)
    if isinstance(declared, types.UnionType):
        return _plain_type(next(t for t in declared.types if not isinstance(t, types.NoneType)))
    return declared


TYPES: Mapping[str, Any] = {
    "integer": int,
    "number": float,
    "boolean": bool,
    "text": str,
    "list": tuple[str, ...],
}
"""The types of parameters by name."""
_TYPE_NAMES = {type(types.type_info(kind)): name for name, kind in TYPES.items()}


def parameter_values(
    declared: type[msgspec.Struct], layers: Sequence[Mapping[str, Any]]
) -> msgspec.Struct:
    """The parameters of one use of a unit; the first of ``layers`` that names one sets it.

    A value may be a text, as in a policy's document, or have its type already.

    Raises ValueError: a value does not fit its type; names the parameter.
    """
    values: dict[str, Any] = {}
    for parameter in declared_parameters(declared):
        value = next((layer[parameter.name] for layer in layers if parameter.name in layer), None)
        if value is None:
            continue
        if parameter.type == "list" and isinstance(value, str):
            value = [item.strip() for item in value.split(",") if item.strip()]
        if (regex := parameter.regex) is not None and not re.fullmatch(regex, str(value)):
            raise ValueError(f"{parameter.name} is {value!r}, which does not match {regex}")
        values[parameter.name] = value
    if not values:
        return declared()
    try:
        return convert(values, declared, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
