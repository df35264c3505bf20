"""One connection to one broker, for one thread: py-amqp over a :class:`Stream`.

What is said leaves with :meth:`Link.flush`.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import amqp  # type: ignore[import-untyped]
from amqp import spec
from kombu import compression

from scheduler_worker import __version__
from scheduler_worker.errors import BusUnavailable, ConfigError
from scheduler_worker.rpc.amqp import frames
from scheduler_worker.rpc.amqp.ledger import Ack, Bury, Command, Publish, Recount, Requeue
from scheduler_worker.rpc.amqp.settings import DEAD_LETTERS, AmqpSettings, Broker, Place
from scheduler_worker.rpc.amqp.stream import CONNECT_S, Stream

DELIVERIES = "x-scheduler-worker-deliveries"
"""The header in which we count the deliveries of a message, where the broker does not."""
_BROKERS_COUNT = "x-delivery-count"
_REFUSED = (amqp.AccessRefused, amqp.NotAllowed, ssl.SSLCertVerificationError)


class LinkLostError(Exception):
    """Raised when the connection cannot be used any more."""


class Arrival(NamedTuple):
    """A message as it was delivered."""

    tag: int
    queue: str
    body: bytes
    expiration: str | None
    deliveries: int
    is_counted: bool


class Returned(NamedTuple):
    """An answer that came back: its queue does not exist."""

    queue: str
    body: bytes


class Link:
    """A connection on which the place's queues exist; nothing is consumed until :meth:`consume`.

    Raises:
        BusUnavailable: the broker refuses us.
        ConfigError: a queue of the place exists and is of another kind.
        LinkLostError: anything else; another try may succeed.
    """

    def __init__(
        self,
        settings: AmqpSettings,
        broker: Broker,
        place: Place,
        *,
        on_arrival: Callable[[Arrival], None],
        on_returned: Callable[[Returned], None],
    ) -> None:
        self._settings = settings
        self._place = place
        self._on_arrival = on_arrival
        self._on_returned = on_returned
        self._messages: dict[int, Any] = {}
        self._buries = False
        self.is_blocked = False
        """The broker has told that it takes nothing for now."""
        self._connection = _Connection(settings, broker, self._block)
        with self._translated(broker):
            self._connection.connect()
            self._channel = self._open_channel()
            self._declare()
            self._connection.transport.cork()

    def fileno(self) -> int:
        return int(self._connection.transport.sock.fileno())

    @contextlib.contextmanager
    def _translated(self, broker: Broker) -> Iterator[None]:
        try:
            yield
        except _REFUSED as error:
            self.close()
            raise BusUnavailable(
                f"RabbitMQ at {broker.address} and this worker do not get together: {error}"
            ) from None
        except amqp.PreconditionFailed as error:
            self.close()
            raise ConfigError(_explained(error, self._place)) from None
        except (amqp.AMQPError, OSError) as error:
            self.close()
            if "transient_nonexcl_queues" in str(error):
                raise ConfigError(_TRANSIENT_REFUSED) from None
            hint = _TLS_HINT if isinstance(error, ssl.SSLError) else ""
            raise LinkLostError(
                f"{broker.address}: {error or type(error).__name__}{hint}"
            ) from None

    # Queues

    def _open_channel(self) -> Any:
        channel = self._connection.channel()
        channel.auto_decode = False
        channel.events["basic_return"].add(self._return)
        return channel

    def _declare(self) -> None:
        told, place = self._settings, self._place
        self._declare_exchange(place.exchange, "topic", told.durable, told.auto_delete)
        for queue in (place.queue, place.own_queue):
            self._declare_queue(queue, told.durable, told.auto_delete, told.queue_arguments)
            self._channel.queue_bind(queue, place.exchange, queue)
        self._declare_exchange(place.fanout_exchange, "fanout", told.fanout_durable, True)
        self._declare_queue(place.fanout_queue, told.fanout_durable, False, told.fanout_arguments)
        self._channel.queue_bind(place.fanout_queue, place.fanout_exchange, place.topic)

    def _declare_exchange(self, name: str, kind: str, durable: bool, auto_delete: bool) -> None:
        """Of an exchange that is there it matters little how it was declared."""
        try:
            self._channel.exchange_declare(name, kind, durable=durable, auto_delete=auto_delete)
        except amqp.PreconditionFailed:
            self._channel = self._open_channel()
            self._channel.exchange_declare(name, kind, passive=True)

    def _declare_queue(
        self, name: str, durable: bool, auto_delete: bool, arguments: Mapping[str, Any]
    ) -> None:
        self._channel.queue_declare(
            name, durable=durable, auto_delete=auto_delete, arguments=dict(arguments)
        )

    # Consuming

    def consume(self, slots: int) -> None:
        """Take from each queue at most ``slots`` messages that are not acknowledged."""
        place = self._place
        for queue in (place.queue, place.own_queue, place.fanout_queue):
            self._consume(queue, queue, slots)

    def open_lane(self, number: int) -> None:
        """Take one message more from the shared queue, for a slot that stepped aside."""
        self._consume(self._place.queue, f"lane-{number}", 1)

    def close_lane(self, number: int) -> None:
        """Undo :meth:`open_lane`; what it brought is ours nevertheless."""
        self._cancel(f"lane-{number}")

    def stop_consuming(self) -> None:
        """Take nothing more."""
        for tag in list(self._channel.callbacks):
            self._cancel(tag)

    def _consume(self, queue: str, tag: str, prefetch: int) -> None:
        def arrived(message: Any) -> None:
            self._arrive(queue, message)

        self._send(spec.Basic.Qos, "lBb", (0, prefetch, False))
        self._channel.callbacks[tag] = arrived
        self._channel.cancel_callbacks[tag] = self._cancelled
        self._send(spec.Basic.Consume, "BssbbbbF", (0, queue, tag, False, False, False, True, {}))

    def _cancel(self, tag: str) -> None:
        # The callback stays: what is on its way is delivered to it.
        self._channel.cancel_callbacks.pop(tag, None)
        self._send(spec.Basic.Cancel, "sb", (tag, True))

    def _cancelled(self, tag: str) -> None:
        raise LinkLostError(f"the broker ended the consumption of {tag}: its queue is gone")

    def _arrive(self, queue: str, message: Any) -> None:
        info, headers = message.delivery_info, message.headers or {}
        tag = info["delivery_tag"]
        self._messages[tag] = message
        brokers = headers.get(_BROKERS_COUNT)
        ours = headers.get(DELIVERIES, 0)
        body = message.body
        if headers.get("compression"):
            body = compression.decompress(body, headers["compression"])
        self._on_arrival(
            Arrival(
                tag=tag,
                queue=queue,
                body=body.encode() if isinstance(body, str) else bytes(body),
                expiration=message.properties.get("expiration"),
                deliveries=int(ours if brokers is None else brokers),
                is_counted=brokers is not None or not info["redelivered"],
            )
        )

    # Answering

    def perform(self, command: Command) -> None:
        """Say to the broker what the ledger says; it leaves with the next :meth:`flush`."""
        match command:
            case Publish(queue, body):
                self.answer(queue, body)
            case Ack(tag, multiple):
                for each in [t for t in self._messages if t <= tag] if multiple else [tag]:
                    self._messages.pop(each, None)
                channel = self._channel.channel_id
                self._say(frames.acknowledgement(channel, tag, multiple=multiple))
            case Requeue(tag):
                self._messages.pop(tag, None)
                self._send(spec.Basic.Reject, "Lb", (tag, True))
            case Recount(tag, queue, deliveries):
                self._copy(tag, queue, {DELIVERIES: deliveries})
            case Bury(tag, queue, why):
                self._bury(tag, queue, why)

    def answer(self, queue: str, body: bytes) -> None:
        """Send to a queue; it comes back as :class:`Returned` if there is none."""
        connection = self._connection
        self._say(frames.answer(self._channel.channel_id, queue, body, connection.frame_max))

    def _bury(self, tag: int, queue: str, why: str) -> None:
        if not self._buries:
            self._declare_dead_letters()
        told = {"x-scheduler-worker-queue": queue, "x-scheduler-worker-reason": why[:200]}
        self._copy(tag, self._place.dead_letters, told, forever=True)

    def _declare_dead_letters(self) -> None:
        kind = {k: v for k, v in self._settings.queue_arguments.items() if k == "x-queue-type"}
        arguments = {"x-max-length": DEAD_LETTERS, **kind}
        self._connection.transport.uncork()
        with self._translated(self._connection.broker):
            self._declare_queue(self._place.dead_letters, True, False, arguments)
        self._connection.transport.cork()
        self._buries = True

    def _copy(
        self, tag: int, queue: str, headers: Mapping[str, Any], *, forever: bool = False
    ) -> None:
        original = self._messages[tag]
        properties = {
            name: value
            for name, value in original.properties.items()
            if name != "application_headers" and not (forever and name == "expiration")
        }
        headers = {**(original.headers or {}), **headers}
        self._publish(queue, amqp.Message(original.body, application_headers=headers, **properties))

    def _publish(self, queue: str, message: Any) -> None:
        # py-amqp's own basic_publish looks for input before each message.
        self._send(spec.Basic.Publish, "Bssbb", (0, "", queue, True, False), message)

    def _say(self, told: bytes) -> None:
        self._connection.bytes_sent += 1  # so that it counts as a sign of life
        self._connection.transport.write(told)

    def _return(self, _error: Any, _exchange: str, queue: str, message: Any) -> None:
        body = message.body
        self._on_returned(Returned(queue, body.encode() if isinstance(body, str) else bytes(body)))

    def _block(self, is_blocked: bool) -> None:
        self.is_blocked = is_blocked

    def _send(
        self, method: Any, signature: str, arguments: tuple[Any, ...], content: Any = None
    ) -> None:
        self._channel.send_method(method, signature, arguments, content)

    # Moving bytes

    @property
    def has_input(self) -> bool:
        """Whether something arrived while the broker's answer to something else was awaited."""
        return bool(self._connection.transport.has_frame())

    def pump(self) -> None:
        """Hand on what has arrived; somebody saw that there is something. Raises LinkLostError."""
        with self._lost():
            transport = self._connection.transport
            if not transport.has_frame():
                transport.fill()
            # py-amqp's own read_frame would ask for each part of a frame as if it had to wait.
            while (frame := transport.next_frame()) is not None:
                self._connection.on_inbound_frame(frame)

    def flush(self) -> None:
        """Send what was said since the last time. Raises LinkLostError."""
        with self._lost():
            self._connection.transport.flush()

    def tick(self) -> None:
        """Send a heart-beat when one is due, and miss the broker's. Raises LinkLostError."""
        with self._lost():
            self._connection.heartbeat_tick()

    def close(self) -> None:
        """Take leave; what is not acknowledged goes back to its queues."""
        with contextlib.suppress(amqp.AMQPError, OSError, LinkLostError):
            transport = self._connection.transport_or_none()
            if transport is not None and transport.sock is not None:
                transport.sock.settimeout(CONNECT_S)
                transport.uncork()
                self._connection.close()
        with contextlib.suppress(amqp.AMQPError, OSError):
            self._connection.collect()

    def drop(self) -> None:
        """End it without a word, as a crash does."""
        self._connection.collect()

    @contextlib.contextmanager
    def _lost(self) -> Iterator[None]:
        try:
            yield
        except (amqp.AMQPError, OSError) as error:
            raise LinkLostError(str(error) or type(error).__name__) from None


