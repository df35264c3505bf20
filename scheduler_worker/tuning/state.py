"""The evaluator's state: what one evaluation hands to the next."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from scheduler_worker.tuning.samples import Entity


class HeldChange(NamedTuple):
    """A change that is still too small to emit: how long it has accumulated, and its direction."""

    elapsed_s: float
    direction: float


class EvaluatorState(msgspec.Struct, frozen=True):
    """State of the entities of the last evaluation; entities that are gone have none."""

    evaluated_at_s: dict[Entity, float] = {}
    emitted: dict[str, dict[Entity, float]] = {}
    """By output: the last value that was emitted."""
    held: dict[str, dict[Entity, HeldChange]] = {}
    """By the id of a rule."""
