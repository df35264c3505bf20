"""Balancing of clusters: by one worker at a time, no move twice, despite failures."""

import logging
from functools import partial

import pytest

from scheduler_worker import events
from scheduler_worker.cli.balance import text_of
from scheduler_worker.errors import BusUnavailable, Conflict, MigrationRefused
from scheduler_worker.model.host_records import HostCounts
from scheduler_worker.model.ledgers import MigrationLimits, Progress
from scheduler_worker.monitoring.health import call_in_thread
from scheduler_worker.ports import Put, Transaction
from tests.support.balancers import INTERVAL_S, LIMITS, Scenario, even_load
from tests.support.interrupted import before_next, raising
from tests.support.patience import SOON_S
from tests.support.services import host

DONE, STARTED = Progress(state="done"), Progress(state="started", destination="b")


@pytest.fixture
def scenario() -> Scenario:
    return Scenario()


def report(scenario: Scenario, progress: Progress, number: int = -1) -> bool:
    """What the agent says of a migration that it was asked for, to another worker."""
    return scenario.another().report("default", scenario.target.asked[number].id, progress)


def first_asked(scenario: Scenario) -> str:
    """The first VM that is asked for once the load has lasted long enough."""
    found: list[str] = []
    while not found:
        found = scenario.round()
    return found[0]


def test_an_overloaded_host_is_relieved(scenario):
    assert first_asked(scenario) == "v2"
    [asked] = scenario.target.asked
    assert (asked.source, asked.candidates, asked.policy) == ("a", ("b", "a"), "spread@1")
    assert "80 % and more is too much" in asked.reason
    report(scenario, STARTED)
    scenario.moved("v2", "a", "b")
    assert report(scenario, DONE)
    assert not report(scenario, DONE)
    assert not report(scenario, Progress(state="failed", why="late"))
    assert scenario.status()["waiting"] == {}
    assert [scenario.round() for _ in range(10)] == [[]] * 10, "nothing else, and nothing back"
    assert scenario.observed.of(events.MIGRATIONS) == {("default", "done"): 1}


def test_a_vm_under_way_and_its_hosts_are_left_alone(scenario):
    first_asked(scenario)
    scenario.put("c", x1=330, x2=60)  # now another host is busy too
    report(scenario, STARTED)
    for _ in range(3):
        assert scenario.round() == [], "the only host with room takes part in the first"
    [under_way] = scenario.status()["under_way"]
    assert (under_way["vm"], under_way["destination"]) == ("v2", "b")


def test_a_cluster_moves_so_many_at_a_time():
    scenario = Scenario(limits=MigrationLimits(most=1, begin_within_s=10_000))
    first_asked(scenario)
    scenario.put("c", x1=330, x2=60)
    for _ in range(3):
        assert scenario.round() == []
    considered = scenario.status()["last_round"]["considered"]
    assert "1 migrations are under way" in considered[0]["outcome"]
    report(scenario, Progress(state="failed", why="cancelled"))
    assert scenario.round() != []


def test_a_vm_that_must_not_move_is_never_asked_for(scenario):
    pinned = {"cpu_percent": 60, "migratable": False}
    scenario.put("a", v1=210, v2=pinned, v3={"cpu_percent": 60, "exclusive_cpus": [0]})
    for _ in range(10):
        assert not {"v2", "v3"} & {*scenario.round()}


def test_the_next_proposal_is_tried_where_the_first_is_refused_at_once(scenario):
    scenario.target.failures["v2"] = MigrationRefused("nobody listens")
    assert scenario.round() == ["v2", "v3"]
    [first, second] = scenario.status()["last_round"]["considered"]
    assert first["outcome"] == "refused: nobody listens"
    assert second["outcome"] == "asked for"
    status = scenario.status()
    assert [each["vm"] for each in status["under_way"]] == ["v3"]
    assert status["waiting"]["v2"]["why"] == "nobody listens"
    assert scenario.observed.of(events.MIGRATIONS) == {("default", "refused"): 1}


def test_of_many_destinations_the_record_has_the_first(scenario):
    for number in range(8):
        scenario.put(f"idle{number}")
    first_asked(scenario)
    [shown] = scenario.status()["last_round"]["considered"]
    assert (len(shown["destinations"]), shown["more_destinations"]) == (5, 4)
    assert len(scenario.target.asked[0].candidates) == 10, "all may be chosen all the same"
    assert " and 4 more: " in text_of(scenario.shown()).splitlines()[1]


def test_an_unknown_result_counts_as_under_way_until_it_is_overdue(scenario):
    scenario.target.failures["v2"] = BusUnavailable("the broker is away")
    assert first_asked(scenario) == "v2"
    assert [each["vm"] for each in scenario.status()["under_way"]] == ["v2"]
    assert scenario.observed.of(events.TARGET_FAILURES) == {"default": 1}
    assert scenario.round() == []
    scenario.target.failures.clear()
    assert scenario.round() == ["v3"], "the other one waits now"
    assert scenario.observed.of(events.MIGRATIONS) == {("default", "overdue"): 1}


