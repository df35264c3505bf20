"""EvenLoad: the smallest VM that relieves a host, to hosts that stay well below the limit."""

from typing import Any

from scheduler_worker.model.cluster_load import (
    BalanceMemory,
    BalancePlan,
    ClusterLoad,
    HostLoad,
    VmLoad,
)
from scheduler_worker.scheduling.even_load import EvenLoadBalance
from tests.support.units import made

NOW_S = 10_000.0
OVER_S = NOW_S - 120


def vms(**loads: float) -> tuple[VmLoad, ...]:
    """VMs by name, with their load in percent of one CPU."""
    return tuple(VmLoad(id=id, cpu_percent=load, memory_mb=1024) for id, load in loads.items())


def host(name: str, percent: float, since_s: float | None = None, **fields: Any) -> HostLoad:
    """A host of four CPUs."""
    known = {"load": 4 * percent, "shared_cpus": 4, "free_mb": 8192.0, "num_vms": 1}
    return HostLoad(name=name, out_of_bounds_since_s=since_s, **known | fields)


def plan(*hosts: HostLoad, **given: Any) -> BalancePlan:
    memory, now_s = given.pop("memory", BalanceMemory()), given.pop("now_s", NOW_S)
    return made(EvenLoadBalance, **given).plan(ClusterLoad(hosts=hosts), memory, now_s)


def proposed(found: BalancePlan) -> list[str]:
    assert bool(found.migrations) is not bool(found.nothing_because)
    return [each.vm for each in found.migrations]


BUSY = host("busy", 90, OVER_S, vms=vms(a=20, b=60, c=200, d=100, e=79))
IDLE = host("idle", 10, num_vms=0)


def test_the_smallest_vm_that_suffices_comes_first_and_small_ones_not_at_all():
    # 90 % of four CPUs are 80 above the target of 70 % and 60 above the limit of 75 %.
    found = plan(BUSY, IDLE)
    assert proposed(found) == ["d", "c", "e"]
    assert found.migrations[0].reason == (
        "busy has a load of 90 %, 75 % and more is too much; the VM brings 100 % of a CPU"
    )


def test_any_move_helps_a_host_that_is_full():
    full = host("busy", 95, OVER_S, vms=vms(a=20, b=60))
    assert proposed(plan(full, IDLE)) == ["b", "a"]


def test_a_destination_stays_below_the_target_and_keeps_memory():
    busy = host("busy", 90, OVER_S, vms=vms(d=100))
    assert proposed(plan(busy, host("fits", 45))) == ["d"]
    found = plan(busy, host("close", 46))
    assert found.nothing_because == (
        "no VM may move, would help, and has a host with enough headroom "
        "(busy has a load of 90 %, 75 % and more is too much)"
    )
    assert proposed(plan(busy, host("close", 46), Headroom="4")) == ["d"]
    limit = {"MaxFreeMemoryForOverUtilized": "7168"}
    assert proposed(plan(busy, IDLE, **limit)) == []


def test_a_host_that_returns_takes_no_vms_until_it_has_been_up_for_a_while():
    first = plan(BUSY, host("fits", 69), now_s=NOW_S - 60)
    returned = plan(BUSY, host("fits", 69), IDLE, memory=first.memory, now_s=NOW_S)
    assert proposed(returned) == []
    later = plan(BUSY, host("fits", 69), IDLE, memory=returned.memory, now_s=NOW_S + 120)
    assert "d" in proposed(later)
    down = host("idle", 0, state="down")
    gone = plan(BUSY, down, memory=later.memory, now_s=NOW_S + 180)
    assert gone.memory.seen_since_s.keys() == {"busy"}


def test_a_host_takes_one_vm_at_a_time():
    memory = BalanceMemory().with_move("x", "other", "idle", NOW_S - 119)
    found = plan(BUSY, IDLE, memory=memory)
    assert "no VM may move" in found.nothing_because
    assert proposed(plan(BUSY, IDLE, memory=memory, now_s=NOW_S + 1))
    [only] = [host("busy", 90, OVER_S, vms=BUSY.vms)]
    memory = BalanceMemory().with_move("x", "other", "busy", NOW_S - 1)
    assert plan(only, memory=memory).nothing_because.startswith("no host is ready to take VMs")


def test_a_moved_vm_stays_for_the_time_of_rest():
    memory = BalanceMemory().with_move("d", "x", "busy", NOW_S - 3599)
    found = plan(BUSY, IDLE, memory=memory)
    assert "d" not in proposed(found)
    assert "d" in proposed(plan(BUSY, IDLE, memory=found.memory, now_s=NOW_S + 1))
    assert "d" in proposed(plan(BUSY, IDLE, memory=memory, RestMinutes="59"))


def test_the_load_must_last():
    assert plan(host("busy", 90, NOW_S - 119, vms=BUSY.vms), IDLE).nothing_because == (
        "no host has had too much load for long enough"
    )
