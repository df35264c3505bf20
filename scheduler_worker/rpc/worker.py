"""Our own door: namespace ``scheduler_worker``, version 1.0; ``docs/rpc.md`` is its contract."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from scheduler_worker.errors import NoValidHost, RequestError, Undeliverable
from scheduler_worker.model.decisions import Decision, Diagnosis
from scheduler_worker.ports import Publisher
from scheduler_worker.rpc import codec
from scheduler_worker.rpc.contract import Context, Endpoint, instance_ids
from scheduler_worker.rpc.wire_errors import to_wire
from scheduler_worker.scheduling.numa.requests import with_topology
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.service.inventory import Inventory
from scheduler_worker.service.listing import Listing
from scheduler_worker.service.scheduler import Scheduler

LOG = logging.getLogger(__name__)

NAMESPACE = "scheduler_worker"
VERSION = "1.0"
ANSWER_METHOD = "destinations_selected"


class ReplyTo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the answer to a cast goes."""

    topic: str
    exchange: str | None = None
    server: str | None = None
    namespace: str | None = None
    version: str = "1.0"
    method: str = ANSWER_METHOD


class WorkerDoor:
    """Inventory, promises, explanations, and requests by cast."""

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
        """Take in host reports; answers each touched cluster's version."""
        return self._inventory.update_hosts(codec.decode_host_reports(hosts))

    def remove_hosts(self, context: Context, hosts: Any) -> dict[str, int]:
        """Forget hosts, with their instances and promises."""
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
        named = codec.decode_name(request_id or context.request_id, "request_id")
        answer: dict[str, object] = {"request_id": named}
        decision = None
        try:
            decision = await self._selected(
                msgspec.structs.replace(context, request_id=named),
                spec_obj,
                instance_uuids,
                bool(return_alternates),
                codec.decode_patience(deadline_s),
                codec.decode_priority(priority),
            )
            answer["selections"] = codec.encode_selections(decision.selections)
        except Exception as error:
            answer["error"] = _answered_error(error, named)
        try:
            self._cast(target, answer)
        except Undeliverable:
            # Nobody will ever hear of these promises. After any other failure the answer may have
            # got through, and the cast is done again: then it must find them.
            if decision is not None:
                self._inventory.release([claim.instance_uuid for claim in decision.claims])
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

    async def _selected(
        self,
        context: Context,
        spec_obj: Any,
        instance_uuids: Any,
        alternates: bool,
        patience_s: float | None,
        priority: int,
    ) -> Decision:
        spec = with_topology(codec.decode_request_spec(spec_obj))
        return await self._scheduler.selecting(
            Request(
                spec=spec,
                instance_uuids=codec.decode_instance_uuids(instance_uuids)
                or instance_ids(spec, context),
                request_id=context.request_id,
                num_alternates=self._scheduler.max_alternates if alternates else 0,
                priority=priority,
            ),
            patience_s=patience_s,
            step_aside=context.step_aside,
        )

    def confirm(self, context: Context, instance_uuids: Any) -> int:
        """The promised instances exist."""
        return self._inventory.confirm(codec.decode_instance_uuids(instance_uuids) or ())

    def release(self, context: Context, instance_uuids: Any) -> int:
        """The promised instances will not come."""
        return self._inventory.release(codec.decode_instance_uuids(instance_uuids) or ())

    def explain(
        self,
        context: Context,
        spec_obj: Any = None,
        instance_uuids: Any = None,
        hosts: Any = None,
        limit: Any = None,
    ) -> dict[str, Any]:
        """Why each host would be chosen or not; nothing is reserved."""
        spec = codec.decode_request_spec(spec_obj)
        uuids = codec.decode_instance_uuids(instance_uuids) or instance_ids(spec, context)
        found = self._scheduler.explain(
            Request(spec=spec, instance_uuids=uuids, request_id=context.request_id),
            hosts=codec.decode_names(hosts, "hosts"),
            limit=codec.decode_limit(limit, default=100),
        )
        return _explanation(found)

    def list_hosts(
        self, context: Context, cluster: Any = None, marker: Any = None, limit: Any = None
    ) -> dict[str, Any]:
        """A page of hosts."""
        return self._listing.hosts(*page(cluster, marker, limit))

    def list_reservations(
        self, context: Context, cluster: Any = None, marker: Any = None, limit: Any = None
    ) -> dict[str, Any]:
        """A page of live promises."""
        return self._listing.reservations(*page(cluster, marker, limit))

    def list_clusters(
        self, context: Context, marker: Any = None, limit: Any = None
    ) -> dict[str, Any]:
        """A page of clusters."""
        return self._listing.clusters(*page(None, marker, limit)[1:])


def page(cluster: Any, marker: Any, limit: Any) -> tuple[str | None, str | None, int | None]:
    """The arguments of whatever answers page by page. Raises RequestError."""
    for name, value in (("cluster", cluster), ("marker", marker)):
        if value is not None and not isinstance(value, str):
            raise RequestError(name, f"expected a text, got {type(value).__name__}")
    return cluster, marker, codec.decode_limit(limit, default=None)


def _explanation(found: dict[str, Diagnosis]) -> dict[str, Any]:
    """The cluster that would be chosen first, at the top; the others beside it."""
    parts = [
        {"cluster": name, **codec.encode_diagnosis(diagnosis)} for name, diagnosis in found.items()
    ]
    parts.sort(key=lambda part: part["chosen"] is None)
    if not parts:
        return {"cluster": None, **codec.encode_diagnosis(Diagnosis()), "others": []}
    return {**parts[0], "others": parts[1:]}


def _answered_error(error: Exception, request_id: str) -> dict[str, Any]:
    wire = to_wire(error, request_id)
    if wire.class_name == "InternalError":
        LOG.error("The cast request %s failed", request_id, exc_info=error)
    diagnosis = error.diagnosis if isinstance(error, NoValidHost) else None
    return {
        "type": wire.class_name,
        "message": wire.message,
        "diagnosis": codec.encode_diagnosis(diagnosis) if diagnosis else None,
    }
