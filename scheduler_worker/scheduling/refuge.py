"""Whether a host is the only one that a VM elsewhere could go to, by the policy's own filters.

Asked before a host is emptied, put into maintenance or switched off: a VM whose host fails, or that
an administrator wants to move, must still find one. It is asked on what reports, casts and
reservations say of VMs: sizes, project, and what a host report has under ``needs``. What only the
request for a VM has said (server groups, traits, images) is not known any more.

VMs are many and alike, so what can be shared is asked once for each kind of VM. A filter of ours
that is not of one request treats all hosts alike on which the VM does not run, so its answer holds
for the VMs of all of them. The others are asked for each VM, as are all where none is found so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import structs

from scheduler_worker.model.host_power import UP
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import Mask
from scheduler_worker.model.requests import Flavor, RequestSpec
from scheduler_worker.model.virt_hosts import RunningVm
from scheduler_worker.model.virtual_machines import NO_MACHINE, VirtualMachine
from scheduler_worker.scheduling.filter_results import left_by
from scheduler_worker.scheduling.pipeline import Pipeline
from scheduler_worker.scheduling.plugin import Filter

_ELSEWHERE = ""
"""Where a VM runs that runs on no host of the table."""


class Refuge:
    """One host, and the VMs that would have no other but it."""

    def __init__(self, pipeline: Pipeline, hosts: HostTable, host: str) -> None:
        self._survivors = pipeline.evaluator.survivors
        self._hosts = hosts
        self._host = host
        self._alone = _alone(hosts, host)
        self._kinds = _Kinds(pipeline, hosts)
        self._kinds_alone = _Kinds(pipeline, self._alone)
        self._single = [each for each in pipeline.evaluator.filters if not _is_shared(each)]

    def needed_by(self, source: str) -> str | None:
        """A VM on another host that could go to this one and nowhere else; None: there is none.

        A VM that cannot migrate counts only if it is highly available: else it stays or ends.
        """
        asked: set[bytes] = set()
        for vm, spec in _vms_on(self._hosts, source):
            kind = msgspec.msgpack.encode(structs.replace(spec, instance_uuid=None))
            if kind in asked:
                continue
            asked.add(kind)
            if not self._kinds_alone.passing(spec).any() or self._has_another(spec, source):
                continue
            elsewhere = structs.replace(spec, ignore_hosts=(source, self._host))
            survivors = self._survivors
            if not survivors(self._hosts, elsewhere).any() and survivors(self._alone, spec).any():
                return vm
        return None

    def _has_another(self, spec: RequestSpec, source: str) -> bool:
        """Whether a VM has another host for sure, by what is known of its kind."""
        mask = self._kinds.passing(spec) & ~self._hosts.rows_of((source, self._host))
        for unit in self._single:
            if unit.applies(spec):
                mask = left_by(unit, self._hosts, spec, mask)
        return bool(mask.any())


class _Kinds:
    """The hosts of a table that pass the shared filters, by kind of VM."""

    def __init__(self, pipeline: Pipeline, hosts: HostTable) -> None:
        self._evaluator = pipeline.evaluator
        self._hosts = hosts
        self._marks = hosts.marks()
        self._passing: dict[bytes, Mask] = {}

    def passing(self, spec: RequestSpec) -> Mask:
        """The hosts that pass for a VM like this, wherever it runs; its own may not be right."""
        if self._hosts.touched_since(self._marks) is None:  # rows have moved
            self._passing.clear()
            self._marks = self._hosts.marks()
        machine = structs.replace(spec.machine, run_on=_ELSEWHERE)
        spec = structs.replace(spec, instance_uuid=None, vm=machine)
        kind = msgspec.msgpack.encode(spec)
        if kind not in self._passing:
            mask = np.ones(len(self._hosts), bool)
            for unit in self._evaluator.asked(spec):
                if _is_shared(unit):
                    mask = left_by(unit, self._hosts, spec, mask)
            self._passing[kind] = mask
        return self._passing[kind]


def _is_shared(unit: Filter) -> bool:
    return unit.is_internal() and unit.declares_reads() and not unit.of_one_request


def _alone(hosts: HostTable, host: str) -> HostTable:
    """A table of nothing but the host, as if it were up."""
    alone = HostTable()
    alone.now_s = hosts.now_s
    alone.set_aggregates(hosts.aggregates)
    for record in hosts.find(host):
        alone.put(structs.replace(record, power=UP), 0)
    return alone


def _vms_on(hosts: HostTable, source: str) -> Iterator[tuple[str, RequestSpec]]:
    """The VMs on a host that may have to leave it, with what is known of what they ask for."""
    reported = hosts.reported_instances(source)
    seen: set[str] = set()
    for record in hosts.find(source):
        for vm in record.virt.vms if record.virt else ():
            seen.add(vm.id)
            if vm.migratable or vm.highly_available:
                yield vm.id, _of_vm(vm, source, reported.get(vm.id, {}))
        for reserved in hosts.reservations_of_host(record.uuid):
            if reserved.instance_uuid not in seen:
                seen.add(reserved.instance_uuid)
                taken = reserved.resources
                flavor = Flavor(vcpus=taken.vcpus, memory_mb=taken.memory_mb, swap=taken.disk_mb)
                yield reserved.instance_uuid, _spec(reserved.instance_uuid, flavor, source, {})
    for uuid, facts in reported.items():
        if uuid not in seen and facts.get("memory_mb") is not None:
            flavor = _flavor(facts["memory_mb"], facts.get("vcpus") or 0, facts)
            yield uuid, _spec(uuid, flavor, source, facts)


def _of_vm(vm: RunningVm, source: str, facts: Mapping[str, Any]) -> RequestSpec:
    flavor = _flavor(vm.memory_mb, vm.vcpus, facts)
    needs = structs.replace(vm.needs or NO_MACHINE, highly_available=vm.highly_available)
    return _spec(vm.id, flavor, source, facts, needs)


def _flavor(memory_mb: int, vcpus: int, facts: Mapping[str, Any]) -> Flavor:
    return Flavor(
        memory_mb=memory_mb,
        vcpus=vcpus,
        root_gb=facts.get("root_gb") or 0,
        ephemeral_gb=facts.get("ephemeral_gb") or 0,
    )


def _spec(
    uuid: str,
    flavor: Flavor,
    source: str,
    facts: Mapping[str, Any],
    needs: VirtualMachine = NO_MACHINE,
) -> RequestSpec:
    return RequestSpec(
        instance_uuid=uuid,
        flavor=flavor,
        project_id=facts.get("project_id"),
        vm=structs.replace(needs, run_on=source),
    )
