"""Tuned hosts: what was set, when, by which rules, and what is held back."""

import pytest
from msgspec import structs, to_builtins

from scheduler_worker.errors import Ambiguous, NotFound, RequestError, Undeliverable
from scheduler_worker.operations.operation import when
from scheduler_worker.operations.tuning import get_tuned_host, list_tuned_hosts
from tests.support.services import host
from tests.support.tuners import Scenario

POLICY = """
scope: VM
rules:
  low: {output: cpu.quota, target: 40}
  high: {output: cpu.quota, target: 80, when: vm.is_busy}
  steady: {output: cpu.period, target: 100}
  slow:
    output: memory.balloon
    target: 0
    min_absolute_change: 4000
    function: {name: linear, change: 10, time: 1 sec}
"""
DISKS = """
scope: VM.disk
rules: {limit: {output: io.limit, target: 5}}
"""
KSM = """
scope: Host
rules: {run: {output: ksm.run, target: 1}}
"""


@pytest.fixture
def scenario():
    """Two hosts that were tuned twice; on the second one a VM is busy and has a disk."""
    found = Scenario(POLICY)
    found.files.texts |= {"io": DISKS, "ksm": KSM}
    found.agents.more = {
        vm: {"vm": {"is_busy": vm == "v3"}, "disks": {"vda": {}} if vm == "v3" else {}}
        for vm in ("v1", "v2", "v3")
    }
    found.cycle()
    found.cycle()
    return found


@pytest.fixture
def world(scenario):
    """A process beside the worker that tuned."""
    return scenario.world.beside()


def listed(world, **query):
    return to_builtins(world.call(list_tuned_hosts, **query).items)


def shown(world, name):
    return to_builtins(world.call(get_tuned_host, name=name))


def at(seconds):
    return to_builtins(when(seconds))


def test_hosts_have_the_times_of_their_cycle_and_how_much_was_set(world, scenario):
    now_s = scenario.world.clock.time_s()
    found = listed(world)
    times = {"reported_at": at(now_s), "cycle_at": at(now_s), "notified_at": at(now_s)}
    assert {each.pop("worker") for each in found} == {scenario.tuner.worker}
    assert {each.pop("cycle") for each in found} == {scenario.agents.casts[-1]["cycle"] + 15_000}
    assert found == [
        {"uuid": "uuid-a", "name": "a", "cluster": "default", "outputs": 5, "held": 2}
        | times | {"changed_at": at(now_s - 15)},
        {"uuid": "uuid-b", "name": "b", "cluster": "default", "outputs": 4, "held": 1}
        | times | {"changed_at": at(now_s - 15)},
    ]  # fmt: skip


def test_a_host_has_everything_on_it_with_values_rules_and_times(world, scenario):
    now_s = scenario.world.clock.time_s()
    found = shown(world, "b")
    itself, vm, disk = found["entities"]
    set_at = at(now_s - 15)
    assert (itself["scope"], itself["name"], itself["device"]) == ("Host", "b", None)
    assert itself["outputs"] == [
        {"output": "ksm.run", "value": 1.0, "rules": ["ksm:run"], "set_at": set_at}
    ]
    assert vm == {
        "scope": "VM", "name": "v3", "device": None, "evaluated_at": at(now_s),
        "outputs": [
            {
                "output": "cpu.period", "value": 100.0, "rules": ["balloon:steady"],
                "set_at": set_at,
            },
            {
                "output": "cpu.quota", "value": 60.0, "rules": ["balloon:low", "balloon:high"],
                "set_at": set_at,
            }
        ],
        "held": [
            {"rule": "balloon:slow", "output": None, "direction": "down", "held_s": 15.0}
        ],
    }  # fmt: skip
    assert (disk["scope"], disk["name"], disk["device"]) == ("VM.disk", "v3", "vda")
    assert [each["rules"] for each in disk["outputs"]] == [["io:limit"]]


def test_the_output_of_a_held_change_is_named_where_its_rule_is_known(world, scenario):
    world.tuning_files.texts = dict(scenario.files.texts)
    vm = shown(world, "uuid-b")["entities"][1]
    assert [each["output"] for each in vm["held"]] == ["memory.balloon"]


def test_the_next_cycle_is_seen_and_a_host_that_left_is_not(world, scenario):
    before = shown(world, "b")
    scenario.agents.more["v3"] = {"vm": {"is_busy": False}}
    scenario.cycle()
    after = shown(world, "b")
    now_s = scenario.world.clock.time_s()
    assert (after["changed_at"], before["changed_at"]) == (at(now_s), at(now_s - 30))
    [itself, vm] = after["entities"]
    set_now = {each["output"]: (each["rules"], each["set_at"]) for each in vm["outputs"]}
    assert set_now == {
        "cpu.period": (["balloon:steady"], at(now_s - 30)),
        "cpu.quota": (["balloon:low"], at(now_s)),
    }
    assert itself["outputs"][0]["set_at"] == at(now_s - 30)
    scenario.world.inventory.remove_hosts([("b", None)])
    assert [each["name"] for each in listed(world)] == ["a"]
    with pytest.raises(NotFound, match="no tuned host 'b'"):
        shown(world, "b")


def test_a_host_whose_agent_cannot_be_reached_keeps_what_it_was_sent_last(world, scenario):
    before = shown(world, "b")
    scenario.agents.failures = {"b": Undeliverable("nobody")}
    scenario.agents.more["v3"] = {"vm": {"is_busy": False}, "disks": {"vda": {}}}
    scenario.cycle()
    after = shown(world, "b")
    assert after["cycle_at"] == at(scenario.world.clock.time_s())
    same = ("notified_at", "changed_at", "entities")
    assert [after[each] for each in same] == [before[each] for each in same]


def test_values_of_which_an_earlier_release_kept_no_rules_are_shown_without(world, scenario):
    states = scenario.tuner._tuning_of("default")._states
    state = states.hosts["uuid-a"]
    entities = [structs.replace(each, set_by={}) for each in state.entities]
    states.write(
        scenario.world.state,
        {"uuid-a": structs.replace(state, entities=entities)},
        scenario.world.clock.time_s(),
    )
    found = shown(world, "a")
    assert found["changed_at"] is None
    [output] = found["entities"][0]["outputs"]
    assert (output["value"], output["rules"], output["set_at"]) == (1.0, [], None)


def test_hosts_are_found_by_cluster_and_by_a_part_of_their_name(world, scenario):
    scenario.agents.balloons["east-7"] = {}
    scenario.world.report(host("east-7", cluster="east"))
    scenario.cycle()
    scenario.world.report(host("not-tuned-yet", cluster="west"))
    for query, expected in (
        ({}, ["a", "b", "east-7"]),
        ({"cluster": "east"}, ["east-7"]),
        ({"cluster": "west"}, []),
        ({"search": "AST"}, ["east-7"]),
        ({"search": "uuid-b"}, ["b"]),
        ({"search": "b", "cluster": "east"}, []),
    ):
        assert [each["name"] for each in listed(world, **query)] == expected, query
    for wrong in ({"cluster": "nowhere"}, {"search": ""}):
        with pytest.raises(RequestError) as error:
            listed(world, **wrong)
        assert [error.value.field] == [*wrong]


def test_a_name_that_several_hosts_have_is_refused(world, scenario):
    scenario.world.report(host("a", uuid="other", nodename="n2", cluster="default"))
    scenario.cycle()
    with pytest.raises(Ambiguous, match="use a uuid"):
        shown(world, "a")
    assert shown(world, "uuid-a")["uuid"] == "uuid-a"
