"""Rows of Nova's tables as host reports, in the form in which ``update_hosts`` takes them."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from scheduler_worker.backends.nova.tables import compute_nodes, instances, seconds
from scheduler_worker.errors import RequestError
from scheduler_worker.model.feed import HostReading
from scheduler_worker.model.host_reports import HostReport

Decode = Callable[[Any], list[HostReport]]
"""Decodes the reports of a message; raises RequestError."""

_PLAIN = (
    *("vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "free_ram_mb"),
    *("local_gb", "local_gb_used", "free_disk_gb", "disk_available_least"),
    *("cpu_allocation_ratio", "ram_allocation_ratio", "disk_allocation_ratio"),
    *("hypervisor_version", "hypervisor_type", "hypervisor_hostname", "host_ip"),
    *("cpu_info", "metrics", "numa_topology"),
)
"""Fields of a report with the names of their columns."""
_JSON = {
    "supported_hv_specs": "supported_instances",
    "pci_device_pools": "pci_stats",
    "stats": "stats",
}
"""Field of a report -> the column that has it as JSON text."""

_KEYS = ("uuid", "host", "created_at", "updated_at")
NODE_COLUMNS = tuple(compute_nodes.c[name] for name in (*_KEYS, *_PLAIN, *_JSON.values()))
INSTANCE_COLUMNS = tuple(each for each in instances.c if not each.name.endswith(("_at", "deleted")))


def reading(
    host: str,
    nodes: Iterable[Mapping[str, Any]],
    instances: Iterable[Mapping[str, Any]],
    decode: Decode,
) -> HostReading:
    """A host from the rows of its compute nodes and instances, as far as they can be read."""
    reports: list[HostReport] = []
    problems: list[str] = []
    listed = _readable_instances(instances, decode, problems)
    for row in nodes:
        try:
            reports += decode([{**_report(row), "instances": listed}])
        except RequestError as error:
            where = error.field.removeprefix("hosts[0].")
            problems.append(f"compute node {row['uuid']}: {where}: {error.problem}")
    return HostReading(host, tuple(reports), tuple(problems))


def _readable_instances(
    rows: Iterable[Mapping[str, Any]], decode: Decode, problems: list[str]
) -> list[dict[str, Any]]:
    """The instances that can be read; the others are named in ``problems``."""
    listed = [{name: value for name, value in row.items() if value is not None} for row in rows]
    if _refusal(listed, decode) is None:
        return listed
    kept = []
    for instance in listed:
        refusal = _refusal([instance], decode)
        if refusal is None:
            kept.append(instance)
        else:
            field = refusal.field.rpartition(".")[2]
            problems.append(f"instance {instance.get('uuid')}: {field}: {refusal.problem}")
    return kept


def _refusal(instances: list[dict[str, Any]], decode: Decode) -> RequestError | None:
    try:
        decode([{"host": "any", "instances": instances}])
    except RequestError as error:
        return error
    return None


def _report(row: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {name: row[name] for name in _PLAIN}
    fields |= {field: _value(field, row[name]) for field, name in _JSON.items()}
    # A field that the row does not have is cleared, or has the default.
    return fields | {
        "uuid": row["uuid"],
        "host": row["host"],
        "nodename": row["hypervisor_hostname"],
        "updated_at": seconds(row["updated_at"] or row["created_at"]),
    }


def _value(field: str, text: str | None) -> Any:
    """The value of a column with JSON text. Raises RequestError."""
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise RequestError(f"hosts[0].{field}", f"expected JSON text: {error}") from None
