"""Two replicas on one state: no pinned CPU, page or device is reserved twice."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.claims import Resources
from scheduler_worker.ports import LockGrant, Transaction, Written
from scheduler_worker.scheduling.filters.numa_topology import (
    NUMATopologyFilter,
    PciPassthroughFilter,
)
from tests.support.services import World, host
from tests.support.trials import examples
from tests.unit.scheduling.test_reserved_cells import cell, pool

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


def reservations(world: World) -> list[tuple[str, Resources]]:
    listed = world.reservations()
    return [(each["host"], msgspec.convert(each["resources"], Resources)) for each in listed]


def check(world: World) -> None:
    pinned: Counter[tuple[str, int]] = Counter()
    pages: Counter[tuple[str, int]] = Counter()
    devices: Counter[tuple[str, str]] = Counter()
    for name, taken in reservations(world):
        for used in taken.numa or ():
            pinned.update((name, cpu) for cpu in used.pinned)
            if used.page_kb == 2048:
                pages[name, used.id] += used.memory // 2
        for each in taken.pci or ():
            devices[name, each.value("rp_uuid")] += each.count
    assert all(count == 1 for count in pinned.values())
    assert all(count <= PAGES for count in pages.values())
    assert all(count <= DEVICES[provider] for (_, provider), count in devices.items())


def overtake(world: World, request: Callable[[], object]) -> None:
    """The next commit arrives after its lease expired, and after another replica's request."""
    state, commit = world.state, world.state.commit

    def late(grant: LockGrant, transactions: Sequence[Transaction], **how: Any) -> Written:
        del state.commit
        world.clock.advance(world.limits.hold_timeout_s + 1)
        request()
        return commit(grant, transactions, **how)

    state.commit = late


class Step(NamedTuple):
    """One request of one of the replicas, and what happens before or during it."""

    at: int
    cpus: int
    instances: int
    devices: int
    with_pages: bool
    gives_back: bool
    is_overtaken: bool


steps = st.builds(
    Step,
    st.integers(0, 1),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 2),
    *[st.booleans()] * 3,
)


@examples(60)
@given(st.lists(steps, min_size=4, max_size=24))
def test_nothing_is_reserved_twice_and_what_is_given_back_is_free(taken_steps):
    worlds = new_worlds()
    placed: list[str] = []

    def ask(at: int, *uuids: str, **what: Any) -> None:
        with contextlib.suppress(NoValidHost):
            worlds[at].ask(*uuids, **what)
            placed.extend(uuids)

    for number, step in enumerate(taken_steps):
        if step.gives_back and placed:
            worlds[step.at].inventory.release([placed.pop(0)])
        what = asked(step.cpus, step.devices, pages=step.with_pages)
        if step.is_overtaken:
            overtake(worlds[step.at], lambda: ask(1 - step.at, f"other{number}", **what))  # noqa: B023
        ask(step.at, *(f"i{number}-{each}" for each in range(step.instances)), **what)
        worlds[0].state.__dict__.pop("commit", None)  # where nothing was committed
        for world in worlds:
            check(world)
            assert {each for some in world.reserved().values() for each in some} == set(placed)
    worlds[0].inventory.release(placed)
    everything = [f"last{number}" for number in range(len(HOSTS) * sum(DEVICES.values()))]
    worlds[1].ask(*everything, **asked(1, 1, pages=True))
    check(worlds[0])
