"""Checks whether brokers would serve a worker: connects as its server does, without consuming."""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import amqp

from scheduler_worker.errors import BusUnavailable, ConfigError
from scheduler_worker.rpc.amqp.connection import BrokerConnection
from scheduler_worker.rpc.amqp.protocol import ProtocolConnection, translated
from scheduler_worker.rpc.amqp.settings import AmqpSettings, Broker
from scheduler_worker.rpc.serving.connection import ConnectionLostError, Listener
from scheduler_worker.rpc.serving.settings import QueueNames


class QueueUse(NamedTuple):
    """The queue of a topic."""

    broker: str
    """The address of the broker that was asked."""
    version: str
    """Of RabbitMQ."""
    messages: int
    """How many wait."""
    consumers: int


def refusals(settings: AmqpSettings, names: QueueNames) -> Iterator[tuple[str, str | None]]:
    """Each broker's address, and why it would not serve us; None if it would.

    The queues exist afterwards, as the server declares them.
    """
    for broker in settings.brokers:
        try:
            connection = BrokerConnection(settings, broker, names, Listener())
        except ConnectionLostError as error:
            yield broker.address, f"RabbitMQ cannot be reached: {error}"
        except (BusUnavailable, ConfigError) as error:
            yield broker.address, str(error)
        else:
            connection.close()
            yield broker.address, None


def queue_use(settings: AmqpSettings, names: QueueNames) -> QueueUse:
    """Ask the first broker that can be reached for the queue of a topic; makes nothing.

    Raises BusUnavailable: none can be, or the queue does not exist; ConfigError.
    """
    problem = ""
    for broker in settings.brokers:
        try:
            return _queue_use(settings, broker, names)
        except ConnectionLostError as error:
            problem = str(error)
    raise BusUnavailable(f"RabbitMQ cannot be reached: {problem}")


def _queue_use(settings: AmqpSettings, broker: Broker, names: QueueNames) -> QueueUse:
    connection = ProtocolConnection(
        settings,
        broker,
        names,
        on_blocked=lambda _: None,
        on_content=lambda _channel, _content: None,
        on_method=lambda _channel, _signature, _arguments: False,
    )

    def close() -> None:
        with contextlib.suppress(amqp.AMQPError, OSError):
            connection.collect()

    with translated(broker, names, close):
        connection.connect()
        try:
            declared = connection.channel().queue_declare(names.queue, passive=True)
        # Not declared here: who only asks must not leave a queue behind.
        except amqp.NotFound:
            raise BusUnavailable(f"The queue {names.queue} does not exist") from None
        version = str(connection.server_properties.get("version", "unknown"))
        with contextlib.suppress(amqp.AMQPError, OSError):
            connection.close()
        return QueueUse(broker.address, version, declared.message_count, declared.consumer_count)
