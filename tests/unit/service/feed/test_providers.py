"""Which providers are read when, and what the shared state knows of hosts afterwards."""

import logging
from typing import Any

import pytest

from scheduler_worker import events
from scheduler_worker.errors import NoValidHost, PlacementRefused
from scheduler_worker.model.host_records import compute_reported_at_s
from scheduler_worker.model.host_reports import LONGEST_READING_S
from scheduler_worker.model.providers import (
    MAX_CONSUMERS,
    ConsumerAllocation,
    Inventory,
    ProviderEntry,
    ProviderFacts,
    ProviderRoom,
    ProviderSummary,
    ResourceProvider,
    Use,
)
from scheduler_worker.service.feed.provider_cache import ProviderCache
from scheduler_worker.service.feed.settings import ProviderSettings
from tests.support.observers import CountingObserver
from tests.support.provider_feeds import Reading


@pytest.fixture
def reading() -> Reading:
    """Two hosts that are read."""
    reading = Reading("a", "b")
    reading.run()
    return reading


def test_the_start_asks_for_all_hosts_at_once():
    reading = Reading("a", "b", "c")
    reading.placement.allocate("a", "i1", 3)
    reading.placement.allocate("c", "full", 8)
    assert reading.feed.providers("uuid-a") is None
    reading.run()
    assert [reading.unused(name) for name in "abc"] == [5, 8, 0]
    read = reading.placement.read
    assert (read["use", "uuid-c"], read["facts", "uuid-c"]) == (1, 1), "no candidate has it"
    assert reading.record("c").resource_providers[0].consumers == ("full",)


def test_what_the_start_knows_roughly_is_read_in_time():
    reading = Reading("a", "b", "c", settings=ProviderSettings(hosts_per_s=1))
    reading.placement.allocate("c", "i1", 3)
    reading.placement.label("uuid-c", "T", aggregates=("some",))
    reading.run()
    [root] = reading.record("c").resource_providers
    assert (root.consumers, root.traits, root.generation) == (None, ("T",), None)
    reading.run(2)
    [root] = reading.record("c").resource_providers
    assert (root.consumers, root.aggregates, root.generation) == (("i1",), ("some",), 3)
    assert reading.placement.read["use", "uuid-b"] == 1


def test_a_cloud_at_rest_is_only_listed():
    reading = Reading("a", "b")
    reading.placement.add_child("gpu", "uuid-a", VGPU=2)
    reading.placement.allocate("a", "i1", 3)
    reading.run_for(120)
    before, versions = reading.placement.read.copy(), reading.versions()
    reading.run_for(600)
    assert reading.placement.read - before == {("list", "all"): 10}
    assert reading.versions() == versions


def test_hosts_that_change_are_read_in_turn_though_others_change_again():
    names = [f"h{number:02}" for number in range(70)]
    reading = Reading(*names, settings=ProviderSettings(hosts_per_s=1))
    reading.run_for(240)
    reading.placement.read.clear()
    for name in names:
        reading.placement.allocate(name, "i1", 1)
    while not reading.placement.read["use", "uuid-h59"]:
        reading.run(2)
    for name in names[:10]:
        reading.placement.allocate(name, "i2", 1)
    while not reading.placement.read["use", "uuid-h69"]:
        reading.run(2)
    assert max(reading.placement.read["use", f"uuid-{name}"] for name in names) == 1
    reading.run_for(70)
    assert [reading.unused(name) for name in names] == [6] * 10 + [7] * 60


def test_an_inventory_that_changed_is_seen_by_its_generation():
    reading = Reading("a", "b")
    reading.run_for(10)
    facts = reading.placement.read["facts", "uuid-b"]
    reading.placement.resize("a", VCPU=4)
    reading.run_for(64)
    assert reading.unused("a") == 4
    assert reading.placement.read["facts", "uuid-b"] == facts


@pytest.mark.parametrize(("deleted_after_s", "seen_after_s"), [(0, 2), (4, 20)])
def test_a_deleted_allocation_is_found_when_its_instance_has_left(deleted_after_s, seen_after_s):
    """At once, and again when it must be through: it may be deleted after its instance."""
    reading = Reading("a")
    reading.placement.allocate("a", "i1", 3)
    reading.world.report({"host": "a", "instances": [{"uuid": "i1"}]})
    reading.run()
    reading.world.report({"host": "a", "instances": []})
    reading.run_for(deleted_after_s)
    reading.placement.delete("a", "i1")
    assert reading.unused("a") == 5
    reading.run_for(seen_after_s)
    assert reading.unused("a") == 8


