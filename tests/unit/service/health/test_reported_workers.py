"""Reports of workers in the shared state, read by this and by other versions."""

from typing import Any

import msgspec
import pytest

from scheduler_worker.errors import Conflict, NotFound, RequestError, StateUnavailable
from scheduler_worker.model.worker_reports import (
    ClusterReport,
    Holds,
    Lately,
    LockTimes,
    PartReport,
    Spread,
    WorkerFacts,
    WorkerReport,
)
from scheduler_worker.ports import Put, Seen, Transaction
from scheduler_worker.remedies import DRAINED
from scheduler_worker.service.state import presence
from scheduler_worker.service.state.presence import (
    LASTS_S,
    LOST_S,
    RENEW_S,
    REPORT_LASTS_S,
    Presence,
    ReportedWorkers,
    WorkerHealth,
)
from tests.support.interrupted import raising
from tests.support.services import World

FULL = WorkerReport(
    uptime_s=5.0,
    missing=("the bus is away",),
    slots=4,
    lag_s=0.5,
    holds=Holds(leases=("east",), feed=True),
    clusters=(ClusterReport(name="east", times=LockTimes(Spread({3: 1}), Spread({4: 2}))),),
    feed={"cell1": PartReport(lag_s=1.0)},
    lately=Lately(placed=3, durations=Spread({12: 3}), errors={"update_hosts: RequestError": 1}),
)


def facts(name: str = "a", **more) -> WorkerFacts:
    return WorkerFacts(**{"name": name, "version": "1", "topic": "t"} | more)


def worker(world: World, name: str = "a", report: WorkerReport = FULL, **more) -> Presence:
    return Presence(world.state, facts(name, **more), lambda: report)


def there(world: World) -> list[WorkerFacts]:
    return [each.facts for each in ReportedWorkers(world.state).read() if not each.is_lost]


def put(world: World, scope: str, record: object) -> None:
    """As a worker of another version writes it."""
    world.state.write(scope, [Transaction([Put("w:a", msgspec.json.encode(record))])])


def test_a_report_is_read_whole_with_its_age(world):
    worker(world).renew()
    now_s = world.state.changes(presence.SCOPE, Seen()).now_s
    reader = ReportedWorkers(world.state)
    [found] = reader.read()
    assert found == WorkerHealth(
        facts(), msgspec.structs.replace(FULL, at_s=now_s, facts=facts()), 0.0
    )
    world.clock.advance(LOST_S)
    assert not reader.read()[0].is_lost
    world.clock.advance(1.0)
    [found] = reader.read()
    assert (found.age_s, found.state) == (LOST_S + 1.0, "lost")


def test_a_worker_that_is_killed_is_in_view_for_a_day_and_one_that_stops_is_not(world):
    killed, other = worker(world, "a"), worker(world, "b")
    assert killed.renew() == RENEW_S
    world.clock.advance(LASTS_S + 1)
    other.renew()
    assert [(each.name, each.state) for each in ReportedWorkers(world.state).read()] == [
        ("a", "lost"),
        ("b", "not ready"),
    ]
    assert there(world) == [facts("b")]
    worker(world, "b").stop()
    assert there(world) == [facts("b")], "the one that stopped never started"
    other.start()
    other.stop()
    assert [each.name for each in ReportedWorkers(world.state).read()] == ["a"]
    world.clock.advance(REPORT_LASTS_S)
    assert ReportedWorkers(world.state).read() == []
    assert world.state.changes(presence.REPORTS_SCOPE, Seen()).entries == []


def test_a_lost_worker_is_dismissed_and_may_come_back(world):
    one = worker(world)
    one.renew()
    reader = ReportedWorkers(world.state)
    with pytest.raises(Conflict, match="'a' reports"):
        reader.forget("a")
    world.clock.advance(LOST_S + 1)
    with pytest.raises(NotFound):
        reader.forget("b")
    reader.forget("a")
    assert reader.read() == []
    one.renew()
    assert [each.state for each in reader.read()] == ["not ready"]


def test_one_that_comes_back_while_it_is_dismissed_stays(world, monkeypatch):
    one = worker(world)
    one.renew()
    world.clock.advance(LOST_S + 1)
    read = ReportedWorkers.read

    def overtaken(self: ReportedWorkers) -> list[WorkerHealth]:
        found = read(self)
        one.renew()
        return found

    reader = ReportedWorkers(world.state)
    monkeypatch.setattr(ReportedWorkers, "read", overtaken)
    with pytest.raises(Conflict):
        reader.forget("a")
    monkeypatch.undo()
    assert there(world) == [facts()]


