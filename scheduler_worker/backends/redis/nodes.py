"""The Redis servers of one state, and which of them has a key.

A single server, or the master that the sentinels name, has every key. In a Redis Cluster a key
belongs to a slot and a slot to a master: the map of slots is read again when a server fails or
redirects. A redirected command is not sent to the new server; it fails with a passing error, which
the caller retries.
"""

import contextlib
import hashlib
import random
import re
import sys
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import hiredis
from redis import exceptions
from redis.connection import ConnectionPool
from redis.crc import key_slot

PASSING = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.AskError,  # and MovedError, which is one
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
)
"""Errors of servers that restart, load data, fail over or move a slot."""

PASSING_CODES = ("NOREPLICAS", "UNBLOCKED")
"""Prefixes of more such errors, for which redis-py has no class."""

LONGEST_WAIT_S = 1.0
"""The longest time to block on a wake-up list: a nudge can be lost with its connection."""


def is_passing(error: BaseException) -> bool:
    """Whether the same command may succeed soon."""
    return isinstance(error, PASSING) or str(error).startswith(PASSING_CODES)


def is_silent(error: BaseException) -> bool:
    """Whether the server gave no answer to this process, or refuses its account."""
    kinds = (exceptions.ConnectionError, exceptions.TimeoutError)
    return isinstance(error, kinds) and not isinstance(error, exceptions.BusyLoadingError)


def is_refused(error: BaseException) -> bool:
    """Whether the account may not run a command, or use a key."""
    in_script = "user executing the script can't"  # has no code of its own
    return isinstance(error, exceptions.NoPermissionError) or in_script in str(error)


class Address(NamedTuple):
    """Host and port of a server."""

    host: str
    port: int


class Script:
    """A Lua script, and its SHA-1, by which a server finds a loaded script."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class ScriptReply(NamedTuple):
    """A script's reply.

    ``run_id`` identifies the server process and its replication history. A server with another
    value may lack the last writes of the one before. It is empty where the account may not run
    INFO.
    """

    value: Any
    run_id: str


class RedisNode:
    """One server. Each thread has connections of its own to it.

    It uses redis-py's connections directly, and returns raw replies: the client's own layers (pool
    bookkeeping, observers, parsers for each command) cost as much as the round trip.
    """

    def __init__(
        self, open_pool: Callable[..., ConnectionPool], *, socket_timeout_s: float
    ) -> None:
        self._closed = threading.Event()
        pool = open_pool(socket_timeout=socket_timeout_s, redis_connect_func=_handshake)
        self._commands = _Connections(pool, self._closed)
        pool = open_pool(socket_timeout=socket_timeout_s + LONGEST_WAIT_S)
        self._waits = _Connections(pool, self._closed)
        self._replication_ms = int(1000 * socket_timeout_s / 2)

    def command(self, *words: Any) -> Any:
        """Send a command and return the reply. Raises RedisError."""
        return self._commands.mine().ask(*words)

    def run(
        self, script: Script, keys: Sequence[str], args: Sequence[Any], wait_replicas: int = 0
    ) -> ScriptReply:
        """Run a script, then wait for replicas to have its writes. Raises RedisError."""
        connection = self._commands.mine()
        try:
            value = connection.ask("EVALSHA", script.sha, len(keys), *keys, *args)
        except exceptions.NoScriptError:
            value = connection.ask("EVAL", script.text, len(keys), *keys, *args)
        if wait_replicas and value is not None:
            # On the connection that wrote: WAIT covers the writes of its own connection.
            have = connection.ask("WAIT", wait_replicas, self._replication_ms)
            if have < wait_replicas:
                raise exceptions.RedisError(
                    f"{have} of the {wait_replicas} replicas that [state] wait_replicas asks for "
                    "have the write; whether it outlives a failover is unknown"
                )
        return ScriptReply(value, connection.raw.run_id)

    def wait(self, key: str, timeout_s: float) -> None:
        """Block until an element is pushed to the list, or the timeout. Raises RedisError.

        It uses a connection of its own, with a longer socket timeout.
        """
        self._waits.mine().ask("BLPOP", key, timeout_s)

    def info(self) -> dict[str, str] | None:
        """The reply to INFO, and ``min_replicas_to_write`` where the account may read it.

        None when it may not run INFO.
        """
        try:
            info = parsed_info(self.command("INFO"))
        except exceptions.NoPermissionError:
            return None
        if "min_slaves_good_slaves" in info:  # shown where it is set
            with contextlib.suppress(exceptions.ResponseError):  # refused, or renamed by a provider
                _, value = self.command("CONFIG", "GET", "min-replicas-to-write")
                info["min_replicas_to_write"] = value.decode()
        return info

    def disconnect(self) -> None:
        """Close all connections; a thread that uses one gets ConnectionError."""
        self._closed.set()
        self._commands.pool.disconnect()
        self._waits.pool.disconnect()


class OneNode:
    """A single server, or the master of a sentinel's service: its connections find out which."""

    is_single = True

    def __init__(self, name: str, node: RedisNode) -> None:
        self._name = name
        self._node = node

    def of(self, key: str) -> RedisNode:
        """The server that has the key. Raises RedisError."""
        return self._node

    def group(self, key: str | None) -> Hashable:
        """An id of the keys that are always on the same server as this one; None: all keys."""
        return None

    def all(self) -> Mapping[str, RedisNode]:
        """All servers that have keys, by name. Raises RedisError."""
        return {self._name: self._node}

    def lost(self, node: RedisNode) -> None:
        """Note that the node failed, or redirected a command."""
        # Its connections ended with the error; new ones ask the sentinels again.

    def disconnect(self) -> None:
        """Close all connections."""
        self._node.disconnect()