def test_an_overdue_migration_is_withdrawn_before_it_counts_as_failed(scenario):
    first_asked(scenario)
    scenario.round()
    assert scenario.target.withdrawn == []
    scenario.round()
    assert scenario.target.withdrawn == ["v2"]
    assert scenario.observed.of(events.MIGRATIONS) == {("default", "overdue"): 1}


def test_a_begun_migration_is_not_withdrawn_at_the_time_by_which_it_had_to_begin(scenario):
    first_asked(scenario)
    scenario.round()
    scenario.target.known["v2"] = STARTED  # it begins just in time
    scenario.round(after_s=LIMITS.begin_within_s)
    assert scenario.target.withdrawn == []
    assert [each["vm"] for each in scenario.status()["under_way"]] == ["v2"]
    scenario.round(after_s=LIMITS.end_within_s)
    assert scenario.target.withdrawn == ["v2"], "it has begun and did not end"
    assert scenario.observed.of(events.MIGRATIONS) == {("default", "overdue"): 1}


def test_while_the_target_is_away_nothing_counts_as_failed_that_may_still_begin(scenario):
    first_asked(scenario)
    scenario.target.is_away = True
    for _ in range(5):
        assert scenario.round() == []
    assert [each["vm"] for each in scenario.status()["under_way"]] == ["v2"]
    assert scenario.observed.of(events.MIGRATIONS) == {}
    assert scenario.observed.of(events.TARGET_FAILURES)["default"] >= 5
    scenario.target.is_away = False
    scenario.target.known["v2"] = DONE
    scenario.round()
    assert scenario.observed.of(events.MIGRATIONS) == {("default", "done"): 1}


def test_reports_show_that_a_migration_is_done(scenario):
    """Some targets never answer; a VM on two hosts has not arrived."""
    first_asked(scenario)
    scenario.put("b", w1=40, v2={"cpu_percent": 60, "is_changing": True})
    scenario.round()
    assert scenario.observed.of(events.MIGRATIONS) == {}
    scenario.moved("v2", "a", "b")
    scenario.round()
    assert scenario.status()["under_way"] == []
    assert scenario.observed.of(events.MIGRATIONS) == {("default", "done"): 1}


@pytest.mark.parametrize("is_reported", [True, False], ids=["reported", "asked"])
def test_a_vm_whose_migration_failed_waits_and_it_is_said_why(scenario, is_reported):
    first_asked(scenario)
    failure = Progress(state="failed", why="it timed out")
    if is_reported:
        assert report(scenario, failure)
    else:
        scenario.target.known["v2"] = failure
        scenario.round()
    assert scenario.status()["waiting"]["v2"]["why"] == "it timed out"
    assert scenario.observed.of(events.MIGRATIONS) == {("default", "failed"): 1}


# Modes


def test_by_default_a_balance_only_shows_what_it_would_do(caplog):
    scenario = Scenario(mode="dry_run")
    caplog.set_level(logging.INFO)
    for _ in range(4):
        assert scenario.round() == []
    [shown] = scenario.status()["last_round"]["considered"]
    assert (shown["vm"], shown["outcome"]) == ("v2", "would be asked for")
    assert "v2 from a to b" in caplog.text
    assert scenario.observed.of(events.PROPOSALS) == {("default", "shown"): 4}
    scenario.balancing.switch("default", "on")
    assert scenario.round() == ["v2"]


def test_on_holds_for_the_policy_under_which_it_was_set():
    scenario = Scenario(mode="dry_run")
    scenario.balancing.switch("default", "on")
    scenario.attach(even_load(version=2))
    assert scenario.status()["mode"] == "on", "a new version is the same policy"
    scenario.attach(even_load("another"))
    status = scenario.status()
    assert (status["mode"], status["is_default"]) == ("dry_run", True)


def test_off_holds_for_every_policy():
    scenario = Scenario(mode="on")
    scenario.balancing.switch("default", "off")
    scenario.attach(even_load("another"))
    status = scenario.status()
    assert (status["mode"], status["is_default"]) == ("off", False)
    assert scenario.round() == []


def test_a_mode_is_for_the_policy_that_is_in_force_when_it_is_written(monkeypatch):
    scenario = Scenario(mode="dry_run")
    other = partial(scenario.attach, even_load("other"))
    before_next(monkeypatch, scenario.world.state, "write", other, scope="default")
    scenario.balancing.switch("default", "on")
    found = scenario.status()
    assert (found["policy"], found["mode"]) == ("other@1", "on")


