"""The compiled form of policies, which :mod:`~.check` makes and :mod:`~.evaluate` runs.

Expressions are steps of a plan; an ``int`` in these types is the number of a step.
"""

import msgspec

from scheduler_worker.model.issues import Place
from scheduler_worker.tuning.columns import Column
from scheduler_worker.tuning.tuning_policy import Rate, Scope
from scheduler_worker.tuning.yaml_subset import Scalar

Name = tuple[str, ...]
"""The parts of a dotted name."""


class PlanStep(msgspec.Struct, frozen=True):
    """One step of a plan; its arguments are numbers of earlier steps."""

    op: str
    args: tuple[int, ...] = ()
    name: Name = ()
    """The property that ``property`` looks up."""
    column: Column | None = None
    """The value of a constant."""
    origin: tuple[Scalar, int] | None = None
    """The text that has it first, with the offset; None for a step that no policy has."""

    @property
    def place(self) -> Place | None:
        return self.origin[0].place_of(self.origin[1]) if self.origin else None


class RulePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A rule whose expressions are numbers of steps; None stands for an absent key."""

    id: str
    """``policy:name``: two policies may use the same name of a rule."""
    function: Rate[int] | None
    target: int
    lower: int | None = None
    upper: int | None = None
    when: int | None = None
    influence: int | None = None
    limits: tuple[Rate[int], ...] = ()
    min_absolute_change: int | None = None
    min_relative_change: int | None = None


class OutputPlan(msgspec.Struct, frozen=True):
    """An output and the rules that set it."""

    name: str
    current: int
    """The step that looks up the observed value."""
    rules: tuple[RulePlan, ...]


class TuningPlan(msgspec.Struct, frozen=True):
    """The evaluation of one scope."""

    steps: tuple[PlanStep, ...]
    live: tuple[int, ...]
    """The steps that some rule needs, in the order of their evaluation."""
    outputs: tuple[OutputPlan, ...]


class Program(msgspec.Struct, frozen=True):
    """Checked policies, compiled together. Only :mod:`~.check` makes one."""

    plans: dict[Scope, TuningPlan]
