"""The grammar of JsonFilter: a query, a host's attributes, whether the host passes."""

from collections.abc import Iterator
from typing import Any

import msgspec

from conformance import nova
from scheduler_worker import codec
from scheduler_worker.errors import NoValidHost, RequestError
from scheduler_worker.model.host_reports import fields_of, merged
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.scheduling.pipeline import Request

FILTER = "JsonFilter"
REPORTED_AS = {
    "vcpus_total": "vcpus",
    "total_usable_ram_mb": "memory_mb",
    "total_usable_disk_gb": "local_gb",
}
"""Attributes of a host that its report has under other names."""
RECORDED = {
    "uuid": "cccccccc-0000-4000-8000-000000000001",
    "vcpus": 8,
    "memory_mb": 32768,
    "local_gb": 500,
    "local_gb_used": 40,
    "hypervisor_type": "QEMU",
    "hypervisor_version": 8002002,
    "host_ip": "192.0.2.1",
    "cpu_allocation_ratio": 4.0,
    "ram_allocation_ratio": 1.0,
    "disk_allocation_ratio": 1.0,
}
"""The recorded host's other attributes, which a case does not name."""
FLAVOR = {"memory_mb": 0, "vcpus": 0, "root_gb": 0, "ephemeral_gb": 0, "swap": 0}


class Case(msgspec.Struct, frozen=True):
    """A query, and whether a host with these attributes passes it."""

    query: str
    host: dict[str, Any]
    result: bool | None = None
    raises: str | None = None


def recognise(document: Any) -> bool:
    return isinstance(document, dict) and {"query", "host"} <= document.keys()


def run(document: Any) -> Iterator[str]:
    case = msgspec.convert(document, Case)
    if missing := nova.unknown("filter", [FILTER], nova.FILTERS):
        yield from missing
        return
    try:
        found = passes(case)
    except RequestError as error:
        if case.raises is None:
            yield f"{case.query} is refused: {error}"
        return
    if case.raises and found:
        yield f"{case.query} passes, where Nova raises {case.raises}"
    elif case.raises is None and found != case.result:
        yield f"{case.query} is {found}; recorded is {case.result}"


def passes(case: Case) -> bool:
    """Whether JsonFilter lets the host through."""
    spec = codec.decode_request_spec(
        {"flavor": FLAVOR, "scheduler_hints": {"query": [case.query]} if case.query else {}}
    )
    pipeline = nova.pipeline({}, filters=[FILTER], weighers=[])
    try:
        pipeline.decide(
            table(case.host), Request(spec=spec, instance_uuids=("i",)), nova.LowRandomSource()
        )
    except NoValidHost:
        return False
    return True


def table(attributes: dict[str, Any]) -> HostTable:
    """The host, as a report of its attributes makes it."""
    report: dict[str, Any] = RECORDED | {
        REPORTED_AS.get(name, name): value for name, value in attributes.items()
    }
    if "free_disk_mb" in report:
        report["free_disk_gb"] = report.pop("free_disk_mb") // 1024
    [decoded] = codec.decode_host_reports([report])
    found = HostTable()
    stamp = {"cluster": "c", "reported_at_s": nova.NOW_S}
    found.put(merged(None, {"nodename": report["host"], **fields_of(decoded)}, **stamp), 1)
    return found
