"""Records that an earlier release stored are read, and written in the same form."""

import json

from scheduler_worker.ports import Put, Seen, Transaction
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
