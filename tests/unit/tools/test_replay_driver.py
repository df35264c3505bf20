"""The driver against a small worker that places first-fit."""

import threading

import pytest

from scheduler_worker.errors import ClusterLockTimeout, StateUnavailable
from tests.support.patience import SOON_S


def stream_of(hosts, arrivals, aggregates=()):
    from replay.streams import Stream

    return Stream(hosts, list(aggregates), arrivals, len(arrivals))


def driver_of(client, stream, **settings):
    from replay.driver import Driver, Settings

    return Driver(client, stream, Settings(**{"clients": 1, **settings}))


def test_every_request_is_placed_or_refused(first_fit, host, arrival):
    worker = first_fit()
    stream = stream_of([host(0), host(1)], [arrival(n, at_s=n) for n in range(10)])
    driver = driver_of(worker, stream, clients=3, batch=2)
    outcome = driver.run()
    assert (outcome.placed, outcome.refused, outcome.decided) == (8, 2, 10)
    assert len(outcome.latencies_s) == 10
    assert len(driver.books) == 8


def test_after_the_end_everything_is_reported_and_no_reservation_is_left(first_fit, host, arrival):
    worker = first_fit()
    stream = stream_of([host()], [arrival(n) for n in range(3)])
    driver_of(worker, stream).run()
    assert worker.reserved == {}
    assert worker.hosts["host-0"]["vcpus_used"] == 3
    assert len(worker.hosts["host-0"]["instances"]) == 3


def test_an_instance_ends_before_the_next_arrival_and_makes_room(first_fit, host, arrival):
    worker = first_fit()
    used_before = iter([0, 4, 0])
    select = worker.select_destinations

    def once_reported(spec, uuids):
        used = next(used_before)
        worker.wait_until(lambda: worker.hosts["host-0"].get("vcpus_used", 0) == used)
        return select(spec, uuids)

    worker.select_destinations = once_reported
    stream = stream_of(
        [host()], [arrival(0, 0.0, 10.0, vcpus=4), arrival(1, 9.0), arrival(2, 10.0, vcpus=4)]
    )
    driver = driver_of(worker, stream, report_s=0.01)
    outcome = driver.run()
    assert (outcome.placed, outcome.refused) == (2, 1)
    assert [book.use.vcpus for book in driver.books] == [4]


def test_an_unreported_reservation_is_released_when_its_instance_ends(first_fit, host, arrival):
    worker = first_fit()
    stream = stream_of([host()], [arrival(0, 0.0, 1.0), arrival(1, 2.0)])
    driver_of(worker, stream, report_s=60.0).run()
    assert worker.released == ["vm-0"]
    assert worker.hosts["host-0"]["vcpus_used"] == 1


def test_a_group_is_sent_with_its_members_and_hosts_so_far(first_fit, host, arrival):
    worker = first_fit()
    group = {"uuid": "g", "policy": "anti-affinity", "members": [], "hosts": []}
    arrivals = [
        arrival(0, 0.0, 5.0, instance_group=group),
        arrival(1, 1.0, instance_group=group),
        arrival(2, 6.0, instance_group=group),
    ]
    driver_of(worker, stream_of([host()], arrivals)).run()
    sent = [(s["instance_group"]["members"], s["instance_group"]["hosts"]) for s in worker.specs]
    assert sent == [(["vm-0"], []), (["vm-0", "vm-1"], ["h0"]), (["vm-1", "vm-2"], ["h0"])]
    assert group["members"] == []
    assert [spec["instance_uuid"] for spec in worker.specs] == ["vm-0", "vm-1", "vm-2"]


