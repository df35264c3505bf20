"""Records that an earlier release stored are read, and written in the same form."""

import json

import msgspec

from scheduler_worker.ports import Put, Seen, Transaction
from scheduler_worker.service.tuning.records import EntityState, SetBy
from scheduler_worker.tuning.averages import Windows
from scheduler_worker.tuning.samples import Entity, HeldChange
from tests.support.tuners import Scenario

STORED_AT_S = 1_700_000_030.0
LEASE = b'{"tuner":"w1/511c3477","at_s":1700000030.0,"cycle":1700000030000}'
HOST = (
    b'{"reported_at_s":1700000030.0,"told_at_s":1700000030.0,"entities":['
    b'[["Host","uuid-a",""],null,{},{},{"host.free":[3.0,3.0]}],'
    b'[["VM","v1",""],1700000030.0,{"cpu.quota":1003.0},{"balloon:slow":[15.0,-1.0]},'
    b'{"memory.balloon":[1000.0,1000.0]}]]}'
)
POLICY = """
scope: VM
rules:
  slow:
    output: memory.balloon
    target: 0
    min_absolute_change: 400
    function: {name: linear, change: 10, time: 1 sec}
  quota: {output: cpu.quota, target: memory.balloon_avg + host.free_avg}
"""


def stored(scenario, scope):
    changes = scenario.world.state.changes(scope, Seen())
    return {each.key: each.value for each in changes.entries}


def test_stored_turns_states_and_policies_are_read_and_written_in_the_same_form():
    scenario = Scenario(POLICY)
    state, clock = scenario.world.state, scenario.world.clock
    clock.advance(STORED_AT_S - clock.time_s())
    text = b'"scope: Host\\nrules: {a: {output: ksm.run, target: 1}}"'
    state.write("@tuning", [Transaction([Put("u:default", LEASE), Put("t:ksm", text)])])
    state.write("@tuning/default", [Transaction([Put("m:uuid-a", HOST)])])
    del scenario.agents.balloons["b"], scenario.agents.balloons["a"]["v2"]
    scenario.agents.load = {"free": 9}
    assert scenario.cycle(after_s=29.0) == [], "another worker has the turn"
    [sent] = scenario.cycle(after_s=1.0)
    # 30 s since the stored evaluation, and 15 s for which the change had been held back.
    assert sent["vms"]["v1"]["memory.balloon"] == 1000 - 10 * (30 + 15)
    # Averages over the two stored reports and the last one.
    assert sent["vms"]["v1"]["cpu.quota"] == 1000 + (3 + 3 + 9) / 3
    assert sent["outputs"] == {"ksm.run": 1.0}
    assert sent["cycle"] > 1_700_000_030_000
    [host] = stored(scenario, "@tuning/default").values()
    records = stored(scenario, "@tuning")
    assert json.loads(host).keys() == json.loads(HOST).keys()
    assert [len(each) for each in json.loads(host)["entities"]] == [6, 6]
    assert json.loads(records["u:default"]).keys() == json.loads(LEASE).keys()
    scenario.tuner.policies.refresh()
    assert scenario.tuner.describe()["turns"]["default"] == json.loads(records["u:default"])


class EarlierEntityState(msgspec.Struct, frozen=True, array_like=True):
    """What releases without ``set_by`` read and write."""

    entity: Entity
    evaluated_at_s: float | None = None
    emitted: dict[str, float] = {}
    held: dict[str, HeldChange] = {}
    windows: Windows = {}


def test_an_earlier_release_reads_what_this_one_writes_and_the_other_way_round():
    vm = Entity("VM", "v1")
    rules = {"cpu.quota": SetBy(("cpu:less",), 7.0)}
    ours = EntityState(vm, 7.0, {"cpu.quota": 5.0}, {"cpu:more": HeldChange(15.0, 1.0)}, {}, rules)
    theirs = msgspec.json.decode(msgspec.json.encode(ours), type=EarlierEntityState)
    assert theirs.emitted == ours.emitted and theirs.held == ours.held
    read_back = msgspec.json.decode(msgspec.json.encode(theirs), type=EntityState)
    assert read_back == msgspec.structs.replace(ours, set_by={})


def test_a_value_that_an_earlier_release_emitted_has_no_rules_until_it_changes():
    scenario = Scenario("scope: VM\nrules: {a: {output: fan.speed, target: 'default(vm.want, 1)'}}")
    scenario.cycle()
    host = json.loads(stored(scenario, "@tuning/default")["m:uuid-a"])
    host["entities"] = [each[:5] for each in host["entities"]]
    scenario.world.state.write(
        "@tuning/default", [Transaction([Put("m:uuid-a", json.dumps(host).encode())])]
    )
    scenario.agents.more = {"v1": {"vm": {"want": 2}}}
    scenario.cycle()
    found = json.loads(stored(scenario, "@tuning/default")["m:uuid-a"])
    rules = {each[0][1]: each[5] for each in found["entities"]}
    assert rules["v1"].keys() == {"fan.speed"}
    assert rules["v2"] == {}
