"""``local:``: an oslo.messaging driver for a bus inside the process, the embedded default.

It behaves as RabbitMQ does under oslo.messaging, as far as one process can: every message is
encoded and decoded by oslo.messaging's own envelope functions, queues outlive their servers, a
call expires when its caller gives up, a fanout is addressed by topic alone, without an exchange.
Transports with the same URL share one bus, ``local:/`` or ``local://name/``; a bus lives as long
as one of its transports. Threads wait on conditions; an idle bus costs nothing.

It is loaded by its entry point in ``oslo.messaging.drivers``; no module imports it.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from scheduler_worker.rpc.oslo import oslo_messaging

# isort: split
from oslo_messaging._drivers import amqp, base, common
from oslo_serialization import jsonutils
from oslo_utils import timeutils

QUEUE_LIMIT = 10_000
"""Messages that a queue holds; further ones are refused."""
IN_FLIGHT_LIMIT = 256
"""Unanswered messages of one server; further ones stay in the queue, for other servers."""


class LocalDriver(base.BaseDriver):  # type: ignore[misc]
    """Sends to, and listens on, the bus that the URL names."""

    def __init__(
        self,
        conf: Any,
        url: oslo_messaging.TransportURL,
        default_exchange: str | None = None,
        allowed_remote_exmods: Any = None,
    ) -> None:
        super().__init__(conf, url, default_exchange, allowed_remote_exmods)
        self._bus = _bus_at(url)

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
        call = self._bus.open_call() if wait_for_reply else None
        try:
            body = _request(message, ctxt, call, call_monitor_timeout)
            mandatory = bool(transport_options and transport_options.at_least_once)
            self._deliver(
                target, _QueuedMessage.to_expire_in(timeout if call else None, body), mandatory
            )
            return call and self._answer(call, timeout, call_monitor_timeout)
        finally:
            if call:
                self._bus.close_call(call)

    def _deliver(
        self, target: oslo_messaging.Target, message: _QueuedMessage, mandatory: bool
    ) -> None:
        if target.fanout:
            self._bus.publish_fanout(target.topic, message)
            return
        address = _Address(
            target.exchange or self._default_exchange, _routing_key(target.topic, target.server)
        )
        if not self._bus.publish(address, message) and mandatory:
            raise oslo_messaging.MessageUndeliverable(
                None, address.exchange, address.routing_key, message.body
            )

    def _answer(self, call: _Call, timeout: float | None, silence: float | None) -> Any:
        """Wait for the answer. A heartbeat extends the wait for the next one, never the whole."""
        started_s = heartbeat_s = time.monotonic()
        while True:
            ends_s = min(_after(started_s, timeout), _after(heartbeat_s, silence))
            try:
                body = call.replies.get(timeout=_left(ends_s))
            except queue.Empty:
                raise oslo_messaging.MessagingTimeout(
                    f"Timed out waiting for a reply to message ID {call.id}"
                ) from None
            reply = _decode(body)
            if reply["failure"]:
                raise common.deserialize_remote_exception(
                    reply["failure"], self._allowed_remote_exmods
                )
            if reply["ending"]:
                return reply["result"]
            heartbeat_s = time.monotonic()

    def listen(
        self, target: oslo_messaging.Target, batch_size: int, batch_timeout: float | None
    ) -> LocalListener:
        """Declare the queues of a server, and make their listener."""
        exchange = target.exchange or self._default_exchange
        keys = target.topic, _routing_key(target.topic, target.server)
        listener = LocalListener(self._bus, target.topic, batch_size, batch_timeout)
        self._bus.bind(listener, [_Address(exchange, key) for key in keys])
        return listener

    def send_notification(self, *_arguments: Any, **_options: Any) -> None:
        """Unsupported: this bus is for RPC."""
        raise NotImplementedError("local: is for RPC, not for notifications")

    def listen_for_notifications(self, *_arguments: Any, **_options: Any) -> None:
        """Unsupported: this bus is for RPC."""
        raise NotImplementedError("local: is for RPC, not for notifications")

    def cleanup(self) -> None:
        """Do nothing: the bus goes with its last transport."""


class LocalListener(base.Listener):  # type: ignore[misc]
    """Takes messages from a server's queues in a thread of its own and passes them on."""

    def __init__(self, bus: _Bus, topic: str, batch_size: int, batch_timeout: float | None) -> None:
        super().__init__(batch_size, batch_timeout)
        self.topic = topic
        self.queues: list[_Queue] = []
        self.wake = threading.Condition(bus.lock)
        self.waits_for_message = False
        self._bus = bus
        self._in_flight = 0
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"local-{topic}", daemon=True)

    def start(self, on_incoming_callback: Callable[[list[Incoming]], None]) -> None:
        """Begin to pass messages to the callback."""
        super().start(on_incoming_callback)
        self._thread.start()

    def stop(self) -> None:
        """Take no more messages; waits for a running callback only."""
        with self.wake:
            self._stopped = True
            self.wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        super().stop()

    def cleanup(self) -> None:
        """Remove the server and its fanout queue with what is in it."""
        self._bus.unbind(self)

    def answered(self) -> None:
        """A message was handled."""
        with self.wake:
            self._in_flight -= 1
            if self._in_flight == IN_FLIGHT_LIMIT - 1:
                self.wake.notify()

    def _run(self) -> None:
        while (message := self._take()) is not None:
            self.on_incoming_callback([Incoming(self._bus, self, message)])

    def _take(self) -> _QueuedMessage | None:
        """The next message, or None when stopped."""
        with self.wake:
            while not self._stopped:
                message = self._next() if self._in_flight < IN_FLIGHT_LIMIT else None
                if message is not None:
                    self._in_flight += 1
                    return message
                self.waits_for_message = self._in_flight < IN_FLIGHT_LIMIT
                self.wake.wait()
                self.waits_for_message = False
            return None

    def _next(self) -> _QueuedMessage | None:
        """The head of a queue, round robin over the queues."""
        for source in list(self.queues):
            message = source.pop()
            if message is not None:
                self.queues.remove(source)
                self.queues.append(source)
                return message
        return None


