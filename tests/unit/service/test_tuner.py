"""Clusters are tuned: by one worker at a time, without jumps, whatever fails."""

from __future__ import annotations

import logging

import pytest

from scheduler_worker.errors import BusUnavailable, RequestError, StateUnavailable, Undeliverable
from scheduler_worker.ports import Put, Seen, Transaction
from scheduler_worker.service.tuner import Tuner
from tests.support.services import host
from tests.support.tuners import INTERVAL_S, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()


def balloons(stage: Stage) -> dict[str, float]:
    return {vm: at for each in stage.agents.balloons.values() for vm, at in each.items()}


def remembered(stage: Stage, cluster: str = "default") -> dict[str, bytes | None]:
    changes = stage.world.state.changes(f"@tuning/{cluster}", Seen())
    return {each.key: each.value for each in changes.entries}


def test_balloons_go_where_the_policy_says_and_stay_there(stage):
    for _ in range(6):
        stage.cycle()
    assert balloons(stage) == {"v1": 500.0, "v2": 500.0, "v3": 500.0}
    assert stage.cycle() == []


def test_an_agent_is_told_what_is_of_its_host_in_growing_cycles(stage):
    stage.cycle()
    first, second = stage.cycle(), stage.cycle()
    assert [each["host"] for each in first] == ["a", "b"]
    told = dict(first[0])
    assert told.pop("cycle") < second[0]["cycle"]
    vms = {"v1": {"memory.balloon": 850.0}, "v2": {"memory.balloon": 500.0}}
    assert told == {"host": "a", "cluster": "default", "outputs": {}, "vms": vms, "disks": {}}


def test_hosts_and_disks_are_tuned_as_vms_are(stage):
    stage.files.texts |= {
        "ksm": "scope: Host\nrules: {run: {output: ksm.run, target: 1 if host.busy else 0}}",
        "io": "scope: VM.disk\nrules: {limit: {output: io.limit, target: policy.limit}}",
    }
    stage.agents.load = {"busy": True, "ksm": {"run": 0}}
    stage.agents.more = {"v3": {"disks": {"vda": {"policy": {"limit": 5}}, "vdb": {}}}}
    [of_a, of_b] = stage.cycle()
    assert (of_a["outputs"], of_b["outputs"]) == ({"ksm.run": 1.0}, {"ksm.run": 1.0})
    assert of_b["disks"] == {"v3": {"vda": {"io.limit": 5.0}}}
    assert stage.told.faults == {("io", "missing_property"): 1}


# Turns


def test_between_two_turns_there_is_an_interval(stage):
    stage.cycle()
    stage.cycle()
    assert stage.cycle(after_s=14.0) == []
    assert stage.tuner.run_due() == pytest.approx(1.0)
    assert stage.cycle(after_s=1.0)


def test_of_several_workers_one_tunes(stage):
    others = [stage.another(), stage.another()]
    for _ in range(3):
        stage.cycle()
        assert [stage.cycle(each, after_s=0) for each in others] == [[], []]


def test_another_worker_goes_on_where_one_stopped_and_nothing_jumps(stage):
    stage.files.clusters = 'parameters: {"*": {balloon_min: 0}}'
    other, seen = stage.another(), []
    for tuner, after_s in [*[(stage.tuner, 15.0)] * 3, *[(other, 10.0)] * 3, *[(other, 15.0)] * 2]:
        stage.cycle(tuner, after_s)
        seen.append(balloons(stage)["v1"])
    # Two intervals pass before the turn is the other's: 10 a second for 30 s, and on from there.
    assert seen == [1000.0, 850.0, 700.0, 700.0, 700.0, 400.0, 250.0, 100.0]


def test_a_pause_is_no_credit(stage):
    stage.cycle()
    stage.agents.balloons["b"]["v3"] = 10_000.0
    stage.cycle(after_s=100 * INTERVAL_S)
    assert balloons(stage)["v3"] == 10_000.0 - 10 * 3 * INTERVAL_S


