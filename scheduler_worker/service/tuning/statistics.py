"""Statistics as rules see them: property objects of what a host reported.

In ``load``, and in a VM's entry of ``vms``, each mapping is a property object; all other values are
fields of the object ``host`` or ``vm``. A VM's ``disks`` have objects of their own, by the disk's
name.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.tuning.samples import HOST, Sample, Value

VM, DISK, DISKS, POLICY = "vm", "disk", "disks", "policy"

Figures = dict[str, Any]
"""The property objects of one entity, while they are built."""


def sample_of(record: HostRecord, parameters: Mapping[str, Value], only: Iterable[str]) -> Sample:
    """Return the sample of a host's report, with its VMs in ``only``.

    Fields of a reported ``policy`` object take precedence over the cluster's parameters.
    """
    host = _objects(record.load, HOST)
    host[HOST] = {"id": record.uuid, "name": record.host} | host.get(HOST, {})
    host[POLICY] = {**parameters, **host.get(POLICY, {})}
    vms: dict[str, Figures] = {}
    disks: dict[str, dict[str, Figures]] = {}
    reported = dict(vms_of(record))
    for uuid in only:
        objects = _objects(reported[uuid], VM)
        by_name = objects.pop(DISKS, {})
        objects[VM] = {"id": uuid} | objects.get(VM, {})
        objects[POLICY] = policy = {**parameters, **objects.get(POLICY, {})}
        vms[uuid] = objects
        if by_name:
            disks[uuid] = {name: _disk(name, fields, policy) for name, fields in by_name.items()}
    return Sample(host, vms, disks)


def vms_of(record: HostRecord) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the VMs of a report by uuid; a report may have a mapping or a list of them."""
    if isinstance(record.vms, dict):
        pairs: Iterable[tuple[Any, Any]] = record.vms.items()
    else:
        pairs = ((vm.get("uuid"), vm) for vm in record.vms if isinstance(vm, dict))
    for uuid, vm in pairs:
        if isinstance(uuid, str) and isinstance(vm, dict):
            yield uuid, vm


def _disk(name: str, fields: Value, policy: Mapping[str, Value]) -> Figures:
    objects = _objects(fields if isinstance(fields, dict) else {}, DISK)
    objects[DISK] = {"name": name} | objects.get(DISK, {})
    if POLICY in objects:
        objects[POLICY] = {**policy, **objects[POLICY]}
    return objects


def _objects(fields: Mapping[str, Any], own: str) -> Figures:
    """Return the mappings among the fields; all other fields are fields of the object ``own``."""
    objects = {name: dict(value) for name, value in fields.items() if isinstance(value, dict)}
    own_fields = {name: value for name, value in fields.items() if not isinstance(value, dict)}
    if own_fields:
        objects[own] = own_fields | objects.get(own, {})
    return objects
