"""Balancing of clusters: what it does, and the mode that is set for each cluster.

All is read from and written to the shared state: the workers that run the rounds need not be asked.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from scheduler_worker.errors import NotFound
from scheduler_worker.model.cluster_load import Considered, ConsideredPower, Mode, Round
from scheduler_worker.model.host_records import PowerState
from scheduler_worker.operations.actions import Right
from scheduler_worker.operations.clusters import InCluster
from scheduler_worker.operations.operation import Call, Page, PageQuery, moment, operation, page_of

if TYPE_CHECKING:
    from scheduler_worker.model.ledgers import AskedAction, AskedMigration, AskedPower, Setback
    from scheduler_worker.service.balancing.administration import BalancingStatus, ClusterMode


class BalancingMode(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the balance of a cluster acts: `dry_run` only says what it would do.

    `origin` is `default` where none is set that holds under this policy.
    """

    cluster: str
    policy: str
    mode: Mode
    origin: Literal["set", "default"]


class BalancingRound(msgspec.Struct, frozen=True, kw_only=True):
    """One round of a balance; `considered` has the best proposal first.

    The highly available VMs of `unprotected_hosts` would not all find room on the others.
    """

    at: datetime | None
    policy: str
    balance: str
    mode: Mode
    nothing_because: str
    considered: list[Considered]
    power: list[ConsideredPower]
    busy_hosts: list[str]
    unprotected_hosts: list[str]


class UnderWay(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for and has not ended; it is given up when it is overdue."""

    id: str
    reason: str
    policy: str
    asked_at: datetime | None
    begun_at: datetime | None
    overdue_at: datetime | None


class MigrationUnderWay(UnderWay, frozen=True, kw_only=True):
    """A migration. `candidates` are the hosts to choose from, `destination` the chosen one."""

    vm: str
    source: str
    candidates: list[str]
    destination: str | None


class PowerUnderWay(UnderWay, frozen=True, kw_only=True):
    """A power action."""

    host: str
    to: PowerState


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Left as it is for a while after a failure."""

    failures: int
    until: datetime | None
    why: str


class WaitingVm(Waiting, frozen=True, kw_only=True):
    """A VM that stays for a while after its migration failed."""

    vm: str


class WaitingHost(Waiting, frozen=True, kw_only=True):
    """A host that is left as it is for a while after its power action failed."""

    host: str


class Balancing(BalancingMode, frozen=True, kw_only=True):
    """What balancing does in a cluster. `worker` runs its rounds."""

    balance: str | None
    worker: str | None
    last_round: BalancingRound | None
    under_way: list[MigrationUnderWay]
    waiting: list[WaitingVm]
    power_under_way: PowerUnderWay | None
    power_waiting: list[WaitingHost]


class NewMode(InCluster, frozen=True, forbid_unknown_fields=True):
    """The mode of a cluster's balance."""

    mode: Annotated[
        Mode, Meta(description="`on` holds for the policy that is in force, in whatever version.")
    ]


@operation("GET", "/balancing")
def list_balancing(call: Call, query: PageQuery) -> Page[Balancing]:
    """List what balancing does, by cluster."""
    names = ((cluster, cluster) for cluster in call.services.balancing.clusters())
    return page_of(names, query, lambda name: _balancing(call, name))


@operation("GET", "/balancing/{cluster}")
def get_balancing(call: Call, wanted: InCluster) -> Balancing:
    """Show what balancing does in a cluster."""
    _check_known(call, wanted.cluster)
    return _balancing(call, wanted.cluster)


@operation("GET", "/balancing/{cluster}/mode")
def get_balancing_mode(call: Call, wanted: InCluster) -> BalancingMode:
    """Show the mode of a cluster's balance."""
    _check_known(call, wanted.cluster)
    return _mode(wanted.cluster, call.services.balancing.mode(wanted.cluster))


@operation("PUT", "/balancing/{cluster}/mode", right=Right.SWITCH_BALANCING, has_condition=True)
def set_balancing_mode(call: Call, asked: NewMode) -> BalancingMode:
    """Set the mode of a cluster's balance; it holds until it is changed."""
    _switch(call, asked.cluster, asked.mode)
    return _mode(asked.cluster, call.services.balancing.mode(asked.cluster))


@operation("DELETE", "/balancing/{cluster}/mode", right=Right.SWITCH_BALANCING, has_condition=True)
def withdraw_balancing_mode(call: Call, wanted: InCluster) -> None:
    """Withdraw the mode of a cluster: the workers' own applies again."""
    _switch(call, wanted.cluster, None)


def _switch(call: Call, cluster: str, mode: Mode | None) -> None:
    call.allow(cluster)
    _check_known(call, cluster)
    balancing = call.services.balancing
    now = balancing.mode(cluster)
    call.check_match(_mode(cluster, now))
    before = None if now.is_default else {"mode": now.mode}
    after = None if mode is None else {"mode": mode}
    with call.changing("balancing.switch", cluster, before=before, after=after):
        balancing.switch(cluster, mode, expected=now)


def _check_known(call: Call, cluster: str) -> None:
    if cluster not in call.services.balancing.clusters():
        raise NotFound("cluster", cluster)


def _mode(cluster: str, found: ClusterMode) -> BalancingMode:
    return BalancingMode(
        cluster=cluster,
        policy=found.policy,
        mode=found.mode,
        origin="default" if found.is_default else "set",
    )


def _balancing(call: Call, cluster: str) -> Balancing:
    found: BalancingStatus = call.services.balancing.status(cluster)[cluster]
    return Balancing(
        **msgspec.structs.asdict(_mode(cluster, found)),
        balance=found.balance,
        worker=found.worker,
        last_round=_round(found.last_round) if found.last_round else None,
        under_way=[_under_way(each) for each in found.under_way],
        waiting=[WaitingVm(vm=vm, **_setback(each)) for vm, each in sorted(found.waiting.items())],
        power_under_way=_power(found.power_under_way) if found.power_under_way else None,
        power_waiting=[
            WaitingHost(host=host, **_setback(each))
            for host, each in sorted(found.power_waiting.items())
        ],
    )


def _round(found: Round) -> BalancingRound:
    return BalancingRound(
        at=moment(found.at_s),
        policy=found.policy,
        balance=found.balance,
        mode=found.mode,
        nothing_because=found.nothing_because,
        considered=list(found.considered),
        power=list(found.power),
        busy_hosts=list(found.busy_hosts),
        unprotected_hosts=list(found.unprotected_hosts),
    )


def _under_way(asked: AskedMigration) -> MigrationUnderWay:
    return MigrationUnderWay(
        vm=asked.vm,
        source=asked.source,
        candidates=list(asked.candidates),
        destination=asked.destination,
        **_asked(asked),
    )


def _power(asked: AskedPower) -> PowerUnderWay:
    return PowerUnderWay(host=asked.host, to=asked.to, **_asked(asked))


def _asked(asked: AskedAction) -> dict[str, Any]:
    return {
        "id": asked.id,
        "reason": asked.reason,
        "policy": asked.policy,
        "asked_at": moment(asked.asked_at_s),
        "begun_at": moment(asked.begun_at_s),
        "overdue_at": moment(asked.overdue_at_s),
    }


def _setback(found: Setback) -> dict[str, Any]:
    return {"failures": found.failures, "until": moment(found.waits_until_s), "why": found.why}
