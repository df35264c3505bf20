"""Power actions of one cluster: which are under way, and which of a plan's is asked for.

A host is put into maintenance, or switched off, only while no VM is on it or on its way to it, and
while no VM elsewhere would have no other host but it. From then on no decision chooses it: the
action is written down under the cluster's lock, so none is in between.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection

from scheduler_worker import events
from scheduler_worker.errors import BackendError, PowerRefused, StateUnavailable
from scheduler_worker.model.cluster_load import BalancePlan, ConsideredPower, PowerAction
from scheduler_worker.model.host_records import PowerState, phrase
from scheduler_worker.model.ledgers import AskedPower, PowerLedger, Progress
from scheduler_worker.observer import Observer
from scheduler_worker.scheduling.refuge import Refuge, RunningVms
from scheduler_worker.service.balancing.dependencies import ASKED, SHOWN, BalancingDependencies
from scheduler_worker.service.balancing.situation import Situation, left_alone
from scheduler_worker.service.state.replica import ClusterReplica

LOG = logging.getLogger(__name__)

_MOST_CONSIDERED = 5
"""Hosts that one round looks at: a plan has one, and is made anew without one that is held back."""


class PowerActions:
    """The power actions of one cluster on behalf of this process."""

    def __init__(self, cluster: str, deps: BalancingDependencies) -> None:
        self._cluster = cluster
        self._deps = deps
        self._replica = deps.fleet.cluster(cluster)
        self._vms: RunningVms | None = None

    def begin(self) -> None:
        """Begin a round: what VMs there are is read anew where it is needed."""
        self._vms = None

    def settle(self) -> None:
        """Take in what has become of the action under way: by reports, or by silence.

        Raises Conflict, StateUnavailable.
        """
        if self._replica.power.under_way is None:
            return
        limits = self._deps.settings.limits
        before, after = self._deps.ledgers.change_power(
            self._cluster,
            lambda replica, now_s: replica.power.settle(states_of(replica), now_s, limits),
        )
        report_power_end(self._deps.observer, self._cluster, before, after, None)

    # Proposals

    def consider(self, found: Situation, plan: BalancePlan) -> list[ConsideredPower]:
        """Ask for the plan's action; where it is held back, for that of a plan without its host.

        Raises Conflict, StateUnavailable.
        """
        tried: list[ConsideredPower] = []
        skipped: set[str] = set()
        proposed = plan.power
        while proposed is not None and proposed.host not in skipped:
            outcome, what = self._try(found, proposed)
            tried.append(
                ConsideredPower(
                    host=proposed.host, to=proposed.to, reason=proposed.reason, outcome=outcome
                )
            )
            self._deps.observer.count(events.POWER_ACTIONS, self._cluster, proposed.to, what)
            LOG.info(
                "Balancing %s (%s, %s): %s %s: %s; %s",
                self._cluster, found.policy, found.mode, proposed.host, phrase(proposed.to),
                proposed.reason, outcome,
            )  # fmt: skip
            is_busy = self._replica.power.under_way is not None
            if what != "held" or is_busy or len(tried) == _MOST_CONSIDERED:
                break
            skipped.add(proposed.host)
            others = left_alone(found.load, skipped)
            proposed = found.balance.plan(others, plan.memory, found.now_s).power
        return tried

    def _try(self, found: Situation, proposed: PowerAction) -> tuple[str, str]:
        """Ask for an action if it may be; returns what became of it, in words and for metrics."""
        why_not = found.power.why_not(proposed, found.now_s)
        if why_not is None and proposed.to != "up":
            why_not = self.why_needed(proposed.host)
        if why_not is not None:
            return why_not, "held"
        if found.mode == "dry_run":
            return SHOWN, "shown"
        asked, why_not = self._write_down(found, proposed)
        if asked is None:
            return why_not or "the cluster has changed meanwhile", "held"
        try:
            self._deps.power_target.set_power(self._cluster, asked)
        except PowerRefused as refused:
            self._refuse(asked, str(refused))
            return f"refused: {refused}", "held"
        except StateUnavailable:
            raise
        except BackendError as error:
            # It may have arrived all the same, so it counts as under way until it is overdue.
            return f"{ASKED}, but it is unknown whether that arrived: {error}", "asked"
        return ASKED, "asked"

    def why_needed(self, host: str) -> str | None:
        """Why a host has to stay, for the sake of a VM elsewhere; None: no VM is known to need it.

        The cluster is not held up: decisions are made between two questions.
        """
        replica = self._replica
        vms = self._vms = self._vms or self._read_vms()
        with replica.lock:
            refuge = Refuge(vms, host)
        for kind, some in vms.kinds.items():
            with replica.lock:
                doubtful = refuge.doubtful(kind, some)
            for source in doubtful:
                with replica.lock:
                    is_needed = refuge.is_needed(kind, source, some[source])
                if is_needed:
                    return f"{some[source]} on {source} could go to no other host"
        return None

    def _read_vms(self) -> RunningVms:
        replica = self._replica
        with replica.lock:
            table = self._deps.fleet.prepare(replica)
            found = RunningVms(self._deps.pipelines().of(replica), table)
            names = sorted({record.host for record in table.records})
        for name in names:
            with replica.lock:
                found.read(name)
        return found

    def _write_down(
        self, found: Situation, proposed: PowerAction
    ) -> tuple[AskedPower | None, str | None]:
        """Enter an action into the ledger; None, and why, if that is not permitted any more."""
        settings, pipelines = self._deps.settings, self._deps.pipelines
        action_id = str(uuid.uuid4())
        why_not: str | None = None

        def with_it(replica: ClusterReplica, now_s: float) -> PowerLedger:
            nonlocal why_not
            ledger = replica.power
            if not found.holds(replica, pipelines(), settings.mode):
                return ledger
            why_not = ledger.why_not(proposed, now_s) or why_not_now(replica, proposed)
            if why_not is not None:
                return ledger
            return ledger.ask(
                proposed,
                action_id=action_id,
                policy=str(found.policy),
                now_s=now_s,
                limits=settings.limits,
            )

        deps = self._deps
        after = deps.ledgers.change_power_alone(deps.lock, self._cluster, proposed.host, with_it)
        return (after.find(action_id) if after is not None else None), why_not

    def _refuse(self, asked: AskedPower, why: str) -> None:
        limits = self._deps.settings.limits
        refused = Progress(state="refused", why=why)
        before, after = self._deps.ledgers.change_power(
            self._cluster,
            lambda replica, now_s: replica.power.advance(asked.id, refused, now_s, limits),
        )
        report_power_end(self._deps.observer, self._cluster, before, after, refused)


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
    reserved = [each for node in nodes for each in table.reservations_of_host(node.uuid)]
    running = [vm.id for node in nodes if node.virt for vm in node.virt.vms]
    occupants: Collection[str] = (
        *running,
        *table.reported_instances(host),
        *(each.instance_uuid for each in reserved),
        *replica.ledger.travellers(host),
    )
    return f"{min(occupants)} is on it, or on its way" if occupants else None


def report_power_end(
    observer: Observer,
    cluster: str,
    before: PowerLedger,
    after: PowerLedger,
    progress: Progress | None,
) -> None:
    """Log and count the end of an action, if it ended; without progress, by a look at its host."""
    asked = before.under_way
    if asked is None or after.find(asked.id) is not None:
        return
    setback = after.setbacks.get(asked.host)
    outcome = "done"
    if setback is not None:
        is_answer = progress is not None and progress.state in {"refused", "failed"}
        outcome = progress.state if progress is not None and is_answer else "overdue"
    observer.count(events.POWER_ACTIONS, cluster, asked.to, outcome)
    LOG.info(
        "Balancing %s: bringing %s %s is %s%s",
        cluster, asked.host, phrase(asked.to), outcome, f": {setback.why}" if setback else "",
    )  # fmt: skip
