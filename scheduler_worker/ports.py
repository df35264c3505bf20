"""Ports: the protocols through which the use cases reach the outside.

For every *scope* (a cluster, or one such as :data:`GLOBAL`) the shared state is a set of versioned
records under short keys, some of which expire, and a lock. ``service/state/records.py`` packs
values into records; an engine stores bytes and never looks into them.

A decision takes two round trips: :meth:`ClusterLock.acquire` returns a fencing token *and* every
change since the caller last read, :meth:`ClusterLock.commit` writes under that token and hands the
lock on. A worker that is alone with a cluster takes the second only. ``docs/state.md`` has the
guarantees; ``tests/contract`` tests every engine for them.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from scheduler_worker.model.claims import FencingToken
from scheduler_worker.model.feed import HostReading, Listing, Outline, RecentChanges, ServiceStates
from scheduler_worker.model.ledgers import AskedMigration, AskedPower, Progress
from scheduler_worker.model.policies import TuningProblem, TuningText

GLOBAL = "@global"
"""The scope of records that belong to no cluster: aggregates and the names of the clusters."""

ABSENT = 0
"""The version of a record that does not exist."""


class Clock(Protocol):
    """A source of time; the clock of a test stands still until it is moved."""

    def time_s(self) -> float:
        """Seconds since the epoch."""

    def monotonic_s(self) -> float:
        """Seconds of a clock that never goes back or jumps; only differences have a meaning."""


class Change(NamedTuple):
    """A record as it is now; ``value`` is None when it is deleted."""

    key: str
    version: int
    value: bytes | None


class Changes(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The changes of a scope after the version that the caller had seen."""

    epoch: str
    """Identifies the life of the store; another epoch means that data may be lost."""
    version: int
    now_s: float
    """The store's clock."""
    entries: list[Change]
    reset: bool = False
    """Whether ``entries`` is everything: the caller was too far behind, or of another epoch."""
    since: int = 0
    """The version that the caller had seen, which these entries follow on unless they reset."""


class Seen(NamedTuple):
    """Up to where a process knows a scope."""

    epoch: str = ""
    version: int = 0


