"""Decodes requests for hosts.

A request is a ``RequestSpec`` object (or a plain dict of its fields), or the pair of dicts that
callers before RPC version 4.3 send. If Nova would fail on a field that is not set or null, its
default applies. Which hosts suit the request is not decided here.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from scheduler_worker.codec import kinds
from scheduler_worker.codec.primitives import plain
from scheduler_worker.codec.typed import redacted, typed, wrong
from scheduler_worker.errors import RequestError
from scheduler_worker.model.requests import RequestSpec, under_present_names
from scheduler_worker.scheduling.numa.constraints import with_topology

Plain = dict[str, Any]

_ALIAS = "pci_passthrough:alias"
_RULE_NUMBER = re.compile(r"[1-9][0-9]{0,8}\Z")


def decode_request_spec(
    value: Any,
    path: str = "spec_obj",
    *,
    paths: Mapping[str, str] | None = None,
    is_strict: bool = False,
) -> RequestSpec:
    """Decode a ``RequestSpec`` primitive of any 1.x version, or a plain dict with its field names.

    Removes passwords in the URLs of ``requested_destination.cell``. A request without the field
    ``numa_topology`` gets the topology that its flavor and image ask for. Errors name its field
    ``f`` as ``paths[f]``. ``is_strict`` is for what people write: other fields are errors.

    Raises RequestError: names the field, what it needs and what came.
    """
    spec = plain(value, path, kinds.REQUEST_SPEC, is_strict=is_strict)
    if is_strict and isinstance(spec, dict):
        _prepare_written(spec)
    decoded = _decoded(spec, path, paths or {})
    if is_strict and _ALIAS in decoded.flavor.extra_specs and decoded.pci_requests is None:
        where = (paths or {}).get("flavor", f"{path}.flavor")
        raise RequestError(
            f"{where}.extra_specs.{_ALIAS}",
            "only Nova knows its aliases; list the devices in pci_requests instead",
        )
    return decoded


def _prepare_written(spec: Plain) -> None:
    """Make extra specs that YAML reads as numbers or booleans the texts that they are."""
    flavor = spec.get("flavor")
    if isinstance(flavor, dict) and isinstance(flavor.get("extra_specs"), dict):
        flavor["extra_specs"] = {
            key: json.dumps(value) if isinstance(value, bool | int | float) else value
            for key, value in flavor["extra_specs"].items()
        }


def decode_legacy_request(request_spec: Any, filter_properties: Any) -> RequestSpec:
    """Decode the arguments of RPC versions 4.0 to 4.2. Raises RequestError."""
    request = _object(plain(request_spec, "request_spec", kinds.LEGACY_REQUEST), "request_spec")
    properties = _object(
        plain(filter_properties or {}, "filter_properties", kinds.LEGACY_PROPERTIES),
        "filter_properties",
    )
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
    return decoded if "numa_topology" in spec else with_topology(decoded)


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


def _reshape_destination(spec: Plain, path: str) -> None:
    """Remove passwords from the cell's URLs, which are not needed here."""
    destination = spec["requested_destination"]
    if isinstance(destination.get("cell"), dict):
        destination["cell"] = redacted(destination["cell"])


def _reshape_image(spec: Plain, path: str) -> None:
    """Give properties their present names."""
    properties = spec["image"].get("properties")
    if isinstance(properties, dict):
        spec["image"]["properties"] = under_present_names(properties)


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
    "requested_destination": _reshape_destination,
    "retry": _reshape_retry,
}
