"""What the placement use cases share: their limits and their collaborators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from scheduler_worker.observer import Observer
from scheduler_worker.ports import Clock, ClusterLock, LockGrant
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.state.intents import Intent, PlacementIntents
from scheduler_worker.service.state.moves import Moves
from scheduler_worker.service.state.replica import Fleet
from scheduler_worker.service.state.writing import Writer


class PlacementLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts, in seconds, and bounds of placement."""

    acquire_timeout_s: float = 30.0
    hold_timeout_s: float = 10.0
    max_batch: int = 64
    ordering: Literal["priority", "fifo"] = "priority"
    max_priority_boost_s: float = 2.0
    reservation_ttl_s: float = 300.0
    wait_timeout_s: float = 10.0
    max_waiting: int = 32
    max_reservations: int = 100_000
    max_attempts_to_commit: int = 8
    max_attempts: int = 3
    """Hosts that a caller may try for an instance: the chosen one and its alternates."""
    globals_max_age_s: float = 5.0
    remember_answers_s: float = 120.0

    @property
    def intent_ttl_s(self) -> float:
        """Longer than a request takes from reading all clusters to its commit in one."""
        return self.acquire_timeout_s + 2 * self.hold_timeout_s


class PlacementDependencies(NamedTuple):
    """The collaborators of the placement use cases."""

    fleet: Fleet
    lock: ClusterLock
    pipelines: Callable[[], Pipelines]
    clock: Clock
    limits: PlacementLimits
    observer: Observer
    grants: dict[str, LockGrant]
    """Cluster -> the grant this process holds now; for status reports only."""
    placement_intents: PlacementIntents
    moves: Moves
    writer: Writer

    def held_s(self, grant: LockGrant) -> float:
        """Seconds since the lock was granted."""
        granted_s = grant.ends_at_s - self.limits.hold_timeout_s
        return max(0.0, self.clock.monotonic_s() - granted_s)

    def declare(self, intents: Sequence[Intent], now_s: float) -> list[bool]:
        """Declare placement intents as of the store's time ``now_s``.

        Returns and raises as :meth:`PlacementIntents.declare` does.
        """
        until_s = now_s + self.limits.intent_ttl_s
        return self.placement_intents.declare(self.fleet.store, intents, until_s=until_s)
