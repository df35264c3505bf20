"""Tuning of clusters: by one worker at a time, without jumps, despite failures."""

import json
import logging

import pytest

from scheduler_worker import events
from scheduler_worker.errors import BusUnavailable, RequestError, Undeliverable
from scheduler_worker.model.policies import TuningProblem
from scheduler_worker.ports import Seen
from scheduler_worker.service.tuning.tuner import Tuner
from tests.support.interrupted import raising
from tests.support.services import host
from tests.support.tuners import INTERVAL_S, Scenario


@pytest.fixture
def scenario() -> Scenario:
    return Scenario()


def balloons(scenario: Scenario) -> dict[str, float]:
    return {vm: at for each in scenario.agents.balloons.values() for vm, at in each.items()}


def stored(scenario: Scenario, cluster: str = "default") -> dict[str, bytes | None]:
    changes = scenario.world.state.changes(f"@tuning/{cluster}", Seen())
    return {each.key: each.value for each in changes.entries}


def test_balloons_reach_their_targets_and_stay_there(scenario):
    for _ in range(6):
        scenario.cycle()
    assert balloons(scenario) == {"v1": 500.0, "v2": 500.0, "v3": 500.0}
    assert scenario.cycle() == []


def test_an_agent_gets_the_values_of_its_host_in_growing_cycles(scenario):
    scenario.cycle()
    first, second = scenario.cycle(), scenario.cycle()
    assert [each["host"] for each in first] == ["a", "b"]
    arguments = dict(first[0])
    assert arguments.pop("cycle") < second[0]["cycle"]
    vms = {"v1": {"memory.balloon": 850.0}, "v2": {"memory.balloon": 500.0}}
    assert arguments == {"host": "a", "cluster": "default", "outputs": {}, "vms": vms, "disks": {}}


def test_hosts_and_disks_are_tuned_as_vms_are(scenario):
    scenario.files.texts |= {
        "ksm": "scope: Host\nrules: {run: {output: ksm.run, target: 1 if host.busy else 0}}",
        "io": "scope: VM.disk\nrules: {limit: {output: io.limit, target: policy.limit}}",
    }
    scenario.agents.load = {"busy": True, "ksm": {"run": 0}}
    scenario.agents.more = {"v3": {"disks": {"vda": {"policy": {"limit": 5}}, "vdb": {}}}}
    [of_a, of_b] = scenario.cycle()
    assert (of_a["outputs"], of_b["outputs"]) == ({"ksm.run": 1.0}, {"ksm.run": 1.0})
    assert of_b["disks"] == {"v3": {"vda": {"io.limit": 5.0}}}
    assert scenario.observed.of(events.TUNING_FAULTS) == {("io", "missing_property"): 1}


# Leases


def test_another_worker_continues_where_one_stopped_and_nothing_jumps(scenario):
    scenario.files.clusters = 'parameters: {"*": {balloon_min: 0}}'
    other, seen = scenario.another(), []
    for tuner, after_s in [
        *[(scenario.tuner, 15.0)] * 3,
        *[(other, 10.0)] * 3,
        *[(other, 15.0)] * 2,
    ]:
        scenario.cycle(tuner, after_s)
        seen.append(balloons(scenario)["v1"])
    # The turn lapses after two intervals: 10 a second for 30 s, and on from there.
    assert seen == [1000.0, 850.0, 700.0, 700.0, 700.0, 400.0, 250.0, 100.0]


def test_after_a_gap_nothing_jumps(scenario):
    scenario.cycle()
    scenario.agents.balloons["b"]["v3"] = 10_000.0
    scenario.cycle(after_s=100 * INTERVAL_S)
    assert balloons(scenario)["v3"] == 10_000.0 - 10 * 3 * INTERVAL_S


def test_a_turn_from_the_future_is_void(scenario):
    scenario.cycle()
    last = scenario.cycle()[-1]["cycle"]
    scenario.world.clock.advance(-3600)
    scenario.world.clock.advance(INTERVAL_S)
    scenario.agents.report()
    scenario.tuner.run_due()
    scenario.world.clock.advance(INTERVAL_S)
    scenario.tuner.run_due()
    assert scenario.agents.casts[-1]["cycle"] > last


def test_tuning_needs_no_cluster_lock(scenario):
    scenario.world.state.acquire("default", timeout_s=1, seen=Seen())
    scenario.cycle()
    assert scenario.cycle()


# State


def test_the_state_of_hosts_and_vms_that_left_is_deleted(scenario):
    scenario.cycle()
    scenario.cycle()
    assert stored(scenario).keys() == {"m:uuid-a", "m:uuid-b"}
    del scenario.agents.balloons["a"]["v2"]
    del scenario.agents.balloons["b"]
    scenario.world.inventory.remove_hosts([("b", None)])
    scenario.cycle()
    [left] = stored(scenario).values()
    assert left is not None and b"v1" in left and b"v2" not in left


