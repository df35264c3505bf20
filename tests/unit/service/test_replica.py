"""What a process knows of the scope that belongs to no cluster."""

from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.ports import Change, Changes
from scheduler_worker.service import records
from scheduler_worker.service.replica import GlobalReplica

EAST, WEST = records.CLUSTER + "east", records.CLUSTER + "west"


def changes(epoch: str, version: int, *puts: records.Put, reset: bool = False) -> Changes:
    entries = [Change(put.key, version, put.value) for put in puts]
    return Changes(epoch=epoch, version=version, now_s=0.0, entries=entries, reset=reset)


def test_names_that_somebody_reads_do_not_change_under_him():
    replica = GlobalReplica()
    replica.apply(changes("e", 1, records.put_cluster("west"), records.put_cluster("east")))
    reading = iter(replica.names)
    assert next(reading) == "east"
    replica.apply(changes("e", 2, records.gone(WEST), records.put_cluster("north")))
    assert list(reading) == ["west"]
    assert replica.names == ("east", "north")


def test_a_store_that_lost_its_data_has_no_names_and_no_aggregates():
    replica = GlobalReplica()
    aggregate = Aggregate(id=1, name="ssd", hosts=("a",))
    replica.apply(
        changes("e", 1, records.put_cluster("east"), records.put_aggregate(aggregate), reset=True)
    )
    assert replica.by_host["a"] == (aggregate,)
    replica.apply(changes("other", 1, reset=True))
    assert (replica.names, dict(replica.by_host)) == ((), {})
