"""The messages in flight of one server, and what it owes the broker for each. Pure.

The rules of at-least-once delivery are here: no socket, no thread, no clock. The owner reports
events and executes, in order, the commands of :meth:`DeliveryTracker.due`.

* A message is acknowledged after its work is done, and after its answer was published earlier on
  the same connection: whatever dies in between, the broker redelivers it.
* When it is redelivered while its work is in flight, the work goes on, once, and answers for the
  new delivery. When it is redelivered after it was answered, it gets the same answer.
* Delivery tags are void when the connection ends. Work that was begun goes on, and its caller is
  answered on the next connection: the message may be gone with its queue. If it went to another
  worker instead, the caller gets the same answer twice.
* Deliveries of a message are counted; one that was delivered too often is dead-lettered: it
  may be what kills its workers. A delivery that was given back does not count.
* A message is acknowledged in favour of its copy only when the broker has the copy. The copy is
  begun after that: a worker that it kills would leave both, and the message uncounted.
"""

from collections import OrderedDict
from typing import NamedTuple

import msgspec

from scheduler_worker.rpc.serving.envelope import WireRequest

MAX_ANSWERS = 1_000
MAX_ANSWER_BYTES = 16 * 2**20
"""How many answers, and how many bytes of them, are kept for redelivered messages."""


class Delivery(msgspec.Struct, kw_only=True):
    """One delivery of a message; ``tag`` is of the present connection."""

    tag: int
    queue: str
    body: bytes = b""
    """Empty once it was read."""
    expiration: str | None = None
    compression: object = None
    traceparent: str | None = None
    deliveries: int = 0
    """How often the message was delivered before, as far as it was counted."""
    is_counted: bool = True
    """False: it was delivered once more than that. Classic queues do not count deliveries."""
    request: WireRequest | None = None
    """What was read."""
    size: int = 0
    """Bytes of its body."""


class Work:
    """A message in flight."""

    __slots__ = (
        *("delivery", "failing_since_s", "failures", "id", "is_ours_alone", "request", "tags"),
    )

    def __init__(self, delivery: Delivery, request: WireRequest) -> None:
        self.delivery = delivery
        self.request = request
        self.id = request.id
        self.tags = [delivery.tag]
        """Its unacknowledged deliveries on the present connection; empty when it went to another
        worker, or its queue is gone."""
        self.is_ours_alone = False
        """No other worker gets it: its queue is gone with everything in it."""
        self.failures = 0
        """How often it failed for a reason that may pass."""
        self.failing_since_s: float | None = None
        """When it failed first, of the monotonic clock."""


class Begin(NamedTuple):
    """Do the work, then call :meth:`DeliveryTracker.finish`."""

    work: Work


class Publish(NamedTuple):
    """Send an answer to its caller."""

    queue: str
    body: bytes


class Ack(NamedTuple):
    """Acknowledge a delivery; with ``multiple`` also all before it."""

    tag: int
    multiple: bool


class Requeue(NamedTuple):
    """Give a delivery back to its queue."""

    tag: int


class Republish(NamedTuple):
    """Put a copy at the end of the message's queue, with its number of deliveries in a header;
    then call :meth:`DeliveryTracker.copied` or :meth:`DeliveryTracker.not_copied`.

    Classic queues do not count deliveries, and no queue knows which ones were given back.
    """

    tag: int
    deliveries: int
    is_given_back: bool = False


class DeadLetter(NamedTuple):
    """Put a copy among the dead letters; then call :meth:`DeliveryTracker.copied` or
    :meth:`DeliveryTracker.not_copied`.
    """

    tag: int
    why: str


Copy = Republish | DeadLetter
Command = Begin | Publish | Ack | Requeue | Copy


