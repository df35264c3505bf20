"""A checked policy: what :mod:`~.check` makes and :mod:`~.evaluate` runs."""

from __future__ import annotations

import msgspec

from scheduler_worker.tuning.columns import Column
from scheduler_worker.tuning.document import Scope
from scheduler_worker.tuning.issues import Place
from scheduler_worker.tuning.yaml_subset import Scalar

Name = tuple[str, ...]
"""A dotted name, taken apart."""


class Operation(msgspec.Struct, frozen=True):
    """One step of a plan; its arguments are the numbers of earlier ones."""

    op: str
    args: tuple[int, ...] = ()
    name: Name = ()
    """The property that ``property`` looks up."""
    column: Column | None = None
    """The value, where it is the same for everybody at every time."""
    scalar: Scalar | None = None
    at: int = 0

    @property
    def place(self) -> Place | None:
        """Where it was written first; None for what nobody wrote."""
        return self.scalar.place_of(self.at) if self.scalar else None


class Movement(msgspec.Struct, frozen=True, kw_only=True):
    """How an output goes to its target; numbers are those of steps, None: without."""

    kind: str
    """``constant``, ``linear`` or ``exponential``."""
    parameter: int | None = None
    time_s: float = 1.0


class Limit(msgspec.Struct, frozen=True):
    """At most ``step``'s value in ``time_s``."""

    kind: str
    """``absolute``: an amount; ``value``: a fraction of the output; ``factor``."""
    step: int
    time_s: float


class RulePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A rule whose expressions are numbers of steps; None: not written."""

    id: str
    """``file:name``: names of rules are the file's own."""
    movement: Movement
    target: int
    lower: int | None = None
    upper: int | None = None
    when: int | None = None
    influence: int | None = None
    limits: tuple[Limit, ...] = ()
    min_absolute_change: int | None = None
    min_relative_change: int | None = None


class OutputPlan(msgspec.Struct, frozen=True):
    """An output and the rules that have a say in it."""

    name: str
    current: int
    """The step that looks up the observed value."""
    rules: tuple[RulePlan, ...]


class Plan(msgspec.Struct, frozen=True):
    """All that is to be done for the entities of one scope."""

    steps: tuple[Operation, ...]
    live: tuple[int, ...]
    """The steps that have a say in some rule, in the order in which they are done."""
    outputs: tuple[OutputPlan, ...]


class Program(msgspec.Struct, frozen=True):
    """A policy that was checked. Only :mod:`~.check` makes one."""

    plans: dict[Scope, Plan]
