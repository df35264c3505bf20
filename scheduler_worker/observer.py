"""What use cases report of themselves, for metrics, logs and journals."""

from __future__ import annotations

from typing import Literal

import msgspec

PhaseName = Literal[
    "wait", "lock", "decide", "commit", "pending", "look", "claim", "verify", "answer"
]  # fmt: skip
"""Waiting for the turn and the cluster's lock; deciding; reserving; waiting for pending
reservations, for another look at the hosts, for Placement, for the hosts' sources."""


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
    """The cluster of the chosen hosts, or the one that refused it whose hosts came nearest."""
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
    lock_wait_s: float = 0.0
    """From joining the cluster queue to the decision."""
    hold_s: float = 0.0
    """From the grant of the lock to the end of the commit that reserved the hosts."""
    waited_for_pending_s: float = 0.0
    claim_s: float = 0.0
    """Waiting for Placement, of all attempts."""
    look_s: float = 0.0
    """Waiting for another look at the hosts."""
    token: int | None = None
    duration_s: float = 0.0
    ended_s: float = 0.0
    """When it ended, by the monotonic clock."""
    phases: tuple[Phase, ...] = ()
    """In the order of their ends."""
    traceparent: str | None = None
    """The caller's trace context, in W3C's form, as it was sent."""


class Observer:
    """Receives events, for metrics and logs; this base class ignores them.

    Methods are called from any thread and must not block. ``scope`` is a cluster.
    """

    def decided(self, outcome: Outcome) -> None:
        """A request for destinations ended."""

    def lock_granted(self, scope: str, waited_s: float) -> None:
        """A leader of this process got the cluster's lock."""

    def lock_timed_out(self, scope: str) -> None:
        """A request was not served before its timeout in the cluster queue."""

    def lock_ended(self, scope: str, held_s: float) -> None:
        """A lease of this process ended, by commit or release."""

    def lease_expired(self, scope: str) -> None:
        """A lease of this process ended by its timeout."""

    def commit_fenced(self, scope: str) -> None:
        """A commit was refused because its lease had ended."""

    def commit_conflicted(self, scope: str) -> None:
        """A claim was refused because its host had changed."""

    def reservations_ended(self, scope: str, how: str, count: int) -> None:
        """Reservations were absorbed, confirmed, released, expired, removed (with their host) or
        moved.

        Confirmed ones last until they are absorbed; moved ones continue in their host's new
        cluster.
        """

    def state_failed(self) -> None:
        """A use case ended in StateUnavailable."""

    def request_taken(self, method: str, waited_s: float) -> None:
        """A request got a slot, ``waited_s`` after this process took it from the bus."""

    def call_answered(self, request_id: str) -> None:
        """The answer to the call with this request id is on its way to the broker."""

    def request_served(self, method: str, result: str, duration_s: float) -> None:
        """A call was answered, or a cast done: ``ok``, or the class name of the error."""

    def message_redelivered(self) -> None:
        """The broker redelivered a message."""

    def message_repeated(self) -> None:
        """A duplicate arrived of a message that is in hand, or was just answered."""

    def message_dropped(self, why: str) -> None:
        """``why`` is expired, dead-lettered or unroutable."""

    def bus_connected(self, *, again: bool) -> None:
        """The server side is connected to the bus and consumes."""

    def bus_lost(self) -> None:
        """The server side lost its connection to the bus."""

    def claims_posted(self, answer: str, consumers: int, duration_s: float) -> None:
        """A request to Placement ended: ``written``, ``taken back``, or why nothing was written."""

    def candidates_asked(self, answer: str, duration_s: float) -> None:
        """Placement was asked for allocation candidates: there are ``some`` or ``none``, it
        ``refused``, was ``unavailable``, or the question ``failed`` here.
        """

    def claimed(self, result: str, instances: int) -> None:
        """A decision was ``claimed``, or not: why Placement refused it, or the error's class."""

    def balanced(self, scope: str, duration_s: float, busy_s: float) -> None:
        """A round of a cluster's balance ended.

        ``busy_s`` is for how long its hosts have had too much load since the round before, added
        up.
        """

    def balancing_failed(self, scope: str) -> None:
        """A round of a cluster's balance ended in an error."""

    def migration_target_failed(self, scope: str) -> None:
        """Who migrates VMs could not be reached, or gave no answer that can be used."""

    def migration_considered(self, scope: str, outcome: str) -> None:
        """A proposed migration was ``asked``, ``shown`` (in a dry run) or ``held`` back."""

    def migration_ended(self, scope: str, outcome: str) -> None:
        """A migration was ``done``, ``refused``, ``failed``, or ``overdue``."""

    def power_action(self, scope: str, to: str, outcome: str) -> None:
        """A power action was ``asked``, ``shown`` or ``held``, as a migration.

        Or one ended: ``done``, ``refused``, ``failed``, or ``overdue``.
        """

    def unprotected_hosts(self, scope: str, count: int) -> None:
        """How many hosts have highly available VMs that would not find room; 0 elsewhere."""

    def feed_read(self, part: str, what: str, rows: int) -> None:
        """A feed read rows of a part: ``services``, ``census``, ``changes`` or ``hosts``."""

    def feed_wrote(self, part: str, hosts: int) -> None:
        """A feed stored reports of hosts that differed from their records."""

    def feed_round(self, part: str, duration_s: float) -> None:
        """A feed brought a part up to date."""

    def looked_again(self, result: str) -> None:
        """A request waited for another look at the hosts.

        No host had passed, and it was then ``placed``, or ``refused``; or nobody looked in time and
        it was refused: ``late``. Or it was placed, and waited for ``alternates`` that it lacked.
        """

    def verified(self, result: str) -> None:
        """A decision was compared with its hosts' sources before the answer.

        They were as ``known``, or had ``changed`` and were decided anew, or could not be read:
        ``unread``.
        """

    def looked(self, duration_s: float) -> None:
        """A worker looked at its source of hosts again, for requests that no host passed."""

    def providers_read(self, what: str, count: int) -> None:
        """Placement answered about providers: ``list``, ``sums``, ``facts``, ``traits`` or
        ``use``.
        """

    def providers_failed(self, what: str) -> None:
        """Placement did not answer such a question, or not so that it can be read."""

    def decisions_kept(self, result: str, count: int) -> None:
        """Records of decisions were ``written``; or ``dropped``, as they could not be in time."""

    def dry_run_compared(self, result: str) -> None:
        """An instance of a copied request was compared with where it got to."""

    def feed_failed(self, part: str) -> None:
        """A round of a feed could not read its part, or store what it had read."""

    def tuning_cycled(self, scope: str, duration_s: float) -> None:
        """A tuning cycle of a cluster ended, with or without an error."""

    def tuning_failed(self, scope: str) -> None:
        """A tuning cycle of a cluster ended in an error."""

    def tuning_notified(self, result: str, count: int = 1) -> None:
        """``count`` agents were sent values: ``ok``, ``late``, or the class name of the error."""

    def tuning_faulted(self, policy: str, kind: str, count: int) -> None:
        """A policy's rules were skipped, or noted something odd, for ``count`` entities."""

    def external_called(self, unit: str, result: str, duration_s: float) -> None:
        """A unit in a cage was called: ``ok``; a filter that failed: all hosts ``passed``, or it
        ``refused`` all; a weight or a balance that ``failed``.
        """

    def external_loaded(self, file: str, isolation: str) -> None:
        """A file was loaded into a cage; ``isolation`` says by what it is confined."""

    def rest_served(self, route: str, method: str, status: int, duration_s: float) -> None:
        """A request to the REST API was answered; ``route`` has no values, "" is no route."""

    def rest_limited(self, by: str) -> None:
        """A request to the REST API was above the rate ``by`` which it is limited."""