class DeliveryTracker:
    """Tracks the messages in flight of one server. Not safe for threads: one owns it."""

    def __init__(self, *, max_deliveries: int) -> None:
        self._max_deliveries = max_deliveries
        self._in_flight: dict[str, Work] = {}
        self._open: dict[int, bool] = {}
        """The unsettled tags of the connection in the order of delivery; True: to be
        acknowledged."""
        self._being_copied: dict[int, str] = {}
        """The ids of messages whose copies with their counts are not confirmed yet, by tag."""
        self._answers: OrderedDict[str, bytes | None] = OrderedDict()
        self._answer_bytes = 0
        self._due: list[Command] = []
        self._is_settling = False
        """Whether some tag is to be acknowledged."""
        self.bytes_in_flight = 0
        """Bytes of the bodies of everything in flight."""

    @property
    def in_flight(self) -> list[Work]:
        """Everything that was taken and not finished."""
        return list(self._in_flight.values())

    @property
    def is_settled(self) -> bool:
        """Whether nothing is in flight, and no copy is on its way."""
        return not self._in_flight and not self._open

    def due(self) -> list[Command]:
        """What to do now, in this order; returns each command once."""
        commands, self._due = self._due, []
        if self._is_settling:
            self._is_settling = False
            commands += self._acknowledgements()
        return commands

    def accept(self, request_id: str, delivery: Delivery) -> bool:
        """Register a delivery; whether to read the message and :meth:`take` it.

        Otherwise it is republished with its count, or dead-lettered, unread: reading it may be
        what kills its workers.
        """
        tag = delivery.tag
        self._open[tag] = False
        # It was read before and did no harm; its count says nothing about it now.
        if request_id in self._in_flight or request_id in self._answers:
            return True
        deliveries = delivery.deliveries + (not delivery.is_counted)
        if deliveries > self._max_deliveries:
            self.refuse(tag, f"it was delivered {deliveries} times before and never finished")
        elif not delivery.is_counted:
            self._due.append(Republish(tag, deliveries))
            self._being_copied[tag] = request_id
        else:
            return True
        return False

    def take(self, delivery: Delivery) -> bool:
        """Register a message that was read; whether it was in flight or answered before."""
        request = delivery.request
        assert request is not None  # noqa: S101
        request_id = request.id
        if not self.accept(request_id, delivery):
            return False
        work = self._in_flight.get(request_id)
        if work is not None:
            work.tags.append(delivery.tag)
            return True
        # The first answer may have been lost with its connection; a second one harms nobody.
        if request_id in self._answers:
            self._publish(request, self._answers[request_id])
            self._settle(delivery.tag)
            return True
        work = self._in_flight[request_id] = Work(delivery, request)
        self.bytes_in_flight += delivery.size
        self._begin(work)
        return False

    def finish(self, work: Work, answer: bytes | None) -> None:
        """The work is done: answer the caller of a call, and acknowledge."""
        self.forget(work)
        self._answers[work.id] = answer
        self._answer_bytes += len(answer or b"")
        while len(self._answers) > MAX_ANSWERS or self._answer_bytes > MAX_ANSWER_BYTES:
            _, oldest = self._answers.popitem(last=False)
            self._answer_bytes -= len(oldest or b"")
        self._publish(work.request, answer)
        self._settle(*work.tags)

    def retry(self, work: Work) -> None:
        """Do the work once more; it has stayed in flight."""
        if self._in_flight.get(work.id) is work:
            self._due.append(Begin(work))

    def dead_letter(self, work: Work, why: str) -> None:
        """The work can never be done: keep the message for an operator."""
        self.forget(work)
        for tag in work.tags[:1]:
            self.refuse(tag, why)
        self._settle(*work.tags[1:])

    def refuse(self, tag: int, why: str) -> None:
        """Keep a message for an operator that is not worked on."""
        self._open.setdefault(tag, False)
        self._due.append(DeadLetter(tag, why))

    def copied(self, copy: Copy) -> None:
        """The broker has the copy: acknowledge the original."""
        self._settle(copy.tag)
        self._begin_copy_of(copy.tag)

    def not_copied(self, copy: Copy, why: str, *, may_pass: bool = False) -> None:
        """The broker did not take the copy; with ``may_pass`` it might take another one later.

        What cannot even be dead-lettered is dropped.
        """
        if isinstance(copy, DeadLetter):
            self._settle(copy.tag)
            return
        if not may_pass and not copy.is_given_back:
            self.refuse(copy.tag, f"it could not be counted ({why})")
        elif self._open.pop(copy.tag, None) is not None:
            self._due.append(Requeue(copy.tag))
        self._begin_copy_of(copy.tag)

    def give_back(self, work: Work) -> None:
        """Leave the work to another worker; the delivery does not count."""
        self.forget(work)
        for tag in [each for each in work.tags if each in self._open]:
            self._due.append(Republish(tag, work.delivery.deliveries, is_given_back=True))

    def connection_lost(self) -> list[Work]:
        """Void all tags; returns what is in flight."""
        self._open.clear()
        self._being_copied.clear()
        # Tags are void, and answers need none: the next connection sends them.
        self._due = [command for command in self._due if isinstance(command, Publish)]
        for work in self._in_flight.values():
            work.tags.clear()
        return self.in_flight

    def _begin(self, work: Work | None) -> None:
        """Begin it now, or when no copy of its message is on its way any more."""
        if work is not None and work.id not in self._being_copied.values():
            self._due.append(Begin(work))

    def _begin_copy_of(self, tag: int) -> None:
        """Begin the work that has waited for the fate of this delivery."""
        if (request_id := self._being_copied.pop(tag, None)) is not None:
            self._begin(self._in_flight.get(request_id))

    def _publish(self, request: WireRequest, answer: bytes | None) -> None:
        if answer is not None and request.call_id is not None:
            self._due.append(Publish(request.reply_queue, answer))

    def _settle(self, *tags: int) -> None:
        for tag in tags:
            if tag in self._open:
                self._open[tag] = self._is_settling = True

    def _acknowledgements(self) -> list[Command]:
        """One for the done deliveries at the head, and one for each other that is done."""
        done = [tag for tag, is_done in self._open.items() if is_done]
        head = 0
        for tag, is_done in self._open.items():
            if not is_done:
                break
            head = tag
        for tag in done:
            del self._open[tag]
        # One frame settles all at the head; what was done out of order needs a frame each.
        together: list[Command] = [Ack(head, multiple=True)] if head else []
        return together + [Ack(tag, multiple=False) for tag in done if tag > head]

    def forget(self, work: Work) -> None:
        """The work is no longer in flight: it ends here, or its message went to another worker."""
        if self._in_flight.get(work.id) is work:
            del self._in_flight[work.id]
            self.bytes_in_flight -= work.delivery.size
            self._due = [command for command in self._due if command != (work,)]
