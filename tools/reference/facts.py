"""Reads the facts of a unit from its docstring and attributes.

A docstring begins with prose. Paragraphs at its end that begin with one of :data:`FIELDS` and a
colon are fields of the reference; a unit inherits the fields that it does not set. Options are
named as ``[group] name``, or by the name alone where the group is ``[filter_scheduler]``.
"""

import inspect
import re
from typing import Any, NamedTuple

from scheduler_worker import conf
from scheduler_worker.scheduling.plugin import Filter, Unit, Weigher

FIELDS = ("Reads", "Options", "Metadata", "Example")
GROUP = "filter_scheduler"
_FIELD = re.compile(rf"^({'|'.join(FIELDS)}): ", re.MULTILINE)
_OPTION = re.compile(r"``(?:\[(\w+)\] )?(\w+)``")


class Facts(NamedTuple):
    """One unit as the reference shows it."""

    name: str
    prose: str
    fields: dict[str, str]
    unit: type[Unit]


def facts(unit: type[Unit]) -> Facts:
    """The parsed docstring of the unit."""
    prose, fields = _read(unit)
    for base in unit.__mro__[1:]:
        if issubclass(base, Unit):
            fields = _read(base)[1] | fields
    return Facts(unit.__name__, prose, fields, unit)


def _read(unit: type) -> tuple[str, dict[str, str]]:
    text = inspect.cleandoc(unit.__doc__ or "")
    prose, *rest = _FIELD.split(text)
    values = (" ".join(each.split()) for each in rest[1::2])
    return prose.strip(), dict(zip(rest[::2], values, strict=True))


def options(facts: Facts) -> list[str]:
    """The options it names, with group and default. Raises KeyError for one that is not there."""
    named = [
        (group or GROUP, name) for group, name in _OPTION.findall(facts.fields.get("Options", ""))
    ]
    if issubclass(facts.unit, Weigher) and facts.unit.option:
        named.insert(0, _set_as(facts.unit.option))
    return [f"`[{group}] {name}` ({_shown(_registered()[group, name])})" for group, name in named]


def default_multiplier(facts: Facts) -> str:
    """A weigher's multiplier where nothing is configured."""
    option = getattr(facts.unit, "option", None)
    return _shown(_registered()[_set_as(option)]) if option else "1.0"


def _set_as(field: str) -> tuple[str, str]:
    """The option that sets the field of ``Options``."""
    group, name = GROUP, field
    if (GROUP, field) not in _registered():
        group, _, name = field.partition("_")
    return group, name


def _registered() -> dict[tuple[str, str], Any]:
    return {(group or "DEFAULT", opt.dest): opt for group, opts in conf.list_opts() for opt in opts}


def _shown(opt: Any) -> str:
    default = opt.default
    if default in (None, []):
        return "unset"
    return str(default).lower() if isinstance(default, bool) else str(default)


def metadata(facts: Facts) -> str:
    """The aggregate metadata keys that it reads."""
    if issubclass(facts.unit, Weigher):
        return f"``{facts.unit.aggregate_key or facts.unit.option}``"
    return facts.fields.get("Metadata", "")


def cost(unit: type[Unit]) -> str:
    """The cost of evaluating it: how many hosts, and how often; see `pages`."""
    if unit.reads_request and unit.reads is Unit.reads:
        return "request"
    if issubclass(unit, Filter) and unit.looks_at_rows:
        return "rows"
    return "use" if unit.reads_use else "facts"
