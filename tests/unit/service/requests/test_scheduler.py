"""Selecting: reservations, repeated requests, several clusters, explanations."""

from typing import Any

import msgspec
import pytest

from scheduler_worker.errors import Conflict, NoValidHost, RequestError
from scheduler_worker.ports import Seen
from scheduler_worker.scheduling.filters.affinity import ServerGroupAffinityFilter
from scheduler_worker.scheduling.options import Options
from tests.support.interrupted import overtake
from tests.support.services import FILTERS, World, host, request


def test_random_choices_are_seeded_by_the_request_id():
    """So recorded requests replay exactly, and different requests choose different hosts."""

    def chosen(request_id, options):
        world = World(options=options)
        world.report(*[host(f"h{number}") for number in range(20)])
        ids = {"request_id": request_id}
        explained = world.scheduler.explain(request("i1", **ids)).clusters["default"]
        [found] = world.place("i1", **ids)
        assert explained.chosen == found
        return found

    for options in (
        Options.of(host_subset_size=20),
        Options.of(shuffle_best_same_weighed_hosts=True),
    ):
        ids = [f"req-{number}" for number in range(8)]
        first = [chosen(each, options) for each in ids]
        assert first == [chosen(each, options) for each in ids]
        assert len(set(first)) > 2


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"requested_destination": {"host": "c"}}, "host: c node: None "),
        ({"requested_destination": {"node": "n"}}, "host: None node: n "),
        ({"requested_destination": {"host": "a", "node": "b"}}, "host: a node: b "),
        ({"force_hosts": ["c"], "force_nodes": ["n"]}, "host: c node: n "),
    ],
    ids=str,
)
def test_a_destination_that_does_not_exist_is_named(world, asked, named):
    world.report(host("a"), host("b", cluster="two"))
    with pytest.raises(NoValidHost) as refused:
        world.ask("i1", **asked)
    assert str(refused.value) == f"No valid host was found. No such host - {named}"


def test_an_existing_destination_without_capacity_is_not_called_unknown(world):
    world.report(host("a"), host("b", cluster="two"))
    for destination in ({"host": "b"}, {"node": "b"}):
        asked: dict[str, Any] = {"requested_destination": destination}
        with pytest.raises(NoValidHost, match="There are not enough hosts available"):
            world.ask("i1", vcpus=99, **asked)
        assert world.place(f"i-{asked}", **asked) == ["b"]


def test_no_request_is_refused_for_a_cluster_that_another_worker_has_just_got(world):
    world.report(host("a", cluster="old"))
    other = world.beside()
    assert other.place("i1", vcpus=4) == ["a"]
    world.report(host("b", cluster="new"))
    assert other.place("i2", vcpus=4) == ["b"]
    world.report(host("c", cluster="newer"))
    assert other.place("i3", scheduler_hints={"cluster": ["newer"]}) == ["c"]


def test_a_partly_reserved_multi_create_is_completed(world):
    world.report(host("a"), host("b"))
    world.place("i1")
    assert len(world.place("i1", "i2")) == 2
    assert sorted(sum(world.reserved().values(), [])) == ["i1", "i2"]
    assert [each.repeated for each in world.observed.outcomes] == [0, 1]


def test_a_rebuild_check_reserves_nothing(world):
    world.report(host("a", vcpus=1, vcpus_used=1))
    hints = {"_nova_check_type": ["rebuild"]}
    assert world.place("i1", scheduler_hints=hints, force_hosts=["a"], force_nodes=["a"]) == ["a"]
    assert world.reserved() == {}
    [outcome] = world.observed.outcomes
    assert (outcome.result, outcome.cluster, outcome.repeated) == ("placed", "default", 0)
    assert world.observed.events == [], "it takes no lock"


def test_a_rebuild_check_may_be_refused(world):
    world.report(host("a", cluster="one"), host("b", cluster="two"))
    hints = {"_nova_check_type": ["rebuild"]}
    assert world.place("i1", scheduler_hints=hints, ignore_hosts=["a"]) == ["b"]
    assert world.place("i1", scheduler_hints=hints, ignore_hosts=["b"]) == ["a"]
    with pytest.raises(NoValidHost, match="There are not enough hosts available"):
        world.place("i1", scheduler_hints=hints, ignore_hosts=["a", "b"])
    assert world.reserved() == {}
    assert world.observed.outcomes[-1].result == "NoValidHost"
    assert ("granted", "one") not in world.observed.events, "it needs no lock"


def test_a_request_goes_to_the_named_cluster_or_the_best_or_the_next(world):
    world.report(host("a", cluster="small", memory_mb=2048), host("b", cluster="large"))
    assert world.place("i1") == ["b"]
    assert world.place("i2", scheduler_hints={"cluster": ["small"]}) == ["a"]
    assert world.place("i3", memory_mb=7168) == ["b"]
    with pytest.raises(NoValidHost):
        world.place("i4", memory_mb=7168)
    with pytest.raises(RequestError, match=r"no cluster 'x'; known are large, small"):
        world.place("i5", scheduler_hints={"cluster": ["x"]})


def test_a_server_group_is_placed_in_several_clusters_too(world):
    world.report(host("a", cluster="one"), host("b", cluster="two"))
    group = {"policy": "anti-affinity", "members": ["i1", "i2"], "hosts": []}
    assert sorted(world.place("i1", "i2", instance_group=group)) == ["a", "b"]


def test_a_group_that_is_to_be_on_one_host_is_not_divided_between_clusters():
    world = World(filters=(*FILTERS, ServerGroupAffinityFilter))
    world.report(*(host(name, cluster=f"of-{name}", vcpus=1) for name in "ab"))
    group = {"policy": "affinity", "members": ["i1", "i2"], "hosts": []}
    with pytest.raises(NoValidHost):
        world.place("i1", "i2", instance_group=group)
    assert world.reserved() == {}


