"""Trees that are compared with Placement's before a request is answered."""

from collections.abc import Callable

import pytest

from scheduler_worker.errors import PlacementRefused, PlacementUnavailable
from scheduler_worker.model.providers import ProviderFacts, shape_of
from scheduler_worker.service.feed import trees
from scheduler_worker.service.feed.providers import ProviderFeed
from tests.support.patience import SOON_S
from tests.support.provider_feeds import Reading
from tests.support.threads import Threads

AGGREGATE = "4c1d0e62-0000-4000-8000-000000000001"


@pytest.fixture
def reading() -> Reading:
    """Two hosts, one with a device, as they are in Placement."""
    found = Reading("a", "b")
    found.placement.add_child("gpu", "uuid-a", VGPU=2)
    found.placement.label("uuid-a", "FAST", aggregates=(AGGREGATE,))
    found.run()
    found.placement.read.clear()
    return found


def changed(reading: Reading, *roots: str, feed: ProviderFeed | None = None) -> set[str]:
    """The trees that are others than the records had before."""
    before = {
        each.uuid: shape_of(each.resource_providers)
        for each in reading.world.fleet.cluster("default").table.records
    }
    found = (feed or reading.feed).verify(roots)
    return {root for root, tree in found.items() if shape_of(tree) != before[root]}


def of_others(reading: Reading) -> dict[str, int]:
    """What was read by kind."""
    found: dict[str, int] = {}
    for (what, _), count in reading.placement.read.items():
        found[what] = found.get(what, 0) + count
    return found


def test_of_trees_that_are_as_known_only_a_listing_is_read(reading):
    versions = reading.versions()
    assert not changed(reading, "uuid-a", "uuid-b", "of no host")
    assert reading.placement.read == {("list", "uuid-a"): 1, ("list", "uuid-b"): 1}
    assert reading.versions() == versions


@pytest.mark.parametrize(
    "change",
    [
        lambda placement: placement.label("uuid-a", aggregates=(AGGREGATE,)),
        lambda placement: placement.label("uuid-a", "FAST", "NEW", aggregates=(AGGREGATE,)),
        lambda placement: placement.label("uuid-a", "FAST"),
        lambda placement: placement.label("gpu", "NEW"),
        lambda placement: placement.add_child("new", "uuid-a", VGPU=1),
        lambda placement: placement.generations.pop("gpu"),
    ],
)
def test_a_tree_that_is_another_is_read_and_stored(reading, change: Callable[..., object]):
    change(reading.placement)
    assert changed(reading, "uuid-a", "uuid-b") == {"uuid-a"}
    found = {each.uuid: each for each in reading.record("a").resource_providers}
    assert {uuid: each.generation for uuid, each in found.items()} == {
        uuid: n for uuid, n in reading.placement.generations.items() if uuid != "uuid-b"
    }
    labels = reading.placement.traits(list(found))
    assert {uuid: (each.traits, each.aggregates) for uuid, each in found.items()} == {
        uuid: (each.traits, each.aggregates) for uuid, each in labels.items()
    }
    assert not changed(reading, "uuid-a", "uuid-b")


def test_a_generation_that_only_a_claim_moved_is_remembered(reading):
    versions = reading.versions()
    reading.placement.allocate("a", "i1", 1)
    assert not changed(reading, "uuid-a")
    assert of_others(reading) == {"list": 1, "traits": 1}
    assert not changed(reading, "uuid-a")
    assert of_others(reading) == {"list": 2, "traits": 1}
    assert reading.versions() == versions


def test_what_is_remembered_is_compared_with_the_record_of_now(reading):
    """Which another worker may have written meanwhile."""
    reading.placement.allocate("a", "i1", 1)
    reading.feed.verify(["uuid-a"])
    reading.placement.label("uuid-a", "FAST", "NEW", aggregates=(AGGREGATE,))
    other = reading.beside()
    assert changed(reading, "uuid-a", feed=other)
    assert not changed(reading, "uuid-a")
    assert "NEW" in reading.record("a").resource_providers[0].traits


def test_a_tree_that_is_gone_is_another_and_stays_stored(reading):
    before = reading.record("b").resource_providers
    del reading.placement.generations["uuid-b"]
    for _ in range(2):
        assert changed(reading, "uuid-b") == {"uuid-b"}
    assert reading.record("b").resource_providers == before