def test_what_was_to_be_read_is_not_forgotten_while_placement_is_away():
    reading = Reading("a")
    reading.placement.allocate("a", "i1", 3)
    reading.world.report({"host": "a", "instances": [{"uuid": "i1"}]})
    reading.run()
    reading.placement.delete("a", "i1")
    reading.world.report({"host": "a", "instances": []})
    reading.placement.is_away = True
    reading.run_for(30)
    reading.placement.is_away = False
    reading.run(2)
    assert reading.unused("a") == 8


def test_a_provider_that_is_gone_is_not_known_any_more(reading):
    assert reading.feed.providers("uuid-a") is not None
    del reading.placement.generations["uuid-a"]
    reading.run_for(64)
    assert reading.feed.providers("uuid-a") is None
    assert reading.feed.providers("uuid-b") is not None


def test_a_claim_is_read_when_its_instance_is_on_the_host(reading):
    reading.world.place("i1", vcpus=3, memory_mb=3072)
    reading.placement.allocate("a", "i1", 3)
    reading.world.clock.advance(1)
    use = {"vcpus_used": 3, "memory_mb_used": 3072}
    reading.world.report({"host": "a", "instances": [{"uuid": "i1"}]} | use)
    assert reading.world.reserved() == {"a": ["i1"]}
    reading.run(2)
    assert (reading.unused("a"), reading.world.reserved()) == (5, {})


def test_a_failed_build_is_found_though_no_compute_service_reports_it(reading):
    reading.world.place("i1", vcpus=3, memory_mb=3072)
    reading.placement.allocate("a", "i1", 3)
    reading.run_for(36)
    assert reading.world.reserved() == {"a": ["i1"]}
    reading.placement.delete("a", "i1")
    reading.run_for(36)
    assert (reading.unused("a"), reading.world.reserved()) == (8, {})


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_refused_claim_is_followed_by_a_reading_on_every_worker(reading, is_leader):
    reading.is_leader = is_leader
    reading.placement.allocate("a", "by somebody else", 8)
    reading.placement.inventories["uuid-a"]["VCPU"] = Inventory(total=9)
    reading.feed.read_again(["uuid-a"])
    before = reading.placement.read.copy()
    reading.run()
    assert reading.unused("a") == 1
    assert reading.record("a").resource_providers[0].consumers == ("by somebody else",)
    new = reading.placement.read - before
    if not is_leader:
        assert set(new) == {("list", "uuid-a"), ("facts", "uuid-a"), ("use", "uuid-a")}


def test_a_refused_claim_is_not_forgotten_while_placement_is_away(reading):
    reading.is_leader = False  # so nothing else is read
    reading.placement.allocate("a", "by somebody else", 8)
    reading.feed.read_again(["uuid-a"])
    reading.placement.is_away = True
    reading.run()
    assert reading.unused("a") == 8
    reading.placement.is_away = False
    reading.run()
    assert reading.unused("a") == 0


def test_what_is_read_of_a_host_is_no_heartbeat_of_its_compute_service(reading):
    before_s = compute_reported_at_s(reading.record("a"))
    reading.placement.label("uuid-a", "CUSTOM_NEW")
    reading.run_for(64)
    assert reading.record("a").resource_providers[0].traits == ("CUSTOM_NEW",)
    assert compute_reported_at_s(reading.record("a")) == before_s


def test_a_reading_that_began_later_and_knows_less_is_ignored(reading):
    """Another worker's, of before an allocation that is known, and whose reservation is gone."""
    before_it = reading.placement.uses(["uuid-a"])
    reading.placement.allocate("a", "i1", 3)
    reading.feed.read_again(["uuid-a"])
    reading.run()
    assert reading.unused("a") == 5
    beside = reading.beside(before_it)
    reading.world.clock.advance(1)
    beside.read_again(["uuid-a"])
    beside.run_due()
    reading.feed.run_due()
    assert reading.unused("a") == 5


def test_a_reading_is_dated_before_it_began(reading, monkeypatch):
    """A claim that comes while Placement is slow would count as seen by what lacks it."""
    began_s = reading.world.clock.time_s()
    uses = reading.placement.uses

    def slow(uuids):
        reading.world.clock.advance(5)
        reading.world.report({"host": "b"})  # so that the store's later time is known
        return uses(uuids)

    monkeypatch.setattr(reading.placement, "uses", slow)
    reading.placement.allocate("a", "i1", 3)
    reading.feed.read_again(["uuid-a"])
    reading.run()
    assert reading.record("a").resource_providers[0].read_at_s <= began_s


