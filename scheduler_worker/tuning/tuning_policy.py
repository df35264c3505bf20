"""The value types of a tuning policy: what a text says, before names are resolved."""

from enum import StrEnum

import msgspec

from scheduler_worker.tuning.expressions import Expr
from scheduler_worker.tuning.yaml_subset import Scalar, Source


class Scope(StrEnum):
    """The kind of entity for which a policy's rules are evaluated, once for each."""

    HOST = "Host"
    VM = "VM"
    DISK = "VM.disk"


class Any(msgspec.Struct, frozen=True, eq=False):
    """True when at least one of its conditions is."""

    members: "tuple[Condition, ...]"


class All(msgspec.Struct, frozen=True, eq=False):
    """True when all of its conditions are."""

    members: "tuple[Condition, ...]"


Condition = Expr | Any | All


class Constant(msgspec.Struct, frozen=True):
    """Goes to the target at once."""


class Linear(msgspec.Struct, frozen=True, eq=False):
    """Moves towards the target by ``change`` in each ``time_s`` seconds."""

    change: Expr
    time_s: float


class Exponential(msgspec.Struct, frozen=True, eq=False):
    """Moves towards the target by ``factor`` in each ``time_s`` seconds."""

    factor: Expr
    time_s: float


class Rate(msgspec.Struct, frozen=True, eq=False):
    """Limits the change in ``time_s`` seconds to ``value``: an amount, or a fraction."""

    value: Expr
    time_s: float


class Growth(msgspec.Struct, frozen=True, eq=False):
    """Limits the change in ``time_s`` seconds to a factor."""

    factor: Expr
    time_s: float


class Rule(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One rule; None stands for a key that is absent."""

    name: str
    output: Scalar
    target: Expr | None = None
    minima: tuple[Expr, ...] = ()
    maxima: tuple[Expr, ...] = ()
    function: Constant | Linear | Exponential = Constant()
    when: Condition | None = None
    influence: Expr | None = None
    min_absolute_change: Expr | None = None
    min_relative_change: Expr | None = None
    max_absolute_change: Rate | None = None
    max_relative_change: Rate | Growth | None = None


class Named(msgspec.Struct, frozen=True, eq=False):
    """A var or a condition of the file."""

    key: Scalar
    path: str
    definition: Condition
    is_condition: bool


class TuningPolicy(msgspec.Struct, frozen=True, eq=False):
    """One file: a policy of the tuning language, read but not yet checked."""

    source: Source
    scope: Scope
    names: dict[str, Named]
    rules: tuple[Rule, ...]
    complete: bool = True
    """False when some names could not be read: then an unknown name may be one of them."""
