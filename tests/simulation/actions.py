"""Invariants of a balanced cluster: of its leaders, migrations and power actions.

They are read from the records of the shared state as each write leaves them.
"""

from collections.abc import Iterable
from typing import Any

from scheduler_worker.conversion import json_reader
from scheduler_worker.model.claims import Reservation
from scheduler_worker.model.cluster_load import BalancingSwitch, mode_in_force
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.ledgers import (
    AskedAction,
    AskedMigration,
    AskedPower,
    Ledger,
    MigrationLedger,
    PowerLedger,
)
from scheduler_worker.ports import Change
from scheduler_worker.service.balancing.ledgers import SCOPE
from scheduler_worker.service.state import records
from scheduler_worker.service.state.leadership import Leadership, lapse_s
from tests.simulation.balancing import CLUSTER, LIMITS, Balancing
from tests.simulation.history import Blame, Event, Findings
from tests.simulation.plan import Clock
from tests.simulation.store import BEGINNING_S, CLOCK_SLACK_S, ROUNDING_S

SETTLED_S = 3.0
"""So long after it is overdue an action has ended."""


def judge(run: Balancing, found: Findings) -> None:
    actions = Actions(run, found.blame)
    found.read(run.history.events, actions.see)
    actions.see_the_end()


class Actions:
    """What the records of the cluster say, and what has become of each action."""

    def __init__(self, run: Balancing, blame: Blame) -> None:
        self._blame = blame
        self._setting = run.setting
        self._slack_s = CLOCK_SLACK_S if Clock in run.plan.breaks() else 0.0
        self._now_s = 0.0
        self._ahead_s = 0.0
        self._kept: dict[str, dict[str, bytes]] = {CLUSTER: {}, SCOPE: {}}
        """The records by scope and key."""
        self._begun: set[str] = set()
        self._ended: set[str] = set()
        self._heard: set[str] = set()
        """Actions whose end a worker may know: an agent has told it, or its VM has arrived."""
        self._asked: set[str] = set()

    def see(self, event: Event) -> None:
        self._now_s = event.time_s
        facts = event.facts
        match event.what:
            case "is set":
                self._ahead_s += facts["by_s"]
            case "asks":
                self._see_asked(facts["asked"], facts["outcome"])
            case "tells" if facts["progress"].state in {"done", "refused", "failed"}:
                self._heard.add(facts["asked"].id)
            case "has moved":
                self._see_moved(facts["vm"])
        if changed := facts.get("changed"):
            scope = facts["scope"] if "scope" in facts else facts["grant"].scope
            self._see_changes(scope, changed)

    def see_the_end(self) -> None:
        for asked in self._under_way():
            if asked.overdue_at_s + SETTLED_S < self._store_s():
                self._blame(f"{_named(asked)} never ended")

    # What workers do

    def _see_asked(self, asked: AskedAction, outcome: str) -> None:
        if asked.id in self._asked:
            self._blame(f"{_named(asked)} was asked for twice")
        if asked.id not in self._begun:
            self._blame(f"{_named(asked)} was asked for and not written down")
        self._asked.add(asked.id)
        if outcome == "refused":
            self._heard.add(asked.id)

    def _see_moved(self, vm: str) -> None:
        """The VM's action ends by the reports of its hosts, if not before."""
        self._heard |= {
            asked.id for asked in self._under_way()
            if isinstance(asked, AskedMigration) and asked.vm == vm
        }  # fmt: skip

    # What they write

    def _see_changes(self, scope: str, changed: Iterable[Change]) -> None:
        kept = self._kept.get(scope)
        if kept is None:
            return
        before = dict(kept)
        for change in changed:
            if change.value is None:
                kept.pop(change.key, None)
            else:
                kept[change.key] = change.value
        if scope == SCOPE:
            self._see_lead(before, kept)
            return
        for key, form in ((records.LEDGER, MigrationLedger), (records.POWER, PowerLedger)):
            if before.get(key) != kept.get(key):
                self._see_ledger(_read(before, key, form), _read(kept, key, form), before)
        for key in kept.keys() - before.keys():
            if key.startswith(records.RESERVATION):
                self._see_reserved(records.read_reservation(kept[key]), before)

    def _see_lead(self, before: dict[str, bytes], after: dict[str, bytes]) -> None:
        """One worker after another, and never before its time."""
        old, new = (_read(each, f"u:{CLUSTER}", Leadership) for each in (before, after))
        # One from the future was taken before the clock was set back, and is void.
        if old is None or new is None or old == new or old.at_s > self._store_s():
            return
        interval_s = self._setting.interval_s
        wait_s = interval_s if old.worker == new.worker else lapse_s(interval_s)
        if new.at_s - old.at_s < wait_s - self._slack_s - ROUNDING_S:
            self._blame(f"{new.worker} led after {new.at_s - old.at_s:.2f} s of {old.worker}")

    def _see_ledger(
        self, old: Ledger[Any] | None, new: Ledger[Any] | None, before: dict[str, bytes]
    ) -> None:
        was, now = (
            {asked.id: asked for asked in ledger.actions} if ledger else {} for ledger in (old, new)
        )
        for asked in was.values():
            if asked.id not in now:
                self._see_ended(asked)
        for asked in now.values():
            if asked.id in self._ended:
                self._blame(f"{_named(asked)} came back")
            elif asked.id not in was:
                self._see_begun(asked, before)
        if sum(isinstance(asked, AskedMigration) for asked in now.values()) > LIMITS.most:
            self._blame("more migrations are under way than permitted")

    def _see_ended(self, asked: AskedAction) -> None:
        self._ended.add(asked.id)
        is_overdue = asked.overdue_at_s <= self._store_s() + self._slack_s
        if not (is_overdue or asked.id in self._heard or self._is_shown(asked)):
            self._blame(f"{_named(asked)} was forgotten")

    def _is_shown(self, asked: AskedAction) -> bool:
        """Whether hosts report that it is done."""
        hosts = self._hosts()
        if isinstance(asked, AskedPower):
            return any((each.host, each.power.state) == (asked.host, asked.to) for each in hosts)
        assert isinstance(asked, AskedMigration)
        having = [each.host for each in hosts if each.virt
                  if any(vm.id == asked.vm for vm in each.virt.vms)]  # fmt: skip
        return len(having) == 1 and having != [asked.source]

    def _see_begun(self, asked: AskedAction, before: dict[str, bytes]) -> None:
        self._begun.add(asked.id)
        policy = records.read_policy(before[records.POLICY_IN_FORCE])
        if str(policy.reference) != asked.policy:
            self._blame(f"{_named(asked)} was begun under {policy.reference}, not {asked.policy}")
        switch = _read(before, records.SWITCH, BalancingSwitch)
        mode = mode_in_force(switch, policy.id, self._setting.mode)
        if mode != "on":
            self._blame(f"{_named(asked)} was begun though the mode was {mode}")
        if isinstance(asked, AskedPower) and asked.to != "up":
            occupants = sorted(self._occupants(asked.host, before))
            if occupants:
                self._blame(f"{_named(asked)} was begun with {occupants} there")

    def _occupants(self, host: str, kept: dict[str, bytes]) -> set[str]:
        """The VMs on a host, or on their way to it or from it."""
        reserved = {each.instance_uuid for each in self._reservations(kept) if each.host == host}
        listed = records.read_instances(kept.get(records.INSTANCES + host, b"{}"))
        ledger = _read(kept, records.LEDGER, MigrationLedger) or MigrationLedger()
        return reserved | set(listed) | set(ledger.travellers(host))

    def _see_reserved(self, reservation: Reservation, before: dict[str, bytes]) -> None:
        power = _read(before, records.POWER, PowerLedger) or PowerLedger()
        asked = power.under_way
        is_closing = (
            asked is not None
            and (asked.host, asked.to == "up") == (reservation.host, False)
            and asked.overdue_at_s > self._store_s() + self._slack_s
        )
        if is_closing:
            self._blame(f"{reservation.instance_uuid} got a place on {reservation.host}, "
                        f"which is being brought {asked and asked.to}")  # fmt: skip

    # Records

    def _store_s(self) -> float:
        return BEGINNING_S + self._now_s + self._ahead_s

    def _under_way(self) -> list[AskedAction]:
        kept = self._kept[CLUSTER]
        ledgers: list[Any] = [
            _read(kept, records.LEDGER, MigrationLedger),
            _read(kept, records.POWER, PowerLedger),
        ]
        return [asked for ledger in ledgers if ledger for asked in ledger.actions]

    def _hosts(self) -> list[HostRecord]:
        kept = self._kept[CLUSTER]
        return [records.read_host(kept[key]) for key in kept if key.startswith(records.HOST)]

    @staticmethod
    def _reservations(kept: dict[str, bytes]) -> list[Reservation]:
        keys = [key for key in kept if key.startswith(records.RESERVATION)]
        return [records.read_reservation(kept[key]) for key in keys]


def _read(kept: dict[str, bytes], key: str, form: Any) -> Any:
    return json_reader(form)(kept[key]) if key in kept else None


def _named(asked: AskedAction) -> str:
    if isinstance(asked, AskedMigration):
        return f"the migration {asked.id[-4:]} of {asked.vm}"
    assert isinstance(asked, AskedPower)
    return f"bringing {asked.host} {asked.to} ({asked.id[-4:]})"
