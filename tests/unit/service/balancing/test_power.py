"""Hosts that a power saving policy switches off and on, as agents and reports let it."""

import logging
import threading
from typing import Any

import pytest
from msgspec import structs

from scheduler_worker import events
from scheduler_worker.errors import (
    BusUnavailable,
    NoValidHost,
    PowerRefused,
    StaleFencingToken,
    Undeliverable,
)
from scheduler_worker.model.ledgers import AskedMigration, MigrationLedger, Progress
from scheduler_worker.observer import Observer
from scheduler_worker.service.balancing.agent import AgentTarget
from scheduler_worker.service.balancing.ledgers import Ledgers
from scheduler_worker.service.requests.lease import Lease
from tests.support.balancers import (
    INTERVAL_S,
    LIMITS,
    NotingPublisher,
    Scenario,
    busy_host,
    power_saving,
)
from tests.support.interrupted import before_next
from tests.support.patience import SOON_S
from tests.support.services import host, request
from tests.support.threads import in_thread

MANAGED = {"is_managed": True}


class Sleepers(Scenario):
    """A busy host, and three empty ones, of which one is to stay up."""

    def __init__(self, mode: str = "on", **settings: Any) -> None:
        self.memory_mb: dict[str, int] = {}
        """Of hosts that have not 64 GiB."""
        super().__init__(mode, **settings)
        self.put("a", v1=100)
        for name in "bcd":
            self.put(name)
        self.report()
        self.attach(power_saving())
        self.world.report(*({"host": name, "power": MANAGED} for name in "bcd"))

    def put(self, name: str, **vms: Any) -> None:
        super().put(name, **vms)
        self.hosts[name]["memory_mb"] = self.memory_mb.get(name, 65536)

    def report_power(self, host: str, state: str, **power: Any) -> None:
        self.world.report({"host": host, "power": {**MANAGED, "state": state} | power})

    def step(self) -> list[tuple[str, str]]:
        """Let a round pass; return the actions that it asked for."""
        before = len(self.power.asked)
        self.round()
        return [(each.host, each.to) for each in self.power.asked[before:]]

    def answer(self, state: Any, why: str = "") -> bool:
        progress = Progress(state=state, why=why)
        return self.another().report_power("default", self.power.asked[-1].id, progress)

    def obey(self) -> None:
        """Do what was asked for last."""
        asked = self.power.asked[-1]
        self.report_power(asked.host, asked.to)
        assert self.answer("done")

    @property
    def considered(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.status()["last_round"]["power"]
        return found


@pytest.fixture
def sleepers() -> Sleepers:
    return Sleepers()


def test_empty_hosts_are_put_to_sleep_one_after_the_other_and_woken_up(sleepers):
    found = []
    for _ in range(8):
        if step := sleepers.step():
            found += step
            sleepers.obey()
    assert found == [
        ("b", "maintenance"),
        ("c", "maintenance"),
        ("b", "down"),
        ("c", "down"),
    ], "one empty host stays"
    sleepers.put("d", w1=100)
    sleepers.hosts.pop("b"), sleepers.hosts.pop("c")  # they sleep, and report nothing
    assert sleepers.step() == [("b", "up")]
    sleepers.put("b")
    sleepers.obey()
    assert sleepers.step() == []
    assert sleepers.observed.of(events.POWER_ACTIONS)["default", "down", "done"] == 2
    assert sleepers.observed.of(events.POWER_ACTIONS)["default", "up", "done"] == 1


def test_nothing_is_asked_for_while_one_is_under_way(sleepers):
    sleepers.step()
    assert sleepers.answer("started")
    for _ in range(3):
        assert sleepers.step() == []
    assert "b is being brought into maintenance" in sleepers.considered[0]["outcome"]


def test_another_worker_goes_on_with_the_same_action():
    sleepers = Sleepers(limits=structs.replace(LIMITS, begin_within_s=10_000))
    assert sleepers.step() == [("b", "maintenance")]
    other = sleepers.another()
    sleepers.world.clock.advance(2 * INTERVAL_S)
    assert sleepers.round(other) == []
    assert len(sleepers.power.asked) == 1
    sleepers.obey()
    sleepers.round(other)
    assert [each.host for each in sleepers.power.asked] == ["b", "c"]


def test_a_host_that_was_refused_waits_and_the_next_one_is_tried(sleepers):
    assert sleepers.step() == [("b", "maintenance")]
    assert sleepers.answer("refused", "it has a disk that is being copied")
    assert sleepers.step() == [("c", "maintenance")]
    waiting = sleepers.status()["power_waiting"]["b"]
    assert waiting["why"] == "it has a disk that is being copied"
    sleepers.obey()
    assert not sleepers.answer("failed", "late")
    assert "c" not in sleepers.status()["power_waiting"]
    assert sleepers.observed.of(events.POWER_ACTIONS)["default", "maintenance", "refused"] == 1


def test_where_nobody_listens_nothing_is_under_way(sleepers):
    sleepers.power.failures["b"] = PowerRefused("nobody listens to topic t")
    assert sleepers.step() == [("b", "maintenance"), ("c", "maintenance")]
    assert sleepers.considered[0]["outcome"] == "refused: nobody listens to topic t"
    assert sleepers.considered[1]["outcome"] == "asked for"


def test_an_unknown_result_counts_as_under_way_until_it_is_overdue(sleepers):
    sleepers.power.failures["b"] = BusUnavailable("the broker is away")
    assert sleepers.step() == [("b", "maintenance")]
    assert sleepers.step() == []
    assert sleepers.step() == [("c", "maintenance")]
    assert sleepers.observed.of(events.POWER_ACTIONS)["default", "maintenance", "overdue"] == 1


def test_an_action_that_a_person_took_over_is_no_failure(sleepers):
    sleepers.step()
    sleepers.report_power("b", "maintenance", by_policy=False)
    assert sleepers.step() == [("c", "maintenance")]
    assert sleepers.observed.of(events.POWER_ACTIONS)["default", "maintenance", "done"] == 1


# Modes


def test_by_default_it_only_shows_what_it_would_do(caplog):
    sleepers = Sleepers(mode="dry_run")
    with caplog.at_level(logging.INFO):
        assert sleepers.step() == []
    line = (
        "Balancing default (save@1, dry_run): b into maintenance: 3 empty hosts are up, 1 are "
        "wanted; would be asked for"
    )
    assert line in caplog.text
    assert "nothing, because" not in caplog.text
    assert sleepers.world.fleet.cluster("default").power.under_way is None


def test_a_balance_that_is_off_switches_nothing(sleepers):
    sleepers.balancing.switch("default", "off")
    assert sleepers.step() == []


# No VM on a host that goes to sleep

SECOND_NODE = host("b", uuid="uuid-b2", nodename="b2", power=MANAGED | {"state": "down"})
"""Of a host with two nodes."""


def moving(source, destination):
    """What lets a migration begin, as another worker's ledger has it."""
    asked = AskedMigration(
        id="m", reason="r", policy="p@1", asked_at_s=0.0, overdue_at_s=1e12,
        vm="v9", source=source, candidates=(destination,), destination=destination,
    )  # fmt: skip

    def begin(sleepers):
        ledgers = Ledgers(sleepers.beside().fleet, Observer(), LIMITS)
        moved = MigrationLedger(under_way={"v9": asked})
        ledgers.change("default", MigrationLedger, lambda *_: moved)

    return begin


@pytest.mark.parametrize(
    ("act", "outcome", "asked"),
    [
        (moving("a", "b"), "v9 is on it, or on its way", [("c", "maintenance")]),
        (moving("b", "a"), "v9 is on it, or on its way", [("c", "maintenance")]),
        (
            lambda sleepers: sleepers.beside().place("new", only_hosts=["b"]),
            "new is on it, or on its way",
            [("c", "maintenance")],
        ),
        (
            lambda sleepers: sleepers.beside().report(busy_host("b", surprise=10)),
            "surprise is on it, or on its way",
            [("c", "maintenance")],
        ),
        (
            lambda sleepers: sleepers.report_power("b", "down"),
            "it is in another state meanwhile",
            [("c", "maintenance")],
        ),
        (
            lambda sleepers: sleepers.world.report(SECOND_NODE),
            "it is in another state meanwhile",
            [("c", "maintenance")],
        ),
        (
            lambda sleepers: sleepers.attach(power_saving(version=2)),
            "the cluster has changed meanwhile",
            [],
        ),
    ],
    ids=["comes", "leaves", "placed", "reported", "asleep", "half asleep", "policy"],
)
def test_what_happens_between_the_plan_and_the_write_keeps_a_host_up(
    sleepers, monkeypatch, act, outcome, asked
):
    actions = sleepers.balancer._rounds_of("default")._power
    before_next(monkeypatch, actions, "why_needed", lambda: act(sleepers))
    assert sleepers.step() == asked
    assert sleepers.considered[0]["outcome"] == outcome


def test_a_host_on_its_way_takes_no_vm_not_even_a_forced_one(sleepers):
    sleepers.step()
    other = sleepers.beside()
    with pytest.raises(NoValidHost):
        other.ask("x", only_hosts=["b"])
    with pytest.raises(NoValidHost):
        other.ask("y", force_hosts=["b"])
    explained = other.scheduler.explain(request("z")).clusters["default"]
    why = {each.host: each.reason for each in explained.verdicts if each.rejected_by}
    assert why["b"] == "is about to be put into maintenance or switched off by the policy's balance"
    assert other.place("ok", only_hosts=["b", "c"]) == ["c"]


def test_a_decision_that_has_not_seen_the_action_is_not_stored(sleepers):
    """The action is written under the cluster's lock: each commit comes before it or is refused."""
    other = sleepers.beside()
    deps, replica = other.scheduler._deps, other.fleet.cluster("default")
    asked = request("late", only_hosts=["b"])
    lease = Lease.acquire(deps, replica, until_s=deps.clock.monotonic_s() + 1)
    with replica.lock:
        lease.open()
        decision = lease.view.decide(asked)
    sleepers.world.clock.advance(other.limits.hold_timeout_s)
    assert sleepers.step() == [("b", "maintenance")]
    with replica.lock, pytest.raises(StaleFencingToken):
        lease.commit([lease.planned(asked, decision.claims)])
    with pytest.raises(NoValidHost):
        other.scheduler.select(asked)


@pytest.mark.parametrize("_number", range(10))
def test_of_two_threads_one_places_vms_on_a_host_or_one_puts_it_to_sleep(sleepers, _number):
    other, begin = sleepers.beside(), threading.Barrier(2)

    def place() -> int:
        begin.wait()
        for number in range(5):
            try:
                other.place(f"vm-{number}", only_hosts=["b"], memory_mb=1)
            except NoValidHost:
                return number
        return 5

    sleepers.world.clock.advance(INTERVAL_S)
    placed = in_thread(place)
    begin.wait()
    sleepers.balancer.run_due()
    sleeps = "b" in {each.host for each in sleepers.power.asked}
    assert bool(placed.result(SOON_S)) != sleeps


def test_a_host_in_maintenance_or_down_takes_no_vm(sleepers):
    for state in ("maintenance", "down"):
        sleepers.report_power("b", state, by_policy=True)
        with pytest.raises(NoValidHost):
            sleepers.world.ask(f"x-{state}", only_hosts=["b"])
        with pytest.raises(NoValidHost):
            sleepers.world.ask(f"y-{state}", force_hosts=["b"])
    explained = sleepers.world.scheduler.explain(request("z")).clusters["default"]
    why = {each.host: each.reason for each in explained.verdicts if each.rejected_by}
    assert why["b"] == "it was switched off by the policy"


def test_it_takes_vms_again_when_nobody_says_how_the_action_ended(sleepers):
    sleepers.step()
    sleepers.world.clock.advance(LIMITS.begin_within_s)
    sleepers.report()
    assert sleepers.world.place("x", only_hosts=["b"]) == ["b"]


# The last host that a VM needs


def with_large(sleepers: Sleepers, **vm: Any) -> None:
    """A VM on a that has room on b only, which is larger than the others."""
    size = {"memory_mb": 100_000, "cpu_percent": 10} | vm
    sleepers.memory_mb |= {"a": 200_000, "b": 200_000}
    sleepers.put("a", large=size)
    sleepers.put("b")


def test_the_only_other_host_of_a_vm_stays_up(sleepers):
    with_large(sleepers)
    assert sleepers.step() == [("c", "maintenance")]
    assert sleepers.considered[0]["outcome"] == "large on a could go to no other host"


def test_the_only_other_host_of_a_vm_is_not_switched_off(sleepers):
    sleepers.report_power("b", "maintenance", by_policy=True)
    sleepers.report_power("c", "maintenance", by_policy=True)
    with_large(sleepers)
    assert sleepers.step() == [("c", "down")]


def test_a_host_that_a_vm_elsewhere_needs_is_not_emptied(sleepers):
    sleepers.attach(power_saving(version=2, LowUtilization="20"))
    with_large(sleepers, cpu_percent=160)
    sleepers.put("b", small=10)
    assert [sleepers.round() for _ in range(4)] == [[]] * 4
    outcomes = [each["outcome"] for each in sleepers.status()["last_round"]["considered"]]
    assert outcomes == ["large on a could go to no other host"]


# Highly available VMs


def test_hosts_without_room_for_their_highly_available_vms_are_named_on_change(sleepers, caplog):
    sleepers.put("a", v1={"cpu_percent": 10, "memory_mb": 100_000, "highly_available": True})
    with caplog.at_level(logging.INFO):
        for _ in range(7):
            sleepers.step()
    assert caplog.text.count("if one of a failed, its highly available VMs") == 1
    assert sleepers.status()["last_round"]["unprotected_hosts"] == ("a",)
    assert sleepers.observed.of(events.UNPROTECTED)["default"] == 1
    sleepers.put("a")
    caplog.clear()
    counts = []
    with caplog.at_level(logging.INFO):
        for _ in range(5):
            sleepers.step()
            counts.append(sleepers.observed.of(events.UNPROTECTED)["default"])
    assert caplog.text.count("none has highly available VMs without room on others") == 1
    assert counts == [1, 1, 1, 0, 0], "every five minutes it is checked"


def test_a_silent_host_gives_no_room(sleepers):
    sleepers.put("a", v1={"cpu_percent": 10, "memory_mb": 60_000, "highly_available": True})
    for silent in ("bcd", "a"):  # then nobody gives room, and the VM needs it all the same
        for name in silent:
            del sleepers.hosts[name]
        sleepers.world.clock.advance(10 * INTERVAL_S)
        sleepers.step()
        assert sleepers.status()["last_round"]["unprotected_hosts"] == ("a",)
        assert sleepers.observed.of(events.UNPROTECTED)["default"] == 1


# Casts to agents


def test_a_power_action_is_cast_with_all_that_an_agent_needs(sleepers):
    sleepers.step()
    [asked] = sleepers.power.asked
    publisher = NotingPublisher()
    AgentTarget(publisher, "agents").set_power("east", asked)
    arguments = {
        "action": asked.id,
        "cluster": "east",
        "host": "b",
        "to": "maintenance",
        "reason": "3 empty hosts are up, 1 are wanted",
        "policy": "save@1",
        "begin_by_s": asked.asked_at_s + LIMITS.begin_within_s,
    }
    message = {"topic": "agents", "method": "set_host_power", "arguments": arguments}
    assert publisher.sent == [message]
    publisher.failure = Undeliverable("no queue")
    with pytest.raises(PowerRefused, match="no queue"):
        AgentTarget(publisher, "agents").set_power("east", asked)
