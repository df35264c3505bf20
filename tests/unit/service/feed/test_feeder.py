"""The feeder: what it stores and what not, turns, cells that are down, and what requests hear."""

import logging
from typing import Any

import pytest

from scheduler_worker import events
from scheduler_worker.errors import NoValidHost, StateUnavailable
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.host_records import out_of_service
from scheduler_worker.model.providers import Inventory, ResourceProvider
from scheduler_worker.service.feed.feeder import Feeder
from scheduler_worker.service.inventory.inventory import Inventory as HostInventory
from tests.support.feeds import (
    CELL,
    OTHER_CELL,
    HangingOutline,
    MemorySource,
    barrier,
    feeder,
)
from tests.support.interrupted import before_next, raising
from tests.support.services import World, request

SECOND_S = 1.0
INTERVAL_S, FULL_S, SILENT_S = 2.0, 60.0, 60.0


@pytest.fixture
def source(world) -> MemorySource:
    source = MemorySource(world.clock)
    for host in ("a", "b"):
        source.put(host)
    source.put("c", part=OTHER_CELL)
    return source


@pytest.fixture
def fed(world, source) -> Feeder:
    """A feeder that has read everything once."""
    made = feeder(world, source)
    made.run_due()
    return made


def look(fed: Feeder, after_s: float = INTERVAL_S, *, world: World, source=None) -> None:
    """The next round; with ``source``, all services beat until then."""
    world.clock.advance(after_s)
    if source is not None:
        for host in source.services_of:
            source.beat(host)
    fed.run_due()


def records(world: World):
    return {each.host: each for replica in world.fleet.clusters() for each in replica.table.records}


def on_host(world: World, name: str) -> set[str]:
    return {uuid for replica in world.fleet.clusters()
            for uuid in replica.table.reported_instances(name)}  # fmt: skip


def versions(world: World) -> list[int]:
    """What changes with each write of a host or an instance."""
    return [each.seen.version for each in world.fleet.clusters()]


# What is stored


def test_a_first_round_stores_all_hosts_with_their_cells_and_services(world, fed):
    found = records(world)
    assert {name: each.cell_uuid for name, each in found.items()} == {
        "a": CELL, "b": CELL, "c": OTHER_CELL,
    }  # fmt: skip
    assert out_of_service(found["a"]) is None
    assert sorted(world.place("i1", "i2", "i3", memory_mb=8192)) == ["a", "b", "c"]


def test_at_rest_heartbeats_write_nothing(world, source, fed):
    before, wrote = versions(world), sum(fed._deps.observer.of(events.FEED_REPORTS).values())
    for _ in range(50):
        look(fed, world=world, source=source)
    assert versions(world) == before
    assert sum(fed._deps.observer.of(events.FEED_REPORTS).values()) == wrote == 3
    assert world.place("i1")  # though no record is younger than the service_down_time


def test_a_changed_row_is_stored_at_the_next_look(world, source, fed):
    look(fed, world=world, source=source)
    source.put("a", memory_mb_used=8000)
    look(fed, world=world, source=source)
    assert records(world)["a"].memory_mb_used == 8000
    assert world.place("i1", memory_mb=1024) != ["a"]
    source.put("a", vcpus_used=2, updated_at=world.clock.time_s() - 3)
    look(fed, world=world, source=source)
    assert records(world)["a"].vcpus_used == 2, "though it is dated before its record"


def test_a_change_that_no_look_saw_is_found_by_the_census(world, source, fed):
    look(fed, world=world, source=source)
    look(fed, FULL_S / 2, world=world, source=source)
    source.put("b", vcpus_used=1)
    look(fed, world=world, source=source)
    source.put("a", vcpus_used=4)
    source.nodes["a"] = CELL, source.nodes["a"][1], world.clock.time_s() - 20
    look(fed, world=world, source=source)
    assert records(world)["a"].vcpus_used == 0
    look(fed, FULL_S, world=world, source=source)
    assert records(world)["a"].vcpus_used == 4


def test_a_host_that_is_gone_is_removed_and_others_stay(world, source, fed):
    world.report({"host": "ours", "uuid": "u", "vcpus": 1, "memory_mb": 1, "local_gb": 1})
    del source.nodes["a"]
    look(fed, FULL_S, world=world, source=source)
    assert set(records(world)) == {"b", "c", "ours"}