_TRANSIENT_REFUSED = (
    "RabbitMQ does not permit transient queues: set rabbit_quorum_queue = true and "
    "rabbit_transient_quorum_queue = true in [oslo_messaging_rabbit], here and for the clients"
)

_TLS_HINT = "; is it a TLS port, and is [oslo_messaging_rabbit] ssl_cert_file what it asks for?"


def _explained(error: Exception, place: Place) -> str:
    return (
        f"A queue of topic {place.topic} exists in RabbitMQ and is of another kind than "
        f"[oslo_messaging_rabbit] says ({error}); set amqp_durable_queues, amqp_auto_delete and "
        "rabbit_quorum_queue as it was declared, or stop everybody who uses it and delete it"
    )


class _Connection(amqp.Connection):  # type: ignore[misc]
    """py-amqp's connection over our transport."""

    def __init__(
        self, settings: AmqpSettings, broker: Broker, block: Callable[[bool], None]
    ) -> None:
        self.broker = broker
        self._tls = settings.tls
        super().__init__(
            broker.address if ":" not in broker.host else f"[{broker.host}]:{broker.port}",
            broker.user,
            broker.password,
            login_method=settings.login_method,
            virtual_host=settings.vhost,
            heartbeat=settings.heartbeat_s,
            connect_timeout=CONNECT_S,
            client_properties={"product": "scheduler_worker", "version": __version__},
            on_blocked=lambda _reason: block(True),
            on_unblocked=lambda: block(False),
        )

    def Transport(self, host: str, connect_timeout: float, *_: Any, **__: Any) -> Stream:
        return Stream(host, connect_timeout, self._tls)

    def transport_or_none(self) -> Stream | None:
        found: Stream | None = self._transport
        return found
