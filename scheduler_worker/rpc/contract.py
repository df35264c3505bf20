"""What an RPC endpoint consists of: contexts, methods, and a request made of a message."""

import math
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from scheduler_worker.model.providers import Owner
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.waiters import YieldSlot, keep_slot

LONGEST_NAME = 255
"""Bytes of the longest name that AMQP carries: of a queue, an exchange, a routing key."""
_INSTANCE_NAMESPACE = uuid.UUID("9a1c3b52-4d0e-5f6a-8b7c-2d3e4f5a6b7c")


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a method. Its token and service catalogue never get this far."""

    request_id: str = ""
    global_request_id: str | None = None
    traceparent: str | None = None
    """The caller's trace context, in W3C's form, unchecked."""
    user_id: str | None = None
    project_id: str | None = None
    roles: tuple[str, ...] = ()
    """The caller's roles in Keystone, as it says itself."""
    is_admin: bool = False
    message_id: str | None = None
    """The message's own id, the same in every replica that a fanout reaches."""
    waited_s: float = 0.0
    """How long the message waited in this process before the method was called."""
    remaining_s: float = math.inf
    """How much longer the caller waits, from the moment the method is called."""
    yield_slot: YieldSlot = keep_slot
    """Inside, this request only waits, and its slot serves others."""


class Endpoint(NamedTuple):
    """The methods of one namespace and version; each takes the context, then named arguments."""

    namespace: str | None
    version: str
    methods: Mapping[str, Callable[..., Any]]
    non_blocking: frozenset[str] = frozenset()
    """Methods that never block: they are answered as soon as they are decoded."""


def check_names(*, topic: str, server: str | None = None, exchange: str | None = None) -> None:
    """Raise ValueError for names that no broker takes; it says which and why."""
    key = f"{topic}.{server}" if server else topic
    for what, name in (("topic and server", key), ("exchange", exchange or "")):
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            raise ValueError(f"{what}: {name!r:.80} is not Unicode text") from None
        if size > LONGEST_NAME:
            raise ValueError(f"{what}: a name of {size} bytes; AMQP carries {LONGEST_NAME}")


def instance_ids(spec: RequestSpec, context: Context) -> tuple[str, ...]:
    """Ids for a caller that names no instances: the spec's own, or derived from the request's id.

    They are the same when the request is repeated, so nothing is reserved twice.
    """
    if spec.num_instances == 1 and spec.instance_uuid:
        return (spec.instance_uuid,)
    source = context.request_id or context.message_id or str(uuid.uuid4())
    return tuple(
        str(uuid.uuid5(_INSTANCE_NAMESPACE, f"{source}/{number}"))
        for number in range(spec.num_instances)
    )


def prepare_request(
    context: Context,
    spec: RequestSpec,
    instance_uuids: tuple[str, ...] | None,
    *,
    num_alternates: int = 0,
    priority: int = 0,
) -> Request:
    """The scheduler's request, with ids for its instances where the caller named none."""
    # Whose quota the instances count for; old requests do not name their user.
    project_id, user_id = spec.project_id or context.project_id, spec.user_id or context.user_id
    return Request(
        spec=spec,
        instance_uuids=instance_uuids or instance_ids(spec, context),
        request_id=context.request_id,
        global_request_id=context.global_request_id,
        traceparent=context.traceparent,
        waited_s=context.waited_s,
        num_alternates=num_alternates,
        priority=priority,
        owner=Owner(project_id, user_id) if project_id and user_id else None,
    )
