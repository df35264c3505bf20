"""The replicas of clusters and of the global scope."""

import logging

from msgspec import structs

from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.observer import Observer
from scheduler_worker.ports import Change, Changes, Put, Seen, Transaction, Written
from scheduler_worker.service.state import records
from scheduler_worker.service.state.replica import ClusterReplica, GlobalReplica, HostPlaces
from tests.support.hosts import host_record
from tests.support.services import World, host

WEST = records.CLUSTER + "west"


def cluster(name: str) -> Put:
    return records.put_key(records.CLUSTER + name)


def changes(epoch: str, version: int, *puts: Put, reset: bool = False) -> Changes:
    entries = [Change(put.key, version, put.value) for put in puts]
    return Changes(epoch=epoch, version=version, now_s=0.0, entries=entries, reset=reset)


def test_names_do_not_change_while_they_are_iterated():
    replica = GlobalReplica()
    replica.apply(changes("e", 1, cluster("west"), cluster("east"), reset=True))
    reading = iter(replica.names)
    assert next(reading) == "east"
    replica.apply(changes("e", 2, records.gone(WEST), cluster("north")))
    assert list(reading) == ["west"]
    assert replica.names == ("east", "north")


def test_older_changes_that_arrive_late_are_ignored():
    replica = GlobalReplica()
    replica.apply(changes("e", 0, reset=True))
    early = changes("e", 1, cluster("west"))
    late = changes("e", 2, records.gone(WEST), cluster("east"))
    replica.apply(late)
    replica.apply(early)
    assert (replica.names, replica.seen) == (("east",), Seen("e", 2))
    replica.apply(changes("another", 1, cluster("west"), reset=True))
    assert (replica.names, replica.seen) == (("west",), Seen("another", 1))


def test_changes_that_follow_on_what_is_not_there_are_not_applied():
    """Replies to questions from before and after a loss of data arrive in any order."""
    replica = GlobalReplica()
    lost = changes("before", 8, cluster("west"), reset=True)
    follow_up = changes("after", 2)
    assert replica.apply(changes("after", 2, cluster("east"), reset=True))
    assert replica.apply(lost)
    assert not replica.apply(follow_up)
    assert (replica.names, replica.seen) == (("west",), Seen("before", 8))
    assert replica.apply(changes("after", 2, cluster("east"), reset=True))
    assert not replica.apply(changes("before", 9, cluster("west")))
    gap = structs.replace(changes("after", 7, cluster("north")), since=5)
    assert not replica.apply(gap)
    assert (replica.names, replica.seen) == (("east",), Seen("after", 2))


def test_new_hosts_come_before_what_refers_to_them_and_go_when_they_are_deleted():
    replica = ClusterReplica("c", Observer(), HostPlaces())
    puts = [records.put_host(host_record(host=name)) for name in ("a", "b")]
    there = {"vm": {"uuid": "vm", "host": "a"}}
    replica.apply(changes("e", 1, records.put_instances("a", there), *puts, reset=True))
    assert replica.table.hosts_reporting("vm") == ("a",)
    assert len(replica.table) == 2
    replica.apply(
        changes("e", 2, records.put_host(host_record(host="c")), records.gone("h:uuid-c"))
    )
    assert [record.host for record in replica.table.records] == ["a", "b"]


def test_a_store_that_lost_its_data_resets_names_and_aggregates():
    replica = GlobalReplica()
    aggregate = Aggregate(id=1, name="ssd", hosts=("a",))
    replica.apply(changes("e", 1, cluster("east"), records.put_aggregate(aggregate), reset=True))
    assert replica.by_host["a"] == (aggregate,)
    anew = structs.replace(aggregate, name="nvme")  # the version is the store's, counted anew
    replica.apply(changes("next", 1, records.put_aggregate(anew), reset=True))
    assert replica.by_host["a"] == (anew,)
    replica.apply(changes("other", 1, reset=True))
    assert (replica.names, dict(replica.by_host)) == ((), {})


def test_loading_reads_all_clusters_and_logs_its_progress(caplog, monkeypatch):
    world = World()
    world.report(*(host(f"h{n}", cluster=f"c{n % 4}") for n in range(8)))
    world.inventory.update_aggregates([Aggregate(id=1, name="ssd", hosts=("h1",))])
    world.place("i1")
    fresh = world.beside()
    real, looked = world.state.changes, []

    def slow(scope, seen):
        looked.append(scope)
        world.clock.advance(0.6)
        return real(scope, seen)

    monkeypatch.setattr(world.state, "changes", slow)
    with caplog.at_level(logging.INFO):
        fresh.fleet.load(fresh.clock)
    assert looked == ["@global", "c0", "c1", "c2", "c3"]
    assert {each.scope: len(each.table) for each in fresh.fleet.clusters()} == dict.fromkeys(
        ["c0", "c1", "c2", "c3"], 2
    )
    table = fresh.fleet.cluster("c1").table
    assert [each.name for each in table.aggregates_of("h1")] == ["ssd"]
    assert caplog.messages == [
        "Loading cluster 1 of 4, c0",
        "Loading cluster 3 of 4, c2",
        "Loaded 4 clusters with 8 hosts and 1 reservations in 3.0 s",
    ]


def test_a_write_of_this_process_is_no_newer_than_what_it_has_read_since():
    """Another thread reads between the write and its reply; the record has changed again."""
    replica = GlobalReplica()
    mine, newer = (Aggregate(id=1, name=name, hosts=("a",)) for name in ("mine", "newer"))
    write = [Transaction([records.put_aggregate(mine)])]
    replica.apply(changes("e", 2, records.put_aggregate(newer), reset=True))
    replica.apply_written(write, Written(1, (True,), before=0), 0.0)
    assert replica.by_host["a"] == (newer,)
