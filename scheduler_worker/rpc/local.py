"""``local:``: an oslo.messaging driver for a bus inside the process, the embedded default.

It behaves as RabbitMQ does under oslo.messaging, as far as one process can: every message is
encoded to bytes and decoded again by oslo.messaging's own envelope functions, queues outlive
their servers, a call expires when its caller gives up, a fanout knows its topic only and no
exchange. Transports with the same URL share one bus, ``local:/`` or ``local://name/``; a bus lasts
as long as one of its transports. Threads wait on conditions; an idle bus costs nothing.

It is loaded by its entry point in ``oslo.messaging.drivers``; nothing but that knows of it.
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
IN_HAND_LIMIT = 256
"""Messages that a server takes before it has answered some; the others stay for other servers."""


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
        """Deliver, and for a call wait for the answer.

        Raises:
            MessagingTimeout: no answer, or no sign of life, in time.
            MessageDeliveryFailure: a queue is full.
            MessageUndeliverable: no queue, where ``transport_options`` asks for one.

        """
        call = self._bus.open_call() if wait_for_reply else None
        try:
            body = _request(message, ctxt, call, call_monitor_timeout)
            mandatory = bool(transport_options and transport_options.at_least_once)
            self._deliver(target, _Letter.to_expire_in(timeout if call else None, body), mandatory)
            return call and self._answer(call, timeout, call_monitor_timeout)
        finally:
            if call:
                self._bus.close_call(call)

    def _deliver(self, target: oslo_messaging.Target, letter: _Letter, mandatory: bool) -> None:
        if target.fanout:
            self._bus.publish_fanout(target.topic, letter)
            return
        address = _Address(
            target.exchange or self._default_exchange, _routing_key(target.topic, target.server)
        )
        if not self._bus.publish(address, letter) and mandatory:
            raise oslo_messaging.MessageUndeliverable(
                None, address.exchange, address.routing_key, letter.body
            )

    def _answer(self, call: _Call, timeout: float | None, silence: float | None) -> Any:
        """What came back. A sign of life extends the wait for the next one, never the whole."""
        started_s = alive_s = time.monotonic()
        while True:
            ends_s = min(_after(started_s, timeout), _after(alive_s, silence))
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
            alive_s = time.monotonic()

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
        """Nothing is held but the bus, which goes with its last transport."""


class LocalListener(base.Listener):  # type: ignore[misc]
    """Takes messages from a server's queues in a thread of its own and hands them on."""

    def __init__(self, bus: _Bus, topic: str, batch_size: int, batch_timeout: float | None) -> None:
        super().__init__(batch_size, batch_timeout)
        self.topic = topic
        self.queues: list[_Queue] = []
        self.wake = threading.Condition(bus.lock)
        self.waits_for_message = False
        self._bus = bus
        self._in_hand = 0
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"local-{topic}", daemon=True)

    def start(self, on_incoming_callback: Callable[[list[Incoming]], None]) -> None:
        """Begin to hand messages to the callback."""
        super().start(on_incoming_callback)
        self._thread.start()

    def stop(self) -> None:
        """Take no more; returns at once, but for a callback that runs."""
        with self.wake:
            self._stopped = True
            self.wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        super().stop()

    def cleanup(self) -> None:
        """Forget the server; what its fanout queue still holds goes with it."""
        self._bus.unbind(self)

    def answered(self) -> None:
        """A message that was taken is done with."""
        with self.wake:
            self._in_hand -= 1
            if self._in_hand == IN_HAND_LIMIT - 1:
                self.wake.notify()

    def _run(self) -> None:
        while (letter := self._take()) is not None:
            self.on_incoming_callback([Incoming(self._bus, self, letter)])

    def _take(self) -> _Letter | None:
        """The next message, or None when stopped."""
        with self.wake:
            while not self._stopped:
                letter = self._next() if self._in_hand < IN_HAND_LIMIT else None
                if letter is not None:
                    self._in_hand += 1
                    return letter
                self.waits_for_message = self._in_hand < IN_HAND_LIMIT
                self.wake.wait()
                self.waits_for_message = False
            return None

    def _next(self) -> _Letter | None:
        """The head of a queue, the queues by turns."""
        for source in list(self.queues):
            letter = source.pop()
            if letter is not None:
                self.queues.remove(source)
                self.queues.append(source)
                return letter
        return None


class Incoming(base.RpcIncomingMessage):  # type: ignore[misc]
    """A request as a server sees it, with the attributes of one that came from RabbitMQ."""

    def __init__(self, bus: _Bus, listener: LocalListener, letter: _Letter) -> None:
        message = _decode(letter.body)
        sent = amqp.unpack_context(message)
        super().__init__(sent.to_dict(), message, sent.msg_id)
        self.unique_id = message.pop(amqp.UNIQUE_ID)
        self.client_timeout = sent.client_timeout
        self.expiration_ms = letter.expiration_ms
        self.stopwatch = timeutils.StopWatch()
        self.stopwatch.start()
        self.orig_msg_id = sent.msg_id
        self._bus = bus
        self._listener = listener

    def reply(self, reply: Any = None, failure: Any = None) -> None:
        """Answer a call; for a cast it only ends the work."""
        try:
            self._send(reply, failure, ending=True)
        finally:
            self._listener.answered()

    def heartbeat(self) -> None:
        """Tell the caller that the call is alive."""
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


class _Letter(NamedTuple):
    """A message on its way."""

    body: bytes
    expiration_ms: int | None
    expires_s: float

    @classmethod
    def to_expire_in(cls, timeout_s: float | None, body: bytes) -> _Letter:
        expiration_ms = None if timeout_s is None else int(timeout_s * 1000)
        return cls(body, expiration_ms, _after(time.monotonic(), timeout_s))


class _Address(NamedTuple):
    exchange: str | None
    routing_key: str


class _Call(NamedTuple):
    """A caller that waits."""

    id: str
    replies: queue.SimpleQueue[bytes]


class _Queue:
    """Messages of one address, and the servers that read it by turns. Guarded by the bus."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._letters: deque[_Letter] = deque()
        self.readers: deque[LocalListener] = deque()

    def put(self, letter: _Letter) -> None:
        if len(self._letters) >= QUEUE_LIMIT:
            raise oslo_messaging.MessageDeliveryFailure(
                f"queue {self._name} is full: {QUEUE_LIMIT} messages wait for a server"
            )
        self._letters.append(letter)
        for _ in range(len(self.readers)):
            reader = self.readers[0]
            self.readers.rotate(-1)
            if reader.waits_for_message:
                reader.waits_for_message = False
                reader.wake.notify()
                return

    def pop(self) -> _Letter | None:
        """The first message that has not expired."""
        while self._letters:
            letter = self._letters.popleft()
            if time.monotonic() < letter.expires_s:
                return letter
        return None


class _Bus:
    """Queues by address, fanout queues by topic, and callers by the id of their call."""

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

    def publish(self, address: _Address, letter: _Letter) -> bool:
        """Whether a queue has it now."""
        with self.lock:
            found = self._queues.get(address)
            if found is not None:
                found.put(letter)
            return found is not None

    def publish_fanout(self, topic: str, letter: _Letter) -> None:
        with self.lock:
            for each in self._fanouts.get(topic, {}).values():
                each.put(letter)

    def open_call(self) -> _Call:
        call = _Call(uuid.uuid4().hex, queue.SimpleQueue())
        self._calls[call.id] = call
        return call

    def close_call(self, call: _Call) -> None:
        self._calls.pop(call.id, None)

    def reply(self, call_id: str, body: bytes) -> None:
        """Hand an answer to its caller, if there is still one."""
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