def test_a_host_that_is_gone_is_removed_as_soon_as_the_state_is_back(
    world, source, fed, monkeypatch
):
    del source.nodes["a"]
    with monkeypatch.context() as patch:
        patch.setattr(HostInventory, "remove_hosts", raising(StateUnavailable("away")))
        look(fed, FULL_S, world=world, source=source)
    look(fed, world=world, source=source)
    assert records(world).keys() == {"b", "c"}


def test_a_host_that_is_mapped_while_all_are_listed_is_read_at_the_next_look(
    world, source, fed, monkeypatch
):
    source.put("late")
    del source.part_of["late"]
    look(fed, FULL_S, world=world, source=source)

    def changes(part_id, **since):
        source.part_of["late"] = CELL
        fed._take_outline(fed._outline_now(), world.clock.monotonic_s())
        return MemorySource.changes(source, part_id, **since)

    with monkeypatch.context() as patch:
        patch.setattr(source, "changes", changes)
        look(fed, FULL_S, world=world, source=source)
    look(fed, world=world, source=source)
    assert "late" in records(world)


def test_a_host_without_a_mapping_is_left_out_and_named_once(world, source, fed, caplog):
    source.put("new")
    del source.part_of["new"]
    for _ in range(3):
        look(fed, FULL_S, world=world, source=source)
    assert "new" not in records(world)
    assert caplog.text.count("host new has no mapping to this cell") == 1
    source.part_of["new"] = CELL
    look(fed, FULL_S, world=world, source=source)
    assert "new" in records(world)


def test_a_row_that_is_refused_is_named_and_does_not_keep_back_others(world, source, fed, caplog):
    source.put("a", updated_at=world.clock.time_s() + 3600, vcpus_used=1)
    source.put("b", vcpus_used=2)
    look(fed, world=world, source=source)
    assert records(world)["b"].vcpus_used == 2
    assert records(world)["a"].vcpus_used == 0
    assert "updated_at: is 3598 s ahead" in caplog.text


# Services


def test_a_service_that_falls_silent_goes_down_and_comes_back(world, source, fed):
    for _ in range(7):
        world.clock.advance(10)
        source.beat("b")
        source.beat("c")
        fed.run_due()
    assert out_of_service(records(world)["a"]) == "its compute service is reported down"
    assert set(world.place("i1", "i2", memory_mb=5000)) == {"b", "c"}
    look(fed, 10, world=world, source=source)
    assert out_of_service(records(world)["a"]) is None


def test_a_host_is_out_of_service_with_its_service_disabled_or_gone(world, source, fed):
    source.beat("a", disabled=True, disabled_reason="repair")
    del source.services_of["b"]
    look(fed, 10, world=world)
    assert out_of_service(records(world)["a"]) == "its compute service is disabled: repair"
    assert out_of_service(records(world)["b"]) == "it has no compute service"


# Instances


def test_instances_follow_the_table(world, source, fed):
    source.place("i1", "a")
    look(fed, world=world)
    assert (on_host(world, "a"), on_host(world, "b")) == ({"i1"}, set())
    source.place("i1", "b")
    look(fed, world=world)
    assert (on_host(world, "a"), on_host(world, "b")) == (set(), {"i1"})
    source.place("i1", None)
    look(fed, world=world)
    assert (on_host(world, "a"), on_host(world, "b")) == (set(), set())


def test_an_instance_whose_removal_left_no_trace_is_found_by_the_census(world, source, fed):
    source.place("i1", "a")
    look(fed, world=world)
    del source.instances["i1"]
    look(fed, FULL_S, world=world, source=source)
    assert on_host(world, "a") == set()


def test_a_reservation_lasts_as_long_as_the_table_has_its_instance_as_building(world, source, fed):
    world.place("i1", force_hosts=["a"])
    source.place("i1", "a", vm_state="building")
    for _ in range(3 * round(world.limits.reservation_ttl_s / FULL_S)):
        look(fed, FULL_S, world=world, source=source)
    assert world.reserved() == {"a": ["i1"]}
    source.place("i1", "a", vm_state="error")
    look(fed, world=world, source=source)
    look(fed, world.limits.reservation_ttl_s, world=world, source=source)
    assert world.reserved() == {}


@pytest.mark.parametrize("host", [None, "b"])
def test_a_reservation_ends_when_its_instance_will_not_come(world, source, fed, host):
    """It was deleted, failed, or was built elsewhere in the end."""
    world.place("i1", "i2", force_hosts=["a"])
    source.place("i1", None)
    source.place("i2", None)
    look(fed, world=world, source=source)
    assert world.reserved() == {"a": ["i1", "i2"]}  # they are being built
    source.place("i1", host, settled=True)
    look(fed, world=world, source=source)
    assert world.reserved() == {"a": ["i2"]}


