"""Settings of the records of decisions."""

from typing import Annotated

import msgspec

from scheduler_worker.decision_log import Bounds
from scheduler_worker.options import Opt


class DecisionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept."""

    enabled: Annotated[bool, Opt()] = True
    """Whether a record of each decision is kept in the shared state: what was asked, how many hosts
    each filter left, why the chosen host came first. list_decisions and get_decision show them."""
    bounds: Bounds = Bounds()
    """Of each cluster."""
    max_waiting: Annotated[int, Opt(min=1, max=1_000_000)] = 10_000
    """Records of one worker that wait to be written, at most. While the shared state is away
    further ones are dropped and counted; no request waits for them."""
