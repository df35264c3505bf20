"""What no balance may propose, over random clusters."""

import math
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from scheduler_worker.model.cluster_load import (
    BalanceMemory,
    BalancePlan,
    ClusterLoad,
    HostLoad,
    Migration,
    VmLoad,
)
from scheduler_worker.model.virt import over_commit_since_s
from scheduler_worker.scheduling.even_load import EvenLoadBalance
from scheduler_worker.scheduling.ovirt.balances import (
    EvenDistributionBalance,
    EvenGuestsBalance,
    PowerSavingBalance,
)
from scheduler_worker.scheduling.ovirt.relief import Destinations, Headroom
from tests.support.units import made

NOW_S = 100_000.0
HIGH, LOW_MB, DURATION_S = 75, 1024, 120.0
_MEMORY = {"MaxFreeMemoryForOverUtilized": str(LOW_MB), "MinFreeMemoryForUnderUtilized": "8192"}
EVEN = made(EvenDistributionBalance, **_MEMORY)
POWER = made(PowerSavingBalance, **_MEMORY)
GUESTS = made(EvenGuestsBalance, **_MEMORY, HighVmCount="3", MigrationThreshold="2")
OURS = made(EvenLoadBalance, MaxFreeMemoryForOverUtilized=str(LOW_MB))
BALANCES = [EVEN, POWER, GUESTS, OURS]
each_balance = pytest.mark.parametrize("balance", BALANCES, ids=lambda each: each.name)

AGES_S = st.sampled_from([None, 0.0, DURATION_S - 1, DURATION_S, 5000.0])
VM = {
    "vcpus": st.integers(1, 4),
    "memory_mb": st.integers(1, 4) | st.integers(512, 4096),
    "cpu_percent": st.none() | st.integers(0, 100),
    "can_move": st.sampled_from([True, True, True, False]),
}
FIELDS = st.fixed_dictionaries(VM)


@st.composite
def clusters(draw):
    """Up to five hosts of four CPUs, with up to five VMs each."""
    return ClusterLoad(
        hosts=tuple(draw_host(draw, name) for name in "abcde"[: draw(st.integers(1, 5))])
    )


def draw_host(draw, name: str) -> HostLoad:
    vms = tuple(
        VmLoad(id=f"{name}{number}", **fields)
        for number, fields in enumerate(draw(st.lists(FIELDS, max_size=5)))
    )
    own = draw(st.integers(0, 60) | st.integers(180, 330))
    age_s = draw(AGES_S)
    found = HostLoad(
        name=name,
        load=min(400.0, own + sum(vm.load for vm in vms)),
        shared_cpus=4,
        free_mb=draw(st.integers(0, 16384)),
        num_vms=len(vms),
        vms=vms,
        is_manager=draw(st.booleans()),
        is_settled=draw(st.sampled_from([True, True, True, True, False])),
        state=draw(st.sampled_from(["up"] * 5 + ["down", "disabled"])),
        out_of_bounds_since_s=None if age_s is None else NOW_S - age_s,
    )
    if draw(st.integers(0, 9)) == 0:
        return structs.replace(found, load=None)
    return found


@st.composite
def memories(draw, cluster: ClusterLoad):
    """Some VMs have been moved, just now or a while ago."""
    memory = BalanceMemory(seen_since_s={each.name: 0.0 for each in cluster.hosts})
    for host in cluster.hosts:
        for vm in host.vms:
            age_s = draw(st.sampled_from([None, None, None, 1.0, DURATION_S - 1, DURATION_S]))
            if age_s is not None:
                memory = memory.with_move(vm.id, "x", "y", NOW_S - age_s)
    return memory


@st.composite
def situations(draw):
    cluster = draw(clusters())
    return cluster, draw(memories(cluster))


def checked(cluster: ClusterLoad, plan: BalancePlan) -> Iterator[tuple[Migration, VmLoad]]:
    hosts = {each.name: each for each in cluster.hosts}
    for migration in plan.migrations:
        [vm] = [each for each in hosts[migration.source].vms if each.id == migration.vm]
        yield migration, vm


def takes(room: Headroom, host: HostLoad, vm: VmLoad) -> bool:
    """Whether a host can take a VM, as the reference defines it for one host and one VM."""
    load = host.mean_percent(vm.load)
    has_memory = host.free_mb - vm.memory_mb > room.low_mb
    return load is not None and load <= room.high_percent and has_memory


def able(room: Headroom, hosts: Iterable[HostLoad], vm: VmLoad, source: str) -> tuple[str, ...]:
    return tuple(each.name for each in hosts if each.name != source and takes(room, each, vm))


@given(cluster=clusters(), vm=st.builds(VmLoad, id=st.just("v"), **VM), low_mb=st.integers(0, 4096))
@example(
    cluster=ClusterLoad(hosts=(HostLoad(name="b", load=180.1, shared_cpus=3, free_mb=2.0),)),
    vm=VmLoad(id="v", cpu_percent=44.9, memory_mb=1),
    low_mb=0,
)
def test_the_hosts_with_room_are_those_that_one_would_find_one_by_one(cluster, vm, low_mb):
    room = Headroom(HIGH, low_mb)
    found = Destinations(cluster.hosts, room).with_room_for(vm, "a")
    assert found == able(room, cluster.hosts, vm, "a")