def test_sums_replace_nothing_that_is_known_exactly():
    """At a takeover one unknown host is enough for sums of all."""
    cache = ProviderCache()
    listed = ProviderEntry(uuid="p", name="p", generation=3, root_provider_uuid="p")
    cache.list_all([listed])
    exact = ResourceProvider(
        uuid="p", name="p", inventories={"VCPU": Inventory(total=8)}, usages={"VCPU": 3},
        aggregates=("some",), consumers=("i1",), generation=3, read_at_s=1.0,
    )  # fmt: skip
    cache.add_known([exact])
    cache.add_sums({"p": ProviderSummary(root="p", rooms={"VCPU": ProviderRoom(8, 3)})}, 2.0)
    [root] = cache.report("p") or ()
    assert (root.consumers, root.aggregates, root.generation) == (("i1",), ("some",), 3)


def test_consumers_of_a_provider_are_kept_all_or_none():
    """One that is missing would count as not there, and its reservation beside its allocation."""
    cache = ProviderCache()
    cache.list_all([ProviderEntry(uuid="p", name="p", generation=3, root_provider_uuid="p")])
    cache.add_facts({"p": ProviderFacts(generation=3, inventories={})})
    found = []
    for number in (MAX_CONSUMERS, MAX_CONSUMERS + 1):
        taken = {f"i{each}": ConsumerAllocation({"VCPU": 1}) for each in range(number)}
        cache.add_uses({"p": Use(generation=3, taken=taken)}, 1.0)
        [root] = cache.report("p") or ()
        found.append((len(root.consumers or ()), root.usages))
    assert found == [(MAX_CONSUMERS, {"VCPU": MAX_CONSUMERS}), (0, {"VCPU": MAX_CONSUMERS + 1})]


def test_a_provider_that_was_created_anew_is_read_as_it_is(reading):
    reading.placement.allocate("a", "i1", 3)
    reading.feed.read_again(["uuid-a"])
    reading.run()
    reading.placement.delete("a", "i1")
    reading.placement.generations["uuid-a"] = 0
    reading.feed.read_again(["uuid-a"])
    reading.run(after_s=1)
    assert reading.unused("a") == 5, "as if it were the late answer of another worker"
    reading.feed.read_again(["uuid-a"])
    reading.run(after_s=LONGEST_READING_S)
    assert reading.unused("a") == 8


def test_a_provider_below_a_host_belongs_to_its_tree():
    reading = Reading("a")
    reading.placement.add_child("gpu", "uuid-a", VGPU=2)
    reading.run()
    reading.world.place("i1", extra_specs={}, flavor=vgpu(2))
    with pytest.raises(NoValidHost):
        reading.world.place("i2", flavor=vgpu(1))
    reading.feed.read_again(["gpu"])
    reading.run()
    assert reading.record("a").resource_providers[1].parent_provider_uuid == "uuid-a"


def vgpu(count: int) -> dict[str, Any]:
    extra_specs = {"resources:VGPU": str(count)}
    return {"vcpus": 1, "memory_mb": 1, "extra_specs": extra_specs}


def test_a_host_that_can_only_be_taken_whole_takes_no_flavors():
    reading = Reading("a")
    reading.placement.inventories["uuid-a"] = {"CUSTOM_BAREMETAL": Inventory(total=1)}
    reading.run()
    with pytest.raises(NoValidHost):
        reading.world.place("i1")
    whole = {"resources:CUSTOM_BAREMETAL": "1", "resources:VCPU": "0", "resources:MEMORY_MB": "0"}
    reading.world.place("i2", flavor={"vcpus": 0, "memory_mb": 0, "extra_specs": whole})


def test_placement_that_is_away_is_asked_again(caplog):
    reading = Reading("a")
    reading.placement.is_away = True
    reading.feed.read_again(["uuid-a"])
    reading.run()
    reading.run(2)
    assert caplog.text.count("Resource providers were not read") == 1
    assert not reading.feed.is_begun
    reading.placement.is_away = False
    reading.run(2)
    assert reading.feed.is_begun
    assert reading.unused("a") == 8


def test_a_worker_that_gets_the_turn_begins_anew():
    reading = Reading("a", is_leader=False)
    reading.run()
    assert reading.placement.read == {}
    reading.is_leader = True
    reading.run(2)
    assert reading.unused("a") == 8


