"""Our own RPC interface: namespace ``scheduler_worker``, version 1.4; see ``docs/rpc.md``."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

import msgspec

from scheduler_worker.errors import NoValidHost, RequestError, Undeliverable, WorkerStops
from scheduler_worker.model.decisions import Decision
from scheduler_worker.model.host_records import HOST_STATES
from scheduler_worker.ports import Publisher
from scheduler_worker.rpc import codec
from scheduler_worker.rpc.contract import Context, Endpoint, check_names
from scheduler_worker.rpc.explanations import explanation
from scheduler_worker.rpc.preparation import prepare_request
from scheduler_worker.rpc.wire_errors import to_wire
from scheduler_worker.service.inventory.inventory import Inventory
from scheduler_worker.service.inventory.listing import Listing
from scheduler_worker.service.placement.scheduler import Scheduler

LOG = logging.getLogger(__name__)

NAMESPACE = "scheduler_worker"
VERSION = "1.4"
ANSWER_METHOD = "destinations_selected"


class ReplyTo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the answer to a cast goes."""

    topic: str
    exchange: str | None = None
    server: str | None = None
    namespace: str | None = None
    version: str = "1.0"
    method: str = ANSWER_METHOD

    def __post_init__(self) -> None:
        check_names(topic=self.topic, server=self.server, exchange=self.exchange)


class WorkerEndpoint:
    """Inventory, reservations, explanations, and requests by cast."""

    def __init__(
        self,
        scheduler: Scheduler,
        inventory: Inventory,
        listing: Listing,
        publisher: Publisher,
    ) -> None:
        self._scheduler = scheduler
        self._inventory = inventory
        self._listing = listing
        self._publisher = publisher

    def endpoint(self) -> Endpoint:
        """The methods of namespace ``scheduler_worker``."""
        return Endpoint(
            NAMESPACE,
            VERSION,
            {
                "update_hosts": self.update_hosts,
                "remove_hosts": self.remove_hosts,
                "request_destinations": self.request_destinations,
                "confirm": self.confirm,
                "release": self.release,
                "explain": self.explain,
                "list_hosts": self.list_hosts,
                "list_reservations": self.list_reservations,
                "list_clusters": self.list_clusters,
            },
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
            decision = await self._select(
                msgspec.structs.replace(context, request_id=request_id),
                spec_obj,
                instance_uuids,
                bool(return_alternates),
                codec.decode_patience(deadline_s),
                codec.decode_priority(priority),
            )
            answer["selections"] = codec.encode_selections(decision.selections)
        except Exception as error:
            if isinstance(error, WorkerStops) and context.at_least_once:
                raise
            answer["error"] = _encode_error(error, request_id)
        try:
            self._cast(target, answer)
        except Undeliverable:
            # No caller will ever know of these reservations. After any other failure the answer may
            # have arrived, and the cast is retried: then it must find them.
            if decision is not None:
                self._scheduler.take_back(decision)
            raise
        finally:
            if decision is not None:
                self._scheduler.answered(decision)

    def _cast(self, target: ReplyTo, answer: dict[str, object]) -> None:
        self._publisher.cast(
            topic=target.topic,
            method=target.method,
            arguments=answer,
            exchange=target.exchange,
            server=target.server,
            namespace=target.namespace,
            version=target.version,
        )

    async def _select(
        self,
        context: Context,
        spec_obj: Any,
        instance_uuids: Any,
        alternates: bool,
        patience_s: float | None,
        priority: int,
    ) -> Decision:
        return await self._scheduler.selecting_once(
            _fingerprint(context.request_id, spec_obj, instance_uuids),
            prepare_request(
                context,
                codec.decode_request_spec(spec_obj),
                codec.decode_instance_uuids(instance_uuids),
                num_alternates=self._scheduler.max_alternates if alternates else 0,
                priority=priority,
            ),
            patience_s=patience_s,
            yield_slot=context.yield_slot,
        )

    def confirm(self, context: Context, instance_uuids: Any) -> int:
        """The instances exist; returns how many reservations were known."""
        return self._inventory.confirm(codec.decode_instance_uuids(instance_uuids) or ())

    def release(self, context: Context, instance_uuids: Any) -> int:
        """The instances will not be built; returns how many reservations were known."""
        return self._inventory.release(codec.decode_instance_uuids(instance_uuids) or ())

    def explain(
        self,
        context: Context,
        spec_obj: Any = None,
        instance_uuids: Any = None,
        hosts: Any = None,
        limit: Any = None,
        request: Any = None,
    ) -> dict[str, Any]:
        """Return why each host would be chosen or not; reserves nothing."""
        asked = (spec_obj, instance_uuids, hosts, limit, request)
        return explanation(self._scheduler, context, *asked)

    def list_hosts(
        self,
        context: Context,
        cluster: Any = None,
        marker: Any = None,
        limit: Any = None,
        host: Any = None,
        state: Any = None,
    ) -> dict[str, Any]:
        """Return a page of hosts; ``host`` is a name, node name or uuid of those wanted."""
        if state is not None and state not in HOST_STATES:
            expected = ", ".join(HOST_STATES)
            raise RequestError("state", f"expected null or one of {expected}, got {state!r:.80}")
        _check_texts(host=host)
        return self._listing.hosts(*page(cluster, marker, limit), host=host, state=state)

    def list_reservations(
        self,
        context: Context,
        cluster: Any = None,
        marker: Any = None,
        limit: Any = None,
        host: Any = None,
        instance: Any = None,
    ) -> dict[str, Any]:
        """Return a page of live reservations, of all or of those on a host or of an instance."""
        _check_texts(host=host, instance=instance)
        wanted = page(cluster, marker, limit)
        return self._listing.reservations(*wanted, host=host, instance=instance)

    def list_clusters(
        self, context: Context, marker: Any = None, limit: Any = None
    ) -> dict[str, Any]:
        """Return a page of clusters."""
        return self._listing.clusters(*page(None, marker, limit)[1:])


def page(cluster: Any, marker: Any, limit: Any) -> tuple[str | None, str | None, int | None]:
    """Check the arguments of a method that returns pages. Raises RequestError."""
    _check_texts(cluster=cluster, marker=marker)
    return cluster, marker, codec.decode_limit(limit, default=None)


def _check_texts(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None and not isinstance(value, str):
            raise RequestError(name, f"expected a text, got {type(value).__name__}")


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
