"""What is said everywhere of units, and of tuning policies. Values only."""

from __future__ import annotations

import msgspec


class ParameterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter that a unit declares."""

    name: str
    type: str
    """`integer`, `number`, `boolean`, `text`, or `list` (texts with commas between)."""
    regex: str | None = None
    """What the text of a value must match as a whole, where the unit declares one."""


class UnitFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A unit in one of its kinds."""

    id: str
    name: str
    description: str = ""
    is_enabled: bool = True


class TuningText(msgspec.Struct, frozen=True):
    """The text of a tuning policy."""

    name: str
    text: str
    file: str | None
    """Where it is from; null: it was set over RPC or REST."""


class TuningProblem(msgspec.Struct, frozen=True):
    """Why a text could not be read or loaded: the version before stays in force."""

    message: str
    file: str | None
    """Null: the policy was set over RPC or REST."""
    policy: str | None = None
    """Null: the clusters file, or a file that could not be read."""
