"""What use cases report of themselves, for metrics, logs and journals."""

from typing import Literal

import msgspec

from scheduler_worker.events import Count, Duration, Level
from scheduler_worker.model.decision_history import Waits

PhaseName = Literal[
    "wait", "lock", "decide", "commit", "pending", "look", "claim", "verify", "state", "answer"
]  # fmt: skip
"""Waiting in the queue and for the cluster's lock, deciding, reserving. Waiting for pending
reservations, for a refresh of the hosts, for Placement, for the hosts' sources, for the shared
state while it is away."""


class Phase(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A part of a request's way: from when to when, in seconds of the monotonic clock."""

    name: PhaseName
    began_s: float
    ended_s: float


class Outcome(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How one request for destinations ended, for logs and metrics; times in seconds."""

    request_id: str
    result: str
    """``placed``, or the class name of the error in the reply, such as ``NoValidHost``."""
    reason: str | None = None
    """The message of that error; None for an internal error, whose details are in the log."""
    global_request_id: str | None = None
    project_id: str | None = None
    """The project of the instances."""
    instance_uuids: tuple[str, ...] = ()
    policy: str | None = None
    """Name and version of the policy that decided, as ``name@version``."""
    cluster: str | None = None
    """The cluster of the chosen hosts, or of the nearest hosts that refused it."""
    refusals: int = 0
    """How many clusters refused it in the last attempt."""
    refusing_hosts: int = 0
    """How many hosts these have."""
    instances: int = 1
    hosts: tuple[str, ...] = ()
    """The chosen hosts, one for each instance."""
    repeated: int = 0
    """Instances that had a reservation already, from an earlier delivery of the request."""
    candidates: int = 0
    """Hosts before any filter."""
    passed: int = 0
    """Hosts that passed all filters."""
    rejections: tuple[tuple[str, int], ...] = ()
    """How many hosts each filter rejected, in the order of the filters."""
    attempts: int = 0
    waits: Waits = Waits()
    """Of all attempts."""
    token: int | None = None
    duration_s: float = 0.0
    ended_s: float = 0.0
    """When it ended, by the monotonic clock."""
    phases: tuple[Phase, ...] = ()
    """In the order of their ends."""
    traceparent: str | None = None
    """The caller's trace context, in W3C's form, as it was sent."""


class Observer:
    """Receives events from any thread, and must not block; this base class ignores them."""

    def count(self, event: Count, *labels: str, by: float = 1) -> None:
        """An event happened, or ``by`` of them."""

    def time(self, event: Duration, seconds: float, *labels: str) -> None:
        """Something took so long."""

    def level(self, event: Level, value: float, *labels: str) -> None:
        """A value is this from now on."""

    def decided(self, outcome: Outcome) -> None:
        """A request for destinations ended."""

    def call_answered(self, request_id: str) -> None:
        """The answer to the call with this request id is on its way to the broker."""

    def bus_connected(self, *, again: bool) -> None:
        """The server side is connected to the bus and consumes."""

    def bus_lost(self) -> None:
        """The server side lost its connection to the bus."""