def test_what_was_held_back_is_remembered_by_the_next_worker():
    stage = Stage("""
scope: VM
rules:
  slow:
    output: memory.balloon
    target: 0
    min_absolute_change: 400
    function: {name: linear, change: 10, time: 1 sec}
""")
    for _ in range(3):
        assert stage.cycle() == []
    other = stage.another()
    assert stage.cycle(other, after_s=30.0)
    assert balloons(stage)["v1"] == 1000.0 - 10 * 60


def test_a_turn_from_the_future_keeps_nobody_from_tuning(stage):
    stage.cycle()
    last = stage.cycle()[-1]["cycle"]
    stage.world.clock.advance(-3600)
    stage.world.clock.advance(INTERVAL_S)
    stage.agents.report()
    stage.tuner.run_due()
    stage.world.clock.advance(INTERVAL_S)
    stage.tuner.run_due()
    assert stage.agents.casts[-1]["cycle"] > last


def test_a_clusters_lock_is_no_hindrance(stage):
    stage.world.state.acquire("default", timeout_s=1, seen=Seen())
    stage.cycle()
    assert stage.cycle()


# What is remembered


def test_who_left_is_forgotten(stage):
    stage.cycle()
    stage.cycle()
    assert remembered(stage).keys() == {"m:uuid-a", "m:uuid-b"}
    del stage.agents.balloons["a"]["v2"]
    del stage.agents.balloons["b"]
    stage.world.inventory.remove_hosts([("b", None)])
    stage.cycle()
    [left] = remembered(stage).values()
    assert left is not None and b"v1" in left and b"v2" not in left


def test_a_vm_that_migrates_is_tuned_on_by_its_new_host(stage):
    stage.cycle()
    stage.agents.balloons["b"]["v1"] = stage.agents.balloons["a"]["v1"]
    stage.agents.report("a")
    stage.world.clock.advance(INTERVAL_S)
    stage.agents.report("b")
    stage.tuner.run_due()
    told = {each["host"]: sorted(each["vms"]) for each in stage.agents.casts}
    assert told == {"a": ["v2"], "b": ["v1", "v3"]}
    assert stage.agents.balloons["b"]["v1"] == 850.0


def test_a_host_that_is_silent_is_left_alone(stage):
    stage.cycle()
    for _ in range(5):
        stage.world.clock.advance(INTERVAL_S)
        stage.agents.report("a")
        stage.tuner.run_due()
    del stage.agents.casts[:]
    stage.world.clock.advance(INTERVAL_S)
    stage.agents.report("a")
    stage.tuner.run_due()
    assert {each["host"] for each in stage.agents.casts} <= {"a"}
    assert remembered(stage).keys() == {"m:uuid-a", "m:uuid-b"}


def test_outputs_that_nobody_reports_go_on_from_what_was_said():
    stage = Stage("""
scope: Host
rules:
  first:
    output: fan.speed
    target: 100
    when: not default(host.warm, false)
  then:
    output: fan.speed
    target: 0
    function: {name: linear, change: 1, time: 1 sec}
    when: default(host.warm, false)
""")
    stage.cycle()
    stage.agents.load = {"warm": True}
    stage.cycle(stage.another(), after_s=30.0)
    assert [each["outputs"]["fan.speed"] for each in stage.agents.casts[::2]] == [100.0, 70.0]


# What can fail


def test_without_a_bus_nothing_is_taken_for_said(stage):
    stage.cycle()
    stage.agents.fails = {"a": BusUnavailable("away")}
    assert stage.cycle() == []
    stage.agents.fails.clear()
    stage.cycle()
    assert balloons(stage) == {"v1": 700.0, "v2": 500.0, "v3": 700.0}
    assert stage.told.results == {"BusUnavailable": 2, "ok": 2}


def test_a_host_without_an_agent_keeps_no_other_from_being_tuned(stage):
    stage.agents.fails = {"a": Undeliverable("nobody")}
    stage.cycle()
    assert [each["host"] for each in stage.cycle()] == ["b"]
    assert stage.told.results == {"Undeliverable": 1, "ok": 1}


