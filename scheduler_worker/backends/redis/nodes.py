"""The Redis servers of one state, and which of them holds a key.

A server on its own, or the master that the sentinels name, holds every key. In a Redis Cluster a
key belongs to a slot and a slot to a master: a map tells whose it is, and is read anew when a
server fails or says that the slot went elsewhere. The failed command is not followed there; it
comes back to the caller, who repeats what may pass.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

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
"""Errors of servers that restart, load, fail over or hand on a slot."""

PASSING_CODES = ("NOREPLICAS", "UNBLOCKED")
"""More of them, for which redis-py has no class."""

LONGEST_WAIT_S = 1.0
"""A nudge can be lost with its connection, so nobody waits for one longer than this."""


def is_passing(error: BaseException) -> bool:
    """Whether the same command may succeed soon."""
    return isinstance(error, PASSING) or str(error).startswith(PASSING_CODES)


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int


class Script:
    """The text of a script, and the name by which a server that has it finds it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Answer(NamedTuple):
    """What a script answered.

    ``life`` names the server process and its line of replication. Another life may have lost what
    was written last in the one before. It is empty where the account may not ask.
    """

    value: Any
    life: str


class Node:
    """One server. Each thread that asks it has connections of its own.

    The client's own way to a command (the pool's bookkeeping, observers, parsers of replies by
    command) costs as much as the round trip; replies are answered here as they come.
    """

    def __init__(
        self, open_pool: Callable[..., ConnectionPool], *, socket_timeout_s: float
    ) -> None:
        pool = open_pool(socket_timeout=socket_timeout_s, redis_connect_func=_greet)
        self._commands = _Lines(pool)
        self._waits = _Lines(open_pool(socket_timeout=socket_timeout_s + LONGEST_WAIT_S))
        self._replication_ms = int(1000 * socket_timeout_s / 2)

    def command(self, *words: Any) -> Any:
        """The reply to a command. Raises RedisError."""
        return self._commands.mine().ask(*words)

    def run(
        self, script: Script, keys: Sequence[str], args: Sequence[Any], wait_replicas: int = 0
    ) -> Answer:
        """What the script answers, once so many replicas have got it too. Raises RedisError."""
        line = self._commands.mine()
        try:
            value = line.ask("EVALSHA", script.sha, len(keys), *keys, *args)
        except exceptions.NoScriptError:
            value = line.ask("EVAL", script.text, len(keys), *keys, *args)
        if wait_replicas and value is not None:
            self._wait_for_replicas(line, wait_replicas)
        return Answer(value, line.life)

    def wait(self, key: str, timeout_s: float) -> None:
        """Return when somebody pushes to the list, at the latest after the time. Raises RedisError.

        It has a connection of its own, whose socket is more patient.
        """
        self._waits.mine().ask("BLPOP", key, timeout_s)

    def info(self) -> dict[str, str] | None:
        """What the server says of itself; None when the account may not ask."""
        try:
            return parsed_info(self.command("INFO"))
        except exceptions.NoPermissionError:
            return None

    def disconnect(self) -> None:
        """Give back all connections."""
        self._commands.pool.disconnect()
        self._waits.pool.disconnect()

    def _wait_for_replicas(self, line: _Line, wanted: int) -> None:
        # On the connection that wrote: the server waits for what this one has seen written.
        have = line.ask("WAIT", wanted, self._replication_ms)
        if have < wanted:
            raise exceptions.RedisError(
                f"what was written is on {have} of the {wanted} replicas that [state] "
                "wait_replicas asks for; whether it outlives a failover is unknown"
            )


class Nodes(Protocol):
    """All servers of one state."""

    def of(self, key: str) -> Node:
        """Who holds the key. Raises RedisError."""

    def all(self) -> Mapping[str, Node]:
        """Everybody who holds keys, by name. Raises RedisError."""

    def lost(self, node: Node) -> None:
        """The node failed, or said that it does not hold what it was asked for."""

    def disconnect(self) -> None:
        """Give back all connections."""


class OneNode:
    """One server has every key; which it is, its connections find out."""

    def __init__(self, name: str, node: Node) -> None:
        self._name = name
        self._node = node

    def of(self, key: str) -> Node:
        return self._node

    def all(self) -> Mapping[str, Node]:
        return {self._name: self._node}

    def lost(self, node: Node) -> None:
        pass  # its connections ended with the error; the next find the way anew

    def disconnect(self) -> None:
        self._node.disconnect()