class LockGrant(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A lease of one cluster's lock; its times are of the caller's monotonic clock."""

    scope: str
    owner: str
    token: FencingToken
    waited_s: float
    granted_at_s: float
    ends_at_s: float
    changes: Changes
    commits: int = 0
    """How many commits were made under this lease; see :meth:`ClusterLock.commit`."""


class Put(NamedTuple):
    """Write a record, or delete it (``value`` None). ``expires_at_s`` is of the store's clock."""

    key: str
    value: bytes | None
    expires_at_s: float | None = None


class Guard(NamedTuple):
    """The version that a record must still have (:data:`ABSENT`: it must not exist)."""

    key: str
    version: int


class Transaction(msgspec.Struct, frozen=True, gc=False):
    """Puts that are all applied, or none of them if a guard fails."""

    puts: Sequence[Put]
    guards: Sequence[Guard] = ()


class Written(NamedTuple):
    """The scope's version after a write, and for each transaction whether it was applied.

    ``before`` is the version just before the write; -1 where the engine does not know it (a
    repeated call). A caller that had seen ``before`` knows everything up to ``version``.
    """

    version: int
    applied: tuple[bool, ...]
    before: int = -1
    kept: bool = False
    """Whether a commit kept the lease, which permits another commit with one more of
    ``commits``."""
    is_free: bool = False
    """Whether a commit left the lock to nobody; see :meth:`ClusterLock.commit`."""


class EngineGuarantees(msgspec.Struct, frozen=True, gc=False):
    """What an engine guarantees; a worker refuses to start with one that does not suffice."""

    spans_processes: bool
    survives_restart: bool


class ClusterLock(Protocol):
    """One holder per cluster, each with a larger fencing token than the one before."""

    def acquire(
        self, scope: str, *, timeout_s: float, seen: Seen, priority_boost_s: float = 0.0
    ) -> LockGrant:
        """Wait for the cluster's lock; at most ``timeout_s``.

        Waiters are served in the order of their arrival; one with a priority boost counts as if it
        had arrived that much earlier, so it overtakes only waiters that came shortly before it.

        Raises:
            ClusterLockTimeout: not granted in time; the waiter has left the queue.
            StateUnavailable: the store cannot be reached.
        """

    def commit(
        self,
        grant: LockGrant,
        transactions: Sequence[Transaction],
        *,
        at: int | None = None,
        keep: bool = False,
    ) -> Written:
        """Write under the token and hand the lock to the next waiter, in one atomic step.

        ``at`` is the version up to which the caller knows every change. With ``keep`` the lease is
        kept, until the same end, if no other worker waits for the lock and the scope was at that
        version.

        A lock that is handed on to nobody is *free*. Until the lease's end its last holder may
        commit once more, with one more of ``commits``, without a new grant. That succeeds only if
        nobody else was granted the lock or waits for it, and the scope is at ``at``.

        Raises:
            StaleFencingToken: the lease had ended, or the free lock's scope has changed; nothing
                was written.
            StateUnavailable: the store cannot be reached; whether it was written is unknown.
        """

    def release(self, grant: LockGrant) -> None:
        """Hand the lock on without writing; has no effect when the lease has ended."""


class Store(Protocol):
    """The versioned records of a scope, readable and writable without its lock."""

    @property
    def characteristics(self) -> EngineGuarantees: ...

    def changes(self, scope: str, seen: Seen) -> Changes:
        """Every change after ``seen``; the first call returns everything.

        Deletes expired records first. Raises StateUnavailable.
        """

    def await_change(self, scope: str, seen: Seen, *, timeout_s: float) -> bool:
        """Wait, without the lock, until the scope has changes after ``seen``.

        True when it has; a record that expires is a change. False after ``timeout_s``. Blocks no
        other caller. Raises StateUnavailable.
        """

    def write(
        self, scope: str, transactions: Sequence[Transaction], *, once: str | None = None
    ) -> Written:
        """Apply each transaction whose guards hold; ``once`` makes the call idempotent.

        Repeated with the same ``once`` within ten minutes, it returns the first result if that
        applied every transaction; otherwise it tries again. Raises StateUnavailable.
        """

    def ping(self) -> None:
        """Raise StateUnavailable when the store, or a part of it, cannot be reached."""

    def reach(self) -> None:
        """Raise StateUnavailable when no part of the store can be reached."""

    def check(self) -> list[str]:
        """Sentences about settings that endanger what is stored. Raises StateUnavailable."""

    def loses(self) -> str | None:
        """Why a restart of the store may lose what it has; None: it does not.

        Raises StateUnavailable.
        """

    def close(self) -> None:
        """Close the connections and wake all waiting calls."""


class State(ClusterLock, Store, Protocol):
    """The whole shared state, as an engine implements it."""


class Publisher(Protocol):
    """Sends messages to other RPC topics."""

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


class MigrationTarget(Protocol):
    """Who migrates VMs."""

    def migrate(self, cluster: str, migration: AskedMigration) -> None:
        """Ask for a migration; it need not have begun when this returns.

        Raises:
            MigrationRefused: it will not be done.
            BackendError: whether it will be done is unknown.
        """

    def progress(self, migrations: Sequence[AskedMigration]) -> Mapping[str, Progress]:
        """How far migrations are, by their ids; at least one is asked about.

        It leaves out unknown migrations, migrations that have not begun, and all that the target
        reports itself.

        Raises BackendError: nothing is known of any.
        """

    def withdraw(self, migration: AskedMigration) -> None:
        """Abort a migration that is overdue, as far as that is possible: it will count as failed.

        Raises BackendError: whether it goes on is unknown; it is withdrawn again later.
        """


class PowerTarget(Protocol):
    """Who puts hosts into maintenance, and switches them off and on."""

    def set_power(self, cluster: str, action: AskedPower) -> None:
        """Ask for a power action; it need not have begun when this returns.

        Raises:
            PowerRefused: it will not be done.
            BackendError: whether it will be done is unknown.
        """


class HostSource(Protocol):
    """A system of record of hosts, in parts that can fail one by one.

    Every method but :meth:`close` raises SourceUnavailable; a thread may read one part while others
    read other parts.
    """

    def outline(self) -> Outline:
        """The parts, which host belongs to which, and the aggregates."""

    def connect(self) -> None:
        """Find the parts that there are now, for one who reads them without an outline."""

    def services(self, part_id: str, hosts: Collection[str] | None = None) -> ServiceStates:
        """The compute services of these hosts, or of all."""

    def listing(self, part_id: str) -> Listing:
        """Which compute nodes there are."""

    def changes(
        self, part_id: str, *, nodes_since_s: float, instances_since_s: float
    ) -> RecentChanges:
        """What changed at or after these times."""

    def read(self, part_id: str, hosts: Sequence[str]) -> list[HostReading]:
        """These hosts, without hosts that are gone."""

    def close(self) -> None:
        """Close the connections."""


class Attestation(Protocol):
    """A service that knows how far each node can be trusted."""

    def levels(self, nodenames: Sequence[str]) -> Mapping[str, str]:
        """Node name -> trust level, of the nodes that the service knows.

        Raises BackendError: the service cannot be reached, or its answer cannot be read.
        """


class TuningPolicyTexts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The contents of the operator's tuning files."""

    policies: tuple[TuningText, ...] = ()
    clusters: TuningText | None = None
    """Which policies apply to which clusters, and their parameters."""
    problems: tuple[TuningProblem, ...] = ()
    """One for each file or directory that could not be read."""


class TuningPolicySource(Protocol):
    """Reads the operator's tuning policies and clusters file."""

    def read(self) -> TuningPolicyTexts:
        """Return the current contents of all files."""


class ApiToken(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of a token of the REST API: a digest, from which it cannot be made."""

    digest: str
    user: str
    fingerprint: str
    """Of the password that it was given for."""
    expires_at_s: float
    """Seconds since the epoch."""
    ends_at_s: float | None = None
    """Of a session of the console, which lasts while it is used: until when at the longest, in
    seconds since the epoch. None: a token."""


class ApiTokens(Protocol):
    """The valid tokens of the REST API; several API processes may share them."""

    def add(self, token: ApiToken) -> None:
        """Store a token until it expires. Raises BackendError."""

    def extend(self, token: ApiToken) -> None:
        """Store a token that was found and has another expiry now, unless it was removed or
        extended in the meantime. Raises BackendError.
        """

    def find(self, digest: str) -> ApiToken | None:
        """The token, which may have expired just now. Raises BackendError."""

    def remove(self, digest: str) -> None:
        """Delete a token if there is one. Raises BackendError."""