def test_who_could_not_be_told_in_time_comes_first_in_the_next_cycle(stage, monkeypatch):
    cast = stage.agents.cast

    def slowly(**how):
        cast(**how)
        stage.world.clock.advance(INTERVAL_S + 1)

    stage.cycle()
    monkeypatch.setattr(stage.agents, "cast", slowly)
    told = [each["host"] for _ in range(3) for each in stage.cycle()]
    assert sorted(told[:2]) == ["a", "b"] and told[2] == told[0]
    assert stage.told.results == {"ok": 3, "late": 3}


def test_a_rule_that_fails_for_one_vm_is_left_out_counted_and_told_once(stage, caplog):
    stage.agents.more = {"v1": {"memory": {"balloon": "much"}}}
    stage.cycle()
    for _ in range(3):
        stage.cycle()
    assert balloons(stage) == {"v1": 1000.0, "v2": 500.0, "v3": 550.0}
    assert stage.told.faults == {("balloon", "type_error"): 4}
    told = [each.getMessage() for each in caplog.records if "type_error" in each.getMessage()]
    assert len(told) == 1
    assert "balloon:shrink for VM v1: type_error" in told[0]


def test_one_clusters_failure_is_not_the_others(stage, monkeypatch):
    stage.world.report(host("c", cluster="alone", vms={"v9": {"memory": {"balloon": 1000.0}}}))
    stage.agents.balloons["c"] = {"v9": 1000.0}
    catch_up = type(stage.world.fleet.cluster("alone")).catch_up

    def broken(replica, *how):
        if replica.scope == "alone":
            raise RuntimeError("a defect")
        catch_up(replica, *how)

    monkeypatch.setattr(type(stage.world.fleet.cluster("alone")), "catch_up", broken)
    stage.cycle()
    assert {each["cluster"] for each in stage.cycle()} == {"default"}
    assert stage.told.failures == {"alone": 2}


def test_without_the_state_tuning_waits_and_says_so_once(stage, monkeypatch, caplog):
    def away(*_, **__):
        raise StateUnavailable("away")

    stage.cycle()
    with monkeypatch.context() as patched:
        patched.setattr(stage.world.state, "changes", away)
        stage.tuner.run_due()
        stage.tuner.run_due()
    assert [each.getMessage() for each in caplog.records] == ["Tuning waits for the state: away"]
    assert stage.cycle()


# Policies


BROKEN = "scope: VM\nrules:\n  shrink:\n    output: memory.balloon\n    targett: 1\n"


def test_a_policy_that_does_not_load_leaves_the_old_one_in_force_and_an_alarm(stage, caplog):
    stage.cycle()
    stage.files.texts["balloon"] = BROKEN
    stage.cycle()
    assert stage.cycle()
    alarms = stage.tuner.describe()["alarms"]
    assert any(each.startswith("/balloon.yaml:5:5: E_SCHEMA: rules.shrink") for each in alarms)
    told = [each for each in caplog.records if "/balloon.yaml:5:5" in each.getMessage()]
    assert [each.levelno for each in told] == [logging.WARNING]
    stage.files.texts["balloon"] = "scope: VM\nrules: {a: {output: memory.balloon, target: 7}}"
    stage.cycle()
    assert (balloons(stage)["v1"], stage.tuner.policies.alarms) == (7.0, ())


def test_what_cannot_be_read_is_not_taken_for_gone(stage):
    stage.cycle()
    stage.files.texts, stage.files.clusters = {}, None
    stage.files.problems = ("/etc/tuning: Permission denied",)
    assert stage.cycle()
    assert stage.tuner.policies.alarms == ("/etc/tuning: Permission denied",)
    stage.files.problems = ()
    assert stage.cycle() == []


def test_what_comes_by_rpc_holds_in_all_workers_until_it_is_taken_back(stage):
    here, there = stage.tuner.policies, stage.another().policies
    text = "scope: VM\nrules: {a: {output: memory.balloon, target: 7}}"
    here.set("balloon", text)
    assert there.texts() == {"balloon": text}
    here.set("more", text)
    assert there.texts() == {"balloon": text, "more": text}
    there.set("more", None)
    assert here.texts() == {"balloon": text}
    there.reset()
    assert here.texts() == stage.files.texts


