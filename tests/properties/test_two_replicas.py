"""Two replicas on one state: no pinned CPU, page or device is promised twice."""

from __future__ import annotations

import contextlib
from collections import Counter

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.claims import PendingResource
from scheduler_worker.scheduling.filters.numa_topology import NUMATopologyFilter
from scheduler_worker.scheduling.filters.pci_passthrough import PciPassthroughFilter
from tests.support.services import World, host
from tests.unit.scheduling.test_promised_cells import cell, pool

HOSTS = ("a", "b")
PAGES, DEVICES = 2048, {"p": 2, "q": 1}


def new_worlds() -> list[World]:
    world = World(filters=(NUMATopologyFilter, PciPassthroughFilter))
    world.report(
        *(
            host(
                name,
                vcpus=64,
                memory_mb=2**17,
                numa_topology={"cells": [cell(0), cell(1)]},
                pci_device_pools=[pool(0, 2, "p"), pool(1, 1, "q")],
            )
            for name in HOSTS
        )
    )
    return [world, world.beside()]


def asked(cpus: int, devices: int, *, pages: bool) -> dict:
    wanted = {"id": 0, "cpuset": [], "pcpuset": list(range(cpus)), "memory": 1024}
    wanted |= {"cpu_policy": "dedicated"} | ({"pagesize": 2048} if pages else {})
    request = {"count": devices, "spec": [{"vendor_id": "8086"}], "alias_name": "a"}
    return {
        "vcpus": cpus,
        "numa_topology": {"cells": [wanted]},
        "pci_requests": {"requests": [request | {"request_id": "x"}] if devices else []},
    }


def promises(world: World) -> list[tuple[str, PendingResource]]:
    listed = world.listing.reservations()["reservations"]
    return [(each["host"], msgspec.convert(each["resources"], PendingResource)) for each in listed]


def check(world: World) -> None:
    pinned: Counter[tuple[str, int]] = Counter()
    pages: Counter[tuple[str, int]] = Counter()
    devices: Counter[tuple[str, str]] = Counter()
    for name, taken in promises(world):
        for used in taken.numa or ():
            pinned.update((name, cpu) for cpu in used.pinned)
            if used.page_kb == 2048:
                pages[name, used.id] += used.memory // 2
        for each in taken.pci or ():
            devices[name, each.value("rp_uuid")] += each.count
    assert all(count == 1 for count in pinned.values())
    assert all(count <= PAGES for count in pages.values())
    assert all(count <= DEVICES[provider] for (_, provider), count in devices.items())


steps = st.tuples(
    st.integers(0, 1),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(steps, min_size=4, max_size=24))
def test_nothing_is_promised_twice(told):
    worlds = new_worlds()
    placed = ["first"]
    worlds[0].ask("first", **asked(1, 1, pages=True))
    for number, (at, cpus, instances, devices, with_pages, gives_back) in enumerate(told):
        if gives_back and placed:
            worlds[at].inventory.release([placed.pop(0)])
        uuids = [f"i{number}-{each}" for each in range(instances)]
        with contextlib.suppress(NoValidHost):
            worlds[at].ask(*uuids, **asked(cpus, devices, pages=with_pages))
            placed += uuids
        check(worlds[0])