def test_a_vm_that_migrates_keeps_its_state(scenario):
    scenario.cycle()
    scenario.agents.balloons["b"]["v1"] = scenario.agents.balloons["a"]["v1"]
    scenario.agents.report("a")
    scenario.world.clock.advance(INTERVAL_S)
    scenario.agents.report("b")
    scenario.tuner.run_due()
    sent = {each["host"]: sorted(each["vms"]) for each in scenario.agents.casts}
    assert sent == {"a": ["v2"], "b": ["v1", "v3"]}
    assert scenario.agents.balloons["b"]["v1"] == 850.0


def test_a_host_that_does_not_report_is_not_tuned(scenario):
    scenario.cycle()
    for _ in range(5):
        del scenario.agents.casts[:]
        scenario.world.clock.advance(INTERVAL_S)
        scenario.agents.report("a")
        scenario.tuner.run_due()
    assert {each["host"] for each in scenario.agents.casts} <= {"a"}
    assert stored(scenario).keys() == {"m:uuid-a", "m:uuid-b"}


BY_TURNS = """
scope: VM
rules:
  up: {output: fan.speed, target: 100, when: host.warm}
  down: {output: fan.speed, target: 0, when: not host.warm}
"""


def set_by(scenario: Scenario) -> dict[str, tuple[list[str], float]]:
    """By VM: the rules behind the speed of its fan, and when it was set."""
    hosts = [json.loads(each) for each in stored(scenario).values() if each]
    return {
        entity[1]: tuple(by["fan.speed"])
        for host in hosts
        for entity, _, _, _, _, by in host["entities"]
        if by
    }


def test_the_rules_behind_a_value_move_with_its_vm_and_go_with_its_policy():
    scenario = Scenario(BY_TURNS)
    scenario.agents.load = {"warm": True}
    scenario.cycle()
    before = set_by(scenario)
    scenario.agents.balloons["b"]["v1"] = scenario.agents.balloons["a"].pop("v1")
    scenario.cycle()
    assert set_by(scenario) == before
    scenario.files.texts["balloon"] = BY_TURNS.replace("fan", "pump")
    scenario.agents.load = {}
    scenario.cycle()
    assert set_by(scenario) == {}


# Failures


def test_values_that_could_not_be_sent_do_not_count_as_emitted(scenario):
    scenario.cycle()
    scenario.agents.failures = {"a": BusUnavailable("away")}
    assert scenario.cycle() == []
    scenario.agents.failures.clear()
    scenario.cycle()
    assert balloons(scenario) == {"v1": 700.0, "v2": 500.0, "v3": 700.0}
    assert scenario.observed.of(events.TUNING_CASTS) == {"BusUnavailable": 2, "ok": 2}


def test_a_host_without_an_agent_affects_no_other(scenario):
    scenario.agents.failures = {"a": Undeliverable("nobody")}
    scenario.cycle()
    assert [each["host"] for each in scenario.cycle()] == ["b"]
    assert scenario.observed.of(events.TUNING_CASTS) == {"Undeliverable": 1, "ok": 1}


def test_hosts_that_were_late_come_first_in_the_next_cycle(scenario, monkeypatch):
    cast = scenario.agents.cast

    def slowly(**how):
        cast(**how)
        scenario.world.clock.advance(INTERVAL_S + 1)

    scenario.cycle()
    monkeypatch.setattr(scenario.agents, "cast", slowly)
    hosts = [each["host"] for _ in range(3) for each in scenario.cycle()]
    assert sorted(hosts[:2]) == ["a", "b"] and hosts[2] == hosts[0]
    assert scenario.observed.of(events.TUNING_CASTS) == {"ok": 3, "late": 3}


def test_failures_are_counted_by_cluster(scenario, monkeypatch):
    monkeypatch.setattr(scenario.tuner, "run_cluster", raising(ZeroDivisionError()))
    assert scenario.cycle() == []
    assert scenario.observed.of(events.TUNING_FAILURES) == {"default": 1}


def test_a_rule_that_fails_for_one_vm_is_skipped_counted_and_logged_once(scenario, caplog):
    scenario.agents.more = {"v1": {"memory": {"balloon": "much"}}}
    scenario.cycle()
    for _ in range(3):
        scenario.cycle()
    assert balloons(scenario) == {"v1": 1000.0, "v2": 500.0, "v3": 550.0}
    assert scenario.observed.of(events.TUNING_FAULTS) == {("balloon", "type_error"): 4}
    [logged] = [each for each in caplog.messages if "type_error" in each]
    assert "balloon:shrink for VM v1: type_error" in logged


# Policies


BROKEN = "scope: VM\nrules:\n  shrink:\n    output: memory.balloon\n    targett: 1\n"


def test_a_policy_that_does_not_load_keeps_its_old_version_and_raises_an_alarm(scenario, caplog):
    scenario.cycle()
    scenario.files.texts["balloon"] = BROKEN
    scenario.cycle()
    assert scenario.cycle()
    alarms = scenario.tuner.describe()["alarms"]
    assert any(each.startswith("/balloon.yaml:5:5: E_SCHEMA: rules.shrink") for each in alarms)
    logged = [each for each in caplog.records if "/balloon.yaml:5:5" in each.getMessage()]
    assert [each.levelno for each in logged] == [logging.WARNING]
    scenario.files.texts["balloon"] = "scope: VM\nrules: {a: {output: memory.balloon, target: 7}}"
    scenario.cycle()
    assert (balloons(scenario)["v1"], scenario.tuner.policies.alarms) == (7.0, ())