class ClusterNodes:
    """The masters of a Redis Cluster. ``seeds`` are those asked for the others; ``open_node``
    makes a Node of an address and does not connect.
    """

    def __init__(self, seeds: Sequence[Address], open_node: Callable[[Address], Node]) -> None:
        self._seeds = seeds
        self._open_node = open_node
        self._nodes: dict[Address, Node] = {}
        self._owners: dict[int, Address] = {}
        self._lock = threading.Lock()

    def of(self, key: str) -> Node:
        slot = key_slot(key.encode())
        owner = self._map().get(slot)
        if owner is None:
            raise exceptions.ClusterDownError(f"No server holds slot {slot}")
        return self._node(owner)

    def all(self) -> Mapping[str, Node]:
        owners = sorted(set(self._map().values()))
        return {f"{each.host}:{each.port}": self._node(each) for each in owners}

    def lost(self, node: Node) -> None:
        """Forget the node, with its connections, and look whose its slots are now."""
        with self._lock:
            found = [each for each, known in list(self._nodes.items()) if known is node]
            if not found:
                return  # somebody has looked since
            del self._nodes[found[0]]
            with contextlib.suppress(exceptions.RedisError):  # until somebody knows better
                self._owners = self._look(last=found[0])

    def disconnect(self) -> None:
        for node in list(self._nodes.values()):
            node.disconnect()

    def _map(self) -> Mapping[int, Address]:
        if not self._owners:
            with self._lock:
                self._owners = self._owners or self._look()
        return self._owners

    def _look(self, last: Address | None = None) -> dict[int, Address]:
        """Ask one after the other, the one that was lost at last. Raises the last one's error."""
        places = list({*self._nodes, *self._seeds})
        random.shuffle(places)  # else one that is behind the times might always be the first
        places.sort(key=lambda each: each == last)
        problem: exceptions.RedisError = exceptions.ClusterDownError("No server holds any slot")
        for place in places:
            try:
                owners = self._owners_as_told_by(place)
            except PASSING as error:
                problem = error
            else:
                if owners:
                    return owners
        raise problem

    def _owners_as_told_by(self, place: Address) -> dict[int, Address]:
        owners = {}
        for first, final, (host, port, *_), *_ in self._node(place).command("CLUSTER", "SLOTS"):
            # Who does not know its own name is known by the one under which it was asked.
            owner = Address(host.decode() if host else place.host, port)
            owners.update(dict.fromkeys(range(first, final + 1), owner))
        return owners

    def _node(self, address: Address) -> Node:
        return self._nodes.get(address) or self._nodes.setdefault(address, self._open_node(address))


class _Line:
    """A thread's own connection; it goes back to the pool with the thread."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._connection: Any = pool.get_connection()

    @property
    def life(self) -> str:
        """Of the server that answered last; see :class:`Answer`."""
        life: str = self._connection.life
        return life

    def ask(self, *words: Any) -> Any:
        """The reply; a connection that was lost is made anew."""
        connection = self._connection
        try:
            if not connection.is_connected:
                connection.connect()  # asks the sentinels; the next line alone would not
            connection.send_packed_command([hiredis.pack_command(words)])
            return connection.read_response()
        except BaseException as error:
            if not isinstance(error, exceptions.ResponseError) or is_passing(error):
                # The reply may be on its way still; or another server is the right one by now.
                connection.disconnect()
            raise

    def __del__(self) -> None:
        # At the interpreter's end a thread may have stopped for ever with the pool's lock.
        if hasattr(self, "_connection") and not sys.is_finalizing():
            self._pool.release(self._connection)


class _Lines(threading.local):
    """A line for each thread, made when it first needs one."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.pool = pool
        self._mine: _Line | None = None

    def mine(self) -> _Line:
        """The calling thread's line."""
        if self._mine is None:
            self._mine = _Line(self.pool)
        return self._mine


def parsed_info(text: bytes) -> dict[str, str]:
    """What INFO says, by name."""
    return dict(re.findall(r"^(\w+):([^\r\n]*)", text.decode(), re.MULTILINE))


def _greet(connection: Any) -> None:
    """Finish connecting, and learn whose server it is."""
    connection.life = ""
    connection.on_connect()
    connection.send_command("INFO")
    try:
        info = parsed_info(connection.read_response())
    except exceptions.ResponseError:
        return  # the account may not ask: a lost tail then goes unnoticed, see advice.py
    connection.life = "".join(info.get(name, "")[:12] for name in ("run_id", "master_replid"))
