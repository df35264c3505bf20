"""One round of a cluster's balance: settle what is under way, make a plan, ask for what it says."""

import functools
import logging
import uuid

from msgspec import structs

from scheduler_worker import events
from scheduler_worker.errors import BackendError
from scheduler_worker.model.cluster_load import (
    BalanceMemory,
    BalancePlan,
    Considered,
    ConsideredPower,
    Migration,
    Round,
)
from scheduler_worker.model.ledgers import SILENCE, AskedMigration, MigrationLedger, Progress
from scheduler_worker.scheduling.ovirt.cluster_load import unprotected_hosts
from scheduler_worker.service.balancing.ledgers import ASKED, SHOWN
from scheduler_worker.service.balancing.power import PowerActions
from scheduler_worker.service.balancing.situation import (
    BalancingDependencies,
    Situation,
    arrivals,
    situation_of,
)
from scheduler_worker.service.state.replica import ClusterReplica
from scheduler_worker.wording import SHOWN_NAMES, listed

LOG = logging.getLogger(__name__)

_MOST_CONSIDERED = 20
"""Proposals that one round looks at."""
_PROTECTION_INTERVAL_S = 300.0
"""From one check of the room for highly available VMs to the next; oVirt's."""


class ClusterRounds:
    """The rounds of one cluster on behalf of this process."""

    def __init__(self, cluster: str, deps: BalancingDependencies) -> None:
        self._cluster = cluster
        self._deps = deps
        self._replica = deps.fleet.cluster(cluster)
        self._power = PowerActions(cluster, deps)

    def run(self, before: Round | None) -> Round | None:
        """Run one; ``before`` is the last one. None where the policy has no balance.

        Raises ClusterPolicyError, Conflict, StateUnavailable.
        """
        self._power.begin()
        situation = situation_of(self._deps, self._replica)
        if self._replica.ledger.under_way:
            self._settle(situation)
            situation = situation_of(self._deps, self._replica)
        if self._replica.power.under_way is not None:
            self._power.settle()
            situation = situation_of(self._deps, self._replica)
        if situation is None:
            return None
        if situation.mode == "off":
            plan = BalancePlan(nothing_because="it is switched off")
            return self._protected(self._round(situation, plan, [], []), situation, before)
        seen_since_s = before.seen_since_s if before else {}
        memory = BalanceMemory(moves=situation.ledger.moves, seen_since_s=seen_since_s)
        plan = situation.balance.plan(situation.load, memory, situation.now_s)
        tried = self._consider(situation, plan)
        made = self._round(situation, plan, tried, self._power.consider(situation, plan))
        return self._protected(made, situation, before)

    # What is under way

    def _settle(self, situation: Situation | None) -> None:
        """Take in what has become of migrations: by reports, by the target, or by silence."""
        known = self._progress(situation)
        limits = self._deps.settings.limits

        def advanced(ledger: MigrationLedger, now_s: float) -> MigrationLedger:
            for migration_id, progress in known.items():
                ledger = ledger.advance(migration_id, progress, now_s, limits)
            return ledger

        with self._replica.lock:
            now_s = self._replica.table.now_s
            overdue = list(advanced(self._replica.ledger, now_s).overdue(now_s))
        withdrawn = {asked.id for asked in overdue if self._withdraw(asked)}
        silent = Progress(state="failed", why=SILENCE)

        def settled(ledger: MigrationLedger, _: ClusterReplica, now_s: float) -> MigrationLedger:
            ledger = advanced(ledger, now_s)
            for asked in list(ledger.overdue(now_s)):
                if asked.id in withdrawn:
                    ledger = ledger.advance(asked.id, silent, now_s, limits)
            return ledger

        self._deps.ledgers.change(self._cluster, MigrationLedger, settled, known)

    def _progress(self, situation: Situation | None) -> dict[str, Progress]:
        """What reports and the target say of migrations, by their ids."""
        known = {
            asked.id: progress
            for asked, progress in (arrivals(situation.load, situation.ledger) if situation else ())
        }
        under_way = self._replica.ledger.under_way.values()
        unknown = [asked for asked in under_way if asked.id not in known]
        if unknown:
            try:
                known |= self._deps.target.progress(unknown)
            except BackendError as error:
                self._complain("Nothing new is known of migrations", error)
        return known

    def _withdraw(self, overdue: AskedMigration) -> bool:
        """Abort a migration; False: it may still go on."""
        try:
            self._deps.target.withdraw(overdue)
        except BackendError as error:
            self._complain(f"The overdue migration of {overdue.vm} may still go on", error)
            return False
        return True

    def _complain(self, what: str, error: BackendError) -> None:
        self._deps.observer.count(events.TARGET_FAILURES, self._cluster)
        LOG.warning("Balancing %s: %s: %s", self._cluster, what, error)

    # Highly available VMs

    def _protected(self, made: Round, situation: Situation, before: Round | None) -> Round:
        """The round, with the hosts whose highly available VMs would not find room elsewhere.

        Says so when that changes. It is an alert only, as in oVirt: nothing is moved for it.
        """
        known = before.unprotected_hosts if before else ()
        checked_at_s = before.protection_checked_at_s if before else 0.0
        hosts = known
        if situation.now_s - checked_at_s >= _PROTECTION_INTERVAL_S:
            checked_at_s = situation.now_s
            hosts = tuple(unprotected_hosts(situation.load))
        self._deps.observer.level(events.UNPROTECTED, len(hosts), self._cluster)
        if hosts != known and hosts:
            LOG.warning(
                "Balancing %s: if one of %s failed, its highly available VMs would not all find "
                "room on the others", self._cluster, listed(list(hosts)),
            )  # fmt: skip
        elif hosts != known:
            up = sum(host.state == "up" for host in situation.load.hosts)
            LOG.info(
                "Balancing %s: of %d hosts that are up none has highly available VMs without room "
                "on others", self._cluster, up,
            )  # fmt: skip
        return structs.replace(made, unprotected_hosts=hosts, protection_checked_at_s=checked_at_s)

    # Proposals

    def _consider(self, situation: Situation, plan: BalancePlan) -> list[Considered]:
        """Try the proposals in order until one is asked for."""
        tried: list[Considered] = []
        why_needed = functools.cache(self._power.why_needed)
        for proposed in plan.migrations[:_MOST_CONSIDERED]:
            why_not = why_needed(proposed.source) if proposed.empties else None
            outcome, what = (
                (why_not, "held") if why_not else self._try(situation, proposed, plan.memory)
            )
            self._deps.observer.count(events.PROPOSALS, self._cluster, what)
            LOG.info(
                "Balancing %s (%s, %s): %s from %s to %s: %s; %s",
                self._cluster, situation.policy, situation.mode, proposed.vm, proposed.source,
                listed(proposed.destinations), proposed.reason, outcome,
            )  # fmt: skip
            tried.append(
                Considered(
                    vm=proposed.vm,
                    source=proposed.source,
                    destinations=proposed.destinations[:SHOWN_NAMES],
                    more_destinations=max(0, len(proposed.destinations) - SHOWN_NAMES),
                    reason=proposed.reason,
                    outcome=outcome,
                )
            )
            if what != "held":
                break
        return tried

    def _try(
        self, situation: Situation, proposed: Migration, memory: BalanceMemory
    ) -> tuple[str, str]:
        """Ask for a migration if it may be; returns what became of it, in words and for metrics."""
        limits = self._deps.settings.limits
        why_not = situation.ledger.why_not(proposed, situation.now_s, limits)
        if why_not is not None:
            return why_not, "held"
        if situation.mode == "dry_run":
            return SHOWN, "shown"
        asked = self._write_down(situation, proposed, memory)
        if asked is None:
            return "the cluster has changed meanwhile", "held"
        migrate = functools.partial(self._deps.target.migrate, self._cluster, asked)
        return self._deps.ledgers.ask(self._cluster, MigrationLedger, asked.id, migrate)

    def _write_down(
        self, situation: Situation, proposed: Migration, memory: BalanceMemory
    ) -> AskedMigration | None:
        """Enter a migration into the ledger; None if that is not permitted any more."""
        limits = self._deps.settings.limits
        action_id = str(uuid.uuid4())

        def with_it(
            ledger: MigrationLedger, replica: ClusterReplica, now_s: float
        ) -> MigrationLedger:
            is_permitted = ledger.why_not(proposed, now_s, limits) is None
            if not is_permitted or not situation.holds(self._deps, replica):
                return ledger
            return ledger.trimmed(memory, now_s, limits).ask(
                proposed, id=action_id, policy=str(situation.policy), now_s=now_s, limits=limits
            )

        _, after = self._deps.ledgers.change(self._cluster, MigrationLedger, with_it)
        return after.find(action_id)

    def _round(
        self,
        situation: Situation,
        plan: BalancePlan,
        tried: list[Considered],
        power: list[ConsideredPower],
    ) -> Round:
        nothing = plan.nothing_because
        if tried and not tried[-1].outcome.startswith((ASKED, SHOWN)):
            nothing = f"no proposal can be asked for; the last is {tried[-1].outcome}"
        if nothing and (count := len(situation.ledger.under_way)):
            nothing += f"; {count} of its migrations under way"
        is_switching = bool(power) and power[-1].outcome.startswith((ASKED, SHOWN))
        if nothing and situation.mode != "off" and not is_switching:
            LOG.info(
                "Balancing %s (%s, %s): nothing, because %s",
                self._cluster, situation.policy, situation.mode, nothing,
            )  # fmt: skip
        return Round(
            at_s=situation.now_s,
            policy=str(situation.policy),
            balance=situation.balance.name,
            mode=situation.mode,
            nothing_because=nothing,
            considered=tuple(tried),
            power=tuple(power),
            busy_hosts=situation.busy_hosts,
            seen_since_s=plan.memory.seen_since_s,
        )
