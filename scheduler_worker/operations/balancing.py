"""Balancing of clusters, by the shared state: what it does, and the mode set for each cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, structs

from scheduler_worker.conversion import convert
from scheduler_worker.errors import NotFound
from scheduler_worker.model.cluster_load import Considered, ConsideredPower, Mode
from scheduler_worker.model.host_records import PowerState
from scheduler_worker.operations.callers import Right
from scheduler_worker.operations.clusters import InCluster
from scheduler_worker.operations.operation import Call, Page, PageQuery, moment, operation, page_of

if TYPE_CHECKING:
    from scheduler_worker.model.ledgers import AskedAction, Setback
    from scheduler_worker.service.balancing.administration import ClusterMode


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


AnyUnderWay = TypeVar("AnyUnderWay", bound=UnderWay)


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
    names = ((cluster, cluster) for cluster in call.services.policies.clusters())
    return page_of(names, query, lambda name: _balancing(call, name))


@operation("GET", "/balancing/{cluster}")
def get_balancing(call: Call, target: InCluster) -> Balancing:
    """Show what balancing does in a cluster."""
    _check_known(call, target.cluster)
    return _balancing(call, target.cluster)


@operation("GET", "/balancing/{cluster}/mode")
def get_balancing_mode(call: Call, target: InCluster) -> BalancingMode:
    """Show the mode of a cluster's balance."""
    _check_known(call, target.cluster)
    return _mode(target.cluster, call.services.balancing.mode(target.cluster))


@operation("PUT", "/balancing/{cluster}/mode", right=Right.SWITCH_BALANCING, has_condition=True)
def set_balancing_mode(call: Call, asked: NewMode) -> BalancingMode:
    """Set the mode of a cluster's balance; it holds until it is changed."""
    _switch(call, asked.cluster, asked.mode)
    return _mode(asked.cluster, call.services.balancing.mode(asked.cluster))


@operation("DELETE", "/balancing/{cluster}/mode", right=Right.SWITCH_BALANCING, has_condition=True)
def withdraw_balancing_mode(call: Call, target: InCluster) -> None:
    """Withdraw the mode of a cluster: the workers' own applies again."""
    _switch(call, target.cluster, None)


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
    if cluster not in call.services.policies.clusters():
        raise NotFound("cluster", cluster)


def _mode(cluster: str, status: ClusterMode) -> BalancingMode:
    return BalancingMode(
        cluster=cluster,
        policy=status.policy,
        mode=status.mode,
        origin="default" if status.is_default else "set",
    )


def _balancing(call: Call, cluster: str) -> Balancing:
    status = call.services.balancing.status(cluster)
    power, last = status.power_under_way, status.last_round
    made = {**structs.asdict(last), "at": moment(last.at_s)} if last else None
    return Balancing(
        **structs.asdict(_mode(cluster, status)),
        balance=status.balance,
        worker=status.worker,
        last_round=convert(made, BalancingRound | None),
        under_way=[_under_way(asked, MigrationUnderWay) for asked in status.under_way],
        waiting=[WaitingVm(vm=vm, **setback) for vm, setback in _setbacks(status.waiting)],
        power_under_way=None if power is None else _under_way(power, PowerUnderWay),
        power_waiting=[
            WaitingHost(host=host, **setback) for host, setback in _setbacks(status.power_waiting)
        ],
    )


def _under_way(asked: AskedAction, form: type[AnyUnderWay]) -> AnyUnderWay:
    times = {f"{name}_at": getattr(asked, f"{name}_at_s") for name in ("asked", "begun", "overdue")}
    moments = {name: moment(time_s) for name, time_s in times.items()}
    return convert(structs.asdict(asked) | moments, form)


def _setbacks(setbacks: Mapping[str, Setback]) -> Iterator[tuple[str, dict[str, Any]]]:
    for subject, setback in sorted(setbacks.items()):
        until = moment(setback.waits_until_s)
        yield subject, {"failures": setback.failures, "until": until, "why": setback.why}