def test_a_reservation_stays_while_its_instance_moves(world, source, fed):
    source.place("i1", "b", settled=True)
    look(fed, world=world, source=source)
    source.place("i1", "b")  # a task is under way, upon which a host is asked for
    world.place("i1", force_hosts=["a"])
    look(fed, world=world, source=source)
    assert world.reserved() == {"a": ["i1"]}


def test_a_destination_stays_reserved_as_long_as_the_table_has_its_instance_as_moving(
    world, source, fed
):
    source.place("i1", "b", vm_state="active", task_state="migrating")
    world.place("i1", force_hosts=["a"])
    for _ in range(3 * round(world.limits.reservation_ttl_s / FULL_S)):
        look(fed, FULL_S, world=world, source=source)
    assert world.reserved() == {"a": ["i1"]}


def test_a_reservation_that_is_newer_than_what_was_read_stays(world, source, fed):
    """The task may have begun between reading the rows and this reservation."""
    source.place("i1", "b", settled=True)
    world.clock.advance(INTERVAL_S - 0.5)
    world.place("i1", force_hosts=["a"])
    look(fed, 0.5, world=world, source=source)
    assert world.reserved() == {"a": ["i1"]}


def test_a_reservation_stays_on_the_host_where_its_instance_is(world, source, fed):
    world.place("i1", force_hosts=["a"])
    source.place("i1", "a", settled=True)
    look(fed, world=world, source=source)
    assert world.reserved() == {"a": ["i1"]}  # until the host's use shows it


# Clusters and aggregates


def test_aggregates_are_those_of_the_source(world, source, fed):
    world.inventory.update_aggregates([Aggregate(id=9, name="old")])
    source.aggregates = [Aggregate(id=1, name="ssd", hosts=("a",), metadata={"ssd": "true"})]
    fed.look_now(outline=True)
    look(fed, world=world)
    assert list(world.fleet.globals.aggregates.values()) == source.aggregates


def test_an_outline_that_is_looked_at_late_replaces_no_newer_one(world, source, fed, monkeypatch):
    """As when a request has everything read again while another thread reads the outline."""

    def change() -> None:
        source.aggregates = [Aggregate(id=1, name="east", hosts=("a",))]
        fed.look()

    fed.look_now(outline=True)
    before_next(monkeypatch, fed, "wake", change)
    look(fed, world=world)
    look(fed, world=world)
    assert list(world.fleet.globals.aggregates.values()) == source.aggregates


def test_each_cell_may_be_a_cluster(world, source):
    feeder(world, source, clusters="cell").run_due()
    assert {name: each.cluster for name, each in records(world).items()} == {
        "a": "east", "b": "east", "c": "west",
    }  # fmt: skip


def test_a_host_is_in_the_cluster_of_its_aggregate(world, source):
    source.aggregates = [Aggregate(id=1, hosts=("a",), metadata={"cluster": "fast"})]
    fed = feeder(world, source, clusters="aggregate")
    fed.run_due()
    assert {name: each.cluster for name, each in records(world).items()} == {
        "a": "fast", "b": "default", "c": "default",
    }  # fmt: skip
    source.aggregates = []
    look(fed, FULL_S, world=world, source=source)
    assert records(world)["a"].cluster == "default"


def test_a_value_that_is_no_name_of_a_cluster_is_logged(world, source, caplog):
    source.aggregates = [Aggregate(id=1, name="x", hosts=("a",), metadata={"cluster": "no name"})]
    feeder(world, source, clusters="aggregate").run_due()
    assert records(world)["a"].cluster == "default"
    assert "aggregate x, metadata cluster: 'no name' cannot be the name of a cluster" in caplog.text


# Providers


def test_a_hosts_providers_come_with_its_report(world, source):
    tree = ResourceProvider(uuid="uuid-a", inventories={"VCPU": Inventory(total=8)})

    class Providers:
        is_begun = False
        lacking = "b"

        def providers(self, host_uuid):
            return [tree] if host_uuid == "uuid-a" else None

        def lacks(self, record):
            return record.host == self.lacking

    source.put("a", disk_available_least=0)
    source.put("b", disk_available_least=7)
    fed = feeder(world, source)
    providers: Any = Providers()
    fed._deps = fed._deps._replace(providers=providers)
    fed.run_due()
    assert "still being read" in (fed.unready() or "")
    Providers.is_begun = True
    look(fed, world=world)
    assert "still being read" in (fed.unready() or "")  # one that is full is not in the sums
    Providers.lacking = ""
    look(fed, world=world)
    assert fed.unready() is None
    found = records(world)
    assert (found["a"].resource_providers, found["a"].disk_available_least) == ((tree,), None)
    assert (found["b"].resource_providers, found["b"].disk_available_least) == ((), 7)


