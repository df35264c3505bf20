"""Decodes requests for hosts and small arguments, encodes selections and diagnoses as plain JSON.

A request is a ``RequestSpec`` object (or a plain dict of its fields), or the pair of dicts that
callers before RPC version 4.3 send. If Nova would fail on a field that is not set or null, its
default applies. Which hosts suit the request is not decided here.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from scheduler_worker.codec import kinds
from scheduler_worker.codec.primitives import plain, wrapped
from scheduler_worker.codec.typed import quoted, typed, wrong
from scheduler_worker.conversion import json_reader
from scheduler_worker.errors import RequestError
from scheduler_worker.model.decisions import Diagnosis, Selection
from scheduler_worker.model.image_properties import LISTED, image_object
from scheduler_worker.model.requests import (
    MAX_INSTANCES,
    RequestSpec,
    SchedulerLimits,
)
from scheduler_worker.model.sizes import OF_REQUEST, Name
from scheduler_worker.scheduling.queue_priority import MAX_PRIORITY

T = TypeVar("T")
Plain = dict[str, Any]
Selections = Sequence[Sequence[Selection]]
"""For each instance the chosen host, then its alternates."""

_ALIAS = "pci_passthrough:alias"
_RULE_NUMBER = re.compile(r"[1-9][0-9]{0,8}\Z")
_ALLOCATION_VERSION = "1.36"
"""The microversion of Placement that defines the form of an ``allocation_request``."""
MAX_NAMES = 100_000
"""The longest list of names."""
MAX_PATIENCE_S = 86_400.0

_Names = Annotated[tuple[Name, ...], Meta(max_length=MAX_NAMES)]
_Priority = Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
_Patience = Annotated[float, Meta(gt=0.0, le=MAX_PATIENCE_S)]


def decode_request_spec(
    value: Any, *, paths: Mapping[str, str] = {}, is_strict: bool = False
) -> RequestSpec:
    """Decode a ``RequestSpec`` primitive of any 1.x version, or a plain dict with its field names.

    A request without the field ``numa_topology`` gets the topology that its flavor and image ask
    for. Errors name its field ``f`` as ``paths[f]``. ``is_strict`` is for what people write: other
    fields are errors.

    Raises RequestError: names the field, what it needs and what came.
    """
    spec = plain(value, "spec_obj", kinds.REQUEST_SPEC, is_strict=is_strict, bounds=OF_REQUEST)
    flavor = spec.get("flavor") if is_strict and isinstance(spec, dict) else None
    if isinstance(flavor, dict) and isinstance(flavor.get("extra_specs"), dict):
        # YAML reads some as numbers or booleans, which are the texts that they are written as.
        flavor["extra_specs"] = {
            key: json.dumps(value) if isinstance(value, bool | int | float) else value
            for key, value in flavor["extra_specs"].items()
        }
    decoded = _decoded(spec, "spec_obj", paths)
    if is_strict and _ALIAS in decoded.flavor.extra_specs and decoded.pci_requests is None:
        raise RequestError(
            f"{paths.get('flavor', 'spec_obj.flavor')}.extra_specs.{_ALIAS}",
            "only Nova knows its aliases; list the devices in pci_requests instead",
        )
    return decoded


def decode_legacy_request(request_spec: Any, filter_properties: Any) -> RequestSpec:
    """Decode the arguments of RPC versions 4.0 to 4.2. Raises RequestError."""
    request = _object(
        plain(request_spec, "request_spec", kinds.LEGACY_REQUEST, bounds=OF_REQUEST), "request_spec"
    )
    path = "filter_properties"
    sent = plain(filter_properties or {}, path, kinds.LEGACY_PROPERTIES, bounds=OF_REQUEST)
    properties = _object(sent, path)
    instance = _object(request.get("instance_properties") or {}, "request_spec.instance_properties")
    spec = {
        "num_instances": request.get("num_instances"),
        "image": request.get("image") or None,
        "flavor": request.get("instance_type"),
        "instance_uuid": instance.get("uuid"),
        "instance_group": _legacy_group(properties),
        **{name: instance.get(name) for name in _OF_INSTANCE},
        **{name: properties.get(name) for name in _OF_FILTERS},
    }
    decoded = _without_nulls(spec)
    if "numa_topology" in instance:
        decoded["numa_topology"] = instance["numa_topology"]
    return _decoded(decoded, "request_spec", _LEGACY_PATHS)


_OF_INSTANCE = (
    *("project_id", "user_id", "availability_zone", "numa_topology", "pci_requests"),
    "security_groups",
)
_OF_FILTERS = (
    *("force_hosts", "force_nodes", "ignore_hosts", "limits", "retry"),
    *("requested_destination", "scheduler_hints"),
)
_LEGACY_PATHS = {
    "flavor": "request_spec.instance_type",
    "instance_uuid": "request_spec.instance_properties.uuid",
    "instance_group": "filter_properties.group",
    **{name: f"request_spec.instance_properties.{name}" for name in _OF_INSTANCE},
    **{name: f"filter_properties.{name}" for name in _OF_FILTERS},
}


def _legacy_group(properties: Plain) -> Plain | None:
    if not properties.get("group_updated"):
        return None
    return _without_nulls(
        {
            "uuid": properties.get("group_uuid"),
            "policies": properties.get("group_policies"),
            "hosts": properties.get("group_hosts"),
            "members": properties.get("group_members"),
        }
    )


def _without_nulls(value: Plain) -> Plain:
    return {key: item for key, item in value.items() if item is not None}


def _decoded(spec: Any, path: str, paths: Mapping[str, str]) -> RequestSpec:
    """Decode a plain dict; errors name its field ``f`` as ``paths[f]``."""
    spec = _object(spec, path)
    if "flavor" not in spec:
        where = paths.get("flavor", f"{path}.flavor")
        raise RequestError(where, "is missing; every request needs one")
    if spec.pop("allocation_candidates", None) is not None:
        raise RequestError(f"{path}.allocation_candidates", "is set by the worker alone")
    for name, reshape in _RESHAPED.items():
        if isinstance(spec.get(name), dict):
            reshape(spec, paths.get(name, f"{path}.{name}"))
    decoded = typed(spec, RequestSpec, path, paths=paths)
    # Nova's API works the topology out and always sends the field, null where none is asked for.
    if "numa_topology" in spec:
        return decoded
    # Needs numpy, which clients, who decode answers alone, do without.
    from scheduler_worker.scheduling.numa.constraints import with_topology

    return with_topology(decoded)


def _object(value: Any, path: str) -> Plain:
    if not isinstance(value, dict):
        raise wrong(path, "an object", value)
    return value


def _reshape_group(spec: Plain, path: str) -> None:
    """Convert the policy of groups before 1.11, and check the rule that must be a number."""
    group = spec["instance_group"]
    policies = group.pop("policies", None)
    if policies and isinstance(policies, list):
        group["policy"] = group.get("policy") or policies[0]
    rules = group.pop("rules", None)
    if rules is not None:
        group.setdefault("_rules", rules)
    rules = group.get("_rules")
    if not isinstance(rules, dict):
        return
    limit = rules.get("max_server_per_host", "1")
    if not _RULE_NUMBER.match(str(limit)):
        raise wrong(f"{path}._rules.max_server_per_host", "an integer >= 1", limit)
    group["_rules"] = {
        key: str(rule) if isinstance(rule, int) else rule for key, rule in rules.items()
    }


def _reshape_hints(spec: Plain, path: str) -> None:
    """Make lists of single values."""
    spec["scheduler_hints"] = {
        key: hint if isinstance(hint, list) else [hint]
        for key, hint in spec["scheduler_hints"].items()
        if hint is not None
    }


def _reshape_image(spec: Plain, path: str) -> None:
    """Give properties their present names and types, and check that single values are single."""
    properties = spec["image"].get("properties")
    if isinstance(properties, dict):
        spec["image"]["properties"] = present = image_object(properties)
        for name, value in present.items():
            if isinstance(value, list | dict) and name not in LISTED:
                raise wrong(f"{path}.properties.{name}", "text, a number or a boolean", value)


def _reshape_retry(spec: Plain, path: str) -> None:
    """Convert the pairs of host and node of older callers."""
    hosts = spec["retry"].get("hosts")
    if isinstance(hosts, list):
        spec["retry"]["hosts"] = [_retried(host, path) for host in hosts]


def _retried(host: Any, path: str) -> Any:
    if not isinstance(host, list):
        return host
    if len(host) != 2:
        raise wrong(f"{path}.hosts", "pairs of host and node", host)
    return {"host": host[0], "hypervisor_hostname": host[1]}


_RESHAPED = {
    "image": _reshape_image,
    "instance_group": _reshape_group,
    "scheduler_hints": _reshape_hints,
    "retry": _reshape_retry,
}


class _HostName(msgspec.Struct, frozen=True):
    host: Name
    nodename: Name | None = None


def decode_as(kind: type[T], value: Any, path: str) -> T:
    """Decode a plain value as a struct of the caller's choice."""
    return typed(plain(value, path), kind, path)


