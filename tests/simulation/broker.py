"""The simulated broker, its links to workers, and the loop in which a server waits for them.

Messages are delivered at least once, in order to each consumer, within its prefetch limit; messages
that a lost link leaves unacknowledged are redelivered. Frames of a link keep their order, are
delayed, and are lost with it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from scheduler_worker.rpc.serving import connection, envelope
from scheduler_worker.rpc.serving.connection import (
    Callback,
    ConnectionLostError,
    Listener,
    PublishOutcome,
)
from scheduler_worker.rpc.serving.deliveries import (
    Ack,
    Command,
    Copy,
    DeadLetter,
    Delivery,
    Publish,
    Republish,
    Requeue,
)
from scheduler_worker.rpc.serving.settings import QueueNames
from tests.simulation.history import History
from tests.simulation.machine import Machine, Process, Thread

FRAME_S = 0.001
PING_PATIENCE_S = 60.0
NOTICED_S = 0.3
"""A publisher knows after so long at most that the broker is blocked."""
STUCK_S = 0.1
AGAIN_S = 0.2
"""When a client publishes again after its message found no queue."""


class Message(msgspec.Struct):
    """A message in a queue; ``name`` is for the history."""

    name: str
    body: bytes
    remaining_s: float | None = None
    expires_s: float = float("inf")
    deliveries: int = 0
    """How often it was delivered before."""
    counted_by_us: int = 0
    """The number in the worker's own header."""

    def copy(self, counted_by_us: int) -> Message:
        return Message(self.name, self.body, self.remaining_s, counted_by_us=counted_by_us)


class Broker:
    """Queues and their consumers. ``counts``: whether it counts deliveries, as quorum queues do."""

    address = "broker"

    def __init__(self, machine: Machine, history: History, *, counts: bool) -> None:
        self.machine = machine
        self.history = history
        self.counts = counts
        self.is_up = True
        self.is_blocked = False
        self.blocked_at_s = 0.0
        self.nacks = False
        """Whether the node of all queues is away: whatever workers publish is nacked."""
        self.queues: dict[str, deque[Message]] = {}
        self.callers: dict[str, Callable[[Any], None]] = {}
        """The consumer of a reply queue."""
        self.links: dict[BrokerConnection, None] = {}
        self.pings = itertools.count(1)
        """Their own names are of the workers' chance."""
        self._consumers: list[_Consumer] = []

    def declare(self, queue: str) -> None:
        self.queues.setdefault(queue, deque())

    def publish(self, queue: str, message: Message) -> None:
        """From a client, or from a worker to a queue of workers."""
        if not self.is_up:
            self.machine.at(AGAIN_S, partial(self.publish, queue, message))
            return
        if message.remaining_s is not None:
            message.expires_s = self.machine.now_s + message.remaining_s
        self.declare(queue)
        self.queues[queue].append(message)
        self.deliver(queue)

    def fanout(self, prefix: str, message: Message) -> None:
        for queue in [each for each in self.queues if each.startswith(prefix)]:
            self.publish(queue, message.copy(0))

    def deliver(self, queue: str) -> None:
        ready = self.queues[queue]
        while ready:
            if ready[0].expires_s <= self.machine.now_s:
                self.history.add("broker", "drops", message=ready.popleft().name, why="expired")
                continue
            able = [each for each in self._consumers if each.queue == queue and each.is_able()]
            if not able:
                break
            # Whatever its priority: so any interleaving of workers may come, not only likely ones.
            self.machine.random.choice(able).take(ready.popleft())

    # Links

    def consume(self, consumer: _Consumer) -> None:
        self._consumers.append(consumer)
        self.deliver(consumer.queue)

    def cancel(self, link: BrokerConnection, name: str | None = None) -> None:
        for each in self._consumers:
            if each.link is link and name in {None, each.name}:
                each.is_cancelled = True

    def lose(self, link: BrokerConnection) -> None:
        """The connection ends; unacknowledged messages are requeued at the head."""
        if link not in self.links:
            return
        del self.links[link]
        self._consumers = [each for each in self._consumers if each.link is not link]
        link.is_open = False
        link.ring()
        lost, link.unacknowledged = link.unacknowledged, {}
        for consumer, message in reversed(lost.values()):
            self.give_back(consumer.queue, message)
        for queue in {consumer.queue: None for consumer, _ in lost.values()}:
            self.deliver(queue)

    def give_back(self, queue: str, message: Message) -> None:
        message.deliveries += 1
        self.queues[queue].appendleft(message)

    def go_down(self) -> None:
        """All links are lost; the queues are durable."""
        self.is_up = False
        for link in list(self.links):
            self.lose(link)

    def come_up(self) -> None:
        self.is_up = True

    def block(self) -> None:
        """Publishers get no confirmations from now on."""
        if not self.is_blocked:
            self.is_blocked, self.blocked_at_s = True, self.machine.now_s

    def unblock(self) -> None:
        self.is_blocked = False
        for link in self.links:
            link.ring()

    def set_nacks(self, nacks: bool) -> None:
        self.nacks = nacks

    def answer(self, link: BrokerConnection, answer: Publish) -> None:
        caller = self.callers.get(answer.queue)
        fate = PublishOutcome.CONFIRMED
        if self.nacks:
            fate = PublishOutcome.NACKED
            if not answer.queue.startswith("pings"):  # which have names of the workers' chance
                self.history.add(link.server, "is nacked", queue=answer.queue)
        elif caller is not None:
            caller(answer.body)
        else:
            fate = PublishOutcome.UNROUTABLE
            self.history.add(link.server, "is returned", queue=answer.queue)
        link.bring(partial(link.confirm, answer, fate))


