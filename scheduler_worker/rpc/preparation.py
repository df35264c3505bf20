"""From a decoded request to the scheduler's: the same for every RPC method."""

from __future__ import annotations

from scheduler_worker.model.providers import Owner
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.rpc.contract import Context, instance_ids
from scheduler_worker.scheduling.pipeline import Request


def prepare_request(
    context: Context,
    spec: RequestSpec,
    instance_uuids: tuple[str, ...] | None,
    *,
    num_alternates: int = 0,
    priority: int = 0,
) -> Request:
    """The scheduler's request, with ids for its instances where the caller named none."""
    return Request(
        spec=spec,
        instance_uuids=instance_uuids or instance_ids(spec, context),
        request_id=context.request_id,
        global_request_id=context.global_request_id,
        traceparent=context.traceparent,
        waited_s=context.waited_s,
        num_alternates=num_alternates,
        priority=priority,
        owner=_owner(context, spec),
    )


def _owner(context: Context, spec: RequestSpec) -> Owner | None:
    """Whose quota the instances count for; old requests do not name their user."""
    project_id, user_id = spec.project_id or context.project_id, spec.user_id or context.user_id
    return Owner(project_id, user_id) if project_id and user_id else None
