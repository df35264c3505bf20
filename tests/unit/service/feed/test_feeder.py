"""The feeder: what it stores and what not, and cells that are down."""

from typing import Any

import pytest

from scheduler_worker import events
from scheduler_worker.errors import StateUnavailable
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.host_records import out_of_service
from scheduler_worker.model.providers import Inventory, ResourceProvider
from scheduler_worker.service.inventory.inventory import Inventory as HostInventory
from tests.support.feeds import (
    CELL,
    FULL_S,
    INTERVAL_S,
    OTHER_CELL,
    MemorySource,
    feeder,
    look,
    on_host,
    records,
)
from tests.support.interrupted import before_next, raising
from tests.support.services import World


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


def test_a_host_that_goes_while_its_changes_are_read_is_removed_at_once(
    world, source, fed, monkeypatch
):
    source.place("i1", "a")
    look(fed, world=world)
    source.place("i1", "b")
    before_next(monkeypatch, source, "read", lambda: source.nodes.pop("a"))
    look(fed, world=world)
    assert records(world).keys() == {"b", "c"}
    assert on_host(world, "b") == {"i1"}


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
    for _ in range(10):  # until no row counts as changed any more
        look(fed, world=world, source=source)
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
    assert "still being read" in (fed.readiness.unready() or "")
    Providers.is_begun = True
    look(fed, world=world)
    assert "still being read" in (
        fed.readiness.unready() or ""
    )  # one that is full is not in the sums
    Providers.lacking = ""
    look(fed, world=world)
    assert fed.readiness.unready() is None
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
    assert fed.readiness.unready() is None


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
