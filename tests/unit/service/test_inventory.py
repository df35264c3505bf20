"""Reports, announcements, and how promises end."""

import msgspec
import pytest

from scheduler_worker.errors import NoValidHost, RequestError
from scheduler_worker.model.aggregates import Aggregate
from tests.support.services import World, host


@pytest.fixture
def world() -> World:
    return World()


def test_a_report_makes_a_host_and_its_cluster(world):
    versions = world.report(host("a"), host("b", cluster="two"))
    assert sorted(versions) == ["default", "two"]
    assert [each["cluster"] for each in world.listing.clusters()["clusters"]] == ["default", "two"]
    [shown] = world.listing.hosts("two")["hosts"]
    assert (shown["host"], shown["vcpus"], shown["reported_at_s"]) == (
        "b", 4, world.clock.time_s()
    )  # fmt: skip


def test_a_cluster_is_known_even_if_the_state_is_lost_while_its_hosts_report(world, monkeypatch):
    world.report(host("a"))
    fresh = World(clock=world.clock)

    def lost(*arguments, **how):
        for name in ("write", "changes"):
            monkeypatch.setattr(world.state, name, getattr(fresh.state, name))
        return fresh.state.write(*arguments, **how)

    monkeypatch.setattr(world.state, "write", lost)
    world.report(host("a"))
    assert fresh.listing.clusters()["clusters"][0]["hosts"] == 1


def test_an_update_finds_its_host_by_name(world):
    world.report(host("a", cluster="two"))
    assert list(world.report({"host": "a", "vcpus_used": 2})) == ["two"]
    assert world.listing.hosts()["hosts"][0]["vcpus_used"] == 2


@pytest.mark.parametrize(
    ("report", "complaint"),
    [
        ({"host": "x"}, r"hosts\[1\]\.uuid: is missing"),
        ({"host": "x", "uuid": "u", "vcpus": 1, "memory_mb": 1}, r"hosts\[1\]\.local_gb"),
        (host("x", updated_at=1.8e9), r"hosts\[1\]\.updated_at: is .* ahead; check the host's"),
    ],
)
def test_a_bad_report_is_named_and_none_of_its_message_is_taken_in(world, report, complaint):
    with pytest.raises(RequestError, match=complaint):
        world.report(host("good"), report)
    assert world.listing.hosts()["hosts"] == []


def test_clusters_can_be_a_closed_list(world):
    world.inventory._allowed = frozenset({"one"})
    world.report(host("a", cluster="one"))
    with pytest.raises(RequestError, match=r"hosts\[0\]\.cluster: there is no cluster 'two'"):
        world.report(host("b", cluster="two"))


def test_an_older_report_is_ignored(world):
    now = world.clock.time_s()
    world.report(host("a", updated_at=now, vcpus_used=2))
    world.report({"host": "a", "updated_at": now - 5, "vcpus_used": 4})
    assert world.listing.hosts()["hosts"][0]["vcpus_used"] == 2


def test_a_silent_host_is_down_until_it_reports(world):
    world.report(host("a"))
    world.clock.advance(61)
    with pytest.raises(NoValidHost):
        world.place("i1")
    world.report({"host": "a"})
    assert world.place("i1") == ["a"]


def test_a_report_of_use_that_lists_the_instance_absorbs_its_promise(world):
    world.report(host("a"))
    world.place("i1")
    world.report({"host": "a", "instances": [{"uuid": "i1"}]})
    assert world.promised() == {"a": ["i1"]}, "listed, but its use is not reported yet"
    world.report({"host": "a", "vcpus_used": 1, "instances": []})
    assert world.promised() == {"a": ["i1"]}, "this use does not include it"
    world.report({"host": "a", "vcpus_used": 1, "instances": [{"uuid": "i1"}]})
    assert world.promised() == {}
    assert world.fleet.cluster("default").table.state(0).vcpus_used == 1


def test_an_announcement_frees_nothing_until_use_is_reported(world):
    world.report(host("a"))
    world.place("i1")
    world.inventory.update_instances("a", {"i1": {"uuid": "i1"}})
    assert world.promised() == {"a": ["i1"]}
    before_announcement = world.clock.time_s() - 1
    world.report({"host": "a", "vcpus_used": 0, "updated_at": before_announcement})
    assert world.promised() == {"a": ["i1"]}, "made before the announcement"
    world.clock.advance(1)
    world.report({"host": "a"})
    assert world.promised() == {"a": ["i1"]}, "a heart-beat reports no use"
    world.report({"host": "a", "vcpus_used": 1})
    assert world.promised() == {}


def test_confirmed_promises_last_until_use_is_reported(world):
    world.report(host("a"))
    world.place("i1")
    world.clock.advance(world.limits.promise_ttl_s - 1)
    assert world.inventory.confirm(["i1", "unknown"]) == 1
    [promise] = world.listing.reservations()["reservations"]
    assert promise["state"] == "confirmed"
    world.clock.advance(2)
    assert world.promised() == {"a": ["i1"]}
    world.report({"host": "a", "vcpus_used": 1})
    assert world.promised() == {}


