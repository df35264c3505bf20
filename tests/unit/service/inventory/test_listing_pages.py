"""Pages of large fleets: what is built and kept for one page does not grow with the fleet."""

import tracemalloc

import pytest

from scheduler_worker.service.inventory import listing
from scheduler_worker.service.inventory.listing import hosts_of
from tests.support.services import World, host

LIMIT = 100


def fleet_of(count):
    world = World()
    world.report(*(host(f"h{number:05}") for number in range(count)))
    listing.page(world.fleet, hosts_of, lambda replica, uuid: uuid, limit=1)
    return world


@pytest.fixture(scope="module")
def large():
    return fleet_of(10_000)


def page(world, marker, built):
    def row(replica, uuid):
        built.append(uuid)
        return uuid

    return listing.page(world.fleet, hosts_of, row, marker=marker, limit=LIMIT)


def test_only_the_rows_of_a_page_are_built(large):
    built, marker, pages = [], None, 0
    while pages == 0 or marker is not None:
        _, marker = page(large, marker, built)
        pages += 1
        assert len(built) == LIMIT * pages
    assert pages == 100
    assert built == [f"uuid-h{number:05}" for number in range(10_000)]


def test_a_page_of_a_large_fleet_keeps_no_more_than_one_of_a_small(large):
    peaks = {}
    for name, world in (("small", fleet_of(500)), ("large", large)):
        tracemalloc.start()
        page(world, None, [])
        peaks[name] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peaks["large"] < peaks["small"] + 20_000, peaks  # bytes; all keys would be a million


def test_rows_are_chosen_before_they_are_built(large):
    found, following = listing.page(
        large.fleet, hosts_of, lambda replica, uuid: uuid, marker="uuid-h00500", limit=3,
        where=lambda replica, uuid: uuid.endswith("7"),
    )  # fmt: skip
    assert found == ["uuid-h00507", "uuid-h00517", "uuid-h00527"]
    assert following == "uuid-h00527"
