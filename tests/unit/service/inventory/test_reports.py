"""Reports, announcements, and ends of reservations."""

from functools import partial

import msgspec
import pytest

from scheduler_worker.errors import NoValidHost, RequestError
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.host_records import UP, HostPower
from scheduler_worker.scheduling.filters.capacity import NumInstancesFilter
from scheduler_worker.scheduling.options import Options
from scheduler_worker.service.inventory.inventory import MAX_READ, Inventory
from scheduler_worker.service.inventory.reports import HostReports, InventorySettings
from scheduler_worker.service.state.moves import REMEMBERED_S
from tests.support.interrupted import before_next
from tests.support.services import World, host


def test_a_report_makes_a_host_and_its_cluster(world):
    versions = world.report(host("a"), host("b", cluster="two"))
    assert sorted(versions) == ["default", "two"]
    assert list(world.fleet.globals.names) == ["default", "two"]
    [shown] = world.hosts("two")
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
    assert len(fresh.hosts()) == 1


@pytest.mark.parametrize(
    ("report", "complaint"),
    [
        ({"host": "x"}, r"hosts\[1\]\.uuid: is missing"),
        ({"host": "x", "uuid": "u", "vcpus": 1, "memory_mb": 1}, r"hosts\[1\]\.local_gb"),
        (host("x", updated_at=1.8e9), r"hosts\[1\]\.updated_at: is .* ahead; check the host's"),
    ],
)
def test_a_bad_report_is_named_and_none_of_its_message_is_stored(world, report, complaint):
    with pytest.raises(RequestError, match=complaint):
        world.report(host("good"), report)
    assert world.hosts() == []


def test_clusters_can_be_a_closed_list(world):
    world.inventory = Inventory(
        fleet=world.fleet,
        ratios=InventorySettings().ratios,
        reservation_ttl_s=300.0,
        remember_answers_s=120.0,
        clusters=["one"],
    )
    world.report(host("a", cluster="one"))
    with pytest.raises(RequestError, match=r"hosts\[0\]\.cluster: there is no cluster 'two'"):
        world.report(host("b", cluster="two"))


def test_two_reports_of_a_host_in_one_message_are_taken_in_order(world):
    world.report(host("a", vcpus_used=1, stats={"x": 1}), host("a", vcpus_used=2))
    [shown] = world.hosts()
    assert (shown["vcpus_used"], shown["stats"]) == (2, {"x": "1"})
    world.report(
        {"host": "a", "vcpus_used": 3, "host_ip": "192.0.2.1"}, {"host": "a", "vcpus_used": 4}
    )
    [shown] = world.hosts()
    assert (shown["vcpus_used"], shown["host_ip"]) == (4, "192.0.2.1")


def test_confirmed_reservations_last_until_the_use_is_reported(world):
    world.report(host("a"))
    world.place("i1")
    world.clock.advance(world.limits.reservation_ttl_s - 1)
    assert world.inventory.confirm(["i1", "unknown"]) == 1
    [reservation] = world.reservations()
    assert reservation["state"] == "confirmed"
    world.clock.advance(2)
    assert world.reserved() == {"a": ["i1"]}
    world.report({"host": "a", "vcpus_used": 1})
    assert world.reserved() == {}


def test_release_gives_back_once_and_answers_so_when_it_comes_again(world):
    world.report(host("a", vcpus=1))
    world.place("i1")
    assert world.inventory.release(["i1", "unknown"]) == 1
    assert world.place("i2") == ["a"]
    assert world.inventory.release(["i1", "unknown"]) == 1
    assert world.beside().inventory.release(["i1"]) == 1
    assert world.reserved() == {"a": ["i2"]}
    world.clock.advance(121)
    assert world.inventory.release(["i1"]) == 0
    assert world.reserved() == {"a": ["i2"]}


