"""``local:``: an oslo.messaging driver for a bus inside the process, the embedded default.

It behaves as RabbitMQ does, as far as one process can: clients are oslo.messaging's, every message
is encoded and decoded; servers are :class:`~scheduler_worker.rpc.serving.server.QueueServer`, over
a :class:`LocalConnection`. Queues outlive their servers, what a server has not acknowledged goes to
the next one, a call expires when its caller gives up, a fanout is addressed by topic alone, without
an exchange. Dead letters stay in a queue, as long as the bus lives.

Transports with the same URL share one bus, ``local:/`` or ``local://name/``. A bus lives as long
as one of its transports or servers. Threads wait on conditions and descriptors; an idle bus costs
nothing.

The driver is loaded by its entry point in ``oslo.messaging.drivers``; no module imports it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import threading
import time
import uuid
import weakref
from collections import deque
from functools import partial
from typing import Any, NamedTuple

import msgspec

from scheduler_worker.rpc.oslo import oslo_messaging
from scheduler_worker.rpc.serving.connection import BusConnection, Listener, Open, PublishOutcome
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

# isort: split
from oslo_messaging._drivers import amqp, base, common
from oslo_serialization import jsonutils

QUEUE_LIMIT = 10_000
"""Messages that a queue holds; further ones are refused."""


class LocalDriver(base.BaseDriver):  # type: ignore[misc]
    """Sends to the bus that the URL names, and connects our servers to it."""

    def __init__(
        self,
        conf: Any,
        url: oslo_messaging.TransportURL,
        default_exchange: str | None = None,
        allowed_remote_exmods: Any = None,
    ) -> None:
        super().__init__(conf, url, default_exchange, allowed_remote_exmods)
        name = (*(host.hostname for host in url.hosts), url.virtual_host or "")
        with _BUSES_LOCK:
            self._bus = _BUSES.setdefault(name, _Bus())

    def send(
        self,
        target: oslo_messaging.Target,
        ctxt: dict[str, Any],
        message: dict[str, Any],
        wait_for_reply: bool | None = None,
        timeout: float | None = None,
        call_monitor_timeout: float | None = None,
        retry: int | None = None,
        transport_options: oslo_messaging.TransportOptions | None = None,
    ) -> Any:
        """Publish, and for a call wait for the answer.

        Raises:
            MessagingTimeout: no answer, or no heartbeat, in time.
            MessageDeliveryFailure: a queue is full.
            MessageUndeliverable: no queue, where ``transport_options`` asks for one.
        """
        exchange = target.exchange or self._default_exchange
        key = f"{target.topic}.{target.server}" if target.server else target.topic
        address = (_FANOUT, target.topic) if target.fanout else (exchange, key)
        call = uuid.uuid4().hex if wait_for_reply else None
        if call:
            self._bus.calls[call] = queue.SimpleQueue()
        try:
            body = _request(message, ctxt, call, call_monitor_timeout)
            mandatory = bool(transport_options and transport_options.at_least_once)
            expires_s = _after(time.monotonic(), timeout if call else None)
            is_taken = self._bus.publish(address, _Message(body, expires_s))
            if mandatory and not is_taken and not target.fanout:
                raise oslo_messaging.MessageUndeliverable(None, exchange, key, body)
            return call and self._answer(call, timeout, call_monitor_timeout)
        finally:
            if call:
                self._bus.calls.pop(call, None)

    def _answer(self, call: str, timeout: float | None, silence: float | None) -> Any:
        """Wait for the answer. A heartbeat extends the wait for the next one, never the whole."""
        replies, started_s = self._bus.calls[call], time.monotonic()
        heartbeat_s = started_s
        while True:
            ends_s = min(_after(started_s, timeout), _after(heartbeat_s, silence))
            try:
                body = replies.get(timeout=_left(ends_s))
            except queue.Empty:
                raise oslo_messaging.MessagingTimeout(
                    f"Timed out waiting for a reply to message ID {call}"
                ) from None
            reply = common.deserialize_msg(jsonutils.loads(body))
            if reply["failure"]:
                raise common.deserialize_remote_exception(
                    reply["failure"], self._allowed_remote_exmods
                )
            if reply["ending"]:
                return reply["result"]
            heartbeat_s = time.monotonic()

    def opener(self, names: QueueNames) -> Open:
        """Open the connection of a queue server."""
        return partial(LocalConnection, self._bus, names)

    def listen(self, *_arguments: Any, **_options: Any) -> None:
        """Unsupported: only our servers serve this bus, and it is for RPC."""
        raise NotImplementedError("local: has no servers of oslo.messaging, and no notifications")

    send_notification = listen_for_notifications = listen

    def cleanup(self) -> None:
        """Do nothing: the bus goes with its last transport."""


class LocalConnection(BusConnection):
    """A server's connection to a bus.

    Senders put messages into its inbox and make its descriptor readable. Everything happens at
    once, so that nothing is to be flushed, confirmed or lost, and an answer whose caller has gone
    is dropped. ``queue`` of an answer is the id of its call.
    """

    address = "local:"

    def __init__(
        self, bus: _Bus, names: QueueNames, listener: Listener, _is_reconnect: bool
    ) -> None:
        self._bus = bus
        self._names = names
        self._listener = listener
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK)
        self._inbox: deque[_Delivery] = deque()
        self._unacknowledged: dict[int, _Delivery] = {}
        self._tags = itertools.count(1)
        *queues, self._dead_letters = bus.declare(names)
        self._consumers = {queue.name: _Consumer(self, queue) for queue in queues}

    # Consuming

    def consume(self, slots: int, *, shared: bool = True) -> None:
        for consumer in self._consumers.values():
            consumer.room = slots
            if shared or consumer is not self._shared:
                self._bus.consume(consumer)

    def consume_shared(self, slots: int) -> None:
        self._bus.consume(self._shared)

    def leave_shared(self) -> None:
        self._bus.leave(self._shared)

    def open_extra_consumer(self, number: int) -> None:
        self._bus.make_room(self._shared, 1)

    def close_extra_consumer(self, number: int) -> None:
        self._bus.make_room(self._shared, -1)

    def stop_consuming(self) -> None:
        for consumer in self._consumers.values():
            self._bus.leave(consumer)

    @property
    def _shared(self) -> _Consumer:
        return self._consumers[self._names.queue]

    # Receiving

    def put(self, delivery: _Delivery) -> None:
        """Deliver a message soon. For the bus, while this consumes; any thread."""
        self._inbox.append(delivery)
        os.eventfd_write(self.descriptor, 1)

    def pump(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)
        while self._inbox:
            tag, delivery = next(self._tags), self._inbox.popleft()
            self._unacknowledged[tag] = delivery
            message = delivery.message
            self._listener.message(
                Delivery(
                    tag=tag,
                    queue=delivery.consumer.queue.name,
                    body=message.body,
                    expiration=message.expiration(),
                    deliveries=message.deliveries,
                )
            )

    # Settling and answering

    def perform(self, command: Command) -> None:
        match command:
            case Publish(queue, body):
                self.answer(queue, body)
            case Ack(tag, multiple):
                tags = [each for each in self._unacknowledged if each <= tag] if multiple else [tag]
                for settled in tags:
                    self._bus.make_room(self._unacknowledged.pop(settled).consumer, 1)
            case Requeue(tag):
                delivery = self._unacknowledged.pop(tag)
                self._bus.put_back([delivery])
                self._bus.make_room(delivery.consumer, 1)
            case Republish(tag, deliveries):
                delivery = self._unacknowledged[tag]
                copy = delivery.message._replace(deliveries=deliveries)
                self._copied(command, self._bus.put(delivery.consumer.queue, copy))
            case DeadLetter(tag):
                message = self._unacknowledged[tag].message._replace(expires_s=float("inf"))
                self._copied(command, self._bus.put(self._dead_letters, message))

    def _copied(self, copy: Copy, problem: str | None) -> None:
        outcome = PublishOutcome.REFUSED if problem else PublishOutcome.CONFIRMED
        self._listener.copied(copy, outcome, problem or "")

    def answer(self, queue: str, body: bytes, *, matters: bool = True) -> None:
        self._bus.reply(queue, body)

    def close(self) -> None:
        """What was not acknowledged goes to the next server, but fanouts end with this one."""
        self.stop_consuming()
        self._bus.forget(self._names.topic, self._consumers[self._names.fanout_queue].queue)
        begun = self._unacknowledged.values()
        self._bus.put_back([*(delivery.counted() for delivery in begun), *self._inbox])
        os.close(self.descriptor)

    drop = close


class _Message(NamedTuple):
    """A message in a queue."""

    body: bytes
    expires_s: float
    deliveries: int = 0
    """How often a server had it and did not acknowledge it."""

    def expiration(self) -> str | None:
        """How many milliseconds its caller still waits, as AMQP writes it."""
        left_s = _left(self.expires_s)
        return None if left_s is None else str(int(1000 * left_s))


class _Consumer(msgspec.Struct, eq=False):
    """A server's consumer of one queue. Guarded by the bus's lock."""

    connection: LocalConnection
    queue: _Queue
    room: int = 0
    """How many messages more it takes; negative when it took an extra one."""


class _Delivery(NamedTuple):
    """A message that a consumer has."""

    consumer: _Consumer
    message: _Message

    def counted(self) -> _Delivery:
        message = self.message._replace(deliveries=self.message.deliveries + 1)
        return self._replace(message=message)


_Address = tuple[object, str]
"""An exchange and a routing key, or :data:`_FANOUT` and a topic."""
_FANOUT = object()


class _Queue(msgspec.Struct, eq=False):
    """Messages of one address, and its consumers by priority. Guarded by the bus's lock."""

    name: str
    messages: deque[_Message] = msgspec.field(default_factory=deque)
    consumers: list[_Consumer] = msgspec.field(default_factory=list)

    def put(self, message: _Message) -> None:
        if len(self.messages) >= QUEUE_LIMIT:
            raise oslo_messaging.MessageDeliveryFailure(
                f"queue {self.name} is full: {QUEUE_LIMIT} messages wait for a server"
            )
        self.messages.append(message)
        self.deliver()

    def deliver(self) -> None:
        """Give messages that have not expired to consumers with room for them."""
        while self.messages and (consumer := self._next_with_room()) is not None:
            message = self.messages.popleft()
            if time.monotonic() < message.expires_s:
                consumer.room -= 1
                consumer.connection.put(_Delivery(consumer, message))

    def _next_with_room(self) -> _Consumer | None:
        ready = (each for each in self.consumers if each.room > 0)
        return max(ready, key=lambda each: each.connection.priority, default=None)