@pytest.mark.parametrize("is_leader", [True, False])
def test_every_worker_knows_what_is_shared_and_reads_it_again_each_minute(caplog, is_leader):
    reading = Reading("a", is_leader=is_leader)
    assert reading.sharing.known() is None
    reading.placement.add_child("nfs", "nfs", DISK_GB=100)
    reading.placement.shares = {"nfs"}
    with caplog.at_level(logging.INFO):
        reading.run()
    assert "what these resource providers share: nfs" in caplog.text
    [found] = reading.sharing.known()
    assert (found.name, found.inventories["DISK_GB"].total, found.usages) == ("nfs", 100, {})
    reading.placement.allocations["nfs"] = {"i1": {"DISK_GB": 10}, "i2": {"DISK_GB": 20}}
    reading.run(59)
    assert reading.sharing.known() == (found,)
    reading.run(2)
    assert reading.sharing.known()[0].usages == {"DISK_GB": 30}
    reading.placement.is_away = True
    reading.run(61)
    assert [each.name for each in reading.sharing.known()] == ["nfs"]


# Looks


QUERY = "resources=MEMORY_MB:1024,VCPU:1&limit=1000"
SUMS = ("sums", "MEMORY_MB:1024,VCPU:1")


def test_a_look_finds_room_that_nobody_told_of_and_an_inventory_that_has_grown():
    reading = Reading("a", "b", "c")
    for name in "ab":
        reading.placement.allocate(name, f"i-{name}", 8)
    reading.run()
    assert [reading.unused(name) for name in "abc"] == [0, 0, 8]
    reading.placement.delete("a", "i-a")
    before = reading.placement.read.copy()
    reading.feed.look([QUERY])
    assert [reading.unused(name) for name in "abc"] == [8, 0, 8]
    new = reading.placement.read - before
    assert set(new) == {SUMS, ("list", "uuid-a"), ("use", "uuid-a")}
    reading.placement.resize("b", VCPU=16, MEMORY_MB=16384)
    reading.feed.look([QUERY])
    assert reading.unused("b") == 8


@pytest.mark.parametrize("asked", ["&required=FAST", "&member_of=in:rack", ""])
def test_a_look_finds_a_host_that_is_another_than_known(reading, asked):
    reading.placement.label("uuid-a", "FAST", aggregates=("rack", "row"))
    reading.feed.look([QUERY + asked])
    [root] = reading.record("a").resource_providers
    assert (root.traits, root.aggregates) == (("FAST",), ("rack", "row"))
    before = reading.placement.read.copy()
    reading.feed.look([QUERY + asked])
    assert set(reading.placement.read - before) == {SUMS}


def test_a_look_finds_a_device_below_a_host(reading):
    reading.placement.add_child("gpu", "uuid-a", VGPU=2)
    reading.feed.look(["resources=VCPU:1,VGPU:1"])
    assert [each.uuid for each in reading.record("a").resource_providers] == ["uuid-a", "gpu"]


def test_a_query_that_placement_does_not_accept_keeps_no_other(monkeypatch):
    reading = Reading("a")
    reading.placement.allocate("a", "i1", 8)
    reading.run()
    reading.placement.delete("a", "i1")
    sums = reading.placement.sums

    def refused(query):
        if query == "resources=CUSTOM_NONE:1":
            raise PlacementRefused("no such resource class")
        return sums(query)

    monkeypatch.setattr(reading.placement, "sums", refused)
    reading.feed.look(["resources=CUSTOM_NONE:1", QUERY])
    assert reading.unused("a") == 8


def test_a_look_reads_hosts_that_instances_left_whose_allocations_were_still_there():
    reading = Reading("a")
    reading.placement.allocate("a", "i1", 8)
    reading.world.report({"host": "a", "instances": [{"uuid": "i1"}]})
    reading.run()
    reading.world.report({"host": "a", "instances": []})
    reading.run(2)
    assert reading.unused("a") == 0
    reading.placement.delete("a", "i1")
    reading.feed.look([])
    assert reading.unused("a") == 8


def test_a_worker_without_the_turn_looks_at_nothing(reading):
    reading.is_leader = False
    before = reading.placement.read.copy()
    reading.feed.look([QUERY])
    assert reading.placement.read == before


def test_a_host_lacks_providers_until_its_record_has_them():
    reading = Reading("a", "b")
    reading.placement.generations.pop("uuid-b")
    reading.placement.allocate("a", "i1", 8)  # so that it is in no sums
    assert not reading.feed.lacks(reading.record("a"))  # it is not known yet that there are any
    reading.feed._begin()
    assert reading.feed.lacks(reading.record("a"))
    assert not reading.feed.lacks(reading.record("b"))
    reading.run()
    assert not reading.feed.lacks(reading.record("a"))


def test_what_is_asked_of_placement_is_counted():
    observer = CountingObserver()
    reading = Reading("a", "b", observer=observer)
    reading.run()
    assert observer.of(events.PROVIDER_READS) == {"list": 3, "sums": 2, "use": 2, "facts": 2}
    reading.placement.is_away = True
    reading.run_for(70)
    assert observer.of(events.PROVIDER_FAILURES)["list"] > 1
