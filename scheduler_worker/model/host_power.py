"""Whether a host runs, and whether a balance may change that: the field ``power`` of its reports.

A host that sleeps sends no reports itself, so whoever manages its power reports it. What was
reported holds until something else is: a host that was switched off is not one that has failed.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import structs

PowerState = Literal["up", "maintenance", "down"]


class HostPower(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a host runs, and whether a balance may change that."""

    state: PowerState = "up"
    by_policy: bool | None = None
    """Whether a balance has put it into this state, and not a person; None: not said, which counts
    as a person where the worker does not know it either."""
    is_managed: bool = False
    """Whether it has power management that is on."""
    is_excluded: bool = False
    """Whether an administrator has excluded it from automatic power management."""
    is_healthy: bool = True
    """Whether outside monitoring finds nothing wrong with it."""

    def after(self, before: HostPower, asked_for: PowerState | None) -> HostPower:
        """What a report says, and who did it where it does not say that.

        ``asked_for`` is the state into which a balance is bringing the host; None: into none.
        """
        if self.by_policy is not None:
            return self
        is_kept = self.state == before.state and bool(before.by_policy)
        return structs.replace(self, by_policy=is_kept or self.state == asked_for)


UP = HostPower()
"""The power of a host of which nothing is reported."""


def phrase(to: PowerState) -> str:
    """``up``, ``down`` or ``into maintenance``."""
    return "into maintenance" if to == "maintenance" else to
