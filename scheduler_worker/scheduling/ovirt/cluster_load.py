"""The load of a cluster, as balances see it, from the table of its hosts."""

from collections.abc import Mapping

import numpy as np

from scheduler_worker.model.cluster_load import ClusterLoad, HostLoad, VmLoad
from scheduler_worker.model.host_records import state_of
from scheduler_worker.model.hosts import Hosts, HostState
from scheduler_worker.model.virt import RunningVm
from scheduler_worker.scheduling.ovirt import host_metrics


def cluster_load(hosts: Hosts, down_after_s: float) -> ClusterLoad:
    """The load of hosts, also of hosts that do not run or have been silent for ``down_after_s``.

    A host that no migration may start from or go to, since a VM is about to arrive or leave, is
    there and marked as not settled. A VM with CPUs of its own counts as pinned.
    """
    columns = {
        "load": host_metrics.shared_load(hosts),
        "shared_cpus": host_metrics.shared_cpus(hosts),
        "free_mb": host_metrics.schedulable_mb(hosts),
        "num_vms": host_metrics.reported_vms(hosts),
        "shared_vcpus": host_metrics.running_shared_vcpus(hosts),
        "pending": host_metrics.pending_vcpus(hosts) + host_metrics.pending_vms(hosts),
    }
    return ClusterLoad(
        hosts=tuple(
            _host(state, {name: column[row] for name, column in columns.items()}, down_after_s)
            for row, state in enumerate(hosts.states())
        )
    )


def _host(state: HostState, numbers: Mapping[str, float], down_after_s: float) -> HostLoad:
    virt = host_metrics.facts_of(state)
    load = float(numbers["load"])
    return HostLoad(
        name=state.host,
        load=None if np.isnan(load) else load,
        shared_cpus=int(numbers["shared_cpus"]),
        free_mb=float(numbers["free_mb"]),
        num_vms=int(numbers["num_vms"]),
        vms=tuple(map(_vm, virt.vms)),
        shared_vcpus=int(numbers["shared_vcpus"]),
        out_of_bounds_since_s=state.record.over_commit_since_s,
        is_manager=virt.spm,
        is_settled=numbers["pending"] <= 0 and not any(vm.is_changing for vm in virt.vms),
        state=state_of(state.record, state.now_s, down_after_s),
        power=state.record.power,
    )


def _vm(vm: RunningVm) -> VmLoad:
    return VmLoad(
        id=vm.id,
        vcpus=vm.vcpus,
        memory_mb=vm.memory_mb,
        cpu_percent=vm.cpu_percent,
        can_move=vm.migratable and not vm.is_changing and not vm.exclusive_cpus,
        highly_available=vm.highly_available,
    )
