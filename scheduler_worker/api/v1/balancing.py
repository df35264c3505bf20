"""Balancing of clusters: what it does, and the mode that is set for each cluster.

All is read from and written to the shared state: the workers that run the rounds need not be asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any, Literal

import msgspec

from scheduler_worker.api.access import Access
from scheduler_worker.api.rights import Action
from scheduler_worker.api.v1.operations import (
    Answer,
    Call,
    Operation,
    Page,
    PageQuery,
    given,
    moment,
)
from scheduler_worker.errors import NotFound
from scheduler_worker.model.balancing import Considered, ConsideredPower, Mode, Round
from scheduler_worker.model.host_power import PowerState
from scheduler_worker.model.migration_ledger import AskedMigration, Setback
from scheduler_worker.model.power_ledger import AskedPower
from scheduler_worker.service.balancing.administration import (
    BalancingAdministration,
    BalancingStatus,
    ClusterMode,
)
from scheduler_worker.service.policies.audit import AuditLog

_CONDITIONS = (
    HTTPStatus.CONFLICT,
    HTTPStatus.PRECONDITION_FAILED,
    HTTPStatus.PRECONDITION_REQUIRED,
)


class BalancingMode(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the balance of a cluster acts: `dry_run` only says what it would do.

    `origin` is `default` where none is set that holds under this policy.
    """

    cluster: str
    policy: str
    mode: Mode
    origin: Literal["set", "default"]


class BalancingModeChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The mode of a cluster. `on` holds for the policy that is in force, in whatever version."""

    mode: Mode


class BalancingRound(msgspec.Struct, frozen=True, kw_only=True):
    """One look of a balance at its cluster; `considered` has the best proposal first.

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


class MigrationUnderWay(msgspec.Struct, frozen=True, kw_only=True):
    """A migration that was asked for and has not ended; it is given up when it is overdue."""

    id: str
    vm: str
    source: str
    candidates: list[str]
    destination: str | None
    reason: str
    policy: str
    asked_at: datetime | None
    begun_at: datetime | None
    overdue_at: datetime | None


class PowerUnderWay(msgspec.Struct, frozen=True, kw_only=True):
    """A power action that was asked for and has not ended; it is given up when it is overdue."""

    id: str
    host: str
    to: PowerState
    reason: str
    policy: str
    asked_at: datetime | None
    begun_at: datetime | None
    overdue_at: datetime | None


class WaitingVm(msgspec.Struct, frozen=True, kw_only=True):
    """A VM that stays for a while after its migration failed."""

    vm: str
    failures: int
    until: datetime | None
    why: str


class WaitingHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that is left as it is for a while after its power action failed."""

    host: str
    failures: int
    until: datetime | None
    why: str


class Balancing(BalancingMode, frozen=True, kw_only=True):
    """What balancing does in a cluster. `worker` runs its rounds."""

    balance: str | None
    worker: str | None
    last_round: BalancingRound | None
    under_way: list[MigrationUnderWay]
    waiting: list[WaitingVm]
    power_under_way: PowerUnderWay | None
    power_waiting: list[WaitingHost]


class BalancingOperations:
    """Serves balancing."""

    def __init__(self, access: Access, audit: AuditLog, balancing: BalancingAdministration) -> None:
        self._access = access
        self._audit = audit
        self._balancing = balancing

    def operations(self) -> Sequence[Operation]:
        """What is served."""
        one, mode = "/balancing/{cluster}", "/balancing/{cluster}/mode"
        return [
            Operation(
                "GET", "/balancing", "list_balancing", "Balancing, by cluster.",
                self.list_balancing, answer=Page[Balancing], query=PageQuery,
            ),
            Operation(
                "GET", one, "get_balancing", "What balancing does in a cluster.",
                self.get_balancing, answer=Balancing,
            ),
            Operation(
                "GET", mode, "get_balancing_mode", "The mode of a cluster's balance.",
                self.get_mode, answer=BalancingMode,
            ),
            Operation(
                "PUT", mode, "set_balancing_mode", "Set the mode of a cluster's balance.",
                self.put_mode, answer=BalancingMode, body=BalancingModeChange,
                conditions=("If-Match",), errors=_CONDITIONS,
            ),
            Operation(
                "DELETE", mode, "withdraw_balancing_mode",
                "Withdraw the mode of a cluster: the workers' own applies again.",
                self.withdraw_mode, conditions=("If-Match",), status=HTTPStatus.NO_CONTENT,
                errors=_CONDITIONS,
            ),
        ]  # fmt: skip

    def list_balancing(self, call: Call) -> Answer:
        self._check_reader(call)
        marker = given(call.query.marker) or ""
        names = sorted(each for each in self._balancing.clusters() if each > marker)
        shown = names[: call.query.limit]
        found = [_balancing(each, self._balancing.status(each)[each]) for each in shown]
        return call.page(found, shown[-1] if len(names) > len(shown) else None)

    def get_balancing(self, call: Call, cluster: str) -> Answer:
        self._check_reader(call)
        self._check_known(cluster)
        return Answer(_balancing(cluster, self._balancing.status(cluster)[cluster]))

    def get_mode(self, call: Call, cluster: str) -> Answer:
        self._check_reader(call)
        self._check_known(cluster)
        return Answer(_mode(cluster, self._balancing.mode(cluster)))

    def put_mode(self, call: Call, cluster: str) -> Answer:
        return Answer(self._switch(call, cluster, call.body.mode))

    def withdraw_mode(self, call: Call, cluster: str) -> Answer:
        self._switch(call, cluster, None)
        return Answer()

    def _switch(self, call: Call, cluster: str, mode: Mode | None) -> BalancingMode:
        self._access.check(call.caller, Action.SWITCH_BALANCING, cluster, [cluster])
        self._check_known(cluster)
        now = self._balancing.mode(cluster)
        call.check_match(_mode(cluster, now), is_needed=True)
        before = None if now.is_default else now.mode
        with self._audit.changing(
            call.actor, "balancing.switch", cluster, before=_json(before), after=_json(mode)
        ):
            self._balancing.switch(cluster, mode, expected=now)
        return _mode(cluster, self._balancing.mode(cluster))

    def _check_known(self, cluster: str) -> None:
        if cluster not in self._balancing.clusters():
            raise NotFound("cluster", cluster)

    def _check_reader(self, call: Call) -> None:
        self._access.check(call.caller, Action.READ, "")


def _mode(cluster: str, found: ClusterMode) -> BalancingMode:
    return BalancingMode(
        cluster=cluster,
        policy=found.policy,
        mode=found.mode,
        origin="default" if found.is_default else "set",
    )


def _balancing(cluster: str, found: BalancingStatus) -> Balancing:
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
        id=asked.id,
        vm=asked.vm,
        source=asked.source,
        candidates=list(asked.candidates),
        destination=asked.destination,
        reason=asked.reason,
        policy=asked.policy,
        **_times(asked),
    )


def _power(asked: AskedPower) -> PowerUnderWay:
    return PowerUnderWay(
        id=asked.id,
        host=asked.host,
        to=asked.to,
        reason=asked.reason,
        policy=asked.policy,
        **_times(asked),
    )


def _times(asked: AskedMigration | AskedPower) -> dict[str, Any]:
    return {
        "asked_at": moment(asked.asked_at_s),
        "begun_at": None if asked.begun_at_s is None else moment(asked.begun_at_s),
        "overdue_at": moment(asked.overdue_at_s),
    }


def _setback(found: Setback) -> dict[str, Any]:
    return {"failures": found.failures, "until": moment(found.waits_until_s), "why": found.why}


def _json(mode: Mode | None) -> str | None:
    """For the audit; None where none is set."""
    return None if mode is None else msgspec.json.encode({"mode": mode}).decode()