# Failures


def test_a_cell_that_is_down_keeps_its_hosts_and_others_go_on(world, source, fed, caplog):
    source.down = {OTHER_CELL}
    source.put("a", vcpus_used=5)
    look(fed, 10, world=world, source=source)
    assert records(world)["a"].vcpus_used == 5
    assert out_of_service(records(world)["c"]) is None
    for _ in range(6):
        look(fed, 10, world=world, source=source)
    assert out_of_service(records(world)["c"]) == "its cell's database cannot be read"
    assert out_of_service(records(world)["a"]) is None
    assert caplog.text.count("Cell west cannot be read") == 1
    assert fed._deps.observer.of(events.FEED_FAILURES) == {"west": 7}
    source.down = set()
    look(fed, world=world, source=source)
    assert out_of_service(records(world)["c"]) is None


def test_a_cell_that_cannot_be_read_does_not_keep_requests_waiting(world, source):
    source.down = {OTHER_CELL}
    fed = feeder(world, source)
    fed.run_due()
    assert fed.unready() is None


def test_services_are_read_again_as_soon_as_a_cell_can_be(world, source, fed):
    source.down = {OTHER_CELL}
    look(fed, world=world, source=source)
    source.down = set()
    source.beat("c", disabled=True)
    look(fed, world=world)
    assert out_of_service(records(world)["c"]) == "its compute service is disabled"


def test_a_cell_whose_mapping_is_disabled_takes_its_hosts_along(world, source, fed):
    del source.parts[1]
    look(fed, FULL_S, world=world, source=source)
    assert set(records(world)) == {"a", "b"}


def test_what_could_not_be_stored_is_stored_later(world, source, fed, monkeypatch):
    source.place("i1", "a")
    real, failures = world.state.write, [StateUnavailable("gone"), StateUnavailable("gone")]

    def write(scope, *args, **kwargs):
        if scope == "default" and failures:
            raise failures.pop()
        return real(scope, *args, **kwargs)

    monkeypatch.setattr(world.state, "write", write)
    world.clock.advance(FULL_S / 2)
    for _ in range(3):
        look(fed, world=world, source=source)
    assert failures == []
    assert on_host(world, "a") == {"i1"}


# Turns


def test_one_of_two_workers_feeds_and_the_other_goes_on_from_there(world, source, fed):
    beside = world.beside()
    other = feeder(beside, source, name="other")
    for _ in range(2):
        look(fed, 20, world=world, source=source)
    assert other.run_due() > 0
    calls = source.calls.copy()
    source.place("i1", "b")
    world.clock.advance(2 * INTERVAL_S)
    other.run_due()
    assert on_host(beside, "b") == {"i1"}
    assert source.calls["read"] == calls["read"] + 1  # of the one host that has changed
    assert other.unready() is None
    before = source.calls.copy()
    look(fed, SECOND_S, world=world)
    assert source.calls == before  # it has lost the turn


def test_a_worker_that_lost_the_lead_while_it_wrote_stores_nothing_older(
    world, source, fed, monkeypatch
):
    source.put("a", memory_mb_used=1)
    second_s = source.nodes["a"][1].updated_at

    def another_takes_over():
        world.clock.advance(3 * INTERVAL_S)
        source.put("a", memory_mb_used=2, updated_at=second_s)
        feeder(world.beside(), source, "other").run_due()

    before_next(monkeypatch, world.state, "write", another_takes_over, scope="default")
    look(fed, world=world)
    world.fleet.refresh()
    assert records(world)["a"].memory_mb_used == 2


