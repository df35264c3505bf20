"""The way to one Redis: addresses, bounded retries, and waiting on connections of its own.

Every error leaves as :class:`StateUnavailable`, naming host and port and never the password. What
is said to Redis, and what it means, is the engine's matter.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import tenacity
from redis import Redis, exceptions
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from scheduler_worker.errors import ConfigError, StateUnavailable

T = TypeVar("T")

PASSING = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.ReadOnlyError)
"""Errors of a server that restarts, loads or fails over; the same command may succeed soon."""

LONGEST_WAIT_S = 1.0
"""A nudge can be lost with its connection, so nobody waits for one longer than this."""

AFTER_LOST_WAIT_S = 0.1
SENTINEL_PORT = 26379
SCRIPTS = ("acquire", "changes", "commit", "leave", "watch", "write")


class Server:
    """Runs scripts on a Redis; connects when it is first used; safe for threads.

    Attributes:
        address: ``host:port`` as configured, for messages.
        life: names the server process (and its line of replication) that answered last. Another
            life may have lost what was written last in the one before.
    """

    def __init__(
        self, url: str, *, connect_timeout_s: float, socket_timeout_s: float, retry_for_s: float
    ) -> None:
        self.address = _address(url)
        self.life = ""
        self._closed = threading.Event()
        options = {
            "socket_connect_timeout": connect_timeout_s,
            "retry": Retry(NoBackoff(), 0),  # repeated here, once, and within bounds
            "protocol": 2,
        }
        commands = _pool(
            url, socket_timeout=socket_timeout_s, redis_connect_func=self._greet, **options
        )
        waits = _pool(url, socket_timeout=socket_timeout_s + LONGEST_WAIT_S, **options)
        self._redis: Any = Redis(connection_pool=commands)
        self._waits: Any = Redis(connection_pool=waits)
        lines = _Lines(commands)
        self._scripts = {name: _Script(lines, _script(name)) for name in SCRIPTS}
        self._retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self._is_passing),
            stop=tenacity.stop_after_delay(retry_for_s),
            wait=tenacity.wait_random_exponential(multiplier=0.02, max=0.5),
            sleep=tenacity.sleep_using_event(self._closed),
            reraise=True,
        )

    def run(self, script: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """What the script answers. It may run twice, so it must bear that."""
        return self.call(lambda _: self._scripts[script](keys, args))

    def run_once(self, script: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """As :meth:`run`, for a farewell that is not worth waiting for."""
        return self._telling(lambda: self._scripts[script](keys, args))

    def call(self, function: Callable[[Any], T]) -> T:
        """What ``function`` makes of the client, repeated while the error may pass."""
        if self._closed.is_set():
            raise StateUnavailable(
                f"The connection to the shared state at {self.address} is closed"
            )
        try:
            return function(self._redis)
        except PASSING:
            return self._telling(lambda: self._retrying(function, self._redis))
        except exceptions.RedisError as error:
            raise self._unavailable(error) from error

    def wait_for_nudge(self, key: str, timeout_s: float) -> None:
        """Return when somebody pushes to the list, or for no reason; never later than asked."""
        timeout_s = max(0.01, min(timeout_s, LONGEST_WAIT_S))  # 0 would be for ever
        try:
            self._waits.blpop([key], timeout=timeout_s)
        except PASSING:
            self._closed.wait(min(timeout_s, AFTER_LOST_WAIT_S))
        except exceptions.RedisError as error:
            raise self._unavailable(error) from error

    def nudge(self, keys: Iterable[str]) -> None:
        """Wake those who wait on these lists in other threads."""
        with self._redis.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.rpush(key, "1").pexpire(key, 10_000)
            self._telling(pipeline.execute)

    def info(self) -> dict[str, Any] | None:
        """What the server says of itself; None when this account may not ask."""
        return self.call(_info)

    def refuse(self) -> None:
        """From now on every call is refused, and nothing is repeated."""
        self._closed.set()

    def disconnect(self) -> None:
        """Give back all connections."""
        self._redis.connection_pool.disconnect()
        self._waits.connection_pool.disconnect()

    def _greet(self, connection: Any) -> None:
        """Finish connecting, and learn whose server it is."""
        connection.on_connect()
        connection.send_command("INFO")
        try:
            info = connection.read_response()
        except exceptions.ResponseError:
            return  # the account may not ask: a lost tail then goes unnoticed, see check()
        found = re.findall(rb"^(?:run_id|master_replid):(\w{12})", info, re.MULTILINE)
        self.life = b"".join(found).decode()

    def _is_passing(self, error: BaseException) -> bool:
        return isinstance(error, PASSING) and not self._closed.is_set()

    def _telling(self, function: Callable[[], T]) -> T:
        try:
            return function()
        except exceptions.RedisError as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: exceptions.RedisError) -> StateUnavailable:
        return StateUnavailable(f"The shared state at {self.address} cannot be used: {error}")


class _Line:
    """A thread's own connection; it goes back to the pool with the thread."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self.connection: Any = pool.get_connection()

    def __del__(self) -> None:
        if hasattr(self, "connection"):
            self._pool.release(self.connection)


class _Lines(threading.local):
    """A line for each thread, made when it first needs one."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._mine: _Line | None = None

    def mine(self) -> Any:
        """The calling thread's connection, which connects again by itself when it was lost."""
        if self._mine is None:
            self._mine = _Line(self._pool)
        return self._mine.connection


class _Script:
    """A script, run on the thread's own connection.

    The client's own way to a command (the pool's bookkeeping, observers, parsers of replies by
    command) costs as much as the round trip; a script's reply needs none of it.
    """

    def __init__(self, lines: _Lines, text: str) -> None:
        self._lines = lines
        self._text = text
        self._sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, keys: Sequence[str], args: Sequence[Any]) -> Any:
        connection = self._lines.mine()
        connection.send_command("EVALSHA", self._sha, len(keys), *keys, *args)
        try:
            return connection.read_response()
        except exceptions.NoScriptError:
            connection.send_command("EVAL", self._text, len(keys), *keys, *args)
            return connection.read_response()


def _script(name: str) -> str:
    folder = resources.files(__package__)
    return "".join((folder / f"{part}.lua").read_text("utf-8") for part in ("common", name))


def _info(redis: Any) -> dict[str, Any] | None:
    try:
        info: dict[str, Any] = redis.info()
    except exceptions.NoPermissionError:
        return None
    return info


def _address(url: str) -> str:
    """Where the URL points, without user and password."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] or parts.path


def _pool(url: str, **options: Any) -> ConnectionPool:
    try:
        if url.startswith("redis+sentinel:"):
            return _sentinel_pool(url, options)
        return ConnectionPool.from_url(url, **options)
    except ValueError as error:
        raise ConfigError(f"[state] url for {_address(url)} cannot be used: {error}") from error


def _sentinel_pool(url: str, options: Mapping[str, Any]) -> ConnectionPool:
    """``redis+sentinel://user:password@host:port,host:port/service/db``."""
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    service, _, database = parts.path.strip("/").partition("/")
    if not hosts or not service:
        raise ValueError("write redis+sentinel://host:port,host:port/service/db")
    timeouts = {key: value for key, value in options.items() if key.startswith("socket_")}
    sentinel = Sentinel([_host_port(each) for each in hosts.split(",")], sentinel_kwargs=timeouts)
    return SentinelConnectionPool(
        service,
        sentinel,
        db=int(database or 0),
        username=unquote(user) or None,
        password=unquote(password) or None,
        **options,
    )


def _host_port(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    return parts.hostname or "localhost", parts.port or SENTINEL_PORT
