"""The value types of a tuning policy: what a text says, before names are resolved."""

from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from scheduler_worker.tuning.expressions import Expr
from scheduler_worker.tuning.yaml_subset import Scalar, Source


class Scope(StrEnum):
    """The kind of entity for which a policy's rules are evaluated, once for each."""

    HOST = "Host"
    VM = "VM"
    DISK = "VM.disk"


class Joined(msgspec.Struct, frozen=True, eq=False):
    """True when one of its conditions is, or when all are."""

    op: str
    """``or`` or ``and``."""
    members: "tuple[Condition, ...]"


Condition = Expr | Joined
Amount = TypeVar("Amount")


class Rate(msgspec.Struct, Generic[Amount], frozen=True, eq=False):
    """How far an output moves in ``time_s`` seconds, or how far at most."""

    kind: str
    """``linear``: by a change. ``exponential``: by a factor. At most ``absolute``: by an amount,
    ``value``: by a fraction of the output, ``factor``: by a factor."""
    amount: Amount
    time_s: float


class Rule(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One rule; None stands for a key that is absent."""

    name: str
    output: Scalar
    target: Expr | None = None
    minima: tuple[Expr, ...] = ()
    maxima: tuple[Expr, ...] = ()
    function: Rate[Expr] | None = None
    """None: the output goes to the target at once."""
    when: Condition | None = None
    influence: Expr | None = None
    min_absolute_change: Expr | None = None
    min_relative_change: Expr | None = None
    max_absolute_change: Rate[Expr] | None = None
    max_relative_change: Rate[Expr] | None = None


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
