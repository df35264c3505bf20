"""One connection to one broker, for one thread.

Consumers and acknowledgements have one channel, published messages another: the broker closes a
channel over a message that it refuses. What is written is sent by :meth:`BrokerConnection.flush`.
"""

import contextlib
import logging
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import amqp
from amqp import spec

from scheduler_worker.errors import BusUnavailable
from scheduler_worker.rpc.amqp import frames, properties
from scheduler_worker.rpc.amqp.frames import Content, Signature
from scheduler_worker.rpc.amqp.properties import DELIVERIES, EXPIRES, SENDER, Properties
from scheduler_worker.rpc.amqp.protocol import (
    BROKEN,
    CONNECT_S,
    STALLED_S,
    ProtocolConnection,
    Stream,
    lost,
    translated,
)
from scheduler_worker.rpc.amqp.publisher import ConfirmingPublisher, Publication
from scheduler_worker.rpc.amqp.queues import QueueDeclarations, needs
from scheduler_worker.rpc.amqp.settings import AmqpSettings, Broker
from scheduler_worker.rpc.serving import envelope
from scheduler_worker.rpc.serving.connection import (
    BusConnection,
    ConnectionLostError,
    Listener,
    PublishOutcome,
    ignore,
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
from scheduler_worker.rpc.serving.queue_delay import LONGEST_S
from scheduler_worker.rpc.serving.settings import QueueNames
from scheduler_worker.unique import unique_hex

LOG = logging.getLogger(__name__)

_PING = bytes(
    amqp.Message(
        b"",
        content_type="application/json",
        content_encoding="utf-8",
        delivery_mode=1,
        priority=0,
        expiration=str(int(LONGEST_S * 1000)),
    )._serialize_properties()
)
"""A ping's properties: as oslo.messaging sets them, but transient."""
_REASON = 200
"""Characters of the reason that a dead letter carries."""


class _Unacknowledged(NamedTuple):
    """A message that is not acknowledged."""

    queue: str
    content: Content
    properties: Properties
    since_s: float
    """Since when it has been waiting at the broker, as far as that is known."""


class BrokerConnection(BusConnection):
    """A connection over AMQP; opened as :data:`Open` says.

    The thread that opens it is the only one that uses it, so it has no lock. It calls its listener
    in that thread, out of one of its methods.
    """

    def __init__(
        self,
        settings: AmqpSettings,
        broker: Broker,
        names: QueueNames,
        listener: Listener,
        is_reconnect: bool = False,
    ) -> None:
        self._settings = settings
        self._names = names
        self.address = broker.address
        self._listener = listener
        # Classic queues only tell that a message was delivered before, not how often.
        self._counts_deliveries = {
            queue: settings.is_quorum(fanout=queue == names.fanout_queue)
            for queue in (names.queue, names.own_queue, names.fanout_queue)
        }
        self._unacknowledged: dict[int, _Unacknowledged] = {}
        self._consumed: dict[str, str] = {}
        """The queue of each consumer, by its tag."""
        self._publisher: ConfirmingPublisher | None = None
        self._ping_channel: int | None = None
        """The channel on which pings are answered; None where the broker permits no answers."""
        self._ping_queue = f"{names.own_queue}.pings-{unique_hex()}"
        self._last_received_s = time.monotonic()
        self._amqp = ProtocolConnection(
            settings,
            broker,
            names,
            on_blocked=self._blocked,
            on_content=self._received,
            on_method=self._publisher_method,
        )
        with translated(broker, names, self.close):
            self._amqp.connect()
            self._stream: Stream = self._amqp.transport
            self.vanished = self._open(is_reconnect=is_reconnect)
            self._stream.cork()
        self.descriptor = self._stream.sock.fileno()

    def _open(self, *, is_reconnect: bool) -> frozenset[str]:
        """Declare the queues and open the channels; returns the queues that were lost."""
        queues = QueueDeclarations(self._amqp.channel, self._settings, self._names)
        vanished = queues.missing() if is_reconnect else frozenset[str]()
        queues.declare()
        self._channel = queues.channel
        self._has_dead_letters = queues.has_dead_letters
        self._open_publisher()
        self._open_ping_channel()
        return vanished

    def _blocked(self, is_blocked: bool) -> None:
        self.is_blocked = is_blocked

    def _open_publisher(self) -> None:
        """Open the channel for publishing, and test the permission to publish."""
        channel = self._amqp.channel()
        channel.confirm_select()
        self._publisher = ConfirmingPublisher(channel.channel_id, self._amqp.frame_max, self._write)
        outcomes: list[tuple[PublishOutcome, str]] = []
        # A broker tells of a missing permission only when something is published: so to nobody.
        missing = f"{self._names.own_queue}.nobody.{unique_hex()}"
        self._publish(
            Publication(missing, frames.ANSWER, b"", lambda _, *outcome: outcomes.append(outcome))
        )
        # Blocks the loop: nothing is consumed yet, and slots go on with what they have.
        while not outcomes:
            self._amqp.drain_events(timeout=STALLED_S)
        outcome, why = outcomes[0]
        if outcome is PublishOutcome.REFUSED:
            raise BusUnavailable(
                f"RabbitMQ at {self._amqp.broker.address} does not let this worker answer anybody: "
                f"its account needs the write permission on 'amq.default' ({why})"
            )

    def _open_ping_channel(self) -> None:
        queue = self._ping_queue
        try:
            channel = self._amqp.channel()
            # An exclusive queue goes with its connection, whatever kinds the broker permits.
            channel.queue_declare(
                queue, exclusive=True, auto_delete=True, arguments={"x-queue-type": "classic"}
            )
            # An answer that gets lost only makes the next ping count.
            channel.basic_consume(queue, no_ack=True)
        except amqp.ChannelError as error:
            LOG.warning(
                "How long requests wait in the broker is not known, and under overload they are "
                "decided too late: RabbitMQ does not permit a queue for answers to pings (%s)",
                error,
            )
        else:
            self._ping_channel = channel.channel_id

    # Consuming

    def consume(self, slots: int, *, shared: bool = True) -> None:
        """Raises BusUnavailable where a permission is missing."""
        queues = [self._names.queue] if shared else []
        queues += [self._names.own_queue, self._names.fanout_queue]
        # One after the other, each awaited: the refusal would not say which queue it is about.
        self._begin_consuming({queue: f"the queue {queue}" for queue in queues}, slots)

    def _begin_consuming(self, queues: Mapping[str, str], prefetch: int) -> None:
        """Consume queues, whose names for people are given."""
        self._stream.uncork()
        with translated(self._amqp.broker, self._names, self.close):
            for queue, name in queues.items():
                with needs(f"the read permission on {name}"):
                    self._consume(queue, queue, prefetch, wait=spec.Basic.ConsumeOk)
        self._stream.cork()
        self._dispatch()  # what arrived while these answers were awaited

    def consume_shared(self, slots: int) -> None:
        if self._names.queue not in self._channel.cancel_callbacks:
            self._consume(self._names.queue, self._names.queue, slots)

    def leave_shared(self) -> None:
        if self._names.queue in self._channel.cancel_callbacks:
            self._cancel(self._names.queue)

    def open_extra_consumer(self, number: int) -> None:
        self._consume(self._names.queue, f"extra-{number}", 1)

    def close_extra_consumer(self, number: int) -> None:
        self._cancel(f"extra-{number}")

    def stop_consuming(self) -> None:
        for tag in list(self._consumed):
            self._cancel(tag)

    def count_consumers(self) -> None:
        if self._publisher is not None:
            self._write(frames.passive_declare(self._publisher.channel, self._names.own_queue))

    def _consume(self, queue: str, tag: str, prefetch: int, wait: Any = None) -> None:
        # In RabbitMQ the prefetch count is that of each consumer that is opened after it.
        self._send_method(spec.Basic.Qos, "lBb", (0, prefetch, False))
        self._consumed[tag] = queue
        self._channel.cancel_callbacks[tag] = self._cancelled
        options = {"x-priority": self.priority} if queue == self._names.queue else {}
        arguments: tuple[Any, ...] = (0, queue, tag, False, False, False, wait is None, options)
        self._channel.send_method(spec.Basic.Consume, "BssbbbbF", arguments, wait=wait)

    def _cancel(self, tag: str) -> None:
        # The tag stays in _consumed: deliveries that are on their way still arrive.
        self._channel.cancel_callbacks.pop(tag, None)
        self._send_method(spec.Basic.Cancel, "sb", (tag, True))

    def _cancelled(self, tag: str) -> None:
        # Out of a dispatch, to the server's loop, which connects again and declares the queue.
        raise ConnectionLostError(f"the broker ended the consumption of {tag}: its queue is gone")

    # Receiving

    def _received(self, channel: int, content: Content) -> None:
        if channel == self._ping_channel:
            self._listener.ping_answered(content.body)
        elif content.signature == frames.BASIC_DELIVER:
            self._delivered(content)
        elif self._publisher is not None:
            self._publisher.returned(frames.returned(content.arguments), content.body)

    def _delivered(self, content: Content) -> None:
        consumer, tag, is_redelivered = frames.delivered(content.arguments)
        queue = self._consumed[consumer]
        read = properties.read(content.properties)
        since_s = time.monotonic() - self._listener.waited_s(queue)
        self._unacknowledged[tag] = _Unacknowledged(queue, content, read, since_s)
        deliveries, is_counted = read.deliveries(broker_counts=self._counts_deliveries[queue])
        self._listener.message(
            Delivery(
                tag=tag,
                queue=queue,
                body=content.body,
                expiration=read.expiration,
                deliveries=deliveries,
                is_counted=is_counted or not is_redelivered,
                compression=read.compression,
                traceparent=read.traceparent,
            )
        )

    def _publisher_method(self, channel: int, signature: Signature, arguments: bytes) -> bool:
        if self._publisher is None or channel != self._publisher.channel:
            return False
        if signature == frames.QUEUE_DECLARE_OK:
            self._listener.consumers_counted(frames.consumers_declared(arguments))
            return True
        return self._publisher.received(signature, arguments)

    # Settling and publishing

    def perform(self, command: Command) -> None:
        match command:
            case Publish(queue, body):
                self.answer(queue, body)
            case Ack(tag, multiple):
                tags = [each for each in self._unacknowledged if each <= tag] if multiple else [tag]
                for settled in tags:
                    self._unacknowledged.pop(settled, None)
                self._write(frames.ack(self._channel.channel_id, tag, multiple=multiple))
            case Requeue(tag):
                self._unacknowledged.pop(tag, None)
                self._send_method(spec.Basic.Reject, "Lb", (tag, True))
            case Republish(tag, deliveries):
                message = self._unacknowledged[tag]
                left_ms, header = self._expiry(message)
                self._copy(command, message.queue, {DELIVERIES: deliveries, **header}, left_ms)
            case DeadLetter(tag, why):
                message = self._unacknowledged[tag]
                sender = message.properties.values.get("user_id")
                headers = {
                    "x-scheduler-worker-queue": message.queue,
                    "x-scheduler-worker-reason": why[:_REASON],
                    **({SENDER: sender} if sender else {}),
                }
                self._copy(command, self._names.dead_letters, headers, None)

    def answer(self, queue: str, body: bytes, *, matters: bool = True) -> None:
        done = self._answered if matters else ignore
        self._publish(Publication(queue, frames.ANSWER, body, done))

    def ping(self, name: str) -> bool:
        if self._ping_channel is None:
            return False

        def done(_: Publication, outcome: PublishOutcome, _why: str) -> None:
            if outcome is PublishOutcome.CONFIRMED:
                self._listener.ping_confirmed(name)

        body = envelope.encode_ping(name, self._ping_queue)
        self._publish(Publication(self._names.queue, _PING, body, done))
        return True

    def unconfirmed_answers(self) -> list[Publish]:
        pending = self._publisher.pending if self._publisher is not None else []
        return [
            Publish(publication.queue, publication.body)
            for publication in pending
            # Copies are made again when their message is redelivered; pings and heartbeats may get
            # lost.
            if publication.done == self._answered
        ]

    def _answered(self, publication: Publication, outcome: PublishOutcome, why: str) -> None:
        if outcome is PublishOutcome.REFUSED and why.startswith(str(amqp.AccessRefused.code)):
            # To connect anew tests the permission, and names it.
            raise ConnectionLostError(f"the broker permits no answers: {why}")
        self._listener.answered(Publish(publication.queue, publication.body), outcome, why)

    def _expiry(self, message: _Unacknowledged) -> tuple[int | None, Mapping[str, int]]:
        """How many milliseconds the caller of a message still waits, and the header for it."""
        expiration = message.properties.expiration
        if expiration is None or not expiration.isdigit():
            return None, {}
        now_ms = int(time.time() * 1000)
        # A copy is a new message, whose expiration counts from now: the wait so far comes off.
        left_ms = int(expiration) - int((time.monotonic() - message.since_s) * 1000)
        expires_ms = message.properties.expires_ms
        if expires_ms is not None:
            left_ms = min(left_ms, expires_ms - now_ms)
        left_ms = max(0, left_ms)
        return left_ms, {EXPIRES: now_ms + left_ms}

    def _copy(
        self, copy: Copy, queue: str, headers: Mapping[str, Any], expiration_ms: int | None
    ) -> None:
        original = self._unacknowledged[copy.tag]
        encoded = properties.of_copy(
            original.properties, headers, expiration_ms, self._amqp.frame_max
        )
        done = partial(self._copied, copy)
        self._publish(Publication(queue, encoded, original.content.body, done))

    def _copied(self, copy: Copy, _: Publication, outcome: PublishOutcome, why: str) -> None:
        if isinstance(copy, DeadLetter) and not self._has_dead_letters and outcome.may_pass:
            # Its queue is not away: nobody may declare it.
            outcome, why = PublishOutcome.REFUSED, outcome.value
        self._listener.copied(copy, outcome, why)

    def _publish(self, publication: Publication) -> None:
        assert self._publisher is not None  # noqa: S101
        self._publisher.publish(publication)

    def _write(self, encoded: bytes) -> None:
        self._amqp.bytes_sent += 1  # py-amqp sends a heartbeat only where this does not change
        self._stream.write(encoded)

    def _send_method(self, method: Any, signature: str, arguments: tuple[Any, ...]) -> None:
        try:
            self._channel.send_method(method, signature, arguments)
        except BROKEN as error:
            raise lost(error) from None

    # Moving bytes

    def pump(self) -> None:
        self._last_received_s = time.monotonic()
        try:
            self._stream.fill()
        except BROKEN as error:
            raise lost(error) from None
        self._dispatch()

    def _dispatch(self) -> None:
        try:
            # py-amqp's own read_frame would issue one read for each part of a frame.
            for frame in frames.taken_from(self._stream.inbox):
                self._amqp.on_inbound_frame(frame)
        except BROKEN as error:
            raise lost(error) from None

    def flush(self) -> None:
        # Blocks while the broker takes nothing off the socket: after STALLED_S it is lost.
        try:
            self._stream.flush()
        except BROKEN as error:
            raise lost(error) from None

    def tick(self, *, reads: bool = True) -> None:
        if not reads:
            # Heartbeats may lie in the socket that is not read on purpose: they are not missing.
            self._amqp.bytes_recv += 1
            self._last_received_s = time.monotonic()
        try:
            self._amqp.heartbeat_tick()
        except BROKEN as error:
            raise lost(error) from None

    def silence(self) -> str | None:
        silence_s = time.monotonic() - self._last_received_s
        heartbeat_s = self._amqp.heartbeat
        if not heartbeat_s or silence_s <= heartbeat_s:
            return None
        return f"has heard nothing from RabbitMQ for {silence_s:.0f} s"

    def close(self) -> None:
        with contextlib.suppress(*BROKEN, ConnectionLostError):
            # Unlike ``transport``, it does not raise before the connection is open.
            transport = self._amqp._transport
            if transport is not None and transport.sock is not None:
                transport.sock.settimeout(CONNECT_S)
                # The handshake that closes waits for its answer, so it must not stay in the outbox.
                transport.uncork()
                self._amqp.close()
        with contextlib.suppress(*BROKEN):
            self._amqp.collect()

    def drop(self) -> None:
        self._amqp.collect()
