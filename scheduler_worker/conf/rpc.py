"""``[rpc]``: where requests come from."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "rpc"

OPTS = [
    cfg.StrOpt(
        "topic",
        default="scheduler",
        help="The topic that requests are sent to. Nova's clients use 'scheduler'.",
    ),
    cfg.StrOpt(
        "exchange",
        default="nova",
        deprecated_name="control_exchange",
        deprecated_group="DEFAULT",
        help="The control exchange of the topic. Nova's clients use 'nova'.",
    ),
    cfg.IntOpt(
        "slots",
        default=16,
        min=1,
        max=256,
        help="Requests in hand at the same time in one worker process; messages beyond stay in "
        "the queue for other workers. Those that wait for one another share a hold of the "
        "cluster's lock. For more throughput start more workers.",
    ),
    cfg.StrOpt(
        "server",
        default="amqp",
        choices=[
            ("amqp", "ours: messages are acknowledged when they are done; nothing is lost"),
            ("oslo", "oslo.messaging's: messages are acknowledged when they arrive"),
        ],
        help="How requests are taken from RabbitMQ. Callers notice no difference. Other buses "
        "are always served by oslo.messaging's server.",
    ),
    cfg.IntOpt(
        "max_deliveries",
        default=10,
        min=1,
        max=1000,
        help="How often a message is delivered again that was not finished, before it is set "
        "aside in the queue <topic>_dead_letters. Only for server = amqp.",
    ),
    cfg.IntOpt(
        "max_message_bytes",
        default=32 * 2**20,
        min=4096,
        help="The largest message that is read; a larger one is refused. Only for server = amqp.",
    ),
]
