"""The AMQP side of pings to the worker's own topic: their properties, and a queue for answers."""

import logging
from typing import Any, NamedTuple

import amqp

from scheduler_worker.rpc.serving.queue_delay import LONGEST_S
from scheduler_worker.unique import unique_hex

LOG = logging.getLogger(__name__)

PING = bytes(
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


class PingChannel(NamedTuple):
    """The queue in which pings are answered."""

    channel: int
    """The channel on which the answers are delivered."""
    reply_queue: str


def open_ping_channel(connection: Any, name: str) -> PingChannel | None:
    """Consume a reply queue whose name begins with ``name``; None where it is not permitted.

    Raises AMQPError.
    """
    queue = f"{name}.pings-{unique_hex()}"
    try:
        channel = connection.channel()
        # An exclusive queue goes with its connection, whatever kinds of queues the broker permits.
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
        return None
    return PingChannel(channel.channel_id, queue)