def test_the_others_know_that_a_worker_is_drained(world):
    one = worker(world)
    for is_drained in (True, False):
        one.set_drained(is_drained)
        one.renew()
        assert there(world) == [facts(is_drained=is_drained)] == [one.facts]


def test_the_last_worker_that_takes_requests_is_not_drained(world):
    one, other = worker(world, "a"), worker(world, "b")
    with pytest.raises(RequestError, match="no other worker"):
        one.drain()
    one.renew()
    other.renew()
    one.drain()
    assert there(world) == [facts("a", is_drained=True), facts("b")]
    with pytest.raises(RequestError, match="no other worker"):
        other.drain()
    worker(world, "c", topic="another").renew()
    dry = worker(world, "d", is_dry_run=True)
    dry.renew()
    with pytest.raises(RequestError, match="no other worker"):
        other.drain()


def test_a_lost_worker_takes_no_requests_from_one_that_is_drained(world):
    one, lost = worker(world, "a"), worker(world, "b")
    lost.renew()
    world.clock.advance(LOST_S + 1)
    with pytest.raises(RequestError, match="no other worker"):
        one.drain()


def test_of_two_that_are_drained_at_once_one_goes_on(world, monkeypatch):
    one, other = worker(world, "a"), worker(world, "b")
    one.renew()
    other.renew()
    find = Presence._another

    def overtaken(self: Presence) -> Any:
        found = find(self)
        monkeypatch.setattr(Presence, "_another", find)
        other.drain()
        return found

    monkeypatch.setattr(Presence, "_another", overtaken)
    with pytest.raises(RequestError, match="no other worker"):
        one.drain()
    assert there(world) == [facts("a"), facts("b", is_drained=True)]


def test_an_outage_is_raised_to_who_reads(world):
    one = worker(world)
    world.state.changes = raising(StateUnavailable("away"))
    assert one.renew() == RENEW_S
    with pytest.raises(StateUnavailable):
        ReportedWorkers(world.state).read()


# Rolling upgrades


def test_an_older_version_that_knows_of_no_reports_lists_newer_workers(world):
    """It reads the scope of the workers alone, whose records have what they always had."""
    worker(world).renew()
    [entry] = world.state.changes(presence.SCOPE, Seen()).entries
    assert entry.key == "w:a"
    assert msgspec.json.decode(entry.value) == {
        "name": "a",
        "version": "1",
        "topic": "t",
        "is_claiming": False,
        "is_feeding": False,
        "is_dry_run": False,
        "is_drained": False,
    }


def test_the_report_of_a_newer_worker_is_read_as_far_as_it_is_known(world):
    worker(world).renew()
    newer = msgspec.to_builtins(FULL) | {"at_s": world.clock.time_s(), "mood": "fine"}
    newer["clusters"][0]["colour"] = "green"
    put(world, presence.REPORTS_SCOPE, newer)
    [found] = ReportedWorkers(world.state).read()
    assert found.report is not None
    assert found.report.clusters == FULL.clusters


def test_a_report_with_less_has_defaults(world):
    worker(world).renew()
    put(world, presence.REPORTS_SCOPE, {"at_s": world.clock.time_s(), "uptime_s": 9.0})
    [found] = ReportedWorkers(world.state).read()
    assert found.report is not None
    assert (found.report.uptime_s, found.report.clusters) == (9.0, ())


def test_one_that_cannot_be_read_is_left_out_and_those_of_others_are_not(world):
    worker(world).renew()
    worker(world, "b").renew()
    put(world, presence.REPORTS_SCOPE, {"uptime_s": "a while"})
    first, second = ReportedWorkers(world.state).read()
    assert first.report is None
    assert second.report is not None


@pytest.mark.parametrize(
    ("given", "report", "state"),
    [
        ({}, {}, "serving"),
        ({}, {"missing": ("the bus is away",)}, "not ready"),
        ({"is_drained": True}, {"missing": (DRAINED,)}, "drained"),
        ({"is_drained": True}, {"running": 1}, "draining"),
        ({"is_drained": True}, {"waiting": 1}, "draining"),
        ({}, {"missing": (DRAINED,)}, "serving"),  # it has been resumed since
        ({"is_dry_run": True}, {}, "dry run"),
    ],
)
def test_states(given, report, state):
    assert WorkerHealth(facts(**given), WorkerReport(**report)).state == state
