"""Makes oslo.config's options of the fields that are declared as such, and reads structs of them.

The only module that makes options for the configuration files.
"""

import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, structs
from oslo_config import cfg

from scheduler_worker.options import Opt, texts
from scheduler_worker.scheduling.ratios import ratio

DEFAULT = "DEFAULT"

_UNIT = re.compile(r"_(s|mb)$")
_FORMS = {
    "host": cfg.HostAddressOpt,
    "port": cfg.PortOpt,
    "multi": cfg.MultiStrOpt,
    "ratios": cfg.ListOpt,
}
_CLASSES = {
    bool: cfg.BoolOpt,
    float: cfg.FloatOpt,
    int: cfg.IntOpt,
    str: cfg.StrOpt,
    Path: cfg.StrOpt,
    Literal: cfg.StrOpt,
    tuple: cfg.ListOpt,
}
_READ: Mapping[Any, Any] = {tuple: tuple, Path: Path, Mapping: dict}
"""What makes a field's value of an option's, where these differ in type."""

Listed = Sequence[tuple[str | None, Sequence[Any]]]
"""Options by their group, as oslo.config lists them; None is ``[DEFAULT]``."""

_fields = cache(structs.fields)
Struct = TypeVar("Struct", bound=msgspec.Struct)


class Declared(NamedTuple):
    """A field that is an option."""

    struct: type[msgspec.Struct]
    field: structs.FieldInfo
    opt: Opt
    group: str

    @property
    def name(self) -> str:
        """The name that files give it."""
        return self.opt.name or _UNIT.sub("", self.field.name)

    def value(self, conf: Any) -> Any:
        """The present value, as the field has it."""
        value = self._value(conf)
        if self.opt.form == "ratios":
            value = [item for item in value if ratio(item)]
        make = _READ.get(_origin(_plain(self.field.type)))
        return value if make is None or value is None else make(value)

    def left_out(self, conf: Any) -> list[str]:
        """The items of the present value that are not of the option's form."""
        if self.opt.form != "ratios":
            return []
        return [item for item in self._value(conf) if item and not ratio(item)]

    def _value(self, conf: Any) -> Any:
        return (conf if self.group == DEFAULT else conf[self.group])[self.name]

    def option(self, help_text: str | None = None) -> cfg.Opt:
        """The option of oslo.config."""
        opt, kind = self.opt, _plain(self.field.type)
        group, _, name = (opt.former or "").rpartition(".")
        common = {
            "help": opt.help or help_text,
            "default": self._default(),
            "secret": opt.secret,
            "mutable": opt.mutable,
            "sample_default": opt.sample_default,
            "deprecated_name": name or None,
            "deprecated_group": group or None,
        }
        if opt.form:
            return _FORMS[opt.form](self.name, **common)
        origin = _origin(kind)
        if origin is Mapping:
            choices = list(typing.get_args(typing.get_args(kind)[1]))
            values = cfg.types.Dict(cfg.types.String(choices=choices))
            return cfg.Opt(self.name, type=values, **common)
        return _CLASSES[origin](self.name, **common, **dict(self._limits(kind)))

    def _default(self) -> Any:
        field = self.field
        if field.default_factory is not msgspec.NODEFAULT:
            return field.default_factory()
        if field.default is msgspec.NODEFAULT:
            return None
        return list(field.default) if isinstance(field.default, tuple) else field.default

    def _limits(self, kind: Any) -> Iterator[tuple[str, Any]]:
        opt = self.opt
        metas = (meta.ge for meta in self.field.type.__metadata__ if isinstance(meta, Meta))
        least = next(metas, None) if opt.min is None else opt.min
        for name, bound in (("min", least), ("max", opt.max)):
            if bound is not None:
                yield name, float(bound) if kind is float else bound
        choices = opt.choices or (typing.get_args(kind) if _origin(kind) is Literal else ())
        if choices:
            yield "choices", list(choices.items() if isinstance(choices, Mapping) else choices)
        if _origin(kind) is tuple and _origin(item := typing.get_args(kind)[0]) is Literal:
            yield "item_type", cfg.types.String(choices=list(typing.get_args(item)))
        if opt.regex is not None:
            yield "regex", opt.regex


class Table:
    """The structs whose options are in a group; an option may name another group."""

    def __init__(self, **structs_of: Sequence[type[msgspec.Struct]]) -> None:
        self._groups = {kind: group for group, kinds in structs_of.items() for kind in kinds}
        self.declared = [field for kind in self._groups for field in self._declared(kind, DEFAULT)]
        self.options = self._listed({})
        """Without help texts."""

    @cached_property
    def with_help(self) -> Listed:
        """The options with their help texts, which takes reading the sources of all structs."""
        kinds = {declared.struct for declared in self.declared}
        return self._listed({kind: texts(kind) for kind in kinds})

    def read(self, conf: Any, kind: type[Struct], **values: Any) -> Struct:
        """A struct with the present values of its options, and what is given beside or instead.

        A part that may be None is None where its ``enabled`` is off, or where an option of it that
        has no default is not set.
        """
        return self._read(conf, kind, DEFAULT, values)

    def _read(self, conf: Any, kind: type[Struct], group: str, values: dict[str, Any]) -> Struct:
        group = self._groups.get(kind, group)
        for field in _fields(kind):
            if field.name in values:
                continue
            if (opt := _opt(field)) is not None:
                values[field.name] = Declared(kind, field, opt, opt.group or group).value(conf)
            elif (part := _part(field)) is not None:
                made = self._read(conf, part, group, {})
                values[field.name] = made if field.type == part or _is_set(made) else None
        return kind(**values)

    def _declared(self, kind: type[msgspec.Struct], group: str) -> Iterator[Declared]:
        group = self._groups.get(kind, group)
        for field in _fields(kind):
            if (opt := _opt(field)) is not None:
                yield Declared(kind, field, opt, opt.group or group)
            elif (part := _part(field)) is not None and part not in self._groups:
                yield from self._declared(part, group)

    def _listed(self, said: Mapping[type, Mapping[str, str]]) -> Listed:
        listed: dict[str | None, list[Any]] = {}
        for declared in self.declared:
            options = listed.setdefault(None if declared.group == DEFAULT else declared.group, [])
            options.append(declared.option(said.get(declared.struct, {}).get(declared.field.name)))
        return list(listed.items())


def _is_set(part: msgspec.Struct) -> bool:
    required = (field.name for field in _fields(type(part)) if field.required)
    return getattr(part, "enabled", True) and all(getattr(part, name) for name in required)


def _opt(field: structs.FieldInfo) -> Opt | None:
    metadata = getattr(field.type, "__metadata__", ())
    return next((opt for opt in metadata if isinstance(opt, Opt)), None)


def _part(field: structs.FieldInfo) -> type[msgspec.Struct] | None:
    kind = _plain(field.type)
    return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None


def _plain(kind: Any) -> Any:
    """A type without annotation, and without None as an alternative."""
    if typing.get_origin(kind) is typing.Annotated:
        return _plain(typing.get_args(kind)[0])
    if _origin(kind) in {types.UnionType, typing.Union}:
        return _plain(next(member for member in typing.get_args(kind) if member is not type(None)))
    return kind


def _origin(kind: Any) -> Any:
    """``tuple`` of ``tuple[str, ...]``."""
    return typing.get_origin(kind) or kind