@pytest.mark.parametrize("balance", [EVEN, POWER, GUESTS], ids=lambda each: each.name)
@given(situation=situations())
def test_proposals_are_those_of_each_vm_of_each_source_in_turn(balance, situation):
    cluster, memory = situation
    hosts = cluster.settled
    resting = memory.without_moves_before(NOW_S - DURATION_S).moves
    room = Headroom(balance.high_percent, balance.low_mb)
    expected = [
        (vm.id, source.host.name, destinations)
        for stage in (balance.stages(hosts, NOW_S) if len(hosts) > 1 else [])
        for source in stage.sources
        for vm in sorted(source.host.vms, key=lambda each: each.load)
        if vm.can_move and vm.id not in resting
        if (destinations := able(room, stage.destinations, vm, source.host.name))
    ]
    plan = balance.plan(cluster, memory, NOW_S)
    assert [(each.vm, each.source, each.destinations) for each in plan.migrations] == expected


@each_balance
@given(situation=situations())
def test_a_plan_moves_what_may_move_to_hosts_with_room_or_says_why_not(balance, situation):
    cluster, memory = situation
    plan = balance.plan(cluster, memory, NOW_S)
    assert balance.plan(structs.replace(cluster), structs.replace(memory), NOW_S) == plan
    assert bool(plan.nothing_because) is not bool(plan.migrations)
    settled, room = {each.name: each for each in cluster.settled}, Headroom(HIGH, LOW_MB)
    for migration, vm in checked(cluster, plan):
        moved = memory.moves.get(vm.id)
        assert vm.can_move
        assert moved is None or moved.begun_at_s <= NOW_S - DURATION_S
        assert migration.reason
        assert migration.destinations
        assert {migration.source, *migration.destinations} <= settled.keys()
        assert migration.source not in migration.destinations
        assert all(takes(room, settled[name], vm) for name in migration.destinations)


def moved(cluster: ClusterLoad, vm: VmLoad, source: str, destination: str) -> ClusterLoad:
    """The cluster once the VM has moved, its load with it."""

    def changed(host: HostLoad) -> HostLoad:
        if host.name not in {source, destination}:
            return host
        sign = 1 if host.name == destination else -1
        vms = (*host.vms, vm) if sign > 0 else tuple(each for each in host.vms if each != vm)
        load = None if host.load is None else max(0.0, host.load + sign * vm.load)
        since_s = over_commit_since_s(
            None if load is None else math.ceil(load / host.shared_cpus),
            host.out_of_bounds_since_s,
            NOW_S,
            high=HIGH,
            low=0,
        )
        return structs.replace(
            host,
            vms=vms,
            load=load,
            num_vms=len(vms),
            free_mb=max(0, host.free_mb - sign * vm.memory_mb),
            out_of_bounds_since_s=since_s,
        )

    return ClusterLoad(hosts=tuple(map(changed, cluster.hosts)))


@each_balance
@given(situation=situations())
def test_no_proposal_is_taken_back(balance, situation):
    cluster, memory = situation
    plan = balance.plan(cluster, memory, NOW_S)
    for migration, vm in checked(cluster, plan):
        for destination in migration.destinations:
            after = moved(cluster, vm, migration.source, destination)
            then = plan.memory.with_move(vm.id, migration.source, destination, NOW_S)
            found = balance.plan(after, then, NOW_S + DURATION_S - 1)
            assert vm.id not in {each.vm for each in found.migrations}


@given(situation=situations())
def test_ours_takes_nothing_back_even_if_it_has_forgotten(situation):
    cluster, memory = situation
    for migration, vm in checked(cluster, OURS.plan(cluster, memory, NOW_S)):
        for destination in migration.destinations:
            after = moved(cluster, vm, migration.source, destination)
            found = OURS.plan(after, BalanceMemory(), NOW_S + 1e6)
            assert destination not in {each.source for each in found.migrations}


def a_host(name: str, load: float, free_mb: int, *vms: VmLoad) -> HostLoad:
    return HostLoad(
        name=name,
        load=load,
        shared_cpus=4,
        free_mb=free_mb,
        num_vms=len(vms),
        vms=vms,
        out_of_bounds_since_s=NOW_S - 5000,
    )


RELIEVED_HOST_TAKES_A_VM = ClusterLoad(
    hosts=(
        a_host("a", 0, 2605),
        a_host("b", 349, 169, VmLoad(id="b0", vcpus=2, memory_mb=1369, cpu_percent=99)),
        a_host("d", 298, 0, VmLoad(id="d0", memory_mb=512)),
    )
)
"""Only b has room for the VM of d, and only once it has given its own to a."""


@given(cluster=clusters())
@example(cluster=RELIEVED_HOST_TAKES_A_VM)
def test_ours_comes_to_rest(cluster):
    """As long as loads stay the same, no host that was fine becomes a source.

    So no VM moves twice. A host that was relieved is fine, and may take VMs.
    """
    memory = BalanceMemory()
    were_fine: set[str] = set()
    for number in range(1 + sum(host.num_vms for host in cluster.hosts)):
        now_s = NOW_S + 1e4 * number  # every VM has rested, and every load has lasted
        were_fine |= {host.name for host in cluster.hosts if (host.load_percent or 0) < HIGH}
        plan = OURS.plan(cluster, memory, now_s)
        assert not {each.source for each in plan.migrations} & were_fine
        first = next(checked(cluster, plan), None)
        if first is None:
            return
        migration, vm = first
        memory = plan.memory.with_move(vm.id, migration.source, migration.destinations[0], now_s)
        cluster = moved(cluster, vm, migration.source, migration.destinations[0])
    pytest.fail("it moved more VMs than there are")
