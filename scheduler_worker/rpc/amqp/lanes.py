"""One message more from the shared queue, for each one in hand that needs no slot for now."""

from __future__ import annotations

import itertools

from scheduler_worker.rpc.amqp.link import Link


class Lanes:
    """Consumers of one message each, beside those of the slots; used by the loop's thread alone."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._link: Link | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    def move(self, link: Link | None) -> None:
        """They are on this connection from now on; None: nothing is consumed for them."""
        self._link = link
        if link is not None:
            for number in self._numbers:
                link.open_lane(number)

    def open(self) -> None:
        """Let one message more come."""
        number = next(each for each in itertools.count() if each not in self._numbers)
        self._numbers.append(number)
        if self._link is not None:
            self._link.open_lane(number)

    def close(self) -> None:
        """Undo one :meth:`open`, whichever."""
        number = self._numbers.pop()
        if self._link is not None:
            self._link.close_lane(number)
