"""Bounded retries, and one kind of error, for whatever is asked of Redis.

Every error leaves as :class:`StateUnavailable`, naming host and port and never the password. What
is said to Redis, and what it means, is the engine's matter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any, TypeVar

import tenacity
from redis import exceptions

from scheduler_worker.backends.redis.addresses import open_nodes, without_account
from scheduler_worker.backends.redis.nodes import (
    LONGEST_WAIT_S,
    Answer,
    Node,
    Script,
    is_passing,
)
from scheduler_worker.errors import StateUnavailable

T = TypeVar("T")

AFTER_LOST_WAIT_S = 0.1
SHORTEST_WAIT_S = 0.01
FAREWELL_MS = 10_000
SCRIPTS = ("acquire", "changes", "commit", "leave", "watch", "write")


class Server:
    """Runs scripts on whichever Redis has their keys; safe for threads.

    It connects when it is first used. ``address`` is ``host:port`` as configured, for messages.
    """

    def __init__(
        self,
        url: str,
        *,
        connect_timeout_s: float,
        socket_timeout_s: float,
        retry_for_s: float,
        wait_replicas: int,
    ) -> None:
        self.address = without_account(url)
        self._wait_replicas = wait_replicas
        self._closed = threading.Event()
        self._nodes = open_nodes(
            url, connect_timeout_s=connect_timeout_s, socket_timeout_s=socket_timeout_s
        )
        self._scripts = {name: _script(name) for name in SCRIPTS}
        self._retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self._may_be_repeated),
            stop=tenacity.stop_after_delay(retry_for_s),
            wait=tenacity.wait_random_exponential(multiplier=0.02, max=0.5),
            sleep=tenacity.sleep_using_event(self._closed),
            reraise=True,
        )

    def run(
        self, script: str, keys: Sequence[str], args: Sequence[Any], *, lasting: bool = False
    ) -> Answer:
        """What the script answers. It may run twice, so it must bear that.

        What is ``lasting`` is answered when as many replicas as configured have got it.
        """
        text, replicas = self._scripts[script], self._wait_replicas if lasting else 0
        return self._repeated(
            lambda: self._use(keys[0], lambda node: node.run(text, keys, args, replicas))
        )

    def run_once(self, script: str, keys: Sequence[str], args: Sequence[Any]) -> None:
        """As :meth:`run`, for a farewell that is not worth waiting for."""
        text = self._scripts[script]
        self._telling(lambda: self._use(keys[0], lambda node: node.run(text, keys, args)))

    def command(self, key: str, *words: Any) -> Any:
        """What the holder of the key replies to a command. It may be sent twice."""
        return self._repeated(lambda: self._use(key, lambda node: node.command(*words)))

    def of_each(self, function: Callable[[Node], T]) -> Mapping[str, T]:
        """What the function makes of each server that holds keys, by the server's name."""
        return self._repeated(
            lambda: {name: self._on(node, function) for name, node in self._nodes.all().items()}
        )

    def wait_for_nudge(self, key: str, timeout_s: float) -> None:
        """Return when somebody pushes to the list, or for no reason; never later than asked."""
        timeout_s = max(SHORTEST_WAIT_S, min(timeout_s, LONGEST_WAIT_S))  # 0 would be for ever
        try:
            self._nodes.of(key).wait(key, timeout_s)
        except exceptions.RedisError as error:
            if not is_passing(error):
                raise self._unavailable(error) from error
            self._closed.wait(min(timeout_s, AFTER_LOST_WAIT_S))

    def nudge(self, key: str) -> None:
        """Wake who waits at the list in another thread, though every call is refused now."""

        def push(node: Node) -> None:
            node.command("RPUSH", key, "1")
            node.command("PEXPIRE", key, FAREWELL_MS)

        self._telling(lambda: self._use(key, push))

    def refuse(self) -> None:
        """From now on every call is refused, and nothing is repeated."""
        self._closed.set()

    def disconnect(self) -> None:
        """Give back all connections."""
        self._nodes.disconnect()

    def _use(self, key: str, function: Callable[[Node], T]) -> T:
        return self._on(self._nodes.of(key), function)

    def _on(self, node: Node, function: Callable[[Node], T]) -> T:
        try:
            return function(node)
        except exceptions.RedisError as error:
            if is_passing(error):
                self._nodes.lost(node)
            raise

    def _repeated(self, function: Callable[[], T]) -> T:
        """What it answers, repeated while the error may pass."""
        if self._closed.is_set():
            raise StateUnavailable(
                f"The connection to the shared state at {self.address} is closed"
            )
        try:
            return function()
        except exceptions.RedisError as error:
            if not is_passing(error):
                raise self._unavailable(error) from error
        return self._telling(lambda: self._retrying(function))

    def _may_be_repeated(self, error: BaseException) -> bool:
        return is_passing(error) and not self._closed.is_set()

    def _telling(self, function: Callable[[], T]) -> T:
        try:
            return function()
        except exceptions.RedisError as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: exceptions.RedisError) -> StateUnavailable:
        return StateUnavailable(f"The shared state at {self.address} cannot be used: {error}")


def _script(name: str) -> Script:
    folder = resources.files(__package__)
    parts = ("common", name)
    return Script("".join((folder / f"{part}.lua").read_text("utf-8") for part in parts))
