"""What administrators see of balancing, and the mode that they set for each cluster.

All of it is in the shared state, so any process can serve it, also one that runs no rounds.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from scheduler_worker.errors import Conflict, RequestError
from scheduler_worker.model.cluster_load import BalancingSwitch, Mode, Round, mode_in_force
from scheduler_worker.model.ledgers import (
    AskedMigration,
    AskedPower,
    MigrationLedger,
    PowerLedger,
    Setback,
)
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.observer import Observer
from scheduler_worker.ports import Transaction
from scheduler_worker.service.balancing.ledgers import CONDITIONS, BalancingRecords
from scheduler_worker.service.state import records
from scheduler_worker.service.state.replica import ClusterReplica, Fleet
from scheduler_worker.service.state.writing import WritePlan, Writer


class ClusterMode(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the balance of a cluster acts."""

    policy: str
    """Name and version, as ``name@version``."""
    mode: Mode
    is_default: bool
    """Whether it is the workers' own, for none is set that holds under this policy."""


class BalancingStatus(ClusterMode, frozen=True, kw_only=True):
    """What balancing does in a cluster; times are seconds of the store's clock."""

    balance: str | None
    """The unit of the policy; None: it has none."""
    worker: str | None
    """The worker that leads the cluster's balancing; None: nobody ran a round within a day."""
    last_round: Round | None
    under_way: Sequence[AskedMigration]
    waiting: Mapping[str, Setback]
    """The VMs that stay for a while after a failure, by VM."""
    power_under_way: AskedPower | None
    power_waiting: Mapping[str, Setback]
    """The hosts that are left as they are for a while after a failure, by host."""


class BalancingAdministration:
    """Reads the state of balancing, and sets modes."""

    def __init__(
        self, fleet: Fleet, nova_policy: Callable[[], ClusterPolicy], *, default_mode: Mode
    ) -> None:
        """``nova_policy`` is for clusters without a policy of their own."""
        self._fleet = fleet
        self._nova_policy = nova_policy
        self._default_mode = default_mode
        self._writer = Writer(fleet.store, Observer())
        self._records = BalancingRecords()

    def mode(self, cluster: str) -> ClusterMode:
        """The mode of a cluster. Raises as :meth:`status` does."""
        replica = self._fleet.known_cluster(cluster)
        with replica.reading(self._fleet.store):
            return self.mode_in(replica)

    def switch(self, cluster: str, mode: Mode | None, expected: ClusterMode | None = None) -> None:
        """Set the mode of a cluster's balance; None withdraws it: the workers' own applies.

        ``on`` holds for the policy in force, in whatever version. Once this returns, nothing more
        is asked for in another mode.

        Raises:
            RequestError: there is no such cluster, or its policy has no balance to switch on.
            Conflict: mode or policy are not the ``expected`` ones, or others changed them during
                each of several attempts.
            StateUnavailable: try again.
        """
        replica = self._fleet.known_cluster(cluster)

        def plan(_: str, _now_s: float) -> WritePlan | None:
            if expected is not None and self.mode_in(replica) != expected:
                raise Conflict(
                    f"The mode or the policy of {cluster} changed in the meantime; read it again."
                )
            policy = self._policy(replica)
            if mode == "on" and policy.balance is None:
                raise RequestError(
                    "mode",
                    f"the policy of {cluster}, {policy.reference}, has no balance to switch on; "
                    "attach a policy with one first",
                )
            switch = None if mode is None else BalancingSwitch(mode=mode, policy_id=policy.id)
            if switch == replica.switch:
                return None
            return WritePlan(Transaction([records.put_switch(switch)], replica.guards(CONDITIONS)))

        self._writer.write(replica, [cluster], plan)

    def status(self, cluster: str) -> BalancingStatus:
        """The state of balancing of a cluster. Raises RequestError, StateUnavailable."""
        replica = self._fleet.known_cluster(cluster)
        with replica.reading(self._fleet.store):
            mode = self.mode_in(replica)
            balance = self._policy(replica).balance
            ledger: MigrationLedger = replica.ledger
            power: PowerLedger = replica.power
        with self._records.reading(self._fleet.store):
            last_round = self._records.last_round(cluster)
            lead = self._records.leaders.get(cluster)
        return BalancingStatus(
            **msgspec.structs.asdict(mode),
            balance=balance.label if balance else None,
            worker=lead.worker.partition("/")[0] if lead else None,
            last_round=last_round,
            under_way=list(ledger.under_way.values()),
            waiting=ledger.setbacks,
            power_under_way=power.under_way,
            power_waiting=power.setbacks,
        )

    def _policy(self, replica: ClusterReplica) -> ClusterPolicy:
        """As written: what it says of balancing can be read where it cannot be compiled."""
        policy: ClusterPolicy = replica.policy or self._nova_policy()
        return policy

    def mode_in(self, replica: ClusterReplica) -> ClusterMode:
        """The mode of a cluster; the caller holds its replica's lock."""
        reference = self._policy(replica).reference
        switch: BalancingSwitch | None = replica.switch
        return ClusterMode(
            policy=str(reference),
            mode=mode_in_force(switch, reference.id, self._default_mode),
            is_default=switch is None or not switch.applies(reference.id),
        )
