"""``[rpc]``: the topic that requests come from, and how they are consumed."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from scheduler_worker.operations.callers import ROLES
from scheduler_worker.rpc.serving.settings import DeliveryLimits
from scheduler_worker.rpc.settings import RpcSettings

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
        help="Requests that one worker process works on at the same time; further messages stay in "
        "the queue for other workers. Requests that wait for the same cluster share a lease of "
        "its lock. For more throughput start more workers.",
    ),
    cfg.StrOpt(
        "caller_role",
        default="administrator",
        choices=[*ROLES, "none"],
        help="What clients of the bus may ask for whose messages name no roles, such as "
        "scheduler-workerctl: all; all but what is an administrator's; reading; nothing. Messages "
        "with roles of Keystone have those that [api] keystone_roles gives them. Messages are "
        "not proven: this guards against mistakes, accounts of RabbitMQ against strangers.",
    ),
    cfg.IntOpt(
        "max_deliveries",
        default=10,
        min=1,
        max=1000,
        help="Deliveries of a message that is never finished before it goes to the dead-letter "
        "queue <topic>_dead_letters.",
    ),
    cfg.IntOpt(
        "max_message_bytes",
        default=32 * 2**20,
        min=4096,
        help="The size of the largest message that is read; larger ones are refused.",
    ),
]


def settings(conf: Any) -> RpcSettings:
    """What is consumed, and by how many slots."""
    group = conf.rpc
    return RpcSettings(
        topic=group.topic,
        exchange=group.exchange,
        slots=group.slots,
        caller_role=None if group.caller_role == "none" else group.caller_role,
        deliveries=DeliveryLimits(
            max_deliveries=group.max_deliveries, max_message_bytes=group.max_message_bytes
        ),
    )
