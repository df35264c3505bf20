"""Nova's objects, as its unit tests make them, in the form of messages.

Tests leave out what the unit under test does not read. What a message must have, and they leave
out, is filled with amounts of nothing. Run by the interpreter that has Nova.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import Any

from nova import objects
from nova.objects import base
from nova.pci import stats as pci_stats
from nova.scheduler.filters import utils

Plain = dict[str, Any]

NOW, LONG_AGO = "2026-01-02T03:05:00Z", "2026-01-01T00:00:00Z"
"""What is "now" to tools/conformance, and when a dead service was seen last."""
MIB_IN_GIB = 1024
_ATTRIBUTES = {
    *("host", "nodename", "uuid", "_lock_name", "total_usable_ram_mb", "total_usable_disk_gb"),
    *("disk_mb_used", "free_ram_mb", "free_disk_mb", "vcpus_total", "vcpus_used", "pci_stats"),
    *("numa_topology", "num_instances", "num_io_ops", "failed_builds", "host_ip", "metrics"),
    *("hypervisor_type", "hypervisor_version", "hypervisor_hostname", "cpu_info", "stats"),
    *("supported_instances", "limits", "cell_uuid", "aggregates", "instances", "updated"),
    *("ram_allocation_ratio", "cpu_allocation_ratio", "disk_allocation_ratio", "service"),
    *("allocation_candidates", "id", "memory_mb"),
}
_SPEC = {"image": None, "numa_topology": None, "pci_requests": None, "num_instances": 1}
_FLAVOR = {
    "memory_mb": 0, "vcpus": 0, "root_gb": 0, "ephemeral_gb": 0, "swap": 0, "extra_specs": {},
    "name": "flavor", "flavorid": "flavor",
}  # fmt: skip


class Inexpressible(Exception):
    """Raised for what no message can have, such as a mock."""


def host(state: Any) -> Plain:
    """A host state, as tools/conformance reads hosts."""
    if state is None:
        raise Inexpressible("no host at all")
    node = {
        "host": state.host,
        "hypervisor_hostname": state.nodename,
        "uuid": state.uuid or _uuid_of(state),
        "vcpus": state.vcpus_total,
        "vcpus_used": state.vcpus_used,
        "memory_mb": state.total_usable_ram_mb,
        "free_ram_mb": state.free_ram_mb,
        "local_gb": state.total_usable_disk_gb,
        "free_disk_gb": _gib(state.free_disk_mb),
        "hypervisor_type": state.hypervisor_type,
        "hypervisor_version": state.hypervisor_version,
        "host_ip": state.host_ip and str(state.host_ip),
        "cpu_info": state.cpu_info,
        "numa_topology": _topology(state.numa_topology),
        "pci_device_pools": _pools(state.pci_stats),
        "supported_hv_specs": state.supported_instances or [],
        "metrics": [_metric(metric) for metric in state.metrics or []],
        "stats": _stats(state),
        **{
            name: getattr(state, name)
            for name in ("cpu_allocation_ratio", "ram_allocation_ratio", "disk_allocation_ratio")
            if getattr(state, name) is not None
        },
    }
    return _plain({
        "compute_node": node,
        "service": _service(state),
        "aggregates": _aggregates(state),
        "instances": [_instance(uuid, instance) for uuid, instance in state.instances.items()],
        "cell_uuid": state.cell_uuid or str(uuid.uuid5(uuid.NAMESPACE_DNS, "cell")),
        "allocation_candidates": getattr(state, "allocation_candidates", None) or [],
    })  # fmt: skip


def _uuid_of(state: Any) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{state.nodename}.{state.host}"))


def request_for_placement(spec: Any) -> Plain:
    """A request, as the first to be asked about it has it: nobody worked out its topology yet."""
    found = request_spec(spec)
    data = found["nova_object.data"]
    if not data["numa_topology"]:
        del data["numa_topology"]
    flavor = data["flavor"]["nova_object.data"]
    flavor["vcpus"] = flavor["vcpus"] or 1  # a flavor of nothing would not be asked about
    if data["image"] is not None:
        properties = objects.ImageMetaProps().obj_to_primitive()
        data["image"]["nova_object.data"].setdefault("properties", properties)
    return found


def request_spec(spec: Any) -> Plain:
    """A request; what is no request, as weighers get in their tests, is one for nothing."""
    if not isinstance(spec, objects.RequestSpec):
        if spec:
            raise Inexpressible(f"a request that is {spec!r}")
        spec = objects.RequestSpec()
    try:
        found: Plain = spec.obj_to_primitive()
    except Exception as error:
        raise Inexpressible(f"a request that has no primitive: {error!r}") from None
    data = found["nova_object.data"]
    for name, value in _SPEC.items():
        data.setdefault(name, value)
    data.setdefault("instance_uuid", str(uuid.uuid4()))
    flavor = data.get("flavor") or objects.Flavor().obj_to_primitive()
    flavor["nova_object.data"] = {**_FLAVOR, **flavor["nova_object.data"]}
    data["flavor"] = flavor
    return _plain(found)


def _gib(mib: int) -> int:
    if mib % MIB_IN_GIB:
        raise Inexpressible("free disk that is not whole GiB, which computes do not report")
    return mib // MIB_IN_GIB


def _topology(found: Any) -> Any:
    return found.obj_to_primitive() if isinstance(found, base.NovaObject) else found


def _pools(found: Any) -> list[Plain]:
    if found is None:
        return []
    if not isinstance(found, pci_stats.PciDeviceStats):
        raise Inexpressible("PCI devices that are a mock")
    return [_pool(pool) for pool in found.pools]


def _pool(pool: Plain) -> Plain:
    known = {"product_id", "vendor_id", "numa_node", "count"}
    tags = {name: value for name, value in pool.items() if name not in {*known, "devices"}}
    return {**{name: pool.get(name) for name in known}, "tags": tags}


def _metric(metric: Any) -> Plain:
    found: Plain = metric.to_dict() if metric.obj_attr_is_set("timestamp") else {}
    value = {"value": metric.value} if metric.obj_attr_is_set("value") else {}
    return {"timestamp": NOW, "source": "test", **found, "name": metric.name, **value}


def _stats(state: Any) -> Plain:
    """Statistics, and attributes that no host has: both are found by the same names."""
    counts = {
        "num_instances": state.num_instances,
        "io_workload": state.num_io_ops,
        "failed_builds": state.failed_builds,
    }
    others = {name: value for name, value in vars(state).items() if name not in _ATTRIBUTES}
    found = {**(getattr(state, "stats", None) or {}), **counts, **others}
    for name, value in found.items():
        if not isinstance(value, (str, int, float)):
            raise Inexpressible(f"{name} is {value!r}; statistics are flat")
    return found


def _instance(uuid: str, instance: Any) -> Any:
    """An instance with its image properties, if the test has any."""
    if not isinstance(instance, objects.Instance):
        return uuid
    try:
        properties = objects.ImageMeta().from_instance(instance).properties
    except Exception:  # it has none, and from_instance expects some
        return uuid
    found = properties.obj_to_primitive()["nova_object.data"]
    return {"uuid": uuid, "system_metadata": {f"image_{name}": found[name] for name in found}}


def _service(state: Any) -> Plain:
    """The compute service; a mock of the service group says whether it is up."""
    from nova import servicegroup

    asked = servicegroup.API.service_is_up
    is_up = asked.return_value if _is_mock(asked) else True
    service = dict(getattr(state, "service", None) or {})
    return {
        "disabled": bool(service.get("disabled")),
        "last_seen_up": NOW if is_up else LONG_AGO,
        "created_at": LONG_AGO,
    }


def _aggregates(state: Any) -> list[Plain]:
    """Those of the host; or else what the mocks of Nova's two functions say of them.

    They were asked already: a mock of one knows the key.
    """
    by_key, by_host = utils.aggregate_values_from_key, utils.aggregate_metadata_get_by_host
    if _is_mock(by_key):
        keys = {call.args[1] for call in by_key.call_args_list}
        return _each([{key: value} for key in keys for value in by_key.return_value])
    if _is_mock(by_host):
        found = by_host.return_value if by_host.called else {}
        return _each([{key: ",".join(sorted(values)) for key, values in found.items()}])
    return _each([dict(each.metadata) for each in state.aggregates or []])


def _is_mock(found: Any) -> bool:
    return hasattr(found, "assert_called")  # so has a function that is one


def _each(metadata: Iterable[Plain]) -> list[Plain]:
    return [aggregate(str(uuid.uuid4()), number, each) for number, each in enumerate(metadata, 1)]


def aggregate(uuid: str, number: int, metadata: Plain | None = None) -> Plain:
    """An aggregate of no hosts."""
    return {"id": number, "uuid": uuid, "name": "a", "hosts": [], "metadata": metadata or {}}


def _plain(found: Plain) -> Plain:
    try:
        checked: Plain = json.loads(json.dumps(found, default=_unknown))
    except (TypeError, ValueError) as error:
        raise Inexpressible(str(error)) from None
    return checked


def _unknown(value: object) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, base.NovaObject):
        return value.obj_to_primitive()
    raise Inexpressible(f"a value that is {type(value).__name__}")
