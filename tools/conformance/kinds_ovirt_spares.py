"""Hosts that keep room for the management VM."""

from collections.abc import Iterator
from typing import Any

from conformance import ovirt
from scheduler_worker.model.host_records import HostRecord

_ELSEWHERE = "a host that is not offered"


def recognise(document: Any) -> bool:
    return ovirt.is_case(document, "engine_vm", "vm_cluster", "hosts")


def run(document: Any) -> Iterator[str]:
    engine, vm = document["engine_vm"] or {}, document["vm"]
    here = engine.get("cluster") == document["vm_cluster"]
    records = [_record(host, engine, here=here) for host in document["hosts"]]
    if here and engine.get("run_on") not in {host["name"] for host in document["hosts"]}:
        records.append(_record({"name": _ELSEWHERE}, engine | {"run_on": _ELSEWHERE}, here=True))
    spec = ovirt.request(1, vm["mem_mb"], hosted_engine=vm["id"] == engine.get("id"))
    unit = ovirt.filter_unit("HostedEngineSpares", document["parameters"])
    kept = [each for each in ovirt.kept(unit, ovirt.table(records), spec) if each != _ELSEWHERE]
    if len(kept) != document["expected_count"] or kept != document.get("derived_hosts", kept):
        yield f"{kept} are kept; expected are {document.get('derived_hosts')}"


def _record(host: Any, engine: Any, *, here: bool) -> HostRecord:
    part = {
        "configured": True,
        "active": host.get("ha_active", False),
        "score": host.get("ha_score", 0),
        "local_maintenance": host.get("ha_local_maintenance", False),
    }
    engine_vm = {"id": "engine", "memory_mb": engine.get("mem_mb"), "hosted_engine": True}
    vms = [engine_vm] if here and engine.get("run_on") == host["name"] else []
    return ovirt.measured(host, hosted_engine=part, vms=vms)