class _Bus:
    """Queues by address, calls by id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[_Address, list[_Queue]] = {}
        self.calls: dict[str, queue.SimpleQueue[bytes]] = {}
        """The answers of each call whose caller waits, by its id."""

    # For servers

    def declare(self, names: QueueNames) -> list[_Queue]:
        """The queues of a server: the topic's, its own, a new one for fanouts, dead letters."""
        keys = names.queue, names.own_queue, names.dead_letters
        fanout = _Queue(names.fanout_queue)
        with self._lock:
            self._queues.setdefault((_FANOUT, names.topic), []).append(fanout)
            [shared], [own], [dead] = (
                self._queues.setdefault((names.exchange, key), [_Queue(key)]) for key in keys
            )
            return [shared, own, fanout, dead]

    def forget(self, topic: str, fanout: _Queue) -> None:
        with self._lock:
            self._queues[_FANOUT, topic].remove(fanout)

    def consume(self, consumer: _Consumer) -> None:
        with self._lock:
            if consumer not in consumer.queue.consumers:
                consumer.queue.consumers.append(consumer)
                consumer.queue.deliver()

    def leave(self, consumer: _Consumer) -> None:
        with self._lock, contextlib.suppress(ValueError):
            consumer.queue.consumers.remove(consumer)

    def make_room(self, consumer: _Consumer, number: int) -> None:
        with self._lock:
            consumer.room += number
            consumer.queue.deliver()

    def put(self, queue: _Queue, message: _Message) -> str | None:
        """Why it was not put at the end of the queue; None if it was."""
        try:
            with self._lock:
                queue.put(message)
        except oslo_messaging.MessageDeliveryFailure as error:
            return str(error)
        return None

    def put_back(self, deliveries: list[_Delivery]) -> None:
        """Put them at the heads of their queues, in this order."""
        with self._lock:
            for delivery in reversed(deliveries):
                delivery.consumer.queue.messages.appendleft(delivery.message)
            for queue in {delivery.consumer.queue for delivery in deliveries}:
                queue.deliver()

    def reply(self, call_id: str, body: bytes) -> None:
        """Pass an answer to its caller, if that still waits."""
        if (replies := self.calls.get(call_id)) is not None:
            replies.put(body)

    # For clients

    def publish(self, address: _Address, message: _Message) -> bool:
        """Whether there is a queue for it."""
        with self._lock:
            queues = self._queues.get(address, ())
            for queue in queues:
                queue.put(message)
            return bool(queues)


_BUSES: weakref.WeakValueDictionary[tuple[object, ...], _Bus] = weakref.WeakValueDictionary()
_BUSES_LOCK = threading.Lock()


def _request(
    message: dict[str, Any], ctxt: dict[str, Any], call: str | None, monitor: float | None
) -> bytes:
    """The body of a request, as RabbitMQ would carry it."""
    request = dict(message)
    if call:
        request.update({"_msg_id": call, "_reply_q": call, "_timeout": monitor})
    amqp._add_unique_id(request)
    amqp.pack_context(request, ctxt)
    body: bytes = jsonutils.dump_as_bytes(common.serialize_msg(request))
    return body


def _after(since_s: float, duration_s: float | None) -> float:
    return float("inf") if duration_s is None else since_s + duration_s


def _left(ends_s: float) -> float | None:
    return None if ends_s == float("inf") else max(0.0, ends_s - time.monotonic())