def test_a_policy_by_rpc_that_does_not_load_is_refused_with_every_place(stage):
    broken = BROKEN.replace("rules:", "vars: {x: 1 +}\nrules:")
    with pytest.raises(RequestError, match=r"text: new:2:\d+: E_EXPR_SYNTAX.*; new:6:5: E_SCHEMA"):
        stage.tuner.policies.set("new", broken)
    assert "new" not in stage.tuner.policies.texts()
    broken = "".join(f"k{number}: 1\n" for number in range(50))
    with pytest.raises(RequestError, match="new:50:1: E_SCHEMA: k49"):
        stage.tuner.policies.set("new", broken)


@pytest.mark.parametrize("name", ["", "a b", "a:b", "x" * 65, "../etc"])
def test_names_of_policies_are_plain(stage, name):
    with pytest.raises(RequestError, match="name"):
        stage.tuner.policies.set(name, "scope: VM")


def test_policies_and_parameters_may_be_a_clusters_own(stage):
    stage.files.clusters = """
clusters: {balloon: [default, east]}
parameters:
  "*": {balloon_min: 900}
  east: {balloon_min: 800}
"""
    for name, cluster in (("e", "east"), ("w", "west")):
        stage.agents.balloons[name] = {f"v{name}": 1000.0}
        stage.world.report(host(name, cluster=cluster))
    for _ in range(4):
        stage.cycle()
    found = balloons(stage)
    assert (found["v1"], found["ve"], found["vw"]) == (900.0, 800.0, 1000.0)
    assert set(stage.told.cycles) == {"default", "east"}


def test_a_vms_own_policy_goes_before_its_clusters(stage):
    stage.agents.more = {"v1": {"policy": {"balloon_min": 990}}}
    stage.cycle()
    stage.cycle()
    assert balloons(stage)["v1"] == 990.0


# Statistics


def test_averages_are_over_reports_and_not_over_cycles():
    stage = Stage("scope: VM\nrules: {a: {output: cpu.quota, target: host.free_avg}}", samples=2)
    quotas = []
    for free in (10, 20, None, 60):
        stage.agents.load = {"free": free}
        quotas += [each["vms"]["v3"]["cpu.quota"] for each in stage.cycle() if each["host"] == "b"]
        stage.world.clock.advance(INTERVAL_S)
        stage.tuner.run_due()  # nobody has reported since
    assert quotas == [10.0, 15.0, 20.0, 60.0]


def test_statistics_are_what_rules_see(stage):
    stage.files.texts = {"p": "scope: VM\nrules: {a: {output: a.b, target: memory.balloon_avg}}"}
    stage.agents.load = {"free": 7, "ksm": {"run": 0}}
    stage.cycle()
    stage.agents.balloons["b"]["v3"] = 2000.0
    stage.cycle()
    found = stage.tuner.statistics(limit=1)
    assert [each["host"] for each in found["hosts"]] == ["a"]
    [of_b] = stage.another().statistics("default", marker=found["next"])["hosts"]
    assert of_b["statistics"]["host"] == {"id": "uuid-b", "name": "b", "free": 7}
    assert of_b["vms"] == {
        "v3": {
            "vm": {"id": "v3"},
            "memory": {"balloon": 2000.0, "balloon_avg": 1500.0},
            "policy": {"balloon_min": 500.0},
        }
    }


def test_vms_may_be_reported_as_a_list(stage):
    vm = {"uuid": "v9", "state": "up", "memory": {"balloon": 1}}
    stage.world.report(host("c", vms=[vm, "something else", {"no": "uuid"}]))
    [found] = [each for each in stage.tuner.statistics()["hosts"] if each["host"] == "c"]
    assert found["vms"].keys() == {"v9"}
    assert found["vms"]["v9"]["vm"] == {"id": "v9", "uuid": "v9", "state": "up"}


def test_there_is_no_tuning_without_an_interval(stage):
    off = Tuner(
        stage.world.fleet, stage.files, stage.agents, stage.world.clock,
        settings=type(stage.settings)(),
    )  # fmt: skip
    off.start()
    assert not off._thread.is_alive()
    off.stop()


def test_records_of_a_newer_release_are_ignored(stage):
    stage.world.state.write("@tuning", [Transaction([Put("z:new", b"?")])])
    stage.cycle()
    assert stage.cycle()
