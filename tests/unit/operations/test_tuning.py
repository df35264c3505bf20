"""Tuning policies: set, read, withdraw, what two editors do to each other, and alarms."""

import json

import msgspec
import pytest

from scheduler_worker.errors import Conflict, Forbidden, NotFound
from scheduler_worker.model.policies import TuningProblem
from scheduler_worker.operations.callers import Caller, Grant
from scheduler_worker.operations.operation import when
from scheduler_worker.operations.tuning import (
    get_statistics,
    get_tuning_policy,
    list_tuning_alarms,
    list_tuning_policies,
    reset_tuning_policies,
    set_tuning_policy,
    withdraw_tuning_policy,
)
from scheduler_worker.ports import ABSENT, Put, Transaction
from tests.support.edges import OneWorker
from tests.support.tuners import BALLOON, Scenario

ONE = {"name": "balloon"}
OTHER = BALLOON.replace("10", "20")


@pytest.fixture
def tuning(world):
    return world.services.tuning


def put(world, text=BALLOON, **named):
    return world.call(set_tuning_policy, text=text, **ONE | named)


def test_a_policy_is_set_read_changed_and_withdrawn(world, tuning):
    made = put(world)
    assert (made.name, made.text, made.origin, made.file) == ("balloon", BALLOON, "set", None)
    assert world.call(get_tuning_policy, **ONE) == made
    one, other = (msgspec.json.encode({"balloon": each}).decode() for each in (BALLOON, OTHER))
    for change, texts, audited in (
        (lambda: None, {"balloon": BALLOON}, ("tuning.set", None, one)),
        (lambda: put(world, OTHER), {"balloon": OTHER}, ("tuning.set", one, other)),
        (lambda: world.call(withdraw_tuning_policy, **ONE), {}, ("tuning.withdraw", other, None)),
    ):
        change()
        [entry] = world.audited()
        assert (entry.action, entry.before, entry.after) == audited
        assert {each.name: each.text for each in tuning.current()} == texts
    with pytest.raises(NotFound):
        world.call(get_tuning_policy, **ONE)


def test_of_two_changes_at_once_one_is_refused(world, tuning):
    put(world)
    [now] = tuning.current()
    tuning.set("balloon", OTHER, version=now.version)
    for late in (
        lambda: tuning.set("balloon", BALLOON, version=now.version),
        lambda: tuning.set("balloon", BALLOON, version=ABSENT),
        lambda: tuning.reset({"balloon": now.version}),
    ):
        with pytest.raises(Conflict):
            late()
    assert {each.name: each.text for each in tuning.current()} == {"balloon": OTHER}


def test_a_policy_of_a_file_is_replaced_and_returns(world):
    world.tuning_files.texts["balloon"] = BALLOON
    of_file = world.call(get_tuning_policy, **ONE)
    assert (of_file.text, of_file.origin, of_file.file) == (BALLOON, "file", "/balloon.yaml")
    with pytest.raises(Conflict, match=r"/balloon\.yaml"):
        world.call(withdraw_tuning_policy, **ONE)
    assert put(world, OTHER).origin == "set"
    world.call(withdraw_tuning_policy, **ONE)
    assert world.call(get_tuning_policy, **ONE) == of_file


def test_all_that_was_set_is_withdrawn_at_once(world, tuning):
    world.tuning_files.texts["stays"] = BALLOON
    for name in ("a", "b", "c"):
        put(world, name=name)
    listed = [(each.name, each.origin) for each in world.call(list_tuning_policies).items]
    assert listed == [("a", "set"), ("b", "set"), ("c", "set"), ("stays", "file")]
    world.audited()
    for actions in (["tuning.reset"], []):
        world.call(reset_tuning_policies)
        assert {each.name: each.text for each in tuning.current()} == {"stays": BALLOON}
        entries = world.audited()
        assert [each.action for each in entries] == actions
        for entry in entries:
            assert json.loads(entry.before or "") == dict.fromkeys("abc", BALLOON)


@pytest.mark.parametrize("grant", [Grant("policy_editor", "east"), Grant("reader")])
def test_an_editor_of_one_cluster_may_not_change_what_is_for_all(world, tuning, grant):
    bert = Caller("bert", (grant,), "")
    put(world), world.audited()
    for operation, asked in (
        (set_tuning_policy, ONE | {"text": OTHER}),
        (withdraw_tuning_policy, ONE),
        (reset_tuning_policies, {}),
    ):
        with pytest.raises(Forbidden):
            world.call(operation, caller=bert, **asked)
    assert {each.name: each.text for each in tuning.current()} == {"balloon": BALLOON}
    assert [(each.action, each.result) for each in world.audited()] == [
        ("tuning:edit", "refused")
    ] * 3
    assert world.call(get_tuning_policy, caller=bert, **ONE).text == BALLOON


def test_hosts_are_listed_as_rules_see_them(world):
    scenario = Scenario()
    scenario.agents.load = {"mem_free": 5}
    scenario.agents.report()
    services = world.services._replace(worker=OneWorker(scenario.tuner))
    a, b = world.call(get_statistics, services=services).items
    assert (a.host, a.cluster, a.reported_at) == ("a", "default", when(world.clock.time_s()))
    assert a.statistics["host"]["mem_free"] == 5
    assert (a.vms.keys(), b.vms["v3"]["memory"]) == ({"v1", "v2"}, {"balloon": 1000.0})


# Alarms

BROKEN = "scope: VM\nrules:\n  shrink:\n    output: memory.balloon\n    targett: 1\n"


def alarms(world):
    return world.call(list_tuning_alarms).items


def test_an_alarm_has_its_policy_file_place_and_line_and_ends_with_its_cause(world):
    assert alarms(world) == []
    world.tuning_files.texts["balloon"] = BROKEN
    first, last = alarms(world)
    assert (last.policy, last.origin, last.file) == ("balloon", "file", "/balloon.yaml")
    assert (first.line, last.line, last.column, last.text) == (3, 5, 5, "    targett: 1")
    assert last.message.startswith("E_SCHEMA: rules.shrink.targett: 'targett' is not known here")
    world.tuning_files.texts["balloon"] = BALLOON
    assert alarms(world) == []


def test_alarms_without_a_place_name_what_they_are_about(world):
    files = world.tuning_files
    files.problems = (TuningProblem("Permission denied", "/etc/tuning"),)
    files.texts = {"many": "".join(f"k{number}: 1\n" for number in range(20))}
    files.clusters = "clustres: {}"
    world.state.write("@tuning", [Transaction([Put("t:odd", b'"rules: 1"')])])
    found = alarms(world)
    nowhere = dict.fromkeys(("policy", "line", "column", "text"))
    assert msgspec.to_builtins(found[0]) == nowhere | {
        "origin": "file", "file": "/etc/tuning", "message": "Permission denied",
    }  # fmt: skip
    more = [each for each in found if each.message.startswith("and ")]
    assert [(each.policy, each.line) for each in more] == [("many", None)]
    of_clusters = [each for each in found if each.file == "/tuning.yaml"]
    assert [(each.policy, each.text) for each in of_clusters] == [(None, "clustres: {}")]
    odd = [each for each in found if each.policy == "odd"]
    assert {(each.origin, each.file) for each in odd} == {("set", None)}
