"""What this process has in hand of a broker's messages, and what it owes for each. Pure.

The rules of at-least-once delivery are here, and nothing else: no socket, no thread, no clock. Its
owner tells it what happens and does, in order, what :meth:`Ledger.due` says.

* A message is acknowledged after its work is done, and after its answer was published before it
  on the same channel: whatever dies in between, the broker delivers it again, to somebody.
* When it comes again while its work is still in hand, the work goes on, once, and answers for
  the new delivery. When it comes again after it was answered, it gets the same answer.
* A connection's end makes its delivery tags void. Work that was begun goes on; if its message
  went elsewhere meanwhile, it answers nobody.
* A message that comes again and again is counted; one that has been delivered too often goes to
  the dead letters, for it may be what kills its workers.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import msgspec

from scheduler_worker.rpc.amqp.envelope import Request

REMEMBERED = 1_000
REMEMBERED_BYTES = 16 * 2**20
"""How many answers, and how much of them, are kept for messages that come again."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery of a message; ``tag`` is of the present connection."""

    tag: int
    queue: str
    request: Request
    deliveries: int = 0
    """How often the message had been delivered before, as far as somebody counted."""
    is_counted: bool = True
    """False when it had been delivered once more than that: classic queues tell no number."""


class Work:
    """A message in hand."""

    __slots__ = ("delivery", "failures", "tags")

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.tags = [delivery.tag]
        """Its unacknowledged deliveries on the present connection; none: it went elsewhere."""
        self.failures = 0
        """How often it failed for a reason that may pass."""

    @property
    def request(self) -> Request:
        return self.delivery.request


class Begin(NamedTuple):
    """Do the work, then call :meth:`Ledger.finish`."""

    work: Work


class Publish(NamedTuple):
    """Send an answer to its caller."""

    queue: str
    body: bytes


class Ack(NamedTuple):
    """Acknowledge a delivery; with ``multiple`` all before it, too."""

    tag: int
    multiple: bool


class Requeue(NamedTuple):
    """Give a delivery back to its queue."""

    tag: int


class Recount(NamedTuple):
    """Put a copy at the end of the message's queue, marked as delivered so often before.

    The acknowledgement of the original follows. Classic queues do not count themselves.
    """

    tag: int
    queue: str
    deliveries: int


class Bury(NamedTuple):
    """Put a copy among the dead letters; the acknowledgement of the original follows."""

    tag: int
    queue: str
    why: str


Command = Begin | Publish | Ack | Requeue | Recount | Bury


class Ledger:
    """The messages in hand of one server. Not safe for threads: one owns it."""

    def __init__(self, *, max_deliveries: int) -> None:
        self._max_deliveries = max_deliveries
        self._in_hand: dict[str, Work] = {}
        self._open: dict[int, bool] = {}
        """The unsettled tags of the connection, as they came; True: to be acknowledged."""
        self._answers: OrderedDict[str, bytes | None] = OrderedDict()
        self._answers_bytes = 0
        self._due: list[Command] = []
        self.repeated = 0
        """How many messages came again that were in hand or answered."""

    @property
    def in_hand(self) -> list[Work]:
        """Everything that was taken and not finished."""
        return list(self._in_hand.values())

    def due(self) -> list[Command]:
        """What to do now, in this order; each command is told once."""
        commands, self._due = self._due, []
        commands += self._acknowledgements()
        return commands

    def take(self, delivery: Delivery) -> None:
        """A message was delivered."""
        self._open[delivery.tag] = False
        work = self._in_hand.get(delivery.request.id)
        if work is not None:
            self.repeated += 1
            work.tags.append(delivery.tag)
        elif delivery.request.id in self._answers:
            self.repeated += 1
            self._publish(delivery.request, self._answers[delivery.request.id])
            self._settle(delivery.tag)
        else:
            self._count(delivery)

    def finish(self, work: Work, answer: bytes | None) -> None:
        """The work is done: answer the caller of a call, and settle."""
        self._drop(work)
        self._remember(work.request.id, answer)
        if work.tags:
            self._publish(work.request, answer)
        self._settle(*work.tags)

    def retry(self, work: Work) -> None:
        """Do the work once more; nobody else has it meanwhile."""
        if self._in_hand.get(work.request.id) is work:
            self._due.append(Begin(work))

    def bury(self, work: Work, why: str) -> None:
        """The work can never be done: keep the message for a human."""
        self._drop(work)
        for tag in work.tags[:1]:
            self.refuse(tag, work.delivery.queue, why)
        self._settle(*work.tags[1:])

    def refuse(self, tag: int, queue: str, why: str) -> None:
        """Keep a message for a human that is not worked on."""
        self._open.setdefault(tag, False)
        self._due.append(Bury(tag, queue, why))
        self._settle(tag)

    def give_back(self, work: Work) -> None:
        """Somebody else shall do the work."""
        self._drop(work)
        for tag in work.tags:
            if self._open.pop(tag, None) is not None:
                self._due.append(Requeue(tag))

    def lost(self) -> list[Work]:
        """The connection ended. What is in hand, none of it with a tag any more."""
        self._open.clear()
        self._due.clear()
        for work in self._in_hand.values():
            work.tags.clear()
        return self.in_hand

    def forget(self, work: Work) -> None:
        """Work that was not begun, and whose message went elsewhere."""
        self._drop(work)

    def _count(self, delivery: Delivery) -> None:
        deliveries = delivery.deliveries + (not delivery.is_counted)
        if deliveries > self._max_deliveries:
            why = f"it was delivered {deliveries} times before and never finished"
            self.refuse(delivery.tag, delivery.queue, why)
        elif not delivery.is_counted:
            self._due.append(Recount(delivery.tag, delivery.queue, deliveries))
            self._settle(delivery.tag)
        else:
            work = self._in_hand[delivery.request.id] = Work(delivery)
            self._due.append(Begin(work))

    def _publish(self, request: Request, answer: bytes | None) -> None:
        if answer is not None and request.call_id is not None:
            self._due.append(Publish(request.reply_queue, answer))

    def _settle(self, *tags: int) -> None:
        for tag in tags:
            if tag in self._open:
                self._open[tag] = True

    def _acknowledgements(self) -> list[Command]:
        """One for all that came first and are done, and one for each other that is done."""
        done = [tag for tag, is_done in self._open.items() if is_done]
        if not done:
            return []
        first = 0
        for tag, is_done in self._open.items():
            if not is_done:
                break
            first = tag
        for tag in done:
            del self._open[tag]
        together: list[Command] = [Ack(first, multiple=True)] if first else []
        return together + [Ack(tag, multiple=False) for tag in done if tag > first]

    def _drop(self, work: Work) -> None:
        if self._in_hand.get(work.request.id) is work:
            del self._in_hand[work.request.id]
            self._due = [each for each in self._due if each != Begin(work)]

    def _remember(self, request_id: str, answer: bytes | None) -> None:
        self._answers[request_id] = answer
        self._answers_bytes += len(answer or b"")
        while len(self._answers) > REMEMBERED or self._answers_bytes > REMEMBERED_BYTES:
            _, oldest = self._answers.popitem(last=False)
            self._answers_bytes -= len(oldest or b"")
