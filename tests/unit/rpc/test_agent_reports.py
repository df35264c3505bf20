"""What agents report of migrations and power actions."""

from typing import Any

import pytest

from scheduler_worker.errors import RequestError
from scheduler_worker.rpc.contract import Context
from scheduler_worker.rpc.worker import WorkerEndpoint
from tests.support.balancers import Scenario

CONTEXT = Context()
NOBODY: Any = None
"""Nothing is published here."""
SAVING = {
    "id": "save",
    "name": "save",
    "version": 1,
    "balance": {"unit": "OptimalForPowerSaving"},
    "parameters": {"EnableAutomaticHostPowerManagement": "true", "HostsInReserve": "1"},
}


@pytest.fixture
def scenario() -> Scenario:
    return Scenario()


@pytest.fixture
def endpoint(scenario) -> WorkerEndpoint:
    world = scenario.world
    return WorkerEndpoint(world.scheduler, world.inventory, scenario.balancer, NOBODY)


def test_an_agent_reports_how_far_a_migration_is(scenario, endpoint):
    scenario.round()
    [asked] = scenario.target.asked
    names = {"cluster": "default", "migration": asked.id}
    assert endpoint.report_migration(CONTEXT, **names, state="started", destination="b") is True
    [under_way] = scenario.balancing.status("default").under_way
    assert (under_way.id, under_way.destination) == (asked.id, "b")
    assert endpoint.report_migration(CONTEXT, **names, state="failed", reason="x" * 5000) is True
    assert endpoint.report_migration(CONTEXT, **names, state="done") is False
    assert len(scenario.balancing.status("default").waiting["v2"].why) == 1000


@pytest.mark.parametrize(
    ("method", "arguments", "complaint"),
    [
        ("report_migration", {"migration": "m", "state": "lost"},
         "state: expected one of started, done, refused, failed, got 'lost'"),
        ("report_migration", {"state": "done"}, "migration"),
        ("report_migration", {"migration": "m", "state": ["done"]}, "state"),
        ("report_migration", {"migration": "m", "state": "failed", "reason": 1},
         "reason: expected a text, got int"),
        ("report_migration", {"migration": "m", "state": "started", "destination": []},
         "destination"),
        ("report_power", {"state": "done"}, "action"),
        ("report_power", {"cluster": "x", "action": "p", "state": "done"}, "no cluster 'x'"),
        ("report_power", {"action": "p", "state": "up"},
         "state: expected one of started, done, refused, failed, got 'up'"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(endpoint, method, arguments, complaint):
    with pytest.raises(RequestError, match=complaint):
        getattr(endpoint, method)(CONTEXT, **{"cluster": "default"} | arguments)


def test_an_agent_reports_how_far_a_power_action_is(scenario, endpoint):
    scenario.attach(SAVING)
    scenario.put("c")
    scenario.put("d")
    managed = {"power": {"is_managed": True}}
    scenario.hosts["c"] |= managed
    scenario.hosts["d"] |= managed
    scenario.round()
    [asked] = scenario.power.asked
    names = {"cluster": "default", "action": asked.id}
    assert endpoint.report_power(CONTEXT, **names, state="started") is True
    found = scenario.balancing.status("default")
    assert found.power_under_way.id == asked.id
    assert found.power_under_way.begun_at_s is not None
    assert endpoint.report_power(CONTEXT, **names, state="failed", reason="x" * 5000) is True
    assert endpoint.report_power(CONTEXT, **names, state="done") is False
    waiting = scenario.balancing.status("default").power_waiting[asked.host]
    assert len(waiting.why) == 1000
