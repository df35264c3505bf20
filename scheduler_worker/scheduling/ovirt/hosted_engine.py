"""Units for the management VM ("hosted engine") and its high availability."""

from collections.abc import Hashable

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.model.virt import HostedEngineHost, VirtHost
from scheduler_worker.scheduling.ovirt import demand, host_metrics
from scheduler_worker.scheduling.ovirt.formulas import MAX_WEIGHT, rounded
from scheduler_worker.scheduling.ovirt.parameters import EngineSpares
from scheduler_worker.scheduling.plugin import Filter, Weigher

BEST_SCORE = 3400
_BETTER_BY = 800
"""By how much a host may score worse than the one on which the management VM runs."""
_NO_PART = HostedEngineHost()


def _part_of(virt: VirtHost) -> HostedEngineHost:
    return virt.hosted_engine or _NO_PART


def _scores(hosts: Hosts) -> Values:
    return host_metrics.of_facts(hosts, "engine score", lambda virt: _part_of(virt).score, "i8")


class EngineHaFilter(Filter):
    """Passes, for the management VM, hosts that are set up for it and score well enough.

    More than 0, and than the score of its host less 800.

    Reads: ``virt.hosted_engine``; ``vm.hosted_engine``, ``vm.run_on``,
    ``vm.global_maintenance``.
    Example: from a host of score 3400 the management VM migrates to hosts above 2600.
    """

    unit_id = "e659c871-0bf1-4ccc-b748-f28f5d08dffd"
    of_one_request = True

    def applies(self, spec: RequestSpec) -> bool:
        return spec.machine.hosted_engine

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        scores, there = _scores(hosts), demand.is_there(hosts, spec)
        least = 0
        if there.any() and not spec.machine.global_maintenance:
            least = max(int(scores[there][0]) - _BETTER_BY, 0)
        ready = host_metrics.of_facts(hosts, "engine", lambda virt: _part_of(virt).configured)
        return ready & (scores > least)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        part = _part_of(host_metrics.facts_of(host_state))
        if not part.configured:
            return "is not set up for the management VM"
        return f"its score for the management VM is {part.score}, which is too low"


class EngineHaWeight(Weigher):
    """Prefers, for the management VM, hosts with a higher score.

    Reads: ``virt.hosted_engine``; ``vm.hosted_engine``.
    Example: a host of score 3400 is best.
    """

    unit_id = "98e92667-6161-41fb-b3fa-34f820ccbc4b"
    lower_is_better = True
    reads_use = False

    def applies(self, spec: RequestSpec) -> bool:
        return spec.machine.hosted_engine

    def reads(self, spec: RequestSpec) -> Hashable:
        return ()

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        return MAX_WEIGHT - rounded(_scores(hosts) * (MAX_WEIGHT / BEST_SCORE))


class EngineSparesFilter(Filter):
    """Keeps room for the management VM on at least as many hosts as the policy says.

    A host that can run the management VM and has room for it is a spare. One that has no room for
    the requested VM beside it is rejected, unless the VM runs there already, or there are more
    spares than needed. Active where the management VM runs in this cluster.

    Reads: ``virt.hosted_engine``, ``virt.vms``, ``virt.guest_overhead_mb``, schedulable memory,
    ``service``, heartbeat; the flavor's memory, ``vm.hosted_engine``, ``vm.run_on``.
    Options: ``[DEFAULT] service_down_time``.
    Example: ``HeSparesCount`` 2 keeps two hosts on which the management VM can start again.
    """

    unit_id = "53bff075-8306-446f-a53b-9c872a29d197"
    of_one_request = True
    parameters_type = EngineSpares

    def applies(self, spec: RequestSpec) -> bool:
        return int(self.parameters.HeSparesCount) > 0 and not spec.machine.hosted_engine

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        engine_mb = host_metrics.of_facts(hosts, "engine VM", _engine_mb, "f8")
        if not len(hosts) or not engine_mb.max():
            return np.ones(len(hosts), bool)
        could = host_metrics.of_facts(hosts, "engine spare", _could_be_spare) & (engine_mb == 0)
        could &= hosts.taking_vms(self.parameters.service_down_time_s)
        overhead = host_metrics.of_facts(hosts, "guest", lambda virt: virt.guest_overhead_mb, "f8")
        room_mb = host_metrics.schedulable_mb(hosts) - engine_mb.max() - overhead
        spare = could & (room_mb >= 0)
        beside = room_mb - spec.flavor.memory_mb - overhead >= 0
        if int(spare.sum()) > int(self.parameters.HeSparesCount):
            return np.ones(len(hosts), bool)
        kept: Mask = ~spare | beside | demand.is_there(hosts, spec)
        return kept

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        kept = f"the policy keeps {self.parameters.HeSparesCount} such hosts"
        return f"its memory is kept free for the management VM; {kept}"


def _engine_mb(virt: VirtHost) -> int:
    return max((vm.memory_mb for vm in virt.vms if vm.hosted_engine), default=0)


def _could_be_spare(virt: VirtHost) -> bool:
    part = _part_of(virt)
    return part.active and part.score > 0 and not part.local_maintenance
