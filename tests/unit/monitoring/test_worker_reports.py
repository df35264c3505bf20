"""A worker's report is made of what the worker says of itself, and bounded."""

import msgspec

from scheduler_worker.model.host_records import HostCounts
from scheduler_worker.model.worker_reports import (
    Lately,
    LockTimes,
    PartReport,
    Spread,
    WorkerReport,
)
from scheduler_worker.monitoring.health import Load
from scheduler_worker.monitoring.reports import MAX_CLUSTERS, report_of

HOLDS = {"leases": ["east"], "feed": True, "tuning": ["east"], "balancing": []}


def cluster(**figures):
    plain = {"in_line": 0, "oldest_s": 0.0, "waiting_for_pending": 0, "promises": 0}
    return {**plain, "token": None, "held_s": None, **figures}


def report(load=None, alarms=(), lately=None, lock_times=None, **status) -> WorkerReport:
    plain = {"uptime_s": 7.0, "missing": [], "holds": HOLDS, "bus": {}, "clusters": {}}
    return report_of(
        {**plain, **status},
        load or Load(),
        tuning_alarms=alarms,
        unit_alarms=alarms,
        contests=(),
        known_clusters=None,
        lately=lately or Lately(),
        lock_times=lock_times or {},
    )


def test_figures_are_those_of_the_worker():
    found = report(
        Load(
            running=3,
            waiting=2,
            unwritten_decisions=5,
            feed={"c": PartReport(lag_s=1.5, hosts=4)},
        ),
        bus={"consuming": False, "slots": 8, "queue_delay_s": 0.25, "problem": "cannot reach it"},
        clusters={"east": cluster(in_line=2, promises=9, held_s=0.1)},
        missing=["the bus cannot reach it"],
        lock_times={"east": LockTimes(wait=Spread({3: 1}))},
    )
    assert (found.running, found.waiting, found.slots, found.lag_s) == (3, 2, 8, 0.25)
    assert not found.is_consuming
    assert (found.uptime_s, found.unwritten_decisions) == (7.0, 5)
    assert found.holds.leases == ("east",)
    assert found.missing == ("the bus cannot reach it",)
    [east] = found.clusters
    assert (east.name, east.in_line, east.reservations, east.held_s) == ("east", 2, 9, 0.1)
    assert east.times.wait.total == 1
    assert found.feed["c"].hosts == 4


def test_a_server_need_not_say_whether_it_consumes():
    assert report(bus={"running": 0}).is_consuming
    assert not report(bus={"problem": "cannot reach it"}).is_consuming


def test_the_busiest_clusters_are_reported():
    clusters = {f"c{number}": cluster(promises=number) for number in range(200)}
    clusters["c7"] = cluster(in_line=1)
    clusters["c8"] = cluster(held_s=0.0)
    names = [each.name for each in report(clusters=clusters).clusters]
    assert len(names) == MAX_CLUSTERS
    assert names[:3] == ["c7", "c8", "c199"]


def test_the_clusters_with_most_hosts_down_are_reported():
    hosts = {f"c{number}": HostCounts(down=number) for number in range(MAX_CLUSTERS + 5)}
    found = report(Load(hosts=hosts)).hosts or {}
    assert min(each.down for each in found.values()) == 5
    assert len(found) == MAX_CLUSTERS


def test_its_size_is_bounded_and_secrets_are_left_out():
    many = [f"c{number}" for number in range(1000)]
    times = LockTimes(*[Spread(dict.fromkeys(range(71), 12345))] * 2)
    found = report(
        alarms=["x" * 10_000] * 100,
        missing=["redis://worker:hunter2@redis:6379 does not answer"],
        holds={"leases": many, "feed": False, "tuning": many, "balancing": many},
        clusters={each: cluster() for each in many},
        lately=Lately(errors={f"method{number}: Error": number for number in range(1000)}),
        lock_times=dict.fromkeys(many, times),
    )
    assert len(msgspec.json.encode(found)) < 100_000  # with every length in every cluster
    assert "hunter2" not in found.missing[0]
    assert "method999: Error" in found.lately.errors
