"""Whether a VM would have no other host but one, as the policy's filters see it."""

from typing import Any

import pytest

from scheduler_worker.scheduling.drain_safety import DrainSafety, RunningVms
from tests.support.services import World, host

LARGE = {"memory_mb": 100_000}


def needed(world: World, by: str = "a") -> str | None:
    """The VM on a that needs b."""
    replica = world.fleet.cluster("default")
    replica.refresh(world.state)
    vms = RunningVms(world.pipeline, world.fleet.prepare(replica))
    vms.read(by)
    drain_safety = DrainSafety(vms, "b")
    found = (
        some[source]
        for kind, some in vms.kinds.items()
        for source in drain_safety.doubtful(kind, some)
        if drain_safety.is_needed(kind, source, some[source])
    )
    return next(found, None)


@pytest.fixture
def world() -> World:
    """Two large hosts, and a small one."""
    found = World()
    found.report(host("a", **LARGE), host("b", **LARGE), host("c"))
    return found


def vms(**facts: Any) -> dict[str, Any]:
    return {"host": "a", "virt": {"vms": [{"id": "vm", "memory_mb": 50_000} | facts]}}


def test_a_vm_that_fits_on_no_other_host_needs_it(world):
    assert needed(world) is None
    world.report(vms())
    assert needed(world) == "vm"
    world.report(host("c", memory_mb=60_000))
    assert needed(world) is None, "there is another"


def test_room_that_is_reserved_counts_as_taken(world):
    world.report(vms(memory_mb=6000))
    assert needed(world) is None
    world.place("new", memory_mb=6000, only_hosts=["c"])
    assert needed(world) == "vm"


def test_a_vm_that_cannot_move_needs_it_only_if_it_is_started_again_elsewhere(world):
    world.report(vms(migratable=False))
    assert needed(world) is None
    world.report(vms(migratable=False, highly_available=True))
    assert needed(world) == "vm"


@pytest.mark.parametrize("state", ["maintenance", "down"])
def test_a_host_that_sleeps_is_needed_as_if_it_were_up(world, state):
    world.report(vms())
    world.report({"host": "b", "power": {"state": state}})
    assert needed(world) == "vm"
    world.report(host("b", memory_mb=8192))
    assert needed(world) is None, "it would not fit there either"
