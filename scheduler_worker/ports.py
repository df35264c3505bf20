"""The gates: what the use cases need of the outside, as protocols.

The shared state is, for every *scope* (a cluster, or :data:`GLOBAL`), a set of versioned records
under short keys, a lock, and promises that expire. Judgement's words are packed into records by
``service/records.py``; an engine stores bytes and never looks into them.

Two round trips make one decision: :meth:`ClusterLock.acquire` returns a token *and* everything
that changed since the caller last looked, :meth:`ClusterLock.commit` writes under that token and
hands the lock on. What must hold is in ``docs/state.md``; ``tests/contract`` holds every engine
to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from scheduler_worker.model.claims import FencingToken

GLOBAL = "@global"
"""The scope of what belongs to no cluster: aggregates and the names of the clusters."""

ABSENT = 0
"""The version of a record that does not exist."""


class Clock(Protocol):
    """Where time comes from; a test's clock stands still until it is told to move."""

    def time_s(self) -> float:
        """Seconds since the epoch."""

    def monotonic_s(self) -> float:
        """Seconds of a clock that never goes back; only differences mean something."""


class Change(NamedTuple):
    """A record as it is now; ``value`` is None when it is gone."""

    key: str
    version: int
    value: bytes | None


class Changes(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What changed in a scope after the version that the caller had seen."""

    epoch: str
    """Names the life of the store; another epoch means that its data was lost."""
    version: int
    now_s: float
    """The store's clock."""
    entries: list[Change]
    reset: bool = False
    """True when the caller was too far behind (or of another epoch): ``entries`` is everything."""


class Seen(NamedTuple):
    """How much of a scope a process knows."""

    epoch: str = ""
    version: int = 0


class Grant(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The lock of one cluster, held until ``ends_at_s`` of the caller's monotonic clock."""

    scope: str
    owner: str
    token: FencingToken
    waited_s: float
    ends_at_s: float
    changes: Changes
    turn: int = 0
    """How many commits this hold has seen already; see :meth:`ClusterLock.commit`."""


class Put(NamedTuple):
    """Write a record, or delete it (``value`` None). ``expires_at_s`` is of the store's clock."""

    key: str
    value: bytes | None
    expires_at_s: float | None = None


class Guard(NamedTuple):
    """A record must still have this version (:data:`ABSENT`: must not exist)."""

    key: str
    version: int


class Transaction(msgspec.Struct, frozen=True, gc=False):
    """All puts, or none when a guard does not hold."""

    puts: Sequence[Put]
    guards: Sequence[Guard] = ()


class Written(NamedTuple):
    """The scope's version afterwards, and for each transaction whether it was applied.

    ``before`` is the version just before the write; -1 where the engine does not know (a repeated
    call). A caller that had seen ``before`` knows everything up to ``version``.
    """

    version: int
    applied: tuple[bool, ...]
    before: int = -1
    kept: bool = False
    """Whether a commit kept the hold; then it may commit again, with the next ``turn``."""


class Characteristics(msgspec.Struct, frozen=True, gc=False):
    """What an engine promises; ``app.build`` refuses what cannot work on it."""

    spans_processes: bool
    survives_restart: bool


class ClusterLock(Protocol):
    """One holder per cluster, each with a larger fencing token; nobody waits for ever."""

    def acquire(
        self, scope: str, *, timeout_s: float, seen: Seen, head_start_s: float = 0.0
    ) -> Grant:
        """Wait for the cluster's lock; at most ``timeout_s``.

        Waiters are served in the order of their arrival; one with a head start counts as if it
        had arrived that much earlier, so it overtakes only those who came shortly before it.

        Raises:
            ClusterLockTimeout: not granted in time; the place in the queue is given up.
            StateUnavailable: the store cannot be reached.

        """

    def commit(
        self, grant: Grant, transactions: Sequence[Transaction], *, keep_at: int | None = None
    ) -> Written:
        """Write under the token and hand the lock to the next waiter, in one atomic step.

        With ``keep_at`` the hold is kept, until the same end, if nobody else waits for the lock
        and the scope was at that version: then the caller knows all there is to know.

        Raises:
            StaleFencingToken: the hold had ended; nothing was written.
            StateUnavailable: the store cannot be reached; whether it was written is unknown.

        """

    def release(self, grant: Grant) -> None:
        """Hand the lock on without writing; harmless when it is no longer held."""


class Store(Protocol):
    """Versioned records of a scope, readable and writable without its lock."""

    @property
    def characteristics(self) -> Characteristics: ...

    def changes(self, scope: str, seen: Seen) -> Changes:
        """Everything that changed after ``seen``; a first look sees everything.

        Expired promises are ended on the way. Raises StateUnavailable.
        """

    def await_change(self, scope: str, seen: Seen, *, timeout_s: float) -> bool:
        """Wait, without the lock, until a look at the scope would tell more than ``seen``.

        True when it would; a record that expires is a change. False after ``timeout_s``. Nobody is
        kept from anything by those who wait. Raises StateUnavailable.
        """

    def write(
        self, scope: str, transactions: Sequence[Transaction], *, once: str | None = None
    ) -> Written:
        """Apply each transaction whose guards hold; ``once`` makes a repetition a no-op.

        A repeated ``once`` within ten minutes answers what the first call answered, if that
        applied every transaction; otherwise it is tried anew.
        Raises StateUnavailable.
        """

    def ping(self) -> None:
        """Raise StateUnavailable when the store cannot be reached."""

    def check(self) -> list[str]:
        """Sentences for the operator about settings that endanger what is stored.

        Raises StateUnavailable.
        """

    def close(self) -> None:
        """Give back connections and wake everybody who waits."""


class State(ClusterLock, Store, Protocol):
    """The whole of the shared state, as one engine offers it."""


class Publisher(Protocol):
    """Sends a message to somebody else's RPC topic."""

    def cast(
        self,
        *,
        topic: str,
        method: str,
        arguments: dict[str, object],
        exchange: str | None = None,
        server: str | None = None,
        namespace: str | None = None,
        version: str = "1.0",
    ) -> None:
        """Publish a cast; returns when the broker has it."""


class Attestation(Protocol):
    """Knows how far each node can be trusted."""

    def levels(self, nodenames: Sequence[str]) -> Mapping[str, str]:
        """Node name -> trust level, for the nodes the service knows.

        Raises:
            BackendError: the service cannot be reached, or its answer cannot be read.
        """


class PolicyText(NamedTuple):
    """A tuning policy, or what says where policies hold, and where that was written."""

    name: str
    place: str
    text: str


class PolicyTexts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the operator's files say about tuning."""

    policies: tuple[PolicyText, ...] = ()
    clusters: PolicyText | None = None
    """Where policies hold, and with which parameters."""
    problems: tuple[str, ...] = ()
    """Why there is something that could not be read."""


class PolicyFiles(Protocol):
    """Reads the operator's files about tuning."""

    def read(self) -> PolicyTexts:
        """The files as they are now."""


class Outcome(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How one request for destinations ended, for logs and metrics; times in seconds."""

    request_id: str
    result: str
    """``placed``, or the class name of the error that was answered, such as ``NoValidHost``."""
    cluster: str | None = None
    """The cluster of the chosen hosts, or the last one that was tried."""
    instances: int = 1
    hosts: tuple[str, ...] = ()
    """The chosen hosts, one for each instance."""
    repeated: int = 0
    """How many of the instances had a host already, from an earlier delivery of the request."""
    candidates: int = 0
    """Hosts looked at before any filter."""
    passed: int = 0
    """Hosts that passed all filters."""
    rejections: tuple[tuple[str, int], ...] = ()
    """How many hosts each filter rejected, in the order in which they were asked."""
    attempts: int = 0
    lock_wait_s: float = 0.0
    """From joining the cluster's line to being decided."""
    hold_s: float = 0.0
    """From the grant of the lock to the end of the commit that promised the hosts."""
    waited_for_pending_s: float = 0.0
    token: int | None = None
    duration_s: float = 0.0


class Observer:
    """Is told what happens; this one does nothing with it.

    Methods are called from any thread and must be quick. ``scope`` is a cluster.
    """

    def decided(self, outcome: Outcome) -> None:
        """A request for destinations ended."""

    def lock_granted(self, scope: str, waited_s: float) -> None:
        """A leader of this process got the cluster's lock."""

    def lock_timed_out(self, scope: str) -> None:
        """A request did not get its turn in time."""

    def lock_ended(self, scope: str, held_s: float) -> None:
        """A hold of this process ended, by commit or release."""

    def hold_expired(self, scope: str) -> None:
        """A hold of this process lasted longer than it was granted for."""

    def commit_fenced(self, scope: str) -> None:
        """A commit came after the end of its hold and was refused."""

    def commit_conflicted(self, scope: str) -> None:
        """A claim was refused because its host had changed."""

    def promises_ended(self, scope: str, how: str, count: int) -> None:
        """``how`` is absorbed, confirmed, released, expired, removed (with their host) or moved.

        Confirmed ones go on until they are absorbed, moved ones in their host's new cluster.
        """

    def state_failed(self) -> None:
        """A use of the shared state ended in StateUnavailable."""

    def request_taken(self, method: str, waited_s: float) -> None:
        """A request got a slot, so long after this process took it from the bus."""

    def request_served(self, method: str, result: str, duration_s: float) -> None:
        """A request was answered (or a cast done): ``ok``, or the class name of the error."""

    def message_redelivered(self) -> None:
        """The bus delivered a message that had been delivered before."""

    def message_repeated(self) -> None:
        """A message came again that this process has in hand, or has just answered."""

    def message_dropped(self, why: str) -> None:
        """``why`` is expired, dead-lettered or unroutable."""

    def bus_connected(self, *, again: bool) -> None:
        """The server side is connected to the bus and consumes."""

    def bus_lost(self) -> None:
        """The server side lost its connection to the bus."""

    def tuning_cycled(self, scope: str, duration_s: float) -> None:
        """A turn of this process to tune a cluster is over."""

    def tuning_failed(self, scope: str) -> None:
        """A turn to tune a cluster ended in an error."""

    def tuning_told(self, result: str, count: int = 1) -> None:
        """So many agents were told their values: ``ok``, or the class name of the error."""

    def tuning_faulted(self, policy: str, kind: str, count: int) -> None:
        """A policy's rules were left out for so many entities, or something odd was noted."""