def test_a_mode_that_another_administrator_sets_meanwhile_stays(monkeypatch):
    scenario = Scenario(mode="dry_run")
    read = scenario.balancing.mode("default")
    other = partial(scenario.balancing.switch, "default", "off")
    before_next(monkeypatch, scenario.world.state, "write", other, scope="default")
    with pytest.raises(Conflict, match="changed in the meantime"):
        scenario.balancing.switch("default", "on", read)
    assert scenario.status()["mode"] == "off"


def test_nothing_is_asked_for_once_it_is_off(scenario, monkeypatch):
    switch_off = partial(scenario.balancing.switch, "default", "off")
    before_next(monkeypatch, scenario.balancer._deps.ledgers, "change", switch_off)
    assert scenario.round() == []
    outcomes = [each["outcome"] for each in scenario.status()["last_round"]["considered"]]
    assert outcomes[-1] == "the cluster has changed meanwhile"


# Turns


def test_two_workers_at_once_ask_for_one_migration(scenario, monkeypatch):
    """A paused worker that still believes in its turn is held back by the ledger."""
    other = scenario.another()

    def overtake():
        scenario.world.clock.advance(2 * INTERVAL_S)
        scenario.report()
        other.run_due()

    before_next(monkeypatch, scenario.balancer._deps.ledgers, "change", overtake)
    scenario.round()
    found = [each.vm for each in scenario.target.asked]
    assert found and len(found) == len(set(found))


# Failures


def test_failures_are_counted_by_cluster(scenario, monkeypatch):
    monkeypatch.setattr(scenario.balancer, "run_cluster", raising(ZeroDivisionError()))
    assert scenario.round() == []
    assert scenario.observed.of(events.BALANCING_FAILURES) == {"default": 1}


@pytest.mark.parametrize("service", [{"disabled": True}, {"forced_down": True}])
def test_a_host_that_takes_no_vms_is_no_destination(scenario, service):
    scenario.put("c")
    for name in "bc":
        scenario.hosts[name]["service"] = service
    assert [scenario.round() for _ in range(4)] == [[]] * 4
    scenario.put("c")
    scenario.hosts["c"]["service"] = None
    assert first_asked(scenario) == "v2"
    assert scenario.target.asked[0].candidates == ("c", "a")


def test_silent_hosts_take_no_part(scenario):
    scenario.put("a", v1=100)
    scenario.round()
    scenario.hosts.pop("b")
    scenario.put("a", v1=200, v2=60, v3=60)
    for _ in range(3):
        scenario.round()
    assert scenario.target.asked == []


def test_seconds_above_the_limit_are_added_up(scenario):
    scenario.put("c")  # not to be relieved: nothing is ever done
    for _ in range(4):
        scenario.round()
    assert scenario.observed.of(events.BUSY)["default"] == 3 * INTERVAL_S


def test_records_of_a_newer_release_are_ignored(scenario):
    scenario.world.state.write("@balancing", [Transaction([Put("z:new", b"?")])])
    scenario.world.state.write("default", [Transaction([Put("b:new", b"?")])])
    assert first_asked(scenario) == "v2"


def test_the_dump_has_turns_ledgers_and_last_rounds_without_a_lock(scenario):
    first_asked(scenario)
    scenario.round()  # begins by reading what the one before has written
    replica = scenario.balancer._fleet.cluster("default")
    with replica.lock, scenario.balancer._records.lock:
        described = call_in_thread(scenario.balancer.describe).result(SOON_S)
    found = described["clusters"]["default"]
    assert described["balancer"] == found["turn"]["worker"]
    assert found["ledger"]["under_way"]["v2"]["source"] == "a"
    assert found["last_round"]["considered"][0]["outcome"] == "asked for"


# Hosts


def test_the_worker_with_the_turn_counts_hosts_by_state(scenario):
    scenario.world.report(
        host("off", power={"state": "down"}),
        host("forced", service={"forced_down": True}),
        host("out", service={"disabled": True, "forced_down": True}),
    )
    scenario.round()
    expected = HostCounts(up=3, disabled=1, asleep=1, down=1)
    assert scenario.balancer.hosts() == {"default": expected}

    other = scenario.another()
    other.run_due()
    assert other.hosts() is None
    scenario.balancer.not_ours("default")
    assert scenario.balancer.hosts() is None


def test_the_worker_with_the_turn_names_machines_that_report_as_one(scenario):
    for uuid in ("u", "v", "u", "v"):
        scenario.world.report(host("twin", uuid=uuid))
    assert scenario.balancer.contests() == []
    scenario.round()
    [text] = scenario.balancer.contests()
    assert text.startswith("host twin is reported with uuid u, v by turns")
    scenario.balancer.not_ours("default")
    assert scenario.balancer.contests() == []