def test_another_worker_goes_on_with_a_first_reading(world, source, monkeypatch, caplog):
    """From the hosts that are stored, of which it reads what has changed meanwhile."""
    for number in range(600):
        source.put(f"n{number:03}")
    world.clock.advance(FULL_S)
    real, read = source.read, set()

    def slow(part_id, hosts):
        found = real(part_id, hosts)
        if "n599" in hosts:
            world.clock.advance(2 * INTERVAL_S)  # so long that the turn is over
        return found

    def noted(part_id, hosts):
        read.update(hosts)
        return real(part_id, hosts)

    monkeypatch.setattr(source, "read", slow)
    fed = feeder(world, source)
    fed.run_due()
    assert len(records(world)) == 500
    assert fed.unready()
    source.place("i1", "n000")
    monkeypatch.setattr(source, "read", noted)
    beside = world.beside()
    other = feeder(beside, source, name="other")
    world.clock.advance(2 * INTERVAL_S)
    other.run_due()
    assert other.unready() is None
    assert len(records(beside)) == 603
    assert on_host(beside, "n000") == {"i1"}
    assert read == {"n000", "c", *(f"n{number:03}" for number in range(498, 600))}
    look(fed, SECOND_S, world=world)
    assert fed.unready() is None
    assert "500 of 603 hosts are read" in caplog.text


@pytest.mark.parametrize("renew", [Feeder.run_due, Feeder._keep], ids=["round", "progress"])
def test_a_turn_ends_before_another_begins_however_long_its_write_took(
    world, source, fed, monkeypatch, renew
):
    other, write = feeder(world.beside(), source, name="other"), world.state.write

    def slow(*arguments, **how):
        written = write(*arguments, **how)
        world.clock.advance(INTERVAL_S)
        return written

    world.clock.advance(INTERVAL_S)
    with monkeypatch.context() as patch:
        patch.setattr(world.state, "write", slow)
        renew(fed)
    assert fed.is_leader()
    while not other.is_leader():
        world.clock.advance(SECOND_S / 2)
        other.run_due()
    assert not fed.is_leader()


def test_a_turn_that_lapses_by_a_late_round_is_told(world, source, fed, caplog):
    look(fed, INTERVAL_S, world=world)
    assert not caplog.records
    look(fed, 2 * INTERVAL_S, world=world)
    [warned] = caplog.records
    assert "nobody feeds meanwhile. 3 of 3 hosts are read" in warned.message


# Readiness


def test_requests_are_refused_until_all_hosts_are_known(world, source):
    fed = feeder(world, source)
    world.feed(barrier(world, fed))
    with pytest.raises(NoValidHost, match="have not been read yet"):
        world.place("i1")
    assert "have not been read yet" in (world.scheduler.explain(request("i1")).reason or "")
    source.down = {"api"}
    fed.run_due()
    with pytest.raises(NoValidHost, match="API database cannot be read"):
        world.ask("i1")
    source.down = set()
    look(fed, 10, world=world, source=source)
    assert world.place("i1")


def test_another_worker_hears_at_once_that_all_hosts_are_known(world, source):
    beside = world.beside()
    other = feeder(beside, source, name="other")
    assert other.unready()
    feeder(world, source).run_due()
    assert other.unready() is None


def test_requests_are_refused_when_nobody_has_fed_for_long(world, source, fed):
    world.clock.advance(SILENT_S + 1)
    assert "for 61 s" in (fed.unready() or "")
    fed.run_due()  # that all services are down by now is known, too
    assert fed.unready() is None
    with pytest.raises(NoValidHost):
        world.scheduler.select(request("i1"))


def test_an_api_database_that_hangs_delays_neither_the_cells_nor_the_turn(world, source):
    threads = HangingOutline()
    fed = feeder(world, source, threads=threads)
    fed.run_due()
    threads.hangs = True
    fed.look_now(outline=True)
    source.put("a", vcpus_used=3)
    for _ in range(5):
        look(fed, INTERVAL_S, world=world, source=source)
    assert records(world)["a"].vcpus_used == 3
    assert source.calls["outline"] == 1


def test_hints_are_answered_soon_and_not_each_on_its_own(world, source, fed):
    calls = source.calls["changes"]
    world.clock.advance(0.2)
    assert 0 < fed.run_due() <= 0.5
    assert source.calls["changes"] == calls
    look(fed, 0.5, world=world)
    assert source.calls["changes"] == calls + 2  # one for each cell


def test_progress_is_logged(world, source, caplog):
    caplog.set_level(logging.INFO)
    for number in range(600):
        source.put(f"n{number}")
    fed = feeder(world, source)
    fed.run_due()
    assert "Feed of east: read 500 of 602 hosts" in caplog.text
    assert "All hosts of 2 cells are known" in caplog.text
    assert fed.describe()["parts"][CELL]["hosts"] == 602
