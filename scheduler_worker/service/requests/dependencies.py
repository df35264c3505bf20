"""What the placement use cases share: their limits and their collaborators."""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import msgspec

from scheduler_worker.observer import Observer
from scheduler_worker.options import Opt
from scheduler_worker.ports import Clock, ClusterLock, LockGrant
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.state.intents import PlacementIntents
from scheduler_worker.service.state.moves import Moves
from scheduler_worker.service.state.replica import Fleet
from scheduler_worker.service.state.writing import Writer


class PlacementLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts, in seconds, and bounds of placement."""

    acquire_timeout_s: Annotated[float, Opt(min=0.1, max=3600)] = 30.0
    """Seconds a request waits for its cluster's lock before it fails with ClusterLockTimeout."""
    hold_timeout_s: Annotated[float, Opt(min=0.1, max=600)] = 10.0
    """Seconds for which the lease of a cluster's lock lasts. A dead worker delays others by at most
    this long; a slow one loses its lease, and its commit is refused and repeated."""
    max_batch: Annotated[int, Opt(min=1, max=1000)] = 64
    """Requests that one worker decides under one lease, in one group commit, if so many are
    waiting."""
    ordering: Annotated[
        Literal["priority", "fifo"],
        Opt(
            choices={
                "priority": "small requests may overtake those that arrived shortly before",
                "fifo": "first come, first served",
            }
        ),
    ] = "priority"
    """The order in which requests that wait for a cluster are served."""
    max_priority_boost_s: Annotated[float, Opt(min=0, max=600, former="max_head_start")] = 2.0
    """Seconds by which the smallest request of the highest priority may overtake others. No request
    is overtaken by one that arrives more than this after it."""
    reservation_ttl_s: Annotated[float, Opt(group="pending", name="ttl", min=1, max=86_400)] = 600.0
    """Seconds after which a reservation expires that was neither absorbed by a host's report nor
    confirmed nor released, nor listed there as being built or moved. Longer than the time between
    two reports."""
    wait_timeout_s: Annotated[float, Opt(group="pending", min=0, max=3600)] = 10.0
    """Seconds a request waits for pending (reserved) resources to be released, if no host passes
    but one would without the reservations. 0: it fails at once."""
    max_waiting: Annotated[int, Opt(group="pending", min=0, max=1000)] = 32
    """Requests of one worker that may wait for pending resources at a time; they occupy no slot.
    Further ones fail at once."""
    max_reservations: Annotated[int, Opt(group="pending", name="max_per_cluster", min=1)] = 100_000
    """Reservations that one cluster may have. Further requests fail with NoValidHost until some
    have ended."""
    max_attempts_to_commit: int = 8
    max_attempts: Annotated[int, Opt(group="scheduler", min=1, mutable=True)] = 3
    """Hosts that a caller may try for an instance: the chosen one and up to max_attempts - 1
    alternates."""
    globals_max_age_s: Annotated[float, Opt(group="state", name="refresh_interval", min=0.1)] = 5.0
    """Seconds after which a worker reads aggregates and the list of clusters again, to see changes
    that other workers made."""
    remember_answers_s: Annotated[float, Opt(group="pending", min=0, max=86_400)] = 120.0
    """Seconds for which a repeated request gets the same answer, even if its reservation has been
    absorbed since. At least twice the RPC timeout of the callers."""

    @property
    def ask_s(self) -> float:
        """How long external units may take, in all, while hosts are read without the lock.

        A leader may have to wait for that, and its own units have until half of its lease is over.
        """
        return self.hold_timeout_s / 3

    @property
    def intent_ttl_s(self) -> float:
        """Of placement intents."""
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
    """Owner -> a grant that this process holds now; for status reports only."""
    placement_intents: PlacementIntents
    moves: Moves
    writer: Writer
