"""The driver of replays against a small worker that places first-fit."""

import threading

import pytest
from replay.driver import Driver, Settings
from replay.streams import Stream

from scheduler_worker.errors import ClusterLockTimeout, StateUnavailable
from tests.support.first_fit import FirstFit, arrival
from tests.support.patience import SOON_S, eventually
from tests.support.services import host


@pytest.fixture
def worker():
    return FirstFit()


def driver_of(client, hosts, arrivals, aggregates=(), **settings):
    stream = Stream(hosts, list(aggregates), arrivals, len(arrivals))
    return Driver(client, stream, Settings(**{"clients": 1, **settings}))


def test_every_request_is_placed_or_refused(worker):
    arrivals = [arrival(n, at_s=n) for n in range(10)]
    driver = driver_of(worker, [host("h0"), host("h1")], arrivals, clients=3, batch=2)
    outcome = driver.run()
    assert (outcome.placed, outcome.refused, outcome.decided) == (8, 2, 10)
    assert (len(outcome.latencies_s), len(driver.books)) == (10, 8)
    # After the end everything is reported, and no reservation is left.
    assert worker.reserved == {}
    assert [each["vcpus_used"] for each in worker.hosts.values()] == [4, 4]
    assert [len(each["instances"]) for each in worker.hosts.values()] == [4, 4]


def test_an_instance_ends_before_the_next_arrival_and_makes_room(worker):
    used_before = iter([0, 4, 0])
    select = worker.select_destinations

    def once_reported(spec, uuids):
        used = next(used_before)
        eventually(lambda: worker.hosts["uuid-h0"].get("vcpus_used", 0) == used)
        return select(spec, uuids)

    worker.select_destinations = once_reported
    arrivals = [arrival(0, 0.0, 10.0, vcpus=4), arrival(1, 9.0), arrival(2, 10.0, vcpus=4)]
    driver = driver_of(worker, [host("h0")], arrivals, report_s=0.01)
    outcome = driver.run()
    assert (outcome.placed, outcome.refused) == (2, 1)
    assert [book.use.vcpus for book in driver.books] == [4]


def test_an_unreported_reservation_is_released_when_its_instance_ends(worker):
    driver_of(worker, [host("h0")], [arrival(0, 0.0, 1.0), arrival(1, 2.0)], report_s=60.0).run()
    assert worker.released == ["vm-0"]
    assert worker.hosts["uuid-h0"]["vcpus_used"] == 1


def test_a_group_is_sent_with_its_members_and_hosts_so_far(worker):
    group = {"uuid": "g", "policy": "anti-affinity", "members": [], "hosts": []}
    times = [(0.0, 5.0), (1.0, None), (6.0, None)]
    arrivals = [arrival(n, *each, instance_group=group) for n, each in enumerate(times)]
    driver_of(worker, [host("h0")], arrivals).run()
    sent = [(s["instance_group"]["members"], s["instance_group"]["hosts"]) for s in worker.specs]
    assert sent == [(["vm-0"], []), (["vm-0", "vm-1"], ["h0"]), (["vm-1", "vm-2"], ["h0"])]
    assert group["members"] == []
    assert [spec["instance_uuid"] for spec in worker.specs] == ["vm-0", "vm-1", "vm-2"]


def test_an_error_is_counted_and_its_reservation_released(worker):
    def fail(spec, uuids):
        raise ClusterLockTimeout("too late")

    worker.select_destinations = fail
    outcome = driver_of(worker, [host("h0")], [arrival(0)]).run()
    assert (outcome.failed, outcome.first_failure) == ({"ClusterLockTimeout": 1}, "too late")
    assert worker.released == ["vm-0"]


def failing_at_the_second(worker, error):
    """The sizes of the reports so far; the second one is refused with an error."""
    update, sizes = worker.update_hosts, []

    def failing(hosts):
        sizes.append(len(hosts))
        if len(sizes) == 2:
            raise error
        return update(hosts)

    worker.update_hosts = failing
    return sizes


def test_agents_that_cannot_report_end_the_replay(worker):
    failing_at_the_second(worker, ConnectionError("the worker is gone"))
    with pytest.raises(ConnectionError, match="the worker is gone"):
        driver_of(worker, [host("h0")], [arrival(n) for n in range(2)], batch=1).run()


def test_agents_that_persist_report_every_host_after_a_failure(worker):
    sizes = failing_at_the_second(worker, StateUnavailable("timed out"))
    arrivals = [arrival(0, at_s=0), arrival(1, at_s=0.5)]
    settings = {"batch": 1, "speed": 1.0, "report_s": 0.01, "persists": True}
    outcome = driver_of(worker, [host("h0"), host("h1")], arrivals, **settings).run()
    assert outcome.failed == {"StateUnavailable": 1}
    assert sizes[:3] == [2, 1, 2]
    assert worker.reserved == {}


def test_a_heartbeat_reports_every_host(worker):
    reported = threading.Event()
    update, select = worker.update_hosts, worker.select_destinations

    def noticing(hosts):
        if worker.hosts and len(hosts) == 2:
            reported.set()
        return update(hosts)

    def waiting(spec, uuids):
        assert reported.wait(SOON_S)
        return select(spec, uuids)

    worker.update_hosts, worker.select_destinations = noticing, waiting
    settings = {"report_s": 0.001, "heartbeat_s": 0.0}
    driver_of(worker, [host("h0"), host("h1")], [arrival(0)], **settings).run()
    assert reported.is_set()


def test_speed_makes_arrivals_wait_for_their_moment(worker):
    arrivals = [arrival(0, 0.0), arrival(1, 100.0)]
    outcome = driver_of(worker, [host("h0")], arrivals, speed=1000.0).run()
    assert outcome.placed == 2
    assert outcome.elapsed_s >= 0.1


def test_zones_are_awaited(worker):
    answers, asked = iter([None, None, "h0"]), []

    def explain(spec, instance_uuids=None, *, limit=None):
        asked.append(spec["availability_zone"])
        return {"chosen": next(answers)}

    worker.explain = explain
    zone = {"id": 1, "name": "z", "hosts": ["h0"], "metadata": {"availability_zone": "az1"}}
    driver_of(worker, [host("h0")], [arrival(0)], [zone]).run()
    assert asked == ["az1", "az1", "az1"]
    assert worker.aggregates == [zone]
