"""Whether a host is the only one that a VM elsewhere could go to, by the policy's own filters.

Asked before a host is emptied, put into maintenance or switched off: a VM whose host fails, or that
an administrator wants to move, must still find one. It is asked on what reports, casts and
reservations say of VMs: sizes, project, and what a host report has under ``needs``. What only the
request for a VM has said (server groups, traits, images) is not known any more.

VMs are many and alike, so what can be shared is asked once for each kind of VM. A filter of the
worker that is not of one request treats all hosts alike on which the VM does not run, so its answer
holds for the VMs of all of them. One that compares the VM's host with others is asked about all
hosts of the kind at once, for a few others. Only where these leave a doubt all filters are asked.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs

from scheduler_worker.model.host_records import UP
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import Mask
from scheduler_worker.model.requests import Flavor, RequestSpec
from scheduler_worker.model.virt import NO_MACHINE, VirtualMachine
from scheduler_worker.scheduling.filter_results import left_by
from scheduler_worker.scheduling.ovirt.migration import SourceFilter
from scheduler_worker.scheduling.pipeline import Pipeline
from scheduler_worker.scheduling.plugin import Filter

_ELSEWHERE = ""
"""The row of a VM that runs on no host of the table."""
_FEW = 4
"""Hosts that are compared with all VMs' own: one of them will do for nearly every VM."""


class _Kind(NamedTuple):
    """What tells VMs from others, but for their own host."""

    memory_mb: int
    vcpus: int
    root_gb: int
    ephemeral_gb: int
    swap_mb: int
    project_id: str | None
    highly_available: bool
    needs: VirtualMachine | None

    def spec(self, uuid: str | None, source: str) -> RequestSpec:
        """What a VM of the kind on a host asks for."""
        needs = self.needs or NO_MACHINE
        vm = structs.replace(needs, highly_available=self.highly_available, run_on=source)
        flavor = Flavor(
            memory_mb=self.memory_mb,
            vcpus=self.vcpus,
            root_gb=self.root_gb,
            ephemeral_gb=self.ephemeral_gb,
            swap=self.swap_mb,
        )
        return RequestSpec(instance_uuid=uuid, flavor=flavor, project_id=self.project_id, vm=vm)


class RunningVms:
    """The VMs of a cluster that may have to leave their hosts, by kind.

    One that cannot migrate counts only if it is highly available: else it stays or ends.
    """

    def __init__(self, pipeline: Pipeline, hosts: HostTable) -> None:
        self.hosts = hosts
        self.evaluator = pipeline.evaluator
        self.kinds: dict[_Kind, dict[str, str]] = {}
        """For each host with VMs of the kind the id of one."""

    def read(self, source: str) -> None:
        """Take in the VMs of a host."""
        for vm, kind in _vms_on(self.hosts, source):
            self.kinds.setdefault(kind, {}).setdefault(source, vm)


class DrainSafety:
    """One host, and the VMs elsewhere that would have no other but it.

    Each question reads the table as it is then, so it may change between two of them.
    """

    def __init__(self, vms: RunningVms, host: str) -> None:
        self._hosts, self._evaluator, self._host = vms.hosts, vms.evaluator, host
        self._alone = _alone(vms.hosts, host)

    def is_needed(self, kind: _Kind, source: str, vm: str) -> bool:
        """Whether a VM could go to this host and nowhere else, by all filters."""
        spec, survivors = kind.spec(vm, source), self._evaluator.survivors
        elsewhere = structs.replace(spec, ignore_hosts=(source, self._host))
        if survivors(self._hosts, elsewhere).any():
            return False
        return bool(survivors(self._alone, spec).any())

    def doubtful(self, kind: _Kind, sources: Iterable[str]) -> list[str]:
        """The hosts whose VMs of a kind may have no other host than this one."""
        spec, hosts = kind.spec(None, _ELSEWHERE), self._hosts
        asked = self._evaluator.asked(spec)
        internal = (unit for unit in asked if unit.is_internal() and unit.declares_reads())
        shared = [unit for unit in internal if not unit.of_one_request]
        compared = [unit for unit in asked if isinstance(unit, SourceFilter)]
        if not _passing(self._alone, spec, shared).any():
            return []
        here = hosts.rows_of([self._host])
        doubtful = hosts.rows_of(sources) & ~here
        if len(shared) + len(compared) == len(asked):
            rows = np.flatnonzero(_passing(hosts, spec, shared) & ~here)
            for row in rows[:_FEW]:
                fits = ~hosts.rows_of([hosts.records[row].host])
                for unit in compared:
                    fits &= unit.fits(hosts, hosts.take(np.array([row])))
                doubtful &= ~fits
        return sorted({hosts.records[row].host for row in np.flatnonzero(doubtful)})


def _passing(hosts: HostTable, spec: RequestSpec, filters: Iterable[Filter]) -> Mask:
    mask = np.ones(len(hosts), bool)
    for unit in filters:
        mask = left_by(unit, hosts, spec, mask)
    return mask


def _alone(hosts: HostTable, host: str) -> HostTable:
    """A table of nothing but the host, as if it were up."""
    alone = HostTable()
    alone.now_s = hosts.now_s
    alone.set_aggregates(hosts.aggregates)
    for record in hosts.find(host):
        alone.put(structs.replace(record, power=UP), 0)
    return alone


def _vms_on(hosts: HostTable, source: str) -> Iterator[tuple[str, _Kind]]:
    """The VMs on a host that may have to leave it, with what is known of what they ask for."""
    reported = hosts.reported_instances(source)
    seen: set[str] = set()
    for record in hosts.find(source):
        for vm in record.virt.vms if record.virt else ():
            seen.add(vm.id)
            if vm.migratable or vm.highly_available:
                facts = reported.get(vm.id, {})
                yield vm.id, _kind(vm.memory_mb, vm.vcpus, facts, vm.highly_available, vm.needs)
        for reserved in hosts.reservations_of_host(record.uuid):
            if reserved.instance_uuid not in seen:
                seen.add(reserved.instance_uuid)
                taken = reserved.resources
                facts = {"swap_mb": taken.disk_mb}
                yield reserved.instance_uuid, _kind(taken.memory_mb, taken.vcpus, facts)
    for uuid, facts in reported.items():
        if uuid not in seen and facts.get("memory_mb") is not None:
            yield uuid, _kind(facts["memory_mb"], facts.get("vcpus") or 0, facts)


def _kind(
    memory_mb: int,
    vcpus: int,
    facts: Mapping[str, Any],
    highly_available: bool = False,
    needs: VirtualMachine | None = None,
) -> _Kind:
    root_gb, ephemeral_gb = facts.get("root_gb") or 0, facts.get("ephemeral_gb") or 0
    sizes = memory_mb, vcpus, root_gb, ephemeral_gb, facts.get("swap_mb", 0)
    return _Kind(*sizes, facts.get("project_id"), highly_available, needs)
