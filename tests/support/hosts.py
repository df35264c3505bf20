"""Hosts and requests in one line each, for tests of scheduling."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from scheduler_worker.model.aggregates import Aggregate, by_host
from scheduler_worker.model.claims import Claim, Resources
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.host_reports import merged
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.requests import RequestSpec

NOW_S = 1000.0


def host_record(**fields: Any) -> HostRecord:
    """A host called ``h`` that has just reported: 4 vCPUs, 8 GiB, 100 GiB, nothing used."""
    reported: dict[str, Any] = {"host": "h", "vcpus": 4, "memory_mb": 8192, "local_gb": 100}
    reported |= {"cluster": "default", "reported_at_s": NOW_S} | fields
    names = {"uuid": f"uuid-{reported['host']}", "nodename": reported["host"]}
    reported_at_s = reported.pop("reported_at_s")
    return merged(None, names | reported, reported_at_s=reported_at_s)


def host_table(
    records: Iterable[HostRecord],
    *,
    aggregates: Iterable[Aggregate] = (),
    instances: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None,
) -> HostTable:
    """The records as rows; ``instances``: host name -> instance uuid -> facts of it."""
    hosts = HostTable()
    hosts.now_s = NOW_S
    for version, record in enumerate(records, 1):
        hosts.put(record, version)
    hosts.set_aggregates(by_host(aggregates))
    for host, some in (instances or {}).items():
        hosts.set_instances(host, {uuid: {"uuid": uuid, **facts} for uuid, facts in some.items()})
    return hosts


def claim(instance: str, host: str, **taken: Any) -> Claim:
    """What a decision takes of a host of :func:`host_record` for the instance."""
    return Claim(
        instance_uuid=instance,
        host_uuid=f"uuid-{host}",
        host=host,
        nodename=host,
        resources=Resources(**taken),
        host_version=1,
    )


def aggregate(*hosts: str, id: int = 1, **metadata: str) -> Aggregate:
    return Aggregate(id=id, hosts=hosts, metadata=metadata)


def request_spec(
    *,
    vcpus: int = 1,
    memory_mb: int = 1024,
    flavor: Mapping[str, Any] | None = None,
    extra_specs: Mapping[str, str] | None = None,
    image_properties: Mapping[str, Any] | None = None,
    **fields: Any,
) -> RequestSpec:
    """A request for one instance: 1 vCPU, 1 GiB, no disk."""
    shape = {"vcpus": vcpus, "memory_mb": memory_mb, "extra_specs": extra_specs or {}}
    plain: dict[str, Any] = {"flavor": shape | dict(flavor or {})} | fields
    if image_properties is not None:
        plain["image"] = {"id": "image", "properties": image_properties}
    return msgspec.convert(plain, RequestSpec)