class _Consumer(msgspec.Struct, eq=False):
    link: BrokerConnection
    queue: str
    name: str
    credit: int
    is_cancelled: bool = False

    def is_able(self) -> bool:
        return self.credit > 0 and not self.is_cancelled

    def take(self, message: Message) -> None:
        self.credit -= 1
        self.link.deliver(self, message)


class BrokerConnection:
    """Stands in for the server's connection of the same name, over this broker."""

    priority = 0

    def __init__(
        self,
        broker: Broker,
        place: QueueNames,
        listener: Listener,
        _is_reconnect: bool = False,
    ) -> None:
        self.address = "broker"
        self.descriptor = self  # the loop waits for it
        self._broker = broker
        self._machine = broker.machine
        self._place = place
        self.server = place.server
        self.listener = listener
        self.vanished: frozenset[str] = frozenset()
        self._unconfirmed: list[Publish] = []
        self.process: Process = self._machine.running.process
        self.is_open = True
        self.unacknowledged: dict[int, tuple[_Consumer, Message]] = {}
        self._tags = itertools.count(1)
        self._inbox: deque[Callback] = deque()
        self._outbox: list[Callback] = []
        self._brought_s = self._sent_s = 0.0
        self._reader: Thread | None = None
        self._machine.sleep(FRAME_S)
        if not broker.is_up:
            raise ConnectionLostError("there is no such queue")
        broker.links[self] = None
        for queue in (place.queue, place.own_queue, place.fanout_queue):
            broker.declare(queue)

    @property
    def is_blocked(self) -> bool:
        return self._broker.is_blocked

    # From the server

    def consume(self, slots: int, *, shared: bool = True) -> None:
        self._takes_shared = shared
        queues = [self._place.own_queue, self._place.fanout_queue]
        if shared:
            queues.insert(0, self._place.queue)
        for queue in queues:
            self._consume(queue, queue, slots)

    def consume_shared(self, slots: int) -> None:
        if not self._takes_shared:
            self._takes_shared = True
            self._consume(self._place.queue, self._place.queue, slots)

    def leave_shared(self) -> None:
        self._takes_shared = False
        self._outbox.append(partial(self._broker.cancel, self, self._place.queue))

    def open_extra_consumer(self, number: int) -> None:
        self._consume(self._place.queue, f"extra-{number}", 1)

    def close_extra_consumer(self, number: int) -> None:
        self._outbox.append(partial(self._broker.cancel, self, f"extra-{number}"))

    def stop_consuming(self) -> None:
        self._outbox.append(partial(self._broker.cancel, self))

    def _consume(self, queue: str, name: str, prefetch: int) -> None:
        consumer = _Consumer(self, queue, name, prefetch)
        self._outbox.append(partial(self._broker.consume, consumer))

    def perform(self, command: Command) -> None:
        if isinstance(command, Publish):
            self.answer(*command)
        else:
            if isinstance(command, Republish | DeadLetter):
                self._suffer()
            self._outbox.append(partial(self._do, command))

    def answer(self, queue: str, body: bytes, *, matters: bool = True) -> None:
        self._suffer()
        answer = Publish(queue, body)
        self._unconfirmed.append(answer)
        self._outbox.append(partial(self._broker.answer, self, answer))

    def unconfirmed_answers(self) -> list[Publish]:
        return list(self._unconfirmed)

    def confirm(self, answer: Publish, fate: PublishOutcome) -> None:
        self._unconfirmed.remove(answer)
        self.listener.answered(answer, fate, "")

    def count_consumers(self) -> None:
        """Every worker has a name of its own."""

    def silence(self) -> str | None:
        return None

    def ping(self, name: str) -> bool:
        replies = f"pings {name}"

        def publish() -> None:
            self._broker.callers[replies] = lambda body: self.bring(
                partial(self.listener.ping_answered, body)
            )
            named = f"ping {next(self._broker.pings)}"
            message = Message(named, envelope.encode_ping(name, replies), PING_PATIENCE_S)
            self._broker.history.add(self.server, "pings", message=named)
            self._broker.publish(self._place.queue, message)
            self.bring(partial(self.listener.ping_confirmed, name))

        self._outbox.append(publish)
        return True

    def _suffer(self) -> None:
        """A publisher gets no confirmation while the broker is blocked."""
        since_s = self._machine.now_s - self._broker.blocked_at_s
        if self._broker.is_blocked and since_s > NOTICED_S:
            self._broker.history.add(self.server, "is stuck")
        while self._broker.is_blocked and self.is_open:
            self._machine.sleep(STUCK_S)
        self._check()

    def flush(self) -> None:
        self._check()
        deeds, self._outbox = self._outbox, []
        for deed in deeds:
            self._sent_s = self._after(self._sent_s)
            self._machine.at(self._sent_s - self._machine.now_s, partial(self._if_open, deed))

    def pump(self) -> None:
        self._check()
        while self._inbox:
            self._inbox.popleft()()

    def tick(self, *, reads: bool = True) -> None:
        self._check()

    def close(self) -> None:
        if self._machine.running.process.is_alive and self.is_open:
            self._outbox.append(partial(self._broker.lose, self))
            self.flush()

    def drop(self) -> None:
        self._broker.lose(self)

    def _check(self) -> None:
        if not self.is_open:
            raise ConnectionLostError("the broker is gone")

    # From the loop

    def is_readable(self, reader: Thread) -> bool:
        self._reader = reader
        return bool(self._inbox) or not self.is_open

    def ring(self) -> None:
        if self._reader is not None:
            self._machine.wake(self._reader)

    # At the broker

    def deliver(self, consumer: _Consumer, message: Message) -> None:
        tag = next(self._tags)
        self.unacknowledged[tag] = consumer, message
        counts = self._broker.counts
        self._broker.history.add(
            self.server, "gets", message=message.name, tag=tag, again=message.deliveries
        )
        arrival = Delivery(
            tag=tag,
            queue=consumer.queue,
            body=message.body,
            expiration=None
            if message.remaining_s is None
            else str(int(message.remaining_s * 1000)),
            deliveries=message.deliveries if counts else message.counted_by_us,
            is_counted=counts or not message.deliveries,
        )
        self.bring(partial(self.listener.message, arrival))

    def bring(self, deed: Callback) -> None:
        def come() -> None:
            self._inbox.append(deed)
            self.ring()

        self._brought_s = self._after(self._brought_s)
        self._machine.at(self._brought_s - self._machine.now_s, partial(self._if_open, come))

    def _after(self, last_s: float) -> float:
        """When a frame arrives that is sent now, after the one that arrives at ``last_s``."""
        delay_s = self._machine.random.uniform(0.0, FRAME_S)
        return max(self._machine.now_s + delay_s, last_s + 1e-6)

    def _if_open(self, deed: Callback) -> None:
        if self.is_open:
            deed()

    def _do(self, command: Command) -> None:
        if getattr(command, "tag", None) not in {None, *self.unacknowledged}:
            self._broker.lose(self)  # a broker closes a channel that settles a message twice
            return
        if isinstance(command, Republish | DeadLetter) and self._broker.nacks:
            self.bring(partial(self.listener.copied, command, PublishOutcome.NACKED, ""))
            return
        match command:
            case Ack(tag, multiple):
                for each in [t for t in self.unacknowledged if t <= tag] if multiple else [tag]:
                    self._settle(each, "acknowledges")
            case Requeue(tag):
                self._broker.give_back(*self._settle(tag, "gives back"))
            case Republish(tag, deliveries):
                consumer, message = self.unacknowledged[tag]
                self._broker.history.add(self.server, "counts", message=message.name, tag=tag)
                self._broker.publish(consumer.queue, message.copy(deliveries))
                self._copied(command)
            case DeadLetter(tag, why):
                message = self.unacknowledged[tag][1]
                self._broker.history.add(self.server, "dead-letters", message=message.name, why=why)
                self._copied(command)

    def _copied(self, copy: Copy) -> None:
        self.bring(partial(self.listener.copied, copy, PublishOutcome.CONFIRMED, ""))

    def _settle(self, tag: int, how: str) -> tuple[str, Message]:
        consumer, message = self.unacknowledged.pop(tag)
        consumer.credit += 1
        self._broker.history.add(self.server, how, message=message.name, tag=tag)
        self._machine.at(0.0, partial(self._broker.deliver, consumer.queue))
        return consumer.queue, message


