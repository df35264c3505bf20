"""Destinations of VMs that a balance moves."""

import pytest

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.ledgers import Progress
from tests.support.balancers import LIMITS, Scenario, busy_host, even_load
from tests.support.services import request


def roomy_d() -> Scenario:
    """With a host d that is busy and has most memory, which is all that weighs."""
    found = Scenario()
    found.put("d", y1=300)
    found.hosts["d"]["memory_mb"] = 1_000_000
    found.report()
    found.attach(even_load(version=2) | {"weights": [{"unit": "RAMWeigher"}]})
    return found


@pytest.fixture
def scenario() -> Scenario:
    """v2 is to move from a to b; c and d are not among its hosts, and d has most room."""
    found = roomy_d()
    while found.round() != ["v2"]:
        pass
    assert found.target.asked[0].candidates == ("b", "a")
    return found


def test_a_migration_goes_to_the_hosts_that_the_balance_named(scenario):
    other_worker = scenario.beside()
    assert other_worker.place("v2", ignore_hosts=["a"]) == ["b"]
    assert other_worker.place("new") == ["d"], "others go where they would"


def test_no_other_host_will_do(scenario):
    with pytest.raises(NoValidHost):
        scenario.world.ask("v2", ignore_hosts=["a", "b"])
    with pytest.raises(NoValidHost):
        scenario.world.ask("v2", only_hosts=["c", "d"])


def test_a_reservation_elsewhere_is_not_answered_again():
    scenario = roomy_d()
    assert scenario.world.place("v2") == ["d"]
    scenario.put("d")  # an operator gave that migration up, and the host shall take no part
    scenario.hosts["d"]["virt"] = None
    while "v2" not in scenario.round():
        pass
    assert scenario.world.place("v2", ignore_hosts=["a"]) == ["b"]


def test_an_explanation_knows_it(scenario):
    found = scenario.world.scheduler.explain(request("v2")).clusters["default"]
    rejected = {each.host for each in found.verdicts if each.rejected_by}
    assert rejected == {"c", "d"}


def test_it_ends_with_the_migration(scenario):
    asked = scenario.target.asked[0]
    scenario.balancer.report("default", asked.id, Progress(state="refused", why="no host"))
    assert scenario.world.place("v2") == ["d"]


def test_it_ends_when_nobody_says_how_the_migration_ended(scenario):
    scenario.world.clock.advance(LIMITS.begin_within_s)
    scenario.report()
    assert scenario.world.place("v2") == ["d"]


def test_the_vm_stays_in_its_cluster(scenario):
    roomy = busy_host("z", cluster="other") | {"memory_mb": 10_000_000}
    scenario.world.report(roomy)
    other_worker = scenario.beside()
    assert other_worker.place("new") == ["z"]
    assert other_worker.place("v2", ignore_hosts=["a"]) == ["b"]


def test_only_hosts_of_a_request_limit_it_without_any_migration():
    scenario = Scenario()
    scenario.attach(even_load(version=2))
    assert scenario.world.place("x", only_hosts=["c"]) == ["c"]
    with pytest.raises(NoValidHost):
        scenario.world.ask("y", only_hosts=[])