def test_the_refusal_with_the_most_rejecting_filters_is_explained(first_fit, host, arrival):
    worker = first_fit()

    def explain(spec, instance_uuids=None, *, limit=None):
        count = spec["flavor"]["vcpus"]
        steps = [{"name": f"F{n}", "hosts_in": 10, "hosts_out": n // count} for n in range(count)]
        return {"filters": steps, "verdicts": [], "chosen": None}

    worker.explain = explain
    arrivals = [arrival(0, vcpus=7), arrival(1, vcpus=9), arrival(2, vcpus=8)]
    outcome = driver_of(worker, stream_of([host()], arrivals)).run()
    assert outcome.refused == 3
    assert outcome.refused_spec["flavor"]["vcpus"] == 9
    assert len(outcome.explanation["filters"]) == 9


def test_an_error_is_counted_and_its_reservation_released(first_fit, host, arrival):
    worker = first_fit()

    def fail(spec, uuids):
        raise ClusterLockTimeout("too late")

    worker.select_destinations = fail
    outcome = driver_of(worker, stream_of([host()], [arrival(0)])).run()
    assert outcome.failed == {"ClusterLockTimeout": 1}
    assert outcome.first_failure == "too late"
    assert worker.released == ["vm-0"]


def test_agents_that_cannot_report_end_the_replay(first_fit, host, arrival):
    worker = first_fit()
    update, calls = worker.update_hosts, []

    def broken(hosts):
        calls.append(hosts)
        if len(calls) > 1:
            raise ConnectionError("the worker is gone")
        return update(hosts)

    worker.update_hosts = broken
    stream = stream_of([host()], [arrival(n) for n in range(2)])
    with pytest.raises(ConnectionError, match="the worker is gone"):
        driver_of(worker, stream, batch=1).run()


def test_agents_that_persist_report_every_host_after_a_failure(first_fit, host, arrival):
    worker = first_fit()
    update, calls = worker.update_hosts, []

    def timing_out_once(hosts):
        calls.append(len(hosts))
        if len(calls) == 2:
            raise StateUnavailable("timed out")
        return update(hosts)

    worker.update_hosts = timing_out_once
    stream = stream_of([host(0), host(1)], [arrival(0, at_s=0), arrival(1, at_s=0.5)])
    settings = {"batch": 1, "speed": 1.0, "report_s": 0.01, "persists": True}
    outcome = driver_of(worker, stream, **settings).run()
    assert outcome.failed == {"StateUnavailable": 1}
    assert calls[:3] == [2, 1, 2]
    assert worker.reserved == {}


def test_a_heartbeat_reports_every_host(first_fit, host, arrival):
    worker = first_fit()
    reported = threading.Event()
    update = worker.update_hosts

    def noticing(hosts):
        if len(worker.updates) > 0 and len(hosts) == 2:
            reported.set()
        return update(hosts)

    worker.update_hosts = noticing
    select = worker.select_destinations

    def waiting(spec, uuids):
        assert reported.wait(SOON_S)
        return select(spec, uuids)

    worker.select_destinations = waiting
    stream = stream_of([host(0), host(1)], [arrival(0)])
    driver_of(worker, stream, report_s=0.001, heartbeat_s=0.0).run()
    assert reported.is_set()


def test_speed_makes_arrivals_wait_for_their_moment(first_fit, host, arrival):
    worker = first_fit()
    stream = stream_of([host()], [arrival(0, 0.0), arrival(1, 100.0)])
    outcome = driver_of(worker, stream, speed=1000.0).run()
    assert outcome.placed == 2
    assert outcome.elapsed_s >= 0.1


def test_zones_are_awaited(first_fit, host, arrival):
    worker = first_fit()
    answers = iter([None, None, "h0"])
    asked = []

    def explain(spec, instance_uuids=None, *, limit=None):
        asked.append(spec["availability_zone"])
        return {"chosen": next(answers)}

    worker.explain = explain
    zone = {"id": 1, "name": "z", "hosts": ["h0"], "metadata": {"availability_zone": "az1"}}
    driver_of(worker, stream_of([host()], [arrival(0)], [zone])).run()
    assert asked == ["az1", "az1", "az1"]
    assert worker.aggregates == [zone]