def test_removal_of_hosts_ends_their_reservations(world):
    world.report(host("a"), host("b"))
    world.place("i1", force_hosts=["a"])
    assert list(world.inventory.remove_hosts([("a", None), ("unknown", None)])) == ["default"]
    assert [each["host"] for each in world.hosts()] == ["b"]
    assert world.reserved() == {}


def test_removal_of_a_host_ends_its_remembered_answers(world):
    world.report(host("a"))
    world.place("i1", request_id="req")
    world.report({"host": "a", "vcpus_used": 1, "instances": [{"uuid": "i1"}]})
    world.inventory.remove_hosts([("a", None)])
    world.report(host("a"))
    world.place("i1", request_id="req")
    assert world.reserved() == {"a": ["i1"]}, "what was on the host went with it"


@pytest.mark.parametrize("is_late", [False, True], ids=["new one last", "old one last"])
def test_a_node_that_is_recreated_during_its_first_report_is_there_once(
    world, monkeypatch, is_late
):
    old = host("a", uuid="old", vcpus=1, updated_at=world.clock.time_s())
    new = host("a", uuid="new", vcpus=1, updated_at=world.clock.time_s() + 1)
    other = world.beside()

    def report_and_place():
        other.report(new if is_late else old)
        other.place("i1")

    before_next(monkeypatch, world.state, "write", report_and_place, scope="@moves")
    world.report(old if is_late else new)
    [only] = world.hosts()
    assert (only["uuid"], only["promised"]["instances"]) == ("new", ["i1"])
    with pytest.raises(NoValidHost):
        world.place("i2")


@pytest.mark.parametrize("other", [{"uuid": "other"}, {"uuid": "other", "cluster": "west"}])
def test_two_machines_of_one_name_are_named_once(world, caplog, other):
    for worker in (world, world.beside()) * 3:
        worker.report(host("a"))
        worker.report(host("a", **other))
    world.fleet.refresh()
    tables = [cluster.table for cluster in world.fleet.clusters()]
    assert [record.host for table in tables for record in table.contested()] == ["a"]
    text = "Machines report as one: host a is reported with uuid other, uuid-a"
    assert caplog.text.count(text) == 1


def test_a_reservation_made_while_the_node_is_recreated_counts_on_it(world, monkeypatch):
    """Even if the worker that stored the report dies before it carries the reservation over."""
    world.report(host("a", vcpus=1))
    other = world.beside()
    before_next(monkeypatch, world.state, "write", lambda: other.place("i1"))
    monkeypatch.setattr(HostReports, "_follow", lambda *_: None)
    world.report(host("a", vcpus=1, uuid="another"))
    with pytest.raises(NoValidHost):
        other.place("i2")
    with pytest.raises(NoValidHost):
        world.beside().place("i2")
    use = {"vcpus_used": 1, "memory_mb_used": 1024, "instances": [{"uuid": "i1"}]}
    world.report({"host": "a", **use})
    assert world.reserved() == {}


def test_instances_are_merged_deleted_and_synced(world):
    world.report(host("a"))
    inventory = world.inventory

    def known() -> list[str]:
        return world.hosts()[0]["instances"]

    inventory.update_instances("a", {"x": {"uuid": "x"}, "y": {"uuid": "y"}})
    inventory.update_instances("a", {"z": {"uuid": "z"}})
    assert known() == ["x", "y", "z"]
    inventory.delete_instance("a", "y")
    inventory.delete_instance("a", "unknown")
    assert known() == ["x", "z"]
    inventory.sync_instances("a", ["x", "new"])
    assert known() == ["new", "x"]


def test_instances_that_an_agent_lists_or_nova_announces_fill_a_host():
    options = Options.of(max_instances_per_host=3)
    world = World(options=options, filters=(NumInstancesFilter,))
    world.report(host("a", instances=[{"uuid": "i1"}]))
    world.inventory.update_instances("a", {"i2": {"uuid": "i2"}})
    assert world.place("i3") == ["a"]
    world.report(host("a", instances=[{"uuid": uuid} for uuid in ("i1", "i2", "i3")]))
    with pytest.raises(NoValidHost):
        world.place("i4")
    world.inventory.delete_instance("a", "i1")
    assert world.place("i4") == ["a"]