class Incoming(base.RpcIncomingMessage):  # type: ignore[misc]
    """A request as servers see it, with the attributes of one from RabbitMQ."""

    def __init__(self, bus: _Bus, listener: LocalListener, queued: _QueuedMessage) -> None:
        message = _decode(queued.body)
        sent = amqp.unpack_context(message)
        super().__init__(sent.to_dict(), message, sent.msg_id)
        self.unique_id = message.pop(amqp.UNIQUE_ID)
        self.client_timeout = sent.client_timeout
        self.expiration_ms = queued.expiration_ms
        self.stopwatch = timeutils.StopWatch()
        self.stopwatch.start()
        self.orig_msg_id = sent.msg_id
        self._bus = bus
        self._listener = listener

    def reply(self, reply: Any = None, failure: Any = None) -> None:
        """Answer a call; for a cast only count it as handled."""
        try:
            self._send(reply, failure, ending=True)
        finally:
            self._listener.answered()

    def heartbeat(self) -> None:
        """Tell the caller that the call is worked on."""
        self._send(None, None, ending=False)

    def requeue(self) -> None:
        """Unsupported, as for RPC on RabbitMQ."""

    def _send(self, reply: Any, failure: Any, *, ending: bool) -> None:
        if self.orig_msg_id is None:
            return
        if failure:
            failure = common.serialize_remote_exception(failure)
        answer = {
            "result": reply,
            "failure": failure,
            "ending": ending,
            "_msg_id": self.orig_msg_id,
        }
        self._bus.reply(self.orig_msg_id, _encode(answer))


class _QueuedMessage(NamedTuple):
    """A message in a queue."""

    body: bytes
    expiration_ms: int | None
    expires_s: float

    @classmethod
    def to_expire_in(cls, timeout_s: float | None, body: bytes) -> _QueuedMessage:
        expiration_ms = None if timeout_s is None else int(timeout_s * 1000)
        return cls(body, expiration_ms, _after(time.monotonic(), timeout_s))


class _Address(NamedTuple):
    exchange: str | None
    routing_key: str


class _Call(NamedTuple):
    """A call whose caller waits."""

    id: str
    replies: queue.SimpleQueue[bytes]


