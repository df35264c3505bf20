"""What a field of a host's record is, declared in its annotation.

The fields of reports, their groups, the columns, the attributes and a table in ``docs/rpc.md``
follow from it.
"""

import typing
from typing import Any, NamedTuple

import msgspec

OWN = "."
"""The name of the field itself, for the names in a :class:`Fact`."""


class Fact(NamedTuple):
    """How a field is reported, and by which other names it is known."""

    group: str
    """Facts of a group are reported together; empty: it tells which host it is, or when."""
    reported: Any = None
    """The type in a report, if it differs from the record's."""
    column: str = ""
    """The column that has its value as it is; computed columns are in ``columns``."""
    unit: str = ""
    """The column's unit."""
    attribute: str = ""
    """Its name in extra specs and queries; empty: they cannot name it."""
    text: str = ""
    """Its meaning, as Markdown; empty: the text of the fact before it is about both."""


def facts_of(kind: type[msgspec.Struct]) -> dict[str, tuple[Any, Fact]]:
    """Field -> its type and fact, of the fields that have one."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {
        name: (hint.__origin__, _named(fact, name))
        for name, hint in hints.items()
        for fact in getattr(hint, "__metadata__", ())
        if isinstance(fact, Fact)
    }


def _named(fact: Fact, name: str) -> Fact:
    own = [key for key, value in fact._asdict().items() if value == OWN]
    return fact._replace(**dict.fromkeys(own, name))
