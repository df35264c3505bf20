"""Hosts, requests and units of oVirt's cases, as ours."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

from scheduler_worker.compose.packages import FILTERS, POLICY_UNITS, WEIGHERS, registered
from scheduler_worker.model.claims import Claim, Resources
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.host_reports import merged
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import Hosts
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.catalogue import Catalogue, UnitKind, parameter_values
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.plugin import Balance, Filter, UnitContext, Weigher
from scheduler_worker.scheduling.scales import RawScale
from scheduler_worker.service.policies.units import load_units

NOW_S = 1_000_000.0


@cache
def catalogue() -> Catalogue:
    """The catalogue of the installed worker."""
    units = registered(FILTERS), registered(WEIGHERS), *map(registered, POLICY_UNITS)
    return load_units(Options(), *units)[0]


def filter_unit(name: str, parameters: Mapping[str, str] | None = None) -> Filter:
    """A filter of a policy."""
    unit: Any = _made(name, UnitKind.FILTER, parameters or {})
    return unit


def weight_unit(name: str, parameters: Mapping[str, str] | None = None) -> Weigher:
    """A weight of a policy; parameters that it does not declare are for others."""
    unit: Any = _made(name, UnitKind.WEIGHT, parameters or {})
    return unit


def balance_unit(name: str, parameters: Mapping[str, str] | None = None) -> Balance:
    """A balance of a policy; parameters that it does not declare are for others."""
    unit: Any = _made(name, UnitKind.BALANCE, parameters or {})
    return unit


def _made(name: str, kind: UnitKind, parameters: Mapping[str, str]) -> Any:
    entry = catalogue().find(name, kind)
    if entry is None:
        raise msgspec.ValidationError(f"no {kind} is called {name}")
    values = parameter_values(entry.unit.parameters_type, (parameters,))
    return entry.unit(UnitContext(name=name, parameters=values))


def record(name: str, virt: Mapping[str, Any], **fields: Any) -> HostRecord:
    """A host that has just reported; what is null is unknown."""
    reported = {"vcpus": 1, "memory_mb": 0, "local_gb": 0, "ram_allocation_ratio": 1.0} | fields
    names = {"uuid": name, "host": name, "nodename": name, "cluster": "c"}
    known = {key: value for key, value in virt.items() if value is not None}
    return merged(None, names | reported | {"virt": known}, reported_at_s=NOW_S)


def measured(host: Mapping[str, Any], **virt: Any) -> HostRecord:
    """A host with the fields that cases of memory and load have."""
    threads = host.get("cpu_threads", host.get("cpu_cores"))
    facts = {
        "sockets": 1,
        "cores": host.get("cpu_cores"),
        "threads": threads,
        "cpu_percent": host.get("cpu_percent"),
        "overcommit_percent": host.get("max_overcommit_percent"),
        # Pending memory comes off the same amount, so it may as well be committed.
        "committed_mb": (host.get("mem_committed_mb") or 0) + (host.get("pending_mem_mb") or 0),
        "guest_overhead_mb": host.get("guest_overhead_mb"),
        "free_mb": host.get("mem_free_mb"),
        "swap_total_mb": host.get("swap_total_mb"),
        "swap_free_mb": host.get("swap_free_mb"),
        "spm": host.get("spm_status", "None") not in {"None", None},
    }
    return record(
        host.get("id") or host.get("name") or "h",
        facts | virt,
        memory_mb=host.get("physical_mem_mb") or 0,
        reserved_host_memory_mb=host.get("reserved_mem_mb") or 0,
        vcpus_used=host.get("vm_count", 0),  # all VMs of these cases have one
        stats={"num_instances": host.get("vm_count", 0)},
    )


def table(records: Iterable[HostRecord]) -> HostTable:
    """The hosts as rows."""
    hosts = HostTable()
    hosts.now_s = NOW_S
    for version, each in enumerate(records, 1):
        hosts.put(each, version)
    return hosts


def request(vcpus: int = 1, memory_mb: int = 0, **fields: Any) -> RequestSpec:
    """A request; ``fields`` are those of its VM."""
    flavor = {"vcpus": vcpus, "memory_mb": memory_mb}
    uuid = fields.pop("id", None)
    known = {key: value for key, value in fields.items() if value is not None}
    return msgspec.convert({"flavor": flavor, "instance_uuid": uuid, "vm": known}, RequestSpec)


def claim(vm: str, host: str, resources: Resources) -> Claim:
    """What is pending of a VM on a host."""
    return Claim(
        instance_uuid=vm,
        host_uuid=host,
        host=host,
        nodename=host,
        resources=resources,
        host_version=1,
    )


def kept(unit: Filter, hosts: HostTable, spec: RequestSpec) -> list[str]:
    """The hosts that a filter passes; asked about all at once and one by one."""
    if not unit.applies(spec):
        return [each.host for each in hosts.records]
    passed = unit.passes(hosts, spec).tolist()
    if not unit.of_one_request:
        by_row = [unit.host_passes(host, spec) for host in hosts.states()]
        if by_row != passed:
            raise AssertionError(f"{unit.name} passes {passed} at once, {by_row} one by one")
    return [each.host for each, passes in zip(hosts.records, passed, strict=True) if passes]


def scores(unit: Weigher, hosts: Hosts, spec: RequestSpec) -> dict[str, float]:
    """The score of each host; nothing where the unit does not concern the request."""
    if not unit.applies(spec):
        return {}
    scale = RawScale(unit, spec, 1.0, unit.weigh(hosts, spec))
    found = (-scale.scores if unit.lower_is_better else scale.scores).tolist()
    return {host.host: score for host, score in zip(hosts.states(), found, strict=True)}


def is_case(document: Any, *keys: str) -> bool:
    """Whether a document is an object with these keys."""
    return isinstance(document, dict) and set(keys) <= document.keys()
