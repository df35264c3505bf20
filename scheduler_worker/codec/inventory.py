"""Decodes host reports, and the aggregates and instances that Nova's services announce.

Every function raises RequestError, which names the wrong field, what it needs and what it got.
"""

import contextlib
import math
from collections.abc import Callable
from typing import Any

import msgspec

from scheduler_worker.codec import kinds
from scheduler_worker.codec.primitives import ObjectKind, is_primitive, members, plain
from scheduler_worker.codec.typed import typed, wrong
from scheduler_worker.errors import RequestError
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.host_records import seconds
from scheduler_worker.model.host_reports import HostReport
from scheduler_worker.model.providers import ResourceProvider

MAX_HOSTS = 100_000
"""Host reports in one message."""
MAX_INSTANCES_OF_HOST = 100_000
MAX_AGGREGATES = 100_000
MAX_PROVIDERS = 1000
"""Resource providers in one host's report."""
SHOWN_PROBLEMS = 5
"""How many bad reports one error describes."""

Plain = dict[str, Any]


# Aggregates


def decode_aggregates(value: Any) -> list[Aggregate]:
    """A list of aggregates, an ``AggregateList``, or one aggregate."""
    aggregates = _members(value, "aggregates", kinds.AGGREGATE, MAX_AGGREGATES)
    return [decode_aggregate(aggregate, where) for aggregate, where in aggregates]


def decode_aggregate(value: Any, path: str = "aggregate") -> Aggregate:
    """One aggregate; hosts and metadata may be null.

    Its times are not read. Nova sets ``updated_at`` on some objects that it casts, and never in its
    database, so later casts may have an older time.
    """
    return typed(plain(value, path, kinds.AGGREGATE), Aggregate, path)


# Instances


_SIZES = ("memory_mb", "vcpus", "root_gb", "ephemeral_gb")


def decode_instances(value: Any) -> dict[str, Plain]:
    """Instances as uuid -> facts: an ``InstanceList``, or a list of instances, dicts or uuids."""
    listed = _members(value, "instance_info", kinds.INSTANCE, MAX_INSTANCES_OF_HOST)
    facts = [_instance(plain(member, where, kinds.INSTANCE), where) for member, where in listed]
    return {fact["uuid"]: fact for fact in facts}


def _instance(value: Any, path: str) -> Plain:
    """The facts of one instance; a size or type that it does not name is its flavor's."""
    if isinstance(value, str):
        value = {"uuid": value}
    if not isinstance(value, dict):
        raise wrong(path, "an instance", value)
    flavor = value.pop("flavor", None)
    if isinstance(flavor, dict):
        value.setdefault("instance_type_id", flavor.get("id"))
        for name in _SIZES:
            value.setdefault(name, flavor.get(name))
    if isinstance(value.get("system_metadata"), dict):
        value["system_metadata"] = {
            key: text
            for key, text in value["system_metadata"].items()
            if str(key).startswith("image_")
        }
    facts: Plain = msgspec.to_builtins(typed(value, kinds.Instance, path))
    return facts


# Host reports


def decode_host_reports(value: Any, path: str = "hosts") -> list[HostReport]:
    """Host reports: plain dicts or ``ComputeNode`` objects, possibly with a ``Service`` in them.

    If any is bad, the error counts all bad reports and describes the first
    :data:`SHOWN_PROBLEMS`.
    """
    reports, problems = [], []
    for report, where in _members(value, path, kinds.COMPUTE_NODE, MAX_HOSTS):
        try:
            reports.append(_host_report(report, where))
        except RequestError as error:
            problems.append(error)
    if problems:
        first, *rest = problems
        shown = [first.problem, *(str(problem) for problem in rest[: SHOWN_PROBLEMS - 1])]
        if len(problems) > SHOWN_PROBLEMS:
            shown.append(f"and {len(problems) - SHOWN_PROBLEMS} more bad reports")
        raise RequestError(first.field, "; ".join(shown))
    return reports