class Loop(connection.Loop):
    """A loop whose thread and time are simulated; connections stand for their descriptors."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._ready: deque[Callback] = deque()
        self._timers: list[tuple[float, int, Callback]] = []
        self._numbers = itertools.count()
        self._sleeper: Thread | None = None
        self._dozes = False

    def __del__(self) -> None:
        """There is no pipe to close."""

    def wake(self) -> None:
        if self._sleeper is not None and self._ready:
            self._machine.wake(self._sleeper)

    def call_later(self, delay_s: float, deed: Callback) -> None:
        self._timers.append((self._machine.now_s + delay_s, next(self._numbers), deed))

    def run_due(self) -> None:
        while self._ready:
            self._ready.popleft()()
        due = sorted(each for each in self._timers if each[0] <= self._machine.now_s)
        self._timers = [each for each in self._timers if each[0] > self._machine.now_s]
        for _, _, deed in due:
            deed()

    def wait(self, source: Any = None, *, timeout_s: float = 60.0) -> bool:
        self._sleeper = self._machine.running
        if self._timers:
            timeout_s = min(timeout_s, min(self._timers)[0] - self._machine.now_s)
        if not self._ready and not (source and source.is_readable(self._sleeper)):
            self._machine.park(timeout_s)
        return source is not None and source.is_readable(self._sleeper)
