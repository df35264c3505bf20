"""Nova's scheduler RPC interface, versions 4.0 to 4.5, and ``baseapi``.

Decodes arguments, calls the use cases, encodes answers. History of the interface:

* 4.0 ``select_destinations`` with legacy ``request_spec`` and ``filter_properties`` dicts
* 4.1 ``update_aggregates``, ``delete_aggregate``
* 4.2 ``update_instance_info``, ``delete_instance_info``, ``sync_instance_info``
* 4.3 ``select_destinations`` takes ``spec_obj``
* 4.4 adds ``instance_uuids``
* 4.5 adds ``return_objects`` and ``return_alternates``
"""

import logging
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from scheduler_worker import codec
from scheduler_worker.errors import SchedulerWorkerError
from scheduler_worker.model.providers import Owner
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.rpc import versions
from scheduler_worker.rpc.dispatcher import (
    LONGEST_NAME,
    Context,
    Dispatcher,
    Endpoint,
    Message,
    Result,
    context_of,
)
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.service.feed.feeder import Feeder
from scheduler_worker.service.inventory.inventory import Inventory
from scheduler_worker.service.requests.dry_run import DryRun
from scheduler_worker.service.requests.scheduler import Scheduler

LOG = logging.getLogger(__name__)


class NovaEndpoint:
    """Serves an unmodified Nova client.

    With ``feeder``, hosts, instances and aggregates come from Nova's databases. Casts about them
    are then hints to read there: some name a host that the instance has left.
    """

    def __init__(
        self, scheduler: Scheduler, inventory: Inventory, feeder: Feeder | None = None
    ) -> None:
        self._scheduler = scheduler
        self._inventory = inventory
        self._feeder = feeder

    def endpoint(self) -> Endpoint:
        """The methods of Nova's scheduler interface, which has no namespace."""
        casts: dict[str, Callable[..., Any]] = {
            "update_aggregates": self.update_aggregates,
            "delete_aggregate": self.delete_aggregate,
            "update_instance_info": self.update_instance_info,
            "delete_instance_info": self.delete_instance_info,
            "sync_instance_info": self.sync_instance_info,
        }
        if self._feeder is not None:
            casts = {name: partial(_hint, self._feeder, "aggregate" in name) for name in casts}
        # Each replaces what the one before said. A worker handles them as they arrive, and what one
        # worker has handled the others leave alone.
        in_order = {name: _aggregates if "aggregate" in name else _host for name in casts}
        methods = {"select_destinations": self.select_destinations, **casts}
        return Endpoint(None, versions.NOVA, methods, in_order=in_order)

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
        """Choose hosts; returns lists of ``Selection`` objects, or dicts to older callers."""
        wants_alternates = return_objects and return_alternates
        request = decode_request(
            context,
            request_spec,
            filter_properties,
            spec_obj,
            instance_uuids,
            num_alternates=self._scheduler.max_alternates if wants_alternates else 0,
        )
        decision = await self._scheduler.selecting(
            request, remaining_s=context.remaining_s, yield_slot=context.yield_slot
        )
        encode = codec.encode_selections if return_objects else codec.encode_destinations
        answer: list[Any] = encode(decision.selections)
        self._scheduler.answered(decision)
        return answer

    def update_aggregates(self, context: Context, aggregates: Any) -> None:
        """Replace one aggregate or several."""
        decoded = codec.decode_aggregates(aggregates)
        self._inventory.update_aggregates(decoded, once=context.message_id)

    def delete_aggregate(self, context: Context, aggregate: Any) -> None:
        """Forget an aggregate."""
        decoded = codec.decode_aggregate(aggregate)
        self._inventory.delete_aggregate(decoded.id, once=context.message_id)

    def update_instance_info(self, context: Context, host_name: Any, instance_info: Any) -> None:
        """Record the instances that a host reports."""
        self._inventory.update_instances(
            codec.decode_name(host_name, "host_name"),
            codec.decode_instances(instance_info),
            once=context.message_id,
        )

    def delete_instance_info(self, context: Context, host_name: Any, instance_uuid: Any) -> None:
        """Record that an instance left a host."""
        self._inventory.delete_instance(
            codec.decode_name(host_name, "host_name"),
            codec.decode_name(instance_uuid, "instance_uuid"),
            once=context.message_id,
        )

    def sync_instance_info(self, context: Context, host_name: Any, instance_uuids: Any) -> None:
        """Record that these instances, and no others, are on a host."""
        self._inventory.sync_instances(
            codec.decode_name(host_name, "host_name"),
            codec.decode_instance_uuids(instance_uuids) or (),
            once=context.message_id,
        )


def decode_request(
    context: Context,
    request_spec: Any,
    filter_properties: Any,
    spec_obj: Any,
    instance_uuids: Any,
    *,
    num_alternates: int = 0,
) -> Request:
    """The request in the arguments of ``select_destinations``. Raises RequestError."""
    if spec_obj is None and request_spec is not None:
        spec = codec.decode_legacy_request(request_spec, filter_properties or {})
    else:
        spec = codec.decode_request_spec(spec_obj)
    uuids = codec.decode_instance_uuids(instance_uuids)
    return prepare_request(context, spec, uuids, num_alternates=num_alternates)


class CopiedRequests(Dispatcher):
    """Gives copies of Nova's requests for hosts to the dry run; other messages do not matter.

    What cannot be decoded is logged, and nobody is answered.
    """

    def __init__(self, dry_run: DryRun) -> None:
        super().__init__(())
        self._dry_run = dry_run

    async def serve(self, message: Message, **_: Any) -> Result:
        """Decide a copy; never raises."""
        if message.method == "select_destinations" and message.namespace is None:
            context = context_of(message)
            arguments = message.args if isinstance(message.args, dict) else {}
            names = ("request_spec", "filter_properties", "spec_obj", "instance_uuids")
            try:
                self._dry_run.take(decode_request(context, *map(arguments.get, names)))
            except SchedulerWorkerError as error:
                LOG.warning(
                    "Dry run: request %s is not decided here: %s", context.request_id, error
                )
                self._dry_run.leave_out()
            except Exception:
                LOG.exception("Dry run: request %s is left out", context.request_id)
        return Result()


def _hint(feeder: Feeder, is_about_aggregates: bool, _context: Context, **_arguments: Any) -> None:
    """A cast about aggregates or instances, of which nothing is read."""
    feeder.look_now(outline=is_about_aggregates)


def _aggregates(_arguments: Mapping[str, Any]) -> str:
    """One message may be about several."""
    return "aggregates"


def _host(arguments: Mapping[str, Any]) -> str:
    """What is said of the instances of one host."""
    name = arguments.get("host_name")
    return f"host {name[:LONGEST_NAME]}" if isinstance(name, str) else "no host"


def baseapi() -> Endpoint:
    """The methods that every Nova service has beside its own."""

    def ping(context: Context, arg: Any = None) -> dict[str, Any]:
        return {"service": "scheduler", "arg": arg}

    def get_backdoor_port(context: Context) -> None:
        return None

    return Endpoint(
        "baseapi",
        versions.BASEAPI,
        {"ping": ping, "get_backdoor_port": get_backdoor_port},
        non_blocking={"ping": lambda _: True},
    )


_INSTANCE_NAMESPACE = uuid.UUID("9a1c3b52-4d0e-5f6a-8b7c-2d3e4f5a6b7c")


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