def test_policies_that_cannot_be_read_stay_in_force(scenario):
    scenario.cycle()
    scenario.files.texts, scenario.files.clusters = {}, None
    scenario.files.problems = (TuningProblem("Permission denied", "/etc/tuning"),)
    assert scenario.cycle()
    [alarm] = scenario.tuner.policies.alarms
    assert str(alarm) == "/etc/tuning: Permission denied"
    scenario.files.problems = ()
    assert scenario.cycle() == []


def test_a_policy_by_rpc_that_does_not_load_is_refused_with_all_issues(scenario):
    broken = BROKEN.replace("rules:", "vars: {x: 1 +}\nrules:")
    with pytest.raises(RequestError, match=r"text: new:2:\d+: E_EXPR_SYNTAX.*; new:6:5: E_SCHEMA"):
        scenario.tuner.policies.set("new", broken)
    assert "new" not in {each.name: each.text for each in scenario.tuner.policies.current()}
    broken = "".join(f"k{number}: 1\n" for number in range(50))
    with pytest.raises(RequestError, match="new:50:1: E_SCHEMA: k49"):
        scenario.tuner.policies.set("new", broken)


@pytest.mark.parametrize("name", ["", "a b", "a:b", "x" * 65, "../etc"])
def test_invalid_names_of_policies_are_refused(scenario, name):
    with pytest.raises(RequestError, match="name"):
        scenario.tuner.policies.set(name, "scope: VM")


def test_policies_and_parameters_may_differ_between_clusters(scenario):
    scenario.files.clusters = """
clusters: {balloon: [default, east]}
parameters:
  "*": {balloon_min: 900}
  east: {balloon_min: 800}
"""
    for name, cluster in (("e", "east"), ("w", "west")):
        scenario.agents.balloons[name] = {f"v{name}": 1000.0}
        scenario.world.report(host(name, cluster=cluster))
    for _ in range(4):
        scenario.cycle()
    found = balloons(scenario)
    assert (found["v1"], found["ve"], found["vw"]) == (900.0, 800.0, 1000.0)
    assert set(scenario.observed.of(events.TUNING_TIME)) == {"default", "east"}


def test_a_policy_reported_by_a_vm_takes_precedence(scenario):
    scenario.agents.more = {"v1": {"policy": {"balloon_min": 990}}}
    scenario.cycle()
    scenario.cycle()
    assert balloons(scenario)["v1"] == 990.0


# Statistics


def test_averages_are_over_reports_and_not_over_cycles():
    scenario = Scenario(
        "scope: VM\nrules: {a: {output: cpu.quota, target: host.free_avg}}", samples=2
    )
    quotas = []
    for free in (10, 20, None, 60):
        scenario.agents.load = {"free": free}
        quotas += [
            each["vms"]["v3"]["cpu.quota"] for each in scenario.cycle() if each["host"] == "b"
        ]
        scenario.world.clock.advance(INTERVAL_S)
        scenario.tuner.run_due()  # without a new report
    assert quotas == [10.0, 15.0, 20.0, 60.0]


def test_statistics_are_as_rules_see_them(scenario):
    scenario.files.texts = {"p": "scope: VM\nrules: {a: {output: a.b, target: memory.balloon_avg}}"}
    scenario.agents.load = {"free": 7, "ksm": {"run": 0}}
    scenario.cycle()
    scenario.agents.balloons["b"]["v3"] = 2000.0
    scenario.cycle()
    [(of_a, _)], following = scenario.tuner.statistics(None, None, 1)
    assert of_a.host == "a"
    [(_, of_b)], _ = scenario.another().statistics("default", following, 9)
    assert of_b.host["host"] == {"id": "uuid-b", "name": "b", "free": 7}
    assert of_b.vms == {
        "v3": {
            "vm": {"id": "v3"},
            "memory": {"balloon": 2000.0, "balloon_avg": 1500.0},
            "policy": {"balloon_min": 500.0},
        }
    }


def test_vms_may_be_reported_as_a_list(scenario):
    vm = {"uuid": "v9", "state": "up", "memory": {"balloon": 1}}
    scenario.world.report(host("c", vms=[vm, "something else", {"no": "uuid"}]))
    listed, _ = scenario.tuner.statistics(None, None, 9)
    [found] = [sample for record, sample in listed if record.host == "c"]
    assert found.vms.keys() == {"v9"}
    assert found.vms["v9"]["vm"] == {"id": "v9", "uuid": "v9", "state": "up"}


def test_without_an_interval_there_is_no_tuning(scenario):
    off = Tuner(
        scenario.world.fleet, scenario.tuner.policies, scenario.agents, scenario.world.clock,
        settings=type(scenario.settings)(interval_s=0.0),
    )  # fmt: skip
    off.start()
    assert not off.is_running
    off.stop()
