"""What compute services and agents call, in namespace ``scheduler_worker``; see ``docs/rpc.md``.

What operators ask for is in ``rpc/bind.py``.
"""

import hashlib
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from scheduler_worker import codec
from scheduler_worker.errors import (
    NobodyListens,
    NoValidHost,
    RequestError,
    StateAway,
    Undeliverable,
    WorkerStops,
)
from scheduler_worker.model.ledgers import STATES, Progress
from scheduler_worker.ports import Publisher
from scheduler_worker.rpc import versions
from scheduler_worker.rpc.dispatcher import Context, Endpoint, check_names
from scheduler_worker.rpc.nova import prepare_request
from scheduler_worker.rpc.wire_errors import to_wire
from scheduler_worker.service.balancing.balancer import Balancer
from scheduler_worker.service.inventory.inventory import Inventory
from scheduler_worker.service.requests.scheduler import Scheduler

LOG = logging.getLogger(__name__)

ANSWER_METHOD = "destinations_selected"
_MOST_REASON = 1000
"""Characters that are kept of a reason."""


class ReplyTo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The destination of the answer to a cast, as :meth:`Publisher.cast` names its parts."""

    topic: str
    exchange: str | None = None
    server: str | None = None
    namespace: str | None = None
    version: str = "1.0"
    method: str = ANSWER_METHOD

    def __post_init__(self) -> None:
        check_names(topic=self.topic, server=self.server, exchange=self.exchange)


class WorkerEndpoint:
    """Requests by cast, and what agents report of hosts, instances, migrations and power."""

    def __init__(
        self, scheduler: Scheduler, inventory: Inventory, balancer: Balancer, publisher: Publisher
    ) -> None:
        self._scheduler = scheduler
        self._inventory = inventory
        self._balancer = balancer
        self._publisher = publisher

    def endpoint(self) -> Endpoint:
        """The methods of namespace ``scheduler_worker``."""
        methods: list[Callable[..., Any]] = [
            self.update_hosts,
            self.remove_hosts,
            self.request_destinations,
            self.confirm,
            self.release,
            self.report_migration,
            self.report_power,
        ]
        return Endpoint(
            versions.NAMESPACE, versions.WORKER, {method.__name__: method for method in methods}
        )

    def update_hosts(self, context: Context, hosts: Any) -> dict[str, int]:
        """Store host reports; returns the version of each changed cluster."""
        return self._inventory.update_hosts(codec.decode_host_reports(hosts))

    def remove_hosts(self, context: Context, hosts: Any) -> dict[str, int]:
        """Remove hosts with their instances and reservations; returns as ``update_hosts``."""
        return self._inventory.remove_hosts(codec.decode_host_names(hosts))

    async def request_destinations(
        self,
        context: Context,
        spec_obj: Any = None,
        reply_to: Any = None,
        request_id: Any = None,
        instance_uuids: Any = None,
        return_alternates: Any = False,
        deadline_s: Any = None,
        priority: Any = None,
    ) -> None:
        """Choose hosts and cast the answer to ``reply_to``."""
        target = codec.decode_as(ReplyTo, reply_to, "reply_to")
        request_id = codec.decode_name(request_id or context.request_id, "request_id")
        answer: dict[str, object] = {"request_id": request_id}
        decision = None
        try:
            remaining_s = codec.decode_remaining(deadline_s)
            decision = await self._scheduler.selecting_once(
                _fingerprint(request_id, spec_obj, instance_uuids),
                prepare_request(
                    msgspec.structs.replace(context, request_id=request_id),
                    codec.decode_request_spec(spec_obj),
                    codec.decode_instance_uuids(instance_uuids),
                    num_alternates=self._scheduler.max_alternates if return_alternates else 0,
                    priority=codec.decode_priority(priority),
                ),
                remaining_s=remaining_s,
                yield_slot=context.yield_slot,
            )
            answer["selections"] = codec.encode_selections(decision.selections)
        except Exception as error:
            if isinstance(error, WorkerStops | StateAway):
                raise  # the message goes to another worker, or is retried
            answer["error"] = _encode_error(error, request_id)
        try:
            self._publisher.cast(arguments=answer, **msgspec.structs.asdict(target))
        except Undeliverable as error:
            # No caller will ever know of these reservations. After any other failure the answer may
            # have arrived. Where the cast is retried, it must find them.
            is_retried = isinstance(error, NobodyListens) and context.may_retry
            if decision is not None and not is_retried:
                self._scheduler.take_back(decision)
            raise
        finally:
            if decision is not None:
                self._scheduler.answered(decision)

    def confirm(self, context: Context, instance_uuids: Any) -> int:
        """The instances exist; returns how many reservations were known."""
        return self._inventory.confirm(codec.decode_instance_uuids(instance_uuids) or ())

    def release(self, context: Context, instance_uuids: Any) -> int:
        """The instances will not be built; returns how many reservations were known."""
        return self._inventory.release(codec.decode_instance_uuids(instance_uuids) or ())

    def report_migration(
        self,
        context: Context,
        cluster: Any = None,
        migration: Any = None,
        state: Any = None,
        destination: Any = None,
        reason: Any = None,
    ) -> bool:
        """Take in how far a migration is; false if it is not under way."""
        where = None if destination is None else codec.decode_name(destination, "destination")
        return self._balancer.report(
            codec.decode_name(cluster, "cluster"),
            codec.decode_name(migration, "migration"),
            _progress(state, reason, where),
        )

    def report_power(
        self,
        context: Context,
        cluster: Any = None,
        action: Any = None,
        state: Any = None,
        reason: Any = None,
    ) -> bool:
        """Take in how far a power action is; false if it is not under way."""
        return self._balancer.report_power(
            codec.decode_name(cluster, "cluster"),
            codec.decode_name(action, "action"),
            _progress(state, reason),
        )


def _progress(state: Any, reason: Any, destination: str | None = None) -> Progress:
    """How far a migration or power action is. Raises RequestError, which names the states."""
    if state not in STATES:
        raise RequestError("state", f"expected one of {', '.join(STATES)}, got {state!r:.80}")
    if reason is not None and not isinstance(reason, str):
        raise RequestError("reason", f"expected a text, got {type(reason).__name__}")
    return Progress(state=state, destination=destination, why=(reason or "")[:_MOST_REASON])


def _fingerprint(*arguments: object) -> str:
    """Identical for all copies of a request, and for no other request."""
    return hashlib.sha256(msgspec.json.encode(arguments, order="deterministic")).hexdigest()


def _encode_error(error: Exception, request_id: str) -> dict[str, Any]:
    wire = to_wire(error, request_id)
    if wire.class_name == "InternalError":
        LOG.error("The cast request %s failed", request_id, exc_info=error)
    diagnosis = error.diagnosis if isinstance(error, NoValidHost) else None
    return {
        "type": wire.class_name,
        "message": wire.message,
        "diagnosis": codec.encode_diagnosis(diagnosis) if diagnosis else None,
    }