def test_a_host_that_has_no_providers_anywhere_is_as_known(reading):
    reading.world.report({"host": "c", "uuid": "uuid-c", "vcpus": 4, "memory_mb": 1, "local_gb": 1})
    assert not changed(reading, "uuid-c")


def test_a_provider_that_cannot_be_read_is_no_other_one_each_time(reading, monkeypatch):
    facts = reading.placement.facts

    def some(uuids):
        unreadable = {"gpu": ProviderFacts(generation=None, inventories={})}
        return facts(uuids) | (unreadable if "gpu" in uuids else {})

    monkeypatch.setattr(reading.placement, "facts", some)
    reading.placement.label("gpu", "NEW")
    reading.feed.verify(["uuid-a"])
    assert not changed(reading, "uuid-a")


def test_a_listing_that_does_not_come_is_an_error(reading):
    reading.placement.is_away = True
    with pytest.raises(PlacementUnavailable):
        reading.feed.verify(["uuid-a"])


def test_threads_verify_at_once_while_a_round_is_running(reading):
    reading.placement.label("uuid-a", "NEW")
    with Threads(2) as threads, reading.feed._running:
        answers = [threads.submit(reading.feed.verify, ["uuid-a"]) for _ in range(2)]
        found = [each.result(SOON_S)["uuid-a"][0].traits for each in answers]
    assert found == [("NEW",)] * 2
    assert reading.record("a").resource_providers[0].traits == ("NEW",)


def test_the_worker_that_feeds_does_not_write_back_what_it_knew_before(reading):
    """Neither facts nor providers, though it reads the use of the host after another worker."""
    reading.placement.label("uuid-a", "NEW")
    reading.placement.add_child("new", "uuid-a", VGPU=1)
    assert changed(reading, "uuid-a", feed=reading.beside())
    stored = reading.record("a").resource_providers
    reading.world.report({"host": "a", "instances": [{"uuid": "i1"}]})
    reading.run(2)
    found = reading.record("a").resource_providers
    assert [each.read_at_s for each in found] > [each.read_at_s for each in stored]
    assert [(each.uuid, each.traits) for each in found] == [
        (each.uuid, each.traits) for each in stored
    ]


def test_a_turn_begins_with_what_the_records_have(reading):
    reading.is_leader = False
    reading.run(2)
    reading.is_leader = True
    reading.placement.allocate("b", "i1", 1)
    reading.placement.read.clear()
    versions = reading.versions()
    reading.run(2)
    assert {of for what, of in reading.placement.read} == {"all", "uuid-b"}
    assert reading.versions()[0] == versions[0]
    assert reading.record("a").resource_providers[0].traits == ("FAST",)


@pytest.mark.parametrize(
    ("most", "questions"),
    [
        (300, {("list", "FAST"): 1}),
        (1, {("traits", "uuid-a"): 1, ("traits", "uuid-b"): 1}),
    ],
)
def test_where_traits_of_compute_nodes_decide_these_alone_are_read(
    reading, monkeypatch, most, questions
):
    """By listing who has them in a small cloud, else of each host."""
    monkeypatch.setattr(trees, "_MOST_LISTED", most)
    reading.placement.label("gpu", "NEW")
    found = reading.feed.verify(["uuid-a", "uuid-b", "of no host"], ["FAST"])
    assert set(found) == {"uuid-a", "uuid-b"}
    assert reading.placement.read == questions
    reading.placement.label("uuid-a", "NEW", aggregates=(AGGREGATE,))
    [root, *_] = reading.feed.verify(["uuid-a", "uuid-b"], ["FAST"])["uuid-a"]
    assert root.traits == reading.record("a").resource_providers[0].traits == ("NEW",)


def test_a_trait_that_placement_does_not_know_is_one_that_no_host_has(reading, monkeypatch):
    def refuse(trait):
        raise PlacementRefused(f"No such trait(s): {trait}.")

    monkeypatch.setattr(reading.placement, "having", refuse)
    before = reading.versions()
    assert set(reading.feed.verify(["uuid-a", "uuid-b"], ["NEW"])) == {"uuid-a", "uuid-b"}
    assert reading.versions() == before
