"""The evaluator's inputs for a cluster, and its outputs for each host. Values only, no I/O.

Rules see what a host reported as property objects: each mapping in ``load``, and in a VM's entry of
``vms``, is one; all other values are fields of the object ``host`` or ``vm``. A VM's ``disks`` have
objects of their own, by the disk's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.service.tuning.records import (
    SetBy,
    TunedHostState,
    entity_states,
    windows_of,
)
from scheduler_worker.tuning.samples import (
    HOST,
    Entity,
    EvaluatorState,
    MovingAverages,
    Sample,
    Value,
    Windows,
)
from scheduler_worker.tuning.tuning_policy import Scope

VM, DISK, DISKS, POLICY = "vm", "disk", "disks", "policy"

Figures = dict[str, dict[str, Value]]
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
        objects[POLICY] = {**parameters, **objects.get(POLICY, {})}
        vms[uuid] = objects
        if by_name:
            disks[uuid] = {
                name: _disk(name, fields, objects[POLICY]) for name, fields in by_name.items()
            }
    return Sample(dict(host), _plain(vms), {uuid: _plain(each) for uuid, each in disks.items()})


def vms_of(record: HostRecord) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the VMs of a report by uuid; a report may have a mapping or a list of them."""
    reported = record.vms
    if isinstance(reported, dict):
        pairs: Iterable[tuple[Any, Any]] = reported.items()
    else:
        pairs = ((each.get("uuid"), each) for each in reported if isinstance(each, dict))
    for uuid, each in pairs:
        if isinstance(uuid, str) and isinstance(each, dict):
            yield uuid, each


def _disk(name: str, fields: Value, policy: Mapping[str, Value]) -> Figures:
    objects = _objects(fields if isinstance(fields, dict) else {}, DISK)
    objects[DISK] = {"name": name} | objects.get(DISK, {})
    if POLICY in objects:
        objects[POLICY] = {**policy, **objects[POLICY]}
    return objects


def _objects(fields: Mapping[str, Any], own: str) -> Figures:
    """Return the mappings among the fields, and all other fields as those of the object ``own``."""
    found = {name: dict(value) for name, value in fields.items() if isinstance(value, dict)}
    others = {name: value for name, value in fields.items() if not isinstance(value, dict)}
    if others:
        found[own] = others | found.get(own, {})
    return found


def _plain(figures: Mapping[str, Figures]) -> dict[str, dict[str, Value]]:
    return {name: dict(objects) for name, objects in figures.items()}


Values = dict[str, float]
"""Output -> the value to set."""


class HostOutputs(msgspec.Struct, frozen=True):
    """The values that a host's agent is to set; the fields are arguments of the cast."""

    outputs: Values
    vms: dict[str, Values]
    disks: dict[str, dict[str, Values]]


class ClusterInputs(NamedTuple):
    """The inputs of a cluster's evaluation, by the uuid of the host."""

    records: dict[str, HostRecord]
    samples: dict[str, Sample]
    windows: dict[str, dict[Entity, Windows]]
    """The windows of averages; every entity of the host has an entry, if an empty one."""

    def outputs(self, changes: Mapping[Entity, Values]) -> dict[str, HostOutputs]:
        """Return the changes by host; a host without changes has no entry."""
        found: dict[str, HostOutputs] = {}
        for host, windows in self.windows.items():
            for entity in windows.keys() & changes.keys():
                made = found.setdefault(host, HostOutputs({}, {}, {}))
                if entity.scope == Scope.HOST:
                    made.outputs.update(changes[entity])
                elif entity.scope == Scope.VM:
                    made.vms[entity.name] = changes[entity]
                else:
                    made.disks.setdefault(entity.name, {})[entity.device] = changes[entity]
        return found

    def host_state(
        self,
        host: str,
        state: EvaluatorState,
        set_by: Mapping[Entity, dict[str, SetBy]],
        notified_at_s: float,
    ) -> TunedHostState:
        """Return the state to keep of a host; entities that left it are dropped."""
        entities = entity_states(state, self.windows[host], set_by)
        return TunedHostState(self.records[host].reported_at_s, notified_at_s, entities)


def cluster_inputs(
    records: Iterable[HostRecord],
    states: Mapping[str, TunedHostState],
    averages: MovingAverages,
    parameters: Mapping[str, Value],
) -> ClusterInputs:
    """Return the inputs from the hosts' reports, with averages over the earlier reports too."""
    latest = sorted(records, key=lambda record: record.reported_at_s)
    # While a VM migrates two hosts may report it; it belongs to the one that reported last.
    home = {vm: record.uuid for record in latest for vm, _ in vms_of(record)}
    # Of all hosts: a VM that migrated here keeps the windows from its former host.
    windows = windows_of(states.values())
    found = ClusterInputs({}, {}, {})
    for record in latest:
        host = record.uuid
        state = states.get(host)
        vms = [vm for vm, _ in vms_of(record) if home[vm] == host]
        found.records[host] = record
        found.samples[host] = sample = sample_of(record, parameters, vms)
        found.windows[host] = averages.add_to(
            sample,
            host,
            windows,
            is_new=state is None or record.reported_at_s > state.reported_at_s,
        )
    return found