def test_a_multi_cluster_placement_that_one_cluster_refuses_reserves_nothing(world, monkeypatch):
    world.report(host("a", cluster="one", vcpus=1), host("b", cluster="two", vcpus=1))
    other, commit = world.beside(), world.state.commit

    def overtaken(grant, transactions, **keep):
        if grant.scope == "two":
            other.report({"host": "b", "vcpus_used": 0})
        return commit(grant, transactions, **keep)

    monkeypatch.setattr(world.state, "commit", overtaken)
    with pytest.raises(Conflict, match="several clusters"):
        world.place("i1", "i2")
    monkeypatch.undo()
    assert world.reserved() == {}
    assert sorted(world.place("i1", "i2")) == ["a", "b"]


@pytest.fixture
def small(world):
    """Two clusters of one host each, with room for one instance."""
    world.report(host("a", cluster="one", vcpus=1), host("b", cluster="two", vcpus=1))
    return world


def locked(world, cluster: str) -> int:
    return int(world.observed.events.count(("granted", cluster)))


def test_a_refusal_over_several_clusters_has_the_diagnosis_of_one(small):
    with pytest.raises(NoValidHost) as refused:
        small.ask("i1", "i2", "i3")
    assert refused.value.diagnosis.hosts == 1
    assert [step.name for step in refused.value.diagnosis.filters]
    assert (locked(small, "one"), locked(small, "two")) == (2, 2), "alone, and together"
    assert small.reserved() == {}


def test_one_instance_or_one_cluster_is_not_tried_over_several(small):
    with pytest.raises(NoValidHost):
        small.ask("i1", vcpus=2)
    assert (locked(small, "one"), locked(small, "two")) == (1, 1)
    with pytest.raises(NoValidHost):
        small.ask("i1", "i2", scheduler_hints={"cluster": ["one"]})
    assert (locked(small, "one"), locked(small, "two")) == (2, 1)


def test_what_has_hosts_in_several_clusters_is_decided_over_them_alone(small):
    for uuid, cluster in ("i1", "one"), ("i2", "two"):
        small.place(uuid, scheduler_hints={"cluster": [cluster]})
    with pytest.raises(NoValidHost):
        small.ask("i1", "i2", "i3")
    assert small.reserved() == {"a": ["i1"], "b": ["i2"]}
    small.report(host("c", cluster="two"))
    assert small.place("i1", "i2", "i3") == ["a", "b", "c"]
    assert (locked(small, "one"), locked(small, "two")) == (3, 3), "twice together"


@pytest.mark.parametrize("spec", [{}, {"scheduler_hints": {"_nova_check_type": ["rebuild"]}}])
def test_an_empty_fleet_and_a_full_one_have_different_errors(world, spec):
    with pytest.raises(NoValidHost, match=r"There are no hosts: none has reported\.$"):
        world.ask("i1", **spec)
    assert world.scheduler.explain(request("i1", **spec)).reason.startswith("There are no hosts")
    world.report(host("a", cluster="east"), host("b", cluster="west", service={"disabled": True}))
    world.inventory.remove_hosts([("a", None)])
    if not spec:
        hints: list[dict[str, Any]] = [{}, {"scheduler_hints": {"cluster": ["west"]}}]
        for asked in hints:
            with pytest.raises(NoValidHost, match="There are not enough hosts available"):
                world.ask("i1", vcpus=100, **asked)
            explanation = world.scheduler.explain(request("i1", vcpus=100, **asked))
            assert explanation.reason == "There are not enough hosts available."
        with pytest.raises(
            NoValidHost, match="There are no hosts: none has reported to cluster east"
        ):
            world.ask("i1", scheduler_hints={"cluster": ["east"]})


def test_an_explanation_names_the_hosts_without_a_verdict(world):
    world.report(host("a", cluster="one"), host("b", cluster="two", vcpus=1, nodename="node-b"))
    explanation = world.scheduler.explain(
        request("i1", vcpus=2), hosts=["a", "node-b", "A", "Node-B", "c"]
    )
    verdicts = {each.host for some in explanation.clusters.values() for each in some.verdicts}
    assert verdicts == {"a", "b"}, "clusters where nothing fits are explained too"
    unknown = "no host of this name has reported, or it was removed"
    assert explanation.not_found == {
        "A": f"{unknown}; did you mean a?",
        "Node-B": f"{unknown}; did you mean b?",
        "c": unknown,
    }
    asked = request("i1", scheduler_hints={"cluster": ["one"]})
    explanation = world.scheduler.explain(asked, hosts=["a", "b"])
    assert list(explanation.clusters) == ["one"]
    assert explanation.not_found == {"b": "is in cluster two, and the request names another"}


def test_a_reservation_that_the_store_lost_is_dropped(world, monkeypatch):
    """Added by its own commit after a write of another worker, and gone on a reset."""
    world.report(host("a"), host("b"))
    overtake(monkeypatch, world, {"host": "b", "vcpus_used": 1})
    [placed] = world.place("i1")
    replica = world.fleet.cluster("default")
    everything = world.state.changes("default", Seen())
    kept = [each for each in everything.entries if not each.key.startswith("p:")]
    lost = msgspec.structs.replace(everything, entries=kept, epoch="another life", reset=True)
    replica.apply(lost)
    assert replica.reservations == {}
    assert replica.table.state(replica.table.row_of(f"uuid-{placed}")).num_instances == 0
