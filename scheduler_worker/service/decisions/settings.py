"""Settings of the records of decisions."""

from __future__ import annotations

import msgspec

from scheduler_worker.decision_log import Bounds


class DecisionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept."""

    bounds: Bounds = Bounds()
    """Of each cluster."""
    max_waiting: int = 10_000
    """Records that wait to be written; further ones are dropped."""