class _Queue:
    """Messages of one address, and its consumers, round robin. Guarded by the bus's lock."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._messages: deque[_QueuedMessage] = deque()
        self.readers: deque[LocalListener] = deque()

    def put(self, message: _QueuedMessage) -> None:
        if len(self._messages) >= QUEUE_LIMIT:
            raise oslo_messaging.MessageDeliveryFailure(
                f"queue {self._name} is full: {QUEUE_LIMIT} messages wait for a server"
            )
        self._messages.append(message)
        for _ in range(len(self.readers)):
            reader = self.readers[0]
            self.readers.rotate(-1)
            if reader.waits_for_message:
                reader.waits_for_message = False
                reader.wake.notify()
                return

    def pop(self) -> _QueuedMessage | None:
        """The first message that has not expired."""
        while self._messages:
            message = self._messages.popleft()
            if time.monotonic() < message.expires_s:
                return message
        return None


class _Bus:
    """Queues by address, fanout queues by topic, calls by id."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._queues: dict[_Address, _Queue] = {}
        self._fanouts: dict[str, dict[LocalListener, _Queue]] = {}
        self._calls: dict[str, _Call] = {}

    def bind(self, listener: LocalListener, addresses: list[_Address]) -> None:
        fanout = _Queue(f"{listener.topic}_fanout")
        with self.lock:
            self._fanouts.setdefault(listener.topic, {})[listener] = fanout
            shared = [self._queues.setdefault(at, _Queue(at.routing_key)) for at in addresses]
            listener.queues = [*shared, fanout]
            for each in listener.queues:
                each.readers.append(listener)

    def unbind(self, listener: LocalListener) -> None:
        with self.lock:
            for each in listener.queues:
                each.readers.remove(listener)
            listener.queues = []
            self._fanouts.get(listener.topic, {}).pop(listener, None)

    def publish(self, address: _Address, message: _QueuedMessage) -> bool:
        """Whether there is a queue for it."""
        with self.lock:
            destination = self._queues.get(address)
            if destination is not None:
                destination.put(message)
            return destination is not None

    def publish_fanout(self, topic: str, message: _QueuedMessage) -> None:
        with self.lock:
            for each in self._fanouts.get(topic, {}).values():
                each.put(message)

    def open_call(self) -> _Call:
        call = _Call(uuid.uuid4().hex, queue.SimpleQueue())
        self._calls[call.id] = call
        return call

    def close_call(self, call: _Call) -> None:
        self._calls.pop(call.id, None)

    def reply(self, call_id: str, body: bytes) -> None:
        """Pass an answer to its caller, if that still waits."""
        call = self._calls.get(call_id)
        if call is not None:
            call.replies.put(body)


_BUSES: weakref.WeakValueDictionary[tuple[object, ...], _Bus] = weakref.WeakValueDictionary()
_BUSES_LOCK = threading.Lock()


def _bus_at(url: oslo_messaging.TransportURL) -> _Bus:
    name = (*(host.hostname for host in url.hosts), url.virtual_host or "")
    with _BUSES_LOCK:
        return _BUSES.setdefault(name, _Bus())


def _request(
    message: dict[str, Any], ctxt: dict[str, Any], call: _Call | None, monitor: float | None
) -> bytes:
    """The body of a request, as RabbitMQ would carry it."""
    request = dict(message)
    if call:
        request.update({"_msg_id": call.id, "_reply_q": "reply_local", "_timeout": monitor})
    amqp._add_unique_id(request)
    amqp.pack_context(request, ctxt)
    return _encode(request)


def _encode(payload: dict[str, Any]) -> bytes:
    body: bytes = jsonutils.dump_as_bytes(common.serialize_msg(payload))
    return body


def _decode(body: bytes) -> dict[str, Any]:
    payload: dict[str, Any] = common.deserialize_msg(jsonutils.loads(body))
    return payload


def _routing_key(topic: str, server: str | None) -> str:
    return f"{topic}.{server}" if server else topic


def _after(since_s: float, duration_s: float | None) -> float:
    return float("inf") if duration_s is None else since_s + duration_s


def _left(ends_s: float) -> float | None:
    return None if ends_s == float("inf") else max(0.0, ends_s - time.monotonic())