class ClusterNodes:
    """The masters of a Redis Cluster.

    ``seeds`` are the servers that are asked for the map of slots; ``open_node`` makes a Node for an
    address without connecting.
    """

    is_single = False

    def __init__(self, seeds: Sequence[Address], open_node: Callable[[Address], RedisNode]) -> None:
        self._seeds = seeds
        self._open_node = open_node
        self._nodes: dict[Address, RedisNode] = {}
        # Both are read without the lock. The owners are replaced whole; of two threads that open a
        # node for one address both get the first.
        self._owners: dict[int, Address] = {}
        # Held while a server is asked for the map, for seconds where it is away. All threads need
        # the map then, and one of them asks.
        self._lock = threading.Lock()

    def of(self, key: str) -> RedisNode:
        slot = key_slot(key.encode())
        owner = self._map().get(slot)
        if owner is None:
            raise exceptions.ClusterDownError(f"No server holds slot {slot}")
        return self._node(owner)

    def group(self, key: str | None) -> Hashable:
        return None if key is None else key_slot(key.encode())

    def all(self) -> Mapping[str, RedisNode]:
        owners = sorted(set(self._map().values()))
        return {f"{owner.host}:{owner.port}": self._node(owner) for owner in owners}

    def lost(self, node: RedisNode) -> None:
        """Drop the node, with its connections, and read the map of slots again."""
        with self._lock:
            addresses = [address for address, known in list(self._nodes.items()) if known is node]
            if not addresses:
                return  # another thread has done it
            del self._nodes[addresses[0]]
            with contextlib.suppress(exceptions.RedisError):  # then the old map stays
                self._owners = self._read_map(last=addresses[0])

    def disconnect(self) -> None:
        for node in list(self._nodes.values()):
            node.disconnect()

    def _map(self) -> Mapping[int, Address]:
        if not self._owners:
            with self._lock:
                self._owners = self._owners or self._read_map()
        return self._owners

    def _read_map(self, last: Address | None = None) -> dict[int, Address]:
        """Ask the servers one by one, ``last`` at the end. Raises the error of the last one."""
        places = list({*self._nodes, *self._seeds})
        random.shuffle(places)  # else an outdated one might always be the first
        places.sort(key=lambda place: place == last)
        problem: exceptions.RedisError = exceptions.ClusterDownError("No server holds any slot")
        for place in places:
            try:
                owners = self._owners_known_to(place)
            except PASSING as error:
                problem = error
            else:
                if owners:
                    return owners
        raise problem

    def _owners_known_to(self, place: Address) -> dict[int, Address]:
        owners = {}
        for first, final, (host, port, *_), *_ in self._node(place).command("CLUSTER", "SLOTS"):
            # A server that does not know its own address is at the one where it was asked.
            owner = Address(host.decode() if host else place.host, port)
            owners.update(dict.fromkeys(range(first, final + 1), owner))
        return owners

    def _node(self, address: Address) -> RedisNode:
        return self._nodes.get(address) or self._nodes.setdefault(address, self._open_node(address))


Nodes = OneNode | ClusterNodes
"""All servers of one state."""


class _Connection:
    """A connection of one thread; it returns to the pool when the thread ends."""

    def __init__(self, pool: ConnectionPool, closed: threading.Event) -> None:
        self._pool = pool
        self._closed = closed
        try:
            self.raw: Any = pool.get_connection()
            """redis-py's; its ``run_id`` is that of :class:`ScriptReply`."""
        except Exception as error:
            self._raise_if_closed(error)
            raise

    def ask(self, *words: Any) -> Any:
        """Send a command and return the reply; reconnect first if the connection was lost."""
        connection = self.raw
        try:
            if not connection.is_connected:
                connection.connect()  # asks the sentinels; send_packed_command alone would not
            connection.send_packed_command([hiredis.pack_command(words)])
            return connection.read_response()
        except BaseException as error:
            if not isinstance(error, exceptions.ResponseError) or is_passing(error):
                # Its reply may still arrive; or another server may be the master by now.
                connection.disconnect()
            self._raise_if_closed(error)
            raise

    def _raise_if_closed(self, error: BaseException) -> None:
        # Where another thread closes a connection in use, redis-py stumbles over the socket that is
        # gone, with one of these.
        gone = isinstance(error, (TypeError, AttributeError, ValueError, OSError))
        if gone and self._closed.is_set():
            raise exceptions.ConnectionError("the connection was closed") from error

    def __del__(self) -> None:
        # When the interpreter exits, a stopped thread may hold the pool's lock for ever.
        if hasattr(self, "raw") and not sys.is_finalizing():
            self._pool.release(self.raw)


class _Connections(threading.local):
    """A connection for each thread, opened when the thread first needs one."""

    def __init__(self, pool: ConnectionPool, closed: threading.Event) -> None:
        self.pool = pool
        self._closed = closed
        self._mine: _Connection | None = None

    def mine(self) -> _Connection:
        """The calling thread's connection."""
        if self._mine is None:
            self._mine = _Connection(self.pool, self._closed)
        return self._mine


def parsed_info(text: bytes) -> dict[str, str]:
    """Parse the reply to INFO: value by name."""
    return dict(re.findall(r"^(\w+):([^\r\n]*)", text.decode(), re.MULTILINE))


def _handshake(connection: Any) -> None:
    """Complete a connection's handshake, and read the server's run id from INFO."""
    connection.run_id = ""
    connection.on_connect()
    connection.send_command("INFO")
    try:
        info = parsed_info(connection.read_response())
    except exceptions.ResponseError:
        return  # the account may not run INFO: lost writes then go unnoticed, as ``advice`` says
    connection.run_id = "".join(info.get(name, "")[:12] for name in ("run_id", "master_replid"))
