"""Whether a cluster's balance acts, and what its last round found. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from scheduler_worker.model.cluster_load import PowerAction, ProposedMigration

Mode = Literal["off", "dry_run", "on"]
"""``off``: the balance is not asked; ``dry_run``: it says what it would do; ``on``: it does it."""
MODES: tuple[str, ...] = get_args(Mode)


class BalancingSwitch(msgspec.Struct, frozen=True, kw_only=True):
    """The mode that an operator has set for a cluster."""

    mode: Mode
    policy_id: str
    """The policy that was in force then: ``on`` holds for no other."""

    def applies(self, policy_id: str) -> bool:
        """Whether it holds under a policy. A balance that nobody has seen acting is not on."""
        return self.mode != "on" or self.policy_id == policy_id


def mode_in_force(switch: BalancingSwitch | None, policy_id: str, default: Mode) -> Mode:
    """The mode of a cluster: the one that was set, if it holds, else the workers' default."""
    return switch.mode if switch is not None and switch.applies(policy_id) else default


class Considered(ProposedMigration, frozen=True, kw_only=True):
    """A proposed migration with the first destinations, and what became of it."""

    more_destinations: int = 0
    """How many more there are."""
    outcome: str
    """``asked for``, ``would be asked for``, or why not."""


class ConsideredPower(PowerAction, frozen=True, kw_only=True):
    """A proposed power action, and what became of it."""

    outcome: str
    """As that of a migration."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One look of a balance at its cluster."""

    at_s: float
    """By the store's clock."""
    policy: str
    """Name and version, as ``name@version``."""
    balance: str
    """The name of the unit."""
    mode: Mode
    nothing_because: str = ""
    """Why nothing is asked for; empty where a migration is, or would be."""
    considered: tuple[Considered, ...] = ()
    """The proposals, the best one first, up to the one that was asked for."""
    power: tuple[ConsideredPower, ...] = ()
    """The proposed power actions, up to the one that was asked for; mostly none."""
    unprotected_hosts: tuple[str, ...] = ()
    """Those whose highly available VMs would not all find room on the others."""
    protection_checked_at_s: float = 0.0
    busy_hosts: tuple[str, ...] = ()
    """Those with a load at the upper bound or above."""
    seen_since_s: Mapping[str, float] = {}
    """What the balance remembers of hosts."""
