"""Extra consumers of the shared queue: one for each message in flight that needs no slot now."""

from __future__ import annotations

import itertools

from scheduler_worker.rpc.serving.connection import BusConnection


class ExtraConsumers:
    """Consumers of one message each, beside those of the slots; used by the loop's thread alone."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._connection: BusConnection | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    def use(self, connection: BusConnection | None) -> None:
        """Consume over this connection from now on; None: not at all."""
        if connection is self._connection:
            return
        self._connection = connection
        if connection is not None:
            for number in self._numbers:
                connection.open_extra_consumer(number)

    def leave(self) -> None:
        """Consume no more, until :meth:`use`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            for number in self._numbers:
                connection.close_extra_consumer(number)

    def open(self) -> None:
        """Take one message more."""
        number = next(each for each in itertools.count() if each not in self._numbers)
        self._numbers.append(number)
        if self._connection is not None:
            self._connection.open_extra_consumer(number)

    def close(self) -> None:
        """Undo one :meth:`open`, whichever."""
        number = self._numbers.pop()
        if self._connection is not None:
            self._connection.close_extra_consumer(number)
