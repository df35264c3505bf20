"""Tracks, counts and logs whether the shared state can be used, from the results of its operations.

A store may serve reads and refuse writes (its memory or disk is full, it lost its replicas). Then
no decision can be made. So only a successful write ends an outage, and if there was no recent
write, :meth:`WatchedState.problem` tries an empty one.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from itertools import islice
from typing import ParamSpec, TypeVar

from scheduler_worker import events
from scheduler_worker.errors import StateUnavailable
from scheduler_worker.observer import Observer
from scheduler_worker.ports import (
    GLOBAL,
    Changes,
    Clock,
    EngineGuarantees,
    LockGrant,
    Seen,
    State,
    Transaction,
    Written,
)

P = ParamSpec("P")
T = TypeVar("T")

LOG = logging.getLogger(__name__)

_FRESH_S = 1.0
"""For how long a successful write proves that the state accepts writes."""
_MAX_PROBED = 3
"""How many of the failing scopes one check tries."""
_SLOW_S = 1.0
"""A ping that takes longer is told of: a decision takes two round trips at least."""
_SAY_AGAIN_S = 60.0
_SERVERS = ""
"""Among the failing scopes, stands for the servers themselves: a failed ping."""


class WatchedState:
    """Wraps a :class:`~scheduler_worker.ports.State`; thread-safe.

    An outage begins when an operation on some scope raises StateUnavailable, and ends when writes
    to all failing scopes have succeeded. Both are logged once.
    """

    def __init__(self, state: State, clock: Clock) -> None:
        self.observer = Observer()
        """Counts the operations that fail; replaced by the process that has one."""
        self._state = state
        self._clock = clock
        # Guards what fails and since when. Any thread asks the state, without it: one that waits
        # for the end of an outage must hold up no other.
        self._guard = threading.Lock()
        self._failing: dict[str, bool] = {}
        """The scopes that had a failure and no successful write since; the oldest first."""
        self._began_s = 0.0
        # Without the guard: a time that another thread overwrites costs a probe or a line more.
        self._written_s = self._said_slow_s = float("-inf")
        self._is_closed = False

    @property
    def characteristics(self) -> EngineGuarantees:
        return self._state.characteristics

    def problem(self) -> str | None:
        """Why no decision can be made now; None if one can. Asks the state, and may block."""
        # By threads of health, one at a time, and once by the thread that starts the worker.
        try:
            began_s = self._clock.monotonic_s()
            self.ping()
            took_s = self._clock.monotonic_s() - began_s
            for scope in self._to_probe():
                self.write(scope, ())
        except StateUnavailable as error:
            return str(error)
        if took_s <= _SLOW_S:
            return None
        why = f"the shared state is slow: it took {took_s:.1f} s to answer a ping"
        now_s = self._clock.monotonic_s()
        if now_s - self._said_slow_s > _SAY_AGAIN_S:
            self._said_slow_s = now_s
            LOG.warning("Decisions take long, for %s", why)
        return why

    # The state

    def acquire(
        self, scope: str, *, timeout_s: float, seen: Seen, priority_boost_s: float = 0.0
    ) -> LockGrant:
        acquire = self._state.acquire
        return self._used(
            scope, acquire, scope, timeout_s=timeout_s, seen=seen, priority_boost_s=priority_boost_s
        )

    def commit(
        self,
        grant: LockGrant,
        transactions: Sequence[Transaction],
        *,
        at: int | None = None,
        keep: bool = False,
    ) -> Written:
        commit = self._state.commit
        return self._written(grant.scope, commit, grant, transactions, at=at, keep=keep)

    def release(self, grant: LockGrant) -> None:
        self._used(grant.scope, self._state.release, grant)

    def changes(self, scope: str, seen: Seen) -> Changes:
        return self._used(scope, self._state.changes, scope, seen)

    def await_change(self, scope: str, seen: Seen, *, timeout_s: float) -> bool:
        return self._used(scope, self._state.await_change, scope, seen, timeout_s=timeout_s)

    def write(
        self, scope: str, transactions: Sequence[Transaction], *, once: str | None = None
    ) -> Written:
        return self._written(scope, self._state.write, scope, transactions, once=once)

    def ping(self) -> None:
        self._used(_SERVERS, self._state.ping)
        self._succeeded(_SERVERS)

    def reach(self) -> None:
        self._state.reach()

    def check(self) -> list[str]:
        return self._state.check()

    def loses(self) -> str | None:
        return self._state.loses()

    def close(self) -> None:
        # Before the state is closed under threads that still use it.
        self._is_closed = True  # from now on failures are expected
        self._state.close()

    # Outages

    def _used(self, scope: str, use: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        try:
            return use(*args, **named)
        except StateUnavailable as error:
            self._failed(scope, error)
            raise

    def _written(
        self, scope: str, write: Callable[P, Written], *args: P.args, **named: P.kwargs
    ) -> Written:
        written = self._used(scope, write, *args, **named)
        if written.before >= 0:  # else it is a repeated call: nothing was written
            self._written_s = self._clock.monotonic_s()
            # Read without the guard, as it is empty nearly always; the next write sees the rest.
            if self._failing:
                self._succeeded(scope)
        return written

    def _to_probe(self) -> list[str]:
        """The scopes to try a write in: some failing ones; else one, if the last write is old."""
        with self._guard:
            failing = list(islice(self._failing, _MAX_PROBED))
        is_fresh = self._clock.monotonic_s() - self._written_s < _FRESH_S
        return failing or ([] if is_fresh else [GLOBAL])

    def _succeeded(self, scope: str) -> None:
        with self._guard:
            is_over = self._failing.pop(scope, False) and not self._failing
            lasted_s = self._clock.monotonic_s() - self._began_s
        if is_over:
            LOG.warning("The shared state can be used again, after %.1f s", lasted_s)

    def _failed(self, scope: str, error: StateUnavailable) -> None:
        if self._is_closed:
            return
        self.observer.count(events.STATE_ERRORS)
        with self._guard:
            begins = not self._failing
            self._failing[scope] = True
            if begins:
                self._began_s = self._clock.monotonic_s()
        if begins:
            LOG.warning("%s", error)