def test_release_gives_back_once(world):
    world.report(host("a", vcpus=1))
    world.place("i1")
    assert world.inventory.release(["i1"]) == 1
    assert world.inventory.release(["i1"]) == 0
    assert world.place("i2") == ["a"]


def test_removed_hosts_take_their_promises_with_them(world):
    world.report(host("a"), host("b"))
    world.place("i1", force_hosts=["a"])
    assert list(world.inventory.remove_hosts([("a", None), ("nobody", None)])) == ["default"]
    assert [each["host"] for each in world.listing.hosts()["hosts"]] == ["b"]
    assert world.promised() == {}


def test_a_host_may_change_its_cluster(world):
    world.report(host("a", cluster="one"))
    world.place("i1")
    world.report({"host": "a", "uuid": "uuid-a", "vcpus": 4, "memory_mb": 8192, "local_gb": 100,
                  "cluster": "two"})  # fmt: skip
    assert world.listing.hosts("one")["hosts"] == []
    [moved] = world.listing.hosts("two")["hosts"]
    assert moved["promised"]["instances"] == ["i1"]
    assert world.listing.reservations("one")["reservations"] == []


def test_a_node_that_was_made_again_replaces_the_old_one(world):
    world.report(host("a"))
    world.place("i1")
    world.report(host("a", uuid="another"))
    [again] = world.listing.hosts()["hosts"]
    assert (again["uuid"], again["promised"]["instances"]) == ("another", ["i1"])
    assert world.promised() == {"a": ["i1"]}


def test_instances_are_merged_deleted_and_synced(world):
    world.report(host("a"))
    inventory = world.inventory

    def known() -> list[str]:
        return world.listing.hosts()["hosts"][0]["instances"]

    inventory.update_instances("a", {"x": {"uuid": "x"}, "y": {"uuid": "y"}})
    inventory.update_instances("a", {"z": {"uuid": "z"}})
    assert known() == ["x", "y", "z"]
    inventory.delete_instance("a", "y")
    inventory.delete_instance("a", "nobody")
    assert known() == ["x", "z"]
    inventory.sync_instances("a", ["x", "new"])
    assert known() == ["new", "x"]


@pytest.mark.parametrize("cluster", ["default", "elsewhere"])
def test_instances_announced_before_the_first_report_are_not_lost(world, cluster):
    world.inventory.update_instances("a", {"x": {"uuid": "x"}})
    world.beside().report(host("a", cluster=cluster))
    assert world.listing.hosts(cluster)["hosts"][0]["instances"] == ["x"]
    world.inventory.delete_instance("a", "x")
    assert world.listing.hosts(cluster)["hosts"][0]["instances"] == []


def test_a_deleted_instance_gives_its_promise_back(world):
    world.report(host("a"))
    world.place("i1")
    world.inventory.delete_instance("a", "i1")
    assert world.promised() == {}


def test_a_fanout_is_applied_once_by_all_workers_together(world):
    world.report(host("a"))
    other = world.beside()
    world.inventory.update_instances("a", {"x": {"uuid": "x"}}, once="m1")
    world.inventory.delete_instance("a", "x", once="m2")
    other.inventory.update_instances("a", {"x": {"uuid": "x"}}, once="m1")
    other.inventory.delete_instance("a", "x", once="m2")
    assert other.listing.hosts()["hosts"][0]["instances"] == []


def test_aggregates_come_and_go(world):
    world.report(host("a"))
    world.inventory.update_aggregates([Aggregate(id=1, name="ssd", hosts=("a",))])
    assert world.listing.hosts()["hosts"][0]["aggregates"] == ["ssd"]
    world.inventory.delete_aggregate(1)
    world.inventory.delete_aggregate(99)
    assert world.beside().listing.hosts()["hosts"][0]["aggregates"] == []


def test_pages(world):
    world.report(*(host(name) for name in "abcde"))
    first = world.listing.hosts(limit=2)
    second = world.listing.hosts(limit=2, marker=first["next"])
    third = world.listing.hosts(limit=2, marker=second["next"])
    pages = (first, second, third)
    names = [each["host"] for page in pages for each in page["hosts"]]
    assert names == list("abcde")
    assert third["next"] is None
    with pytest.raises(RequestError, match="limit"):
        world.listing.hosts(limit=0)
    with pytest.raises(RequestError, match="no cluster 'x'"):
        world.listing.hosts("x")


def test_a_record_of_a_newer_release_is_read(world):
    world.report(host("a"))
    replica = world.fleet.cluster("default")
    record = msgspec.json.encode({**msgspec.structs.asdict(replica.table.records[0]), "new": 1})
    replica.take("h:uuid-a", 99, record)
    assert replica.table.state(0).version == 99
