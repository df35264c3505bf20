"""Which kept decisions are decided again, and which are not."""

from __future__ import annotations

from scheduler_worker.service.decisions.kept import DecisionQuery
from scheduler_worker.service.simulation.copies import snapshot_of
from scheduler_worker.service.simulation.deciding import SimulationPlan, planned
from tests.support.decisions import Records
from tests.support.services import World, host

INSIDE = "takes of NUMA cells, devices or providers of its host"


def plan(world: World, records: Records) -> SimulationPlan:
    records.recorder.write()
    decisions = records.kept.with_details(DecisionQuery())
    return planned(snapshot_of(world.fleet), decisions, world.pipelines)


def test_an_instance_that_cannot_be_taken_away_is_left_out_for_as_long_as_it_is_there():
    world = World()
    records = Records(world)
    world.report(host("a"))
    world.ask("i1", vm={"nics": [{"network": "blue"}]})
    assert plan(world, records).left_out == {INSIDE: 1}
    world.report(host("a", instances=[{"uuid": "i1"}], vcpus_used=1, memory_mb_used=1024))
    assert world.reserved() == {}
    assert plan(world, records).left_out == {INSIDE: 1}
    world.report(host("a", instances=[]))
    gone = plan(world, records)
    assert [each.outline.instances for each in gone.decisions] == [("i1",)]


def test_an_instance_that_takes_amounts_alone_is_decided_again_and_stays():
    world = World()
    records = Records(world)
    world.report(host("a"))
    world.ask("i1")
    found = plan(world, records)
    [decision] = found.decisions
    assert decision.outline.instances == ("i1",)
    assert found.staying == frozenset({decision.id})