@pytest.mark.parametrize("cluster", ["default", "elsewhere"])
def test_instances_announced_before_the_first_report_are_not_lost(world, cluster):
    world.inventory.update_instances("a", {"x": {"uuid": "x"}})
    world.beside().report(host("a", cluster=cluster))
    assert world.hosts(cluster)[0]["instances"] == ["x"]
    world.inventory.delete_instance("a", "x")
    assert world.hosts(cluster)[0]["instances"] == []


def test_a_fanout_is_applied_once_by_all_workers_together(world):
    world.report(host("a"))
    other = world.beside()
    world.inventory.update_instances("a", {"x": {"uuid": "x"}}, once="m1")
    world.inventory.delete_instance("a", "x", once="m2")
    other.inventory.update_instances("a", {"x": {"uuid": "x"}}, once="m1")
    other.inventory.delete_instance("a", "x", once="m2")
    assert other.hosts()[0]["instances"] == []


@pytest.mark.parametrize("first", ["one", "nowhere"])
def test_an_announcement_that_was_read_is_not_read_again_where_its_host_has_moved(world, first):
    if first == "one":
        world.report(host("a", cluster="one"))
    world.inventory.update_instances("a", {"x": {"uuid": "x"}}, once="m1")
    for cluster in ("two", "three"):
        world.report(host("a", cluster=cluster))
    world.inventory.delete_instance("a", "x", once="m2")
    world.beside().inventory.update_instances("a", {"x": {"uuid": "x"}}, once="m1")
    assert world.hosts("three")[0]["instances"] == []


def test_an_announcement_that_changed_nothing_was_read_all_the_same(world):
    world.report(host("a", instances=[{"uuid": "x"}]))
    world.inventory.sync_instances("a", ["x"], once="m1")
    world.inventory.delete_instance("a", "x", once="m2")
    world.beside().inventory.sync_instances("a", ["x"], once="m1")
    assert world.hosts()[0]["instances"] == []


def test_announcements_are_remembered_for_a_while_and_in_bounded_numbers(world):
    world.report(host("a"))
    remembered = world.fleet.cluster("default").announcements
    for number in range(MAX_READ + 1):
        world.inventory.sync_instances("a", [], once=f"m{number}")
    assert list(remembered["a"]) == [f"m{number}" for number in range(1, MAX_READ + 1)]
    world.clock.advance(REMEMBERED_S)
    world.inventory.sync_instances("a", [], once="new")
    assert list(remembered["a"]) == ["new"]
    world.clock.advance(REMEMBERED_S)
    world.report({"host": "a"})
    assert remembered == {}


def test_aggregates_are_replaced_in_the_order_of_their_arrival(world):
    other = world.beside()

    def sent(to, name, once):
        to.inventory.update_aggregates([Aggregate(id=1, name=name)], once=once)
        world.fleet.refresh_globals()
        return world.fleet.globals.aggregates["1"].name

    assert sent(world, "first", "m1") == "first"
    assert sent(world, "second", "m2") == "second"
    assert sent(other, "first", "m1") == "second", "another worker reads it late"
    world.inventory.delete_aggregate(1, once="m3")
    world.inventory.delete_aggregate(99)
    other.inventory.update_aggregates([Aggregate(id=1, name="second")], once="m2")
    assert other.fleet.globals.aggregates == {}


def test_a_record_of_a_newer_release_is_read(world):
    world.report(host("a"))
    replica = world.fleet.cluster("default")
    record = msgspec.json.encode({**msgspec.structs.asdict(replica.table.records[0]), "new": 1})
    replica.take("h:uuid-a", 99, record)
    assert replica.table.state(0).version == 99


