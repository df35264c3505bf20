"""``/v1/tuned-hosts``: what was set, when, by which rules, and what is held back."""

from datetime import UTC, datetime

import pytest
from msgspec import structs

from scheduler_worker.errors import Undeliverable
from tests.support.rest import Rest
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
def rest(scenario):
    """A process beside the worker that tuned."""
    return Rest(world=scenario.world.beside())


def read(rest, path, status=200, **options):
    response = rest.request("GET", path, **options)
    assert response.status_code == status, response.get_data(as_text=True)
    return response.get_json()


def at(seconds):
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def test_hosts_have_the_times_of_their_cycle_and_how_much_was_set(rest, scenario):
    now_s = scenario.world.clock.time_s()
    found = read(rest, "/v1/tuned-hosts")["items"]
    times = {"reported_at": at(now_s), "cycle_at": at(now_s), "notified_at": at(now_s)}
    assert {each.pop("worker") for each in found} == {scenario.tuner.task.worker}
    assert {each.pop("cycle") for each in found} == {scenario.agents.casts[-1]["cycle"] + 15_000}
    assert found == [
        {"uuid": "uuid-a", "name": "a", "cluster": "default", "outputs": 5, "held": 2}
        | times | {"changed_at": at(now_s - 15)},
        {"uuid": "uuid-b", "name": "b", "cluster": "default", "outputs": 4, "held": 1}
        | times | {"changed_at": at(now_s - 15)},
    ]  # fmt: skip


def test_a_host_has_everything_on_it_with_values_rules_and_times(rest, scenario):
    now_s = scenario.world.clock.time_s()
    found = read(rest, "/v1/tuned-hosts/b")
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


def test_the_output_of_a_held_change_is_named_where_its_rule_is_known(rest, scenario):
    rest.files.texts = dict(scenario.files.texts)
    vm = read(rest, "/v1/tuned-hosts/uuid-b")["entities"][1]
    assert [each["output"] for each in vm["held"]] == ["memory.balloon"]


def test_the_next_cycle_is_seen_and_a_host_that_left_is_not(rest, scenario):
    before = read(rest, "/v1/tuned-hosts/b")
    scenario.agents.more["v3"] = {"vm": {"is_busy": False}}
    scenario.cycle()
    after = read(rest, "/v1/tuned-hosts/b")
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
    assert [each["name"] for each in read(rest, "/v1/tuned-hosts")["items"]] == ["a"]
    assert "no tuned host 'b'" in read(rest, "/v1/tuned-hosts/b", 404)["detail"]


def test_a_host_whose_agent_cannot_be_reached_keeps_what_it_was_sent_last(rest, scenario):
    before = read(rest, "/v1/tuned-hosts/b")
    scenario.agents.failures = {"b": Undeliverable("nobody")}
    scenario.agents.more["v3"] = {"vm": {"is_busy": False}, "disks": {"vda": {}}}
    scenario.cycle()
    after = read(rest, "/v1/tuned-hosts/b")
    assert after["cycle_at"] == at(scenario.world.clock.time_s())
    same = ("notified_at", "changed_at", "entities")
    assert [after[each] for each in same] == [before[each] for each in same]


def test_values_of_which_an_earlier_release_kept_no_rules_are_shown_without(rest, scenario):
    states = scenario.tuner._tuning_of("default")._states
    state = states.hosts["uuid-a"]
    entities = [structs.replace(each, set_by={}) for each in state.entities]
    states.write(
        scenario.world.state,
        {"uuid-a": structs.replace(state, entities=entities)},
        scenario.world.clock.time_s(),
    )
    found = read(rest, "/v1/tuned-hosts/a")
    assert found["changed_at"] is None
    [output] = found["entities"][0]["outputs"]
    assert (output["value"], output["rules"], output["set_at"]) == (1.0, [], None)


def test_hosts_are_found_by_cluster_and_by_a_part_of_their_name(rest, scenario):
    scenario.agents.balloons["east-7"] = {}
    scenario.world.report(host("east-7", cluster="east"))
    scenario.cycle()
    scenario.world.report(host("not-tuned-yet", cluster="west"))
    for query, expected in {
        "": ["a", "b", "east-7"],
        "?cluster=east": ["east-7"],
        "?cluster=west": [],
        "?search=AST": ["east-7"],
        "?search=uuid-b": ["b"],
        "?search=b&cluster=east": [],
    }.items():
        listed = read(rest, f"/v1/tuned-hosts{query}")["items"]
        assert [each["name"] for each in listed] == expected, query
    refused = read(rest, "/v1/tuned-hosts?cluster=nowhere", 400)
    assert refused["errors"][0]["parameter"] == "cluster"
    assert read(rest, "/v1/tuned-hosts?search=", 400)


def test_pages_end_and_are_linked(rest):
    first = read(rest, "/v1/tuned-hosts?limit=1")
    second = read(rest, first["next"])
    assert [each["name"] for each in first["items"] + second["items"]] == ["a", "b"]
    assert second["next"] is None


def test_a_name_that_several_hosts_have_is_refused(rest, scenario):
    scenario.world.report(host("a", uuid="other", nodename="n2", cluster="default"))
    scenario.cycle()
    assert "use a uuid" in read(rest, "/v1/tuned-hosts/a", 409)["detail"]
    assert read(rest, "/v1/tuned-hosts/uuid-a")["uuid"] == "uuid-a"