def decode_name(value: Any, path: str) -> str:
    """A name or id: text of 1 to 255 characters."""
    name: str = typed(value, Name, path)
    return name


def decode_names(value: Any, path: str) -> tuple[str, ...]:
    """A list of names; null is an empty one."""
    names: tuple[str, ...] = typed(() if value is None else value, _Names, path)
    return names


def decode_remaining(value: Any) -> float | None:
    """Seconds that the caller waits, more than 0 and at most a day; None: without a deadline."""
    if value is None:
        return None
    seconds: float = typed(value, _Patience, "deadline_s")
    return seconds


def decode_priority(value: Any) -> int:
    """The priority of a request, from -100 to 100; 0 by default."""
    priority: int = typed(0 if value is None else value, _Priority, "priority")
    return priority


def decode_instance_uuids(value: Any) -> tuple[str, ...] | None:
    """The instances of a request, without repetition; None where the caller named none."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)) and len(value) > MAX_INSTANCES:
        raise RequestError("instance_uuids", f"at most {MAX_INSTANCES} instances, got {len(value)}")
    if not isinstance(value, (list, tuple)):
        raise wrong("instance_uuids", "a list of uuids", value)
    uuids = decode_names(value, "instance_uuids")
    if len(set(uuids)) < len(uuids):
        twice = next(uuid for number, uuid in enumerate(uuids) if uuid in uuids[:number])
        raise RequestError("instance_uuids", f"{quoted(twice)} is listed twice")
    return uuids


def decode_host_names(value: Any) -> list[tuple[str, str | None]]:
    """``{host, nodename}`` dicts as pairs; without a node name for all nodes of the host."""
    return [(host.host, host.nodename) for host in decode_as(list[_HostName], value, "hosts")]


def encode_selection(selection: Selection) -> Plain:
    """A ``Selection`` primitive with its limits; shared, so callers must not change it."""
    if selection.limits.numa_topology is None and selection.allocation is None:
        return _encoded_once(selection)
    return _encoded(selection)


def _encoded(selection: Selection) -> Plain:
    plain_selection = msgspec.to_builtins(selection)
    allocation = plain_selection.pop("allocation")
    plain_selection["allocation_request"] = json.dumps(allocation)
    plain_selection["allocation_request_version"] = allocation and _ALLOCATION_VERSION
    primitive: Plain = wrapped(plain_selection, kinds.SELECTION)
    return primitive


_encoded_once = lru_cache(maxsize=4096)(_encoded)
"""The same hosts are returned again and again. Limits of NUMA cells are not hashable."""


def encode_selections(selections: Selections) -> list[list[Plain]]:
    """The answer to callers that asked for objects."""
    return [[encode_selection(host) for host in hosts] for hosts in selections]


def encode_destinations(selections: Selections) -> list[Plain]:
    """The answer to older callers: for each instance a dict of its host, without alternates."""
    return [
        {
            "host": chosen.service_host,
            "nodename": chosen.nodename,
            "limits": _set_limits(chosen.limits),
        }
        for chosen, *_ in selections
    ]


def _set_limits(limits: SchedulerLimits) -> Plain:
    fields = msgspec.to_builtins(limits)
    fields["numa_topology"] = wrapped(fields["numa_topology"], kinds.NUMA_LIMITS)
    return {name: limit for name, limit in fields.items() if limit is not None}


def decode_selection(value: Any) -> Selection:
    """Decode a ``Selection`` primitive of any 1.x version. Raises RequestError."""
    fields = dict(plain(value, "selection", kinds.SELECTION))
    fields.pop("allocation_request_version", None)
    text = fields.pop("allocation_request", None)
    if text is not None:
        try:
            fields["allocation"] = msgspec.json.decode(text)
        except (msgspec.DecodeError, TypeError) as error:
            raise RequestError("selection.allocation_request", f"is no JSON: {error}") from None
    return typed(fields, Selection, "selection")


def encode_diagnosis(diagnosis: Diagnosis) -> Plain:
    """All fields of a diagnosis; weights that are not finite become null."""
    return json_reader(Plain)(msgspec.json.encode(diagnosis))
