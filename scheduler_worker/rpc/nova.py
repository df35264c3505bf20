"""Nova's door: the methods of its scheduler RPC interface, versions 4.0 to 4.5, and ``baseapi``.

Wire forms in and out; everything in between is the use cases'. History of the interface:

* 4.0 ``select_destinations`` with legacy ``request_spec`` and ``filter_properties`` dicts
* 4.1 ``update_aggregates``, ``delete_aggregate``
* 4.2 ``update_instance_info``, ``delete_instance_info``, ``sync_instance_info``
* 4.3 ``select_destinations`` takes ``spec_obj``
* 4.4 adds ``instance_uuids``
* 4.5 adds ``return_objects`` and ``return_alternates``
"""

from __future__ import annotations

from typing import Any

from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.rpc import codec
from scheduler_worker.rpc.contract import Context, Endpoint, instance_ids
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.service.inventory import Inventory
from scheduler_worker.service.scheduler import Scheduler

VERSION = "4.5"
BASEAPI_VERSION = "1.1"


class NovaDoor:
    """Serves an unmodified Nova client."""

    def __init__(self, scheduler: Scheduler, inventory: Inventory) -> None:
        self._scheduler = scheduler
        self._inventory = inventory

    def endpoint(self) -> Endpoint:
        """Nova's scheduler interface, which has no namespace."""
        return Endpoint(
            None,
            VERSION,
            {
                "select_destinations": self.select_destinations,
                "update_aggregates": self.update_aggregates,
                "delete_aggregate": self.delete_aggregate,
                "update_instance_info": self.update_instance_info,
                "delete_instance_info": self.delete_instance_info,
                "sync_instance_info": self.sync_instance_info,
            },
        )

    async def select_destinations(
        self,
        context: Context,
        request_spec: Any = None,
        filter_properties: Any = None,
        spec_obj: Any = None,
        instance_uuids: Any = None,
        return_objects: Any = False,
        return_alternates: Any = False,
    ) -> list[Any]:
        """Choose hosts: lists of ``Selection`` objects, or legacy dicts for older callers."""
        if spec_obj is None and request_spec is not None:
            spec = codec.decode_legacy_request(request_spec, filter_properties or {})
        else:
            spec = codec.decode_request_spec(spec_obj)
        request = Request(
            spec=spec,
            instance_uuids=codec.decode_instance_uuids(instance_uuids)
            or instance_ids(spec, context),
            request_id=context.request_id,
            num_alternates=self._alternates(spec, bool(return_objects and return_alternates)),
        )
        decision = await self._scheduler.selecting(
            request, patience_s=context.patience_s, step_aside=context.step_aside
        )
        encode = codec.encode_selections if return_objects else codec.encode_destinations
        answer: list[Any] = encode(decision.selections)
        self._scheduler.answered(decision)
        return answer

    def _alternates(self, spec: RequestSpec, wanted: bool) -> int:
        return self._scheduler.max_alternates if wanted else 0

    def update_aggregates(self, context: Context, aggregates: Any) -> None:
        """Replace one aggregate or several."""
        self._inventory.update_aggregates(
            codec.decode_aggregates(aggregates), once=context.message_id
        )

    def delete_aggregate(self, context: Context, aggregate: Any) -> None:
        """Forget an aggregate."""
        found = codec.decode_aggregate(aggregate)
        self._inventory.delete_aggregate(found.id, once=context.message_id)

    def update_instance_info(self, context: Context, host_name: Any, instance_info: Any) -> None:
        """Instances were seen on a host."""
        self._inventory.update_instances(
            codec.decode_name(host_name, "host_name"),
            codec.decode_instances(instance_info),
            once=context.message_id,
        )

    def delete_instance_info(self, context: Context, host_name: Any, instance_uuid: Any) -> None:
        """An instance left a host."""
        self._inventory.delete_instance(
            codec.decode_name(host_name, "host_name"),
            codec.decode_name(instance_uuid, "instance_uuid"),
            once=context.message_id,
        )

    def sync_instance_info(self, context: Context, host_name: Any, instance_uuids: Any) -> None:
        """These instances, and no others, are on a host."""
        self._inventory.sync_instances(
            codec.decode_name(host_name, "host_name"),
            codec.decode_instance_uuids(instance_uuids) or (),
            once=context.message_id,
        )


def baseapi() -> Endpoint:
    """The interface that every Nova service has beside its own."""

    def ping(context: Context, arg: Any = None) -> dict[str, Any]:
        return {"service": "scheduler", "arg": arg}

    def get_backdoor_port(context: Context) -> None:
        return None

    return Endpoint(
        "baseapi", BASEAPI_VERSION, {"ping": ping, "get_backdoor_port": get_backdoor_port}
    )