def test_a_cluster_that_becomes_known_while_others_are_read_has_its_own_time(world, monkeypatch):
    """Another thread reads the names of the clusters while this report reads the clusters."""
    world.report(host("c"))
    other = world.beside()

    def report_and_read_names():
        other.report(host("b", cluster="new"))
        world.fleet.refresh_globals()

    before_next(monkeypatch, world.state, "changes", report_and_read_names, scope="default")
    world.report(host("c", cluster="new", updated_at=world.clock.time_s()))
    assert [each["host"] for each in world.hosts("new")] == ["b", "c"]


def over_commit_since_s(world, name="a"):
    [record] = world.fleet.cluster("default").table.find(name)
    return record.over_commit_since_s


def test_the_time_since_when_a_host_is_over_committed_is_kept_while_it_is(world):
    world.report(host("a", virt={"cores": 4, "cpu_percent": 50}))
    assert over_commit_since_s(world) is None
    world.report({"host": "a", "virt": {"cores": 4, "cpu_percent": 80}})
    since_s = over_commit_since_s(world)
    assert since_s == pytest.approx(world.clock.time_s())
    world.clock.advance(60)
    world.report({"host": "a", "virt": {"cores": 4, "cpu_percent": 99}})
    assert over_commit_since_s(world) == since_s
    world.report({"host": "a", "vcpus_used": 1})
    assert over_commit_since_s(world) == since_s
    world.report({"host": "a", "virt": {"cores": 4, "cpu_percent": 50}})
    assert over_commit_since_s(world) is None


# The power state


def power(world: World) -> HostPower:
    [record] = world.fleet.cluster("default").table.find("a")
    return record.power


def test_a_host_is_up_until_another_state_is_reported_which_holds_until_the_next(world):
    world.report(host("a"))
    assert power(world) == UP
    assert world.place("w") == ["a"]
    world.report({"host": "a", "power": {"state": "down", "by_policy": True}})
    world.clock.advance(100_000)
    world.report(host("a"))  # its agent knows nothing of power
    assert power(world).state == "down"
    with pytest.raises(NoValidHost):
        world.ask("x")
    world.report({"host": "a", "power": None})
    assert power(world) == UP
    assert world.place("x") == ["a"]


def test_a_report_of_power_alone_is_no_heartbeat(world):
    world.report(host("a"))
    world.clock.advance(1000)
    world.report({"host": "a", "power": {"state": "up"}})
    with pytest.raises(NoValidHost):
        world.ask("x")
    world.report(host("a"))
    assert world.place("x") == ["a"]


def test_who_put_a_host_to_sleep_is_kept_while_it_sleeps(world):
    world.report(host("a"))
    world.report({"host": "a", "power": {"state": "maintenance", "by_policy": True}})
    world.report({"host": "a", "power": {"state": "maintenance", "is_healthy": False}})
    assert power(world) == HostPower(state="maintenance", by_policy=True, is_healthy=False)
    world.report({"host": "a", "power": {"state": "down"}})
    assert power(world).by_policy is False, "a person did, for no balance has asked for it"


@pytest.mark.parametrize(("use_case", "states"), [("release", []), ("confirm", ["confirmed"])])
def test_a_reservation_that_moves_to_a_cluster_already_read_is_found(
    world, monkeypatch, use_case, states
):
    """Its instance had another reservation before, which was released in the cluster it leaves."""
    world.report(host("a", cluster="two"), host("b", cluster="one", vcpus=1, vcpus_used=1))
    world.place("i1")
    world.inventory.release(["i1"])
    world.place("i1")
    report = partial(world.beside().report, host("a", cluster="one"))
    before_next(monkeypatch, world.state, "changes", report, scope="two")
    assert getattr(world.inventory, use_case)(["i1"]) == 1
    assert [each["state"] for each in world.reservations()] == states