def _host_report(value: Any, path: str) -> HostReport:
    fields = plain(value, path, kinds.COMPUTE_NODE)
    if not isinstance(fields, dict):
        raise wrong(path, "a host report", fields)
    if is_primitive(value):
        # When the row changed, and not when an idle host was last measured.
        fields.pop("updated_at", None)
    if fields.get("host") is None:
        raise RequestError(f"{path}.host", "is missing; every report names its host")
    for name, reshape in _RESHAPED.items():
        if fields.get(name) is not None:
            fields[name] = reshape(fields[name], f"{path}.{name}")
    return typed(fields, HostReport, path)


def _moment(value: Any, path: str) -> float:
    """A time as seconds since the epoch."""
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            if math.isfinite(moment := seconds(value)):
                return moment
    raise wrong(path, "a time, such as 2026-01-02T03:04:05Z or seconds since 1970", value)


def _service(value: Any, path: str) -> Plain:
    if not isinstance(value, dict):
        raise wrong(path, "an object", value)
    for name in ("last_seen_up", "created_at", "updated_at"):
        if name in value:
            value[name] = _moment(value[name], f"{path}.{name}")
    facts: Plain = msgspec.to_builtins(typed(value, kinds.Service, path))
    return facts


def _hv_specs(value: Any, path: str) -> Any:
    """``HVSpec`` objects as triples of architecture, hypervisor type and mode."""
    if not isinstance(value, list):
        raise wrong(path, "a list", value)
    return [
        [spec.get("arch"), spec.get("hv_type"), spec.get("vm_mode")]
        if isinstance(spec, dict)
        else spec
        for spec in value
    ]


def _json_text(value: Any, path: str) -> Any:
    """The value of a field that Nova sends as JSON text within JSON."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value or "null")
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise wrong(path, "JSON text", value) from None


def _metrics(value: Any, path: str) -> Any:
    metrics = _json_text(value, path)
    if isinstance(metrics, list):
        for number, metric in enumerate(metrics):
            figure = metric.get("value") if isinstance(metric, dict) else None
            if isinstance(figure, float) and not math.isfinite(figure):
                raise wrong(f"{path}[{number}].value", "a finite number", figure)
    return metrics


def _instances(value: Any, path: str) -> list[Plain]:
    listed = enumerate(typed(value, list[Any], path))
    return [_instance(instance, f"{path}[{number}]") for number, instance in listed]


def reshape_providers(value: Any, path: str) -> list[ResourceProvider]:
    """The resource providers of one host, in Placement's terms.

    Raises RequestError: a field is wrong, a uuid is repeated, or parents form a cycle.
    """
    reported: list[ResourceProvider] = typed(value, list[ResourceProvider], path)
    if len(reported) > MAX_PROVIDERS:
        raise RequestError(path, f"at most {MAX_PROVIDERS} of one host, got {len(reported)}")
    parents = {provider.uuid: provider.parent_provider_uuid for provider in reported}
    if len(parents) < len(reported):
        raise RequestError(path, "names a provider twice")
    rooted: set[str] = set()
    for number, provider in enumerate(reported):
        seen: set[str] = set()
        at: str | None = provider.uuid
        while at is not None and at not in rooted:
            if at in seen:
                problem = "is its own ancestor: its parents form a cycle"
                raise RequestError(f"{path}[{number}].parent_provider_uuid", problem)
            seen.add(at)
            at = parents.get(at)
        rooted |= seen
    return reported


_RESHAPED: dict[str, Callable[[Any, str], Any]] = {
    "updated_at": _moment,
    "service": _service,
    "supported_hv_specs": _hv_specs,
    "metrics": _metrics,
    "numa_topology": lambda value, path: plain(_json_text(value, path), path),
    "instances": _instances,
    "resource_providers": reshape_providers,
}


def _members(value: Any, path: str, kind: ObjectKind, limit: int) -> list[tuple[Any, str]]:
    elements = members(value, path, kind)
    if len(elements) > limit:
        raise RequestError(path, f"at most {limit} in one message, got {len(elements)}")
    return elements
