"""Runs commands and scripts on Redis with bounded retries.

Every error is raised as :class:`StateUnavailable`, which names host and port and never the
password.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import resources
from operator import methodcaller
from typing import Any, TypeVar

import tenacity
from redis import exceptions

from scheduler_worker import remedies
from scheduler_worker.backends.redis.addresses import open_nodes, without_account
from scheduler_worker.backends.redis.nodes import (
    LONGEST_WAIT_S,
    RedisNode,
    Script,
    ScriptReply,
    is_passing,
    is_refused,
    is_silent,
)
from scheduler_worker.backends.redis.outage import Outages
from scheduler_worker.errors import StateAway, StateLost, StateUnavailable

T = TypeVar("T")

_CONNECT_TIMEOUT_S = 2.0
RECONNECT_DELAY_S = 0.1
SHORTEST_WAIT_S = 0.01
NUDGE_MS = 10_000
SCRIPTS = ("acquire", "changes", "commit", "leave", "watch", "write")
"""The scripts of the shared state; each begins with ``common.lua``."""


class RedisServer:
    """Runs scripts on the server that has their keys; thread-safe. Connects at the first use.

    ``address`` is ``host:port`` as configured, for messages.
    """

    def __init__(
        self,
        url: str,
        *,
        socket_timeout_s: float = 5.0,
        retry_for_s: float,
        wait_replicas: int,
        scripts: Sequence[str] = SCRIPTS,
    ) -> None:
        self.address = without_account(url)
        self._wait_replicas = wait_replicas
        self._closed = threading.Event()
        self._nodes = open_nodes(
            url, connect_timeout_s=_CONNECT_TIMEOUT_S, socket_timeout_s=socket_timeout_s
        )
        self._outages = Outages(self._closed)
        # Counted without a lock. It tells whether anybody had an answer, and need not be exact.
        self._answers = 0
        """How many calls have succeeded, on whichever server."""
        self._scripts = {name: _script(name) for name in scripts}
        self._retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self._may_be_retried),
            stop=tenacity.stop_after_delay(retry_for_s),
            # Spread at random: all workers lose a server at the same moment.
            wait=tenacity.wait_random_exponential(multiplier=0.02, max=0.5),
            sleep=tenacity.sleep_using_event(self._closed),
            reraise=True,
        )

    def run(
        self, script: str, keys: Sequence[str], args: Sequence[Any], *, lasting: bool = False
    ) -> ScriptReply:
        """Run a script, which must be idempotent: a retry may run it twice.

        With ``lasting`` the reply waits for as many replicas as configured.
        """
        text, replicas = self._scripts[script], self._wait_replicas if lasting else 0
        run: Callable[[RedisNode], ScriptReply] = methodcaller("run", text, keys, args, replicas)
        return self._called(partial(self._use, keys[0], run), keys[0])

    def run_once(self, script: str, keys: Sequence[str], args: Sequence[Any]) -> None:
        """Run a script without retries; during an outage, when it is over."""
        run = partial(self._use, keys[0], methodcaller("run", self._scripts[script], keys, args))
        # Without retries: it is called while an error is on its way to the caller.
        if not self._outages.defer(self._nodes.group(keys[0]), run):
            with self._translated():
                run()

    def command(self, key: str, *words: Any) -> Any:
        """Send a command to the server that has the key. A retry may send it twice."""
        return self._called(partial(self._use, key, methodcaller("command", *words)), key)

    def of_each(self, function: Callable[[RedisNode], T]) -> Mapping[str, T]:
        """The function's result for each server that has keys, by the server's name."""
        return self._called(
            lambda: {name: self._on(node, function) for name, node in self._nodes.all().items()}
        )

    def reach(self) -> None:
        """Return as soon as one server answers. Raises StateUnavailable."""

        def ask() -> None:
            problem: exceptions.RedisError | None = None
            for node in self._nodes.all().values():
                try:
                    self._on(node, methodcaller("command", "PING"))
                except exceptions.RedisError as error:
                    problem = error
                else:
                    return
            if problem is not None:
                raise problem

        self._called(ask)

    def wait_for_nudge(self, key: str, timeout_s: float) -> None:
        """Block until an element is pushed to the list, at most ``timeout_s``; may return early."""
        # On a second connection of the thread. At the end the close nudges it, or closes the socket
        # under it.
        timeout_s = max(SHORTEST_WAIT_S, min(timeout_s, LONGEST_WAIT_S))  # 0 would block for ever
        try:
            self._nodes.of(key).wait(key, timeout_s)
        except exceptions.RedisError as error:
            if not is_passing(error):
                raise self._unavailable(error) from error
            self._closed.wait(min(timeout_s, RECONNECT_DELAY_S))

    def nudge(self, key: str) -> None:
        """Wake the thread that blocks on the list; works after :meth:`refuse`."""

        def push(node: RedisNode) -> None:
            node.command("RPUSH", key, "1")
            # A nudge that nobody awaits any more must not stay for ever.
            node.command("PEXPIRE", key, NUDGE_MS)

        with self._translated():
            self._use(key, push)

    def refuse(self) -> None:
        """Refuse every further call, and end retries."""
        self._closed.set()

    def disconnect(self) -> None:
        """Close all connections."""
        self._nodes.disconnect()

    def _use(self, key: str, function: Callable[[RedisNode], T]) -> T:
        return self._on(self._nodes.of(key), function)

    def _on(self, node: RedisNode, function: Callable[[RedisNode], T]) -> T:
        try:
            return function(node)
        except exceptions.RedisError as error:
            # Where there are several servers, another one may have its keys by now.
            if is_passing(error):
                self._nodes.lost(node)
            raise

    def _called(self, function: Callable[[], T], key: str | None = None) -> T:
        """Call the function; retry after passing errors, unless an outage is known.

        ``key`` is one of the keys that it uses; None: it uses all servers.
        """
        if self._closed.is_set():
            raise StateUnavailable(
                f"The connection to the shared state at {self.address} is closed"
            )
        of = self._nodes.group(key)
        try:
            if self._outages.known:
                self._outages.check(of)
            return self._answered(function)
        except exceptions.RedisError as error:
            outage = self._outages.known.get(of)
            if not is_passing(error) or outage is not None:
                answers = -1 if outage is None else outage.answers
                raise self._unavailable(error, answers) from error
            answers = self._answers
        try:
            answer: T = self._retrying(self._answered, function)
        except exceptions.RedisError as error:
            if self._may_be_retried(error):
                self._outages.begin(of, error, self._answers, partial(self._ping, key))
            raise self._unavailable(error, answers) from error
        return answer

    def _answered(self, function: Callable[[], T]) -> T:
        answer = function()
        self._answers += 1
        return answer

    def _ping(self, key: str | None) -> None:
        """Ping the server that has the key, or all servers. Raises RedisError."""
        nodes = self._nodes.all().values() if key is None else [self._nodes.of(key)]
        for node in nodes:
            self._on(node, methodcaller("command", "PING"))

    def _may_be_retried(self, error: BaseException) -> bool:
        return is_passing(error) and not self._closed.is_set()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except exceptions.RedisError as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: exceptions.RedisError, answers: int = -1) -> StateUnavailable:
        """Our error for this one; ``answers`` is how many calls had succeeded when it began.

        StateLost where no server has answered since: another one of a cluster may have.
        """
        kind: type[StateUnavailable] = StateAway if is_passing(error) else StateUnavailable
        why = f"{remedies.REFUSED}: {error}" if is_refused(error) else str(error)
        if is_silent(error) and (self._nodes.is_single or answers == self._answers):
            kind = StateLost
        return kind(f"The shared state at {self.address} cannot be used: {why}")


def _script(name: str) -> Script:
    folder = resources.files(__package__)
    parts = ("common", name) if name in SCRIPTS else (name,)
    return Script("".join((folder / f"{part}.lua").read_text("utf-8") for part in parts))
