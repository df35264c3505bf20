"""A connection of a server, whose broker is the test."""

import socket
from typing import Any

from scheduler_worker.rpc.serving.connection import Listener
from scheduler_worker.rpc.serving.deliveries import Delivery, Publish


class ScriptedConnection:
    """A connection whose broker is the test."""

    address = "broker"
    vanished: frozenset[str] = frozenset()
    priority = 0
    created: "list[ScriptedConnection]" = []  # noqa: RUF012 - emptied by the fixture

    def __init__(self, listener: Listener, _is_reconnect: bool) -> None:
        self.on_message: Any = listener.message
        self.is_blocked = False
        self.performed: list[Any] = []
        self.unconfirmed: list[Any] = []
        self.heartbeats: list[str] = []
        self.extra_consumers: set[int] = set()
        self.open_extra_consumer = self.extra_consumers.add
        self.close_extra_consumer = self.extra_consumers.remove
        self._ours, self._theirs = socket.socketpair()
        self.descriptor = self._ours.fileno()
        self._inbox: list[Delivery] = []
        self.created.append(self)

    def deliver(self, message: Delivery) -> None:
        self._inbox.append(message)
        self._theirs.send(b"!")

    def pump(self) -> None:
        self._ours.recv(100)
        while self._inbox:
            self.on_message(self._inbox.pop(0))

    def perform(self, command: Any) -> None:
        self.performed.append(command)

    def answer(self, queue: str, _body: bytes, *, matters: bool) -> None:
        assert not matters
        self.heartbeats.append(queue)

    def consume(self, slots: int, *, shared: bool = True) -> None:
        self.consumes, self.consumes_shared = True, shared
        self.consumes_with = self.priority

    def consume_shared(self, slots: int) -> None:
        self.consumes_shared = True
        self.consumes_with = self.priority

    def leave_shared(self) -> None:
        self.consumes_shared = False

    def flush(self) -> None:
        """Nothing to do."""

    def tick(self, *, reads: bool = True) -> None:
        """Nothing to do."""

    def count_consumers(self) -> None:
        """Nothing to do."""

    def stop_consuming(self) -> None:
        self.consumes = False

    def unconfirmed_answers(self) -> list[Publish]:
        return self.unconfirmed

    def silence(self) -> None:
        return None

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()

    drop = close
