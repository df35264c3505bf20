"""Copies of the messages of a topic, while somebody else serves it.

A queue of our own is bound to the exchange beside the topic's, so that the broker puts a copy of
each message into it. It belongs to our connection and ends with it, and is bounded: beyond that the
oldest copies are dropped. Nothing is declared, consumed or answered that others use.
"""

import logging

import amqp

from scheduler_worker.rpc.amqp import frames, properties
from scheduler_worker.rpc.amqp.connection import BrokerConnection
from scheduler_worker.rpc.amqp.frames import Content
from scheduler_worker.rpc.amqp.queues import needs
from scheduler_worker.rpc.amqp.settings import AmqpSettings, Broker
from scheduler_worker.rpc.serving import envelope
from scheduler_worker.rpc.serving.connection import ConnectionLostError, Listener, PublishOutcome
from scheduler_worker.rpc.serving.deliveries import (
    Ack,
    Command,
    DeadLetter,
    Delivery,
    Republish,
    Requeue,
)
from scheduler_worker.rpc.serving.envelope import DecompressionError, decompressed
from scheduler_worker.rpc.serving.settings import QueueNames
from scheduler_worker.unique import unique_hex

LOG = logging.getLogger(__name__)

_PREFETCH = 32
_MAX_BYTES = 64 * 2**20
"""Of the queue."""


class CopyConnection(BrokerConnection):
    """A connection with a queue of copies, whose senders get no answer."""

    def __init__(
        self,
        settings: AmqpSettings,
        broker: Broker,
        names: QueueNames,
        listener: Listener,
        is_reconnect: bool = False,
        *,
        max_messages: int,
        max_message_bytes: int,
    ) -> None:
        """The queue holds ``max_messages``."""
        self._max_messages = max_messages
        self._max_message_bytes = max_message_bytes
        super().__init__(settings, broker, names, listener, is_reconnect)
        self.address = f"{broker.address}, copies alone"

    def _open(self, *, is_reconnect: bool) -> frozenset[str]:
        """Make and bind the queue; none is lost, for copies are taken by nobody else."""
        names, channel = self._names, self._amqp.channel()
        self._channel = channel
        self._queue = f"{names.topic}_dry_run_{names.server}.{unique_hex()}"
        bounds = {
            "x-max-length": self._max_messages,
            "x-max-length-bytes": _MAX_BYTES,
            "x-overflow": "drop-head",
        }
        with needs(f"the configure permission on queues {names.topic}_dry_run_*"):
            channel.queue_declare(
                self._queue, durable=False, exclusive=True, auto_delete=True, arguments=bounds
            )
        try:
            with needs(f"write on {names.topic}_dry_run_*, and read on {names.exchange}"):
                channel.queue_bind(self._queue, names.exchange, names.queue)
        except amqp.NotFound:
            self.close()
            raise ConnectionLostError(
                f"there is no exchange {names.exchange} yet; nova-scheduler makes it"
            ) from None
        return frozenset()

    def consume(self, slots: int, *, shared: bool = True) -> None:
        self._begin_consuming({self._queue: f"queues {self._names.topic}_dry_run_*"}, _PREFETCH)
        LOG.info("Copies of the messages of topic %s arrive in %s", self._names.topic, self._queue)

    def _delivered(self, content: Content) -> None:
        """Leave out what cannot be read; a copy has no expiry, as nobody waits for an answer."""
        _, tag, _ = frames.delivered(content.arguments)
        most, compression = self._max_message_bytes, properties.read(content.properties).compression
        try:
            body = decompressed(content.body, compression, most)
            request = envelope.read(body, None, most)
            if isinstance(request, envelope.MalformedError):
                raise request
        except (DecompressionError, envelope.MalformedError) as error:
            problem: object = error
        else:
            problem = request.refusal and request.refusal.message
        if problem:
            LOG.warning("A copy is left out: %s", problem)
            super().perform(Ack(tag, multiple=False))
        else:
            self._listener.message(Delivery(tag=tag, queue=self._queue, body=body))

    def perform(self, command: Command) -> None:
        """Answers are left out: whoever serves the topic sends them."""
        match command:
            case Ack():
                super().perform(command)
            case Requeue(tag):
                super().perform(Ack(tag, multiple=False))
            case Republish() | DeadLetter():
                # There is nothing to keep: the original is served.
                self._listener.copied(command, PublishOutcome.CONFIRMED, "")

    def answer(self, queue: str, body: bytes, *, matters: bool = True) -> None:
        """Do nothing: whoever serves the topic answers."""

    def open_extra_consumer(self, number: int) -> None:
        """Do nothing: copies are decided one by one."""

    def close_extra_consumer(self, number: int) -> None:
        """Do nothing."""
