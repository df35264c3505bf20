"""Power actions of one cluster: which are under way, and which of a plan's is asked for.

A host is put into maintenance, or switched off, only while no VM is on it or on its way to it, and
while no VM elsewhere would have no other host but it. From then on no decision chooses it: the
action is written down under the cluster's lock, so none is in between.
"""

import logging
import uuid
from collections.abc import Collection
from functools import partial

from msgspec import structs

from scheduler_worker import events
from scheduler_worker.model.cluster_load import BalancePlan, ConsideredPower, PowerAction
from scheduler_worker.model.host_records import PowerState, phrase
from scheduler_worker.model.ledgers import AskedPower, PowerLedger
from scheduler_worker.scheduling.drain_safety import DrainSafety, RunningVms
from scheduler_worker.service.balancing.ledgers import SHOWN
from scheduler_worker.service.balancing.situation import (
    BalancingDependencies,
    Situation,
    left_alone,
)
from scheduler_worker.service.state.replica import ClusterReplica

LOG = logging.getLogger(__name__)

_MOST_CONSIDERED = 5
"""Hosts of one round: a plan has one, and is made again without a host that is held back."""


class PowerActions:
    """The power actions of one cluster on behalf of this process."""

    def __init__(self, cluster: str, deps: BalancingDependencies) -> None:
        self._cluster = cluster
        self._deps = deps
        self._replica = deps.fleet.cluster(cluster)
        self._vms: RunningVms | None = None

    def begin(self) -> None:
        """Begin a round: the VMs are read again if they are needed."""
        self._vms = None

    def settle(self) -> None:
        """Take in what has become of the action under way: by reports, or by silence.

        Raises Conflict, StateUnavailable.
        """
        limits = self._deps.settings.limits
        self._deps.ledgers.change(
            self._cluster,
            PowerLedger,
            lambda ledger, replica, now_s: ledger.settle(states_of(replica), now_s, limits),
        )

    # Proposals

    def consider(self, situation: Situation, plan: BalancePlan) -> list[ConsideredPower]:
        """Ask for the plan's action; where it is held back, for that of a plan without its host.

        Raises Conflict, StateUnavailable.
        """
        tried: list[ConsideredPower] = []
        skipped: set[str] = set()
        proposed = plan.power
        while proposed is not None and proposed.host not in skipped:
            outcome, what = self._try(situation, proposed)
            tried.append(ConsideredPower(**structs.asdict(proposed), outcome=outcome))
            self._deps.observer.count(events.POWER_ACTIONS, self._cluster, proposed.to, what)
            LOG.info(
                "Balancing %s (%s, %s): %s %s: %s; %s",
                self._cluster, situation.policy, situation.mode, proposed.host, phrase(proposed.to),
                proposed.reason, outcome,
            )  # fmt: skip
            is_busy = self._replica.power.under_way is not None
            if what != "held" or is_busy or len(tried) == _MOST_CONSIDERED:
                break
            skipped.add(proposed.host)
            load = left_alone(situation.load, skipped)
            proposed = situation.balance.plan(load, plan.memory, situation.now_s).power
        return tried

    def _try(self, situation: Situation, proposed: PowerAction) -> tuple[str, str]:
        """Ask for an action if it may be; returns what became of it, in words and for metrics."""
        why_not = situation.power.why_not(proposed, situation.now_s)
        if why_not is None and proposed.to != "up":
            why_not = self.why_needed(proposed.host)
        if why_not is not None:
            return why_not, "held"
        if situation.mode == "dry_run":
            return SHOWN, "shown"
        asked, why_not = self._write_down(situation, proposed)
        if asked is None:
            return why_not or "the cluster has changed meanwhile", "held"
        set_power = partial(self._deps.power_target.set_power, self._cluster, asked)
        return self._deps.ledgers.ask(self._cluster, PowerLedger, asked.id, set_power)

    def why_needed(self, host: str) -> str | None:
        """Why a host has to stay, for the sake of a VM elsewhere; None: no VM is known to need it.

        The cluster is not held up: decisions are made between two questions.
        """
        replica = self._replica
        vms = self._vms = self._vms or self._read_vms()
        with replica.lock:
            drain_safety = DrainSafety(vms, host)
        for kind, vm_by_host in vms.kinds.items():
            with replica.lock:
                doubtful = drain_safety.doubtful(kind, vm_by_host)
            for source in doubtful:
                with replica.lock:
                    is_needed = drain_safety.is_needed(kind, source, vm_by_host[source])
                if is_needed:
                    return f"{vm_by_host[source]} on {source} could go to no other host"
        return None

    def _read_vms(self) -> RunningVms:
        replica = self._replica
        with replica.lock:
            table = self._deps.fleet.prepare(replica)
            vms = RunningVms(self._deps.pipelines().of(replica), table)
            names = sorted({record.host for record in table.records})
        for name in names:
            with replica.lock:
                vms.read(name)
        return vms

    def _write_down(
        self, situation: Situation, proposed: PowerAction
    ) -> tuple[AskedPower | None, str | None]:
        """Enter an action into the ledger; None, and why, if that is not permitted any more."""
        deps, policy = self._deps, str(situation.policy)
        action_id = str(uuid.uuid4())
        why_not: str | None = None

        def with_it(ledger: PowerLedger, replica: ClusterReplica, now_s: float) -> PowerLedger:
            nonlocal why_not
            if not situation.holds(deps, replica):
                return ledger
            why_not = ledger.why_not(proposed, now_s) or why_not_now(replica, proposed)
            if why_not is not None:
                return ledger
            limits = deps.settings.limits
            return ledger.ask(proposed, id=action_id, policy=policy, now_s=now_s, limits=limits)

        after = deps.ledgers.change_power_alone(deps.lock, self._cluster, proposed.host, with_it)
        return (after.find(action_id) if after is not None else None), why_not


def states_of(replica: ClusterReplica) -> dict[str, PowerState]:
    """The power state of each host name, as reported; the caller holds the replica's lock."""
    return {record.host: record.power.state for record in replica.table.records}


def why_not_now(replica: ClusterReplica, proposed: PowerAction) -> str | None:
    """Why a host may not be brought into another state as it is now; None: it may.

    The caller holds the cluster's lock, and the replica's.
    """
    table, host = replica.table, proposed.host
    nodes = table.find(host)
    before = {"maintenance": {"up"}, "down": {"maintenance"}, "up": {"maintenance", "down"}}
    if not nodes or any(node.power.state not in before[proposed.to] for node in nodes):
        return "it is in another state meanwhile"
    if proposed.to == "up":
        return None
    reserved = [held for node in nodes for held in table.reservations_of_host(node.uuid)]
    running = [vm.id for node in nodes if node.virt for vm in node.virt.vms]
    occupants: Collection[str] = (
        *running,
        *table.reported_instances(host),
        *(held.instance_uuid for held in reserved),
        *replica.ledger.travellers(host),
    )
    return f"{min(occupants)} is on it, or on its way" if occupants else None
