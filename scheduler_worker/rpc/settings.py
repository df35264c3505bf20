"""Settings of the RPC server."""

from typing import Annotated

import msgspec

from scheduler_worker.operations.callers import ROLES, Role
from scheduler_worker.options import Opt
from scheduler_worker.rpc.defaults import EXCHANGE, SLOTS, TOPIC
from scheduler_worker.rpc.serving.settings import DeliveryLimits


class RpcSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[rpc]``: what is consumed, and by how many slots."""

    topic: Annotated[str, Opt()] = TOPIC
    """The topic that requests are sent to. Nova's clients use 'scheduler'."""
    exchange: Annotated[str, Opt(former="DEFAULT.control_exchange")] = EXCHANGE
    """The control exchange of the topic. Nova's clients use 'nova'."""
    slots: Annotated[int, Opt(min=1, max=256)] = SLOTS
    """Requests that one worker process works on at the same time. The worker that has run longest
    takes each request that it has a slot for, and others take what is left. Requests that wait for
    the same cluster share a lease of its lock, so many slots save time. With fewer slots more
    workers share the load."""
    caller_role: Annotated[Role | None, Opt(choices=(*ROLES, "none"))] = "administrator"
    """What clients of the bus may ask for whose messages name no roles, such as
    scheduler-workerctl: all, all but what is an administrator's, reading, nothing. Messages with
    roles of Keystone have the roles that [api] keystone_roles gives them. Messages are not proven:
    this guards against mistakes, accounts of RabbitMQ against strangers."""
    deliveries: DeliveryLimits = DeliveryLimits()
