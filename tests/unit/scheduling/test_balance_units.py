"""What balances propose, what they leave alone, and why."""

from typing import Any

import pytest

from scheduler_worker.model.cluster_load import (
    BalanceMemory,
    BalancePlan,
    ClusterLoad,
    HostLoad,
    VmLoad,
)
from scheduler_worker.model.host_records import HostPower
from scheduler_worker.scheduling.even_load import EvenLoadBalance
from scheduler_worker.scheduling.ovirt.balances import (
    EvenDistributionBalance,
    EvenGuestsBalance,
    NoBalance,
    PowerSavingBalance,
)
from scheduler_worker.scheduling.ovirt.cluster_load import cluster_load, unprotected_hosts
from scheduler_worker.scheduling.plugin import Balance
from tests.support.hosts import NOW_S, claim, host_record, host_table
from tests.support.units import made

GIB = 1024.0


def vm(id: str, percent: float | None = 20, **fields: Any) -> VmLoad:
    return VmLoad(id=id, cpu_percent=percent, memory_mb=fields.pop("memory_mb", GIB), **fields)


def host(name: str, percent: float | None, *vms: VmLoad, **fields: Any) -> HostLoad:
    """A host of four CPUs, which has been out of its bounds for long if it is."""
    is_out = percent is not None and not 0 < percent < 75
    known: dict[str, Any] = {
        "load": None if percent is None else 4 * percent,
        "shared_cpus": 4,
        "free_mb": 16 * GIB,
        "num_vms": len(vms),
        "out_of_bounds_since_s": 0.0 if is_out else None,
    }
    if "power" in fields and fields["power"].state != "up":
        known["state"] = "down"
    return HostLoad(name=name, vms=vms, **known | fields)


def plan(unit: type[Balance], *hosts: HostLoad, **given: Any) -> BalancePlan:
    """The plan with these parameters; ``memory`` and ``now_s`` may be given, too."""
    memory, now_s = given.pop("memory", BalanceMemory()), given.pop("now_s", NOW_S)
    return made(unit, **given).plan(ClusterLoad(hosts=hosts), memory, now_s)


def moves(found: BalancePlan) -> list[tuple[str, tuple[str, ...]]]:
    assert bool(found.migrations) is not bool(found.nothing_because)
    return [(each.vm, each.destinations) for each in found.migrations]


BUSY = host("busy", 90, vm("small", 20), vm("large", 80, vcpus=2))
IDLE = host("idle", 10, vm("other"))


class TestEvenDistribution:
    def test_the_busiest_host_comes_first(self):
        hotter = host("hotter", 95, vm("hot"))
        found = plan(EvenDistributionBalance, BUSY, hotter, IDLE)
        assert [each.source for each in found.migrations] == ["hotter", "busy", "busy"]

    @pytest.mark.parametrize(
        ("minutes", "is_over"), [("16", True), ("16.5", True), ("16.7", False)]
    )
    def test_a_load_must_last(self, minutes, is_over):
        found = plan(EvenDistributionBalance, BUSY, IDLE, CpuOverCommitDurationMinutes=minutes)
        assert bool(found.migrations) is is_over

    def test_a_load_that_nobody_has_noted_is_not_too_much_yet(self):
        fresh = host("busy", 90, vm("small"), out_of_bounds_since_s=None)
        assert plan(EvenDistributionBalance, fresh, IDLE).nothing_because == (
            "no host has to give up VMs"
        )

    def test_a_host_takes_no_vm_that_brings_it_above_the_limit(self):
        half = host("half", 55)
        large = host("busy", 90, vm("large", 81), vm("larger", 82))
        found = plan(EvenDistributionBalance, large, half, HighUtilization="75")
        assert moves(found) == []
        assert found.nothing_because == (
            "no VM of busy may move to a host that has room for it "
            "(busy has a load of 90 %, 75 % and more is too much)"
        )
        fits = host("busy", 90, vm("just", 80))
        assert moves(plan(EvenDistributionBalance, fits, half)) == [("just", ("half",))]

    def test_a_host_near_the_limit_is_no_destination(self):
        # 60 % is where hosts with a limit of 75 % stop to take VMs, which is min(60, 65).
        found = plan(EvenDistributionBalance, BUSY, host("near", 60))
        assert found.nothing_because.startswith("no host is ready to take VMs (busy has")
        assert moves(plan(EvenDistributionBalance, BUSY, host("less", 59)))

    def test_a_host_short_of_memory_gives_up_vms_but_not_its_only_one(self):
        limits = {"MaxFreeMemoryForOverUtilized": "512", "MinFreeMemoryForUnderUtilized": "4096"}
        short = host("short", 30, vm("a", 30), vm("b", 10), free_mb=100.0)
        found = plan(EvenDistributionBalance, short, host("roomy", 20), **limits)
        assert moves(found) == [("b", ("roomy",)), ("a", ("roomy",))]
        assert "100 MiB left" in found.migrations[0].reason
        single = host("short", 30, vm("a"), free_mb=100.0)
        assert not plan(EvenDistributionBalance, single, host("roomy", 20), **limits).migrations
        middling = host("middling", 20, free_mb=4096.0)
        assert not plan(EvenDistributionBalance, short, middling, **limits).migrations

    def test_too_many_vcpus_for_each_cpu_are_too_much_at_any_load(self):
        crowded = host("crowded", 20, vm("a"), shared_vcpus=8)
        found = plan(EvenDistributionBalance, crowded, IDLE, VCpuToPhysicalCpuRatio="2")
        assert moves(found) == [("a", ("idle",))]
        assert found.migrations[0].reason == "crowded has 2 vCPUs for each CPU, 2 are allowed"
        assert not plan(
            EvenDistributionBalance, crowded, IDLE, VCpuToPhysicalCpuRatio="2.1"
        ).migrations
        assert not plan(EvenDistributionBalance, crowded, IDLE).migrations

    def test_hosts_that_take_part_in_a_migration_or_are_not_up_are_left_alone(self):
        moving = host("moving", 10, is_settled=False)
        resting = host("resting", 0, power=HostPower(state="maintenance"))
        found = plan(EvenDistributionBalance, BUSY, moving, resting)
        assert found.nothing_because == (
            "fewer than two hosts are up and take part in no migration"
        )

    def test_a_vm_that_was_just_moved_rests(self):
        memory = BalanceMemory().with_move("small", "idle", "busy", NOW_S - 119)
        found = plan(EvenDistributionBalance, BUSY, IDLE, memory=memory)
        assert moves(found) == [("large", ("idle",))]
        assert found.memory.moves.keys() == {"small"}
        later = plan(EvenDistributionBalance, BUSY, IDLE, memory=found.memory, now_s=NOW_S + 1)
        assert [each for each, _ in moves(later)] == ["small", "large"]
        assert later.memory == BalanceMemory()


class TestPowerSaving:
    def test_a_host_with_little_load_is_emptied(self):
        found = plan(PowerSavingBalance, host("a", 40), host("b", 15, vm("v")), host("c", 5))
        assert moves(found) == [("v", ("a", "c"))]
        assert found.migrations[0].reason == (
            "b has a load of 15 % only, less than 20 % is too little"
        )

    def test_a_host_short_of_memory_gives_up_vms_to_one_that_is_not(self):
        limits = {"MaxFreeMemoryForOverUtilized": "512"}
        short = host("short", 40, vm("a", 30), vm("b", 10), free_mb=511.0)
        found = plan(PowerSavingBalance, short, host("roomy", 40), **limits)
        assert moves(found) == [("b", ("roomy",)), ("a", ("roomy",))]
        full = host("full", 40, free_mb=512.0)
        assert plan(PowerSavingBalance, short, full, **limits).nothing_because == (
            "no host is ready to take VMs (short has 511 MiB left, less than 512 MiB is too little)"
        )

    def test_where_all_hosts_have_too_much_load_none_is_ready_to_take_vms(self):
        hosts = [host(name, 75, vm(name, 0)) for name in "ab"]
        found = plan(PowerSavingBalance, *hosts)
        assert found.nothing_because.startswith("no host is ready to take VMs (a has a load of 75")

    @pytest.mark.parametrize("few", [(), (host("a", 40, vm("v")),)])
    def test_hosts_are_switched_on_also_where_nothing_can_move(self, few):
        off = host("off", None, power=HostPower(state="down", by_policy=True))
        on = {"EnableAutomaticHostPowerManagement": "true", "HostsInReserve": "1"}
        found = plan(PowerSavingBalance, *few, off, **on)
        assert (found.power.host, found.power.to) == ("off", "up")
        assert found.power.reason == "0 empty hosts are up, 1 are wanted"
        assert plan(PowerSavingBalance, *few, off, HostsInReserve="1").power is None

    @pytest.mark.parametrize("state", ["down", "disabled"])
    def test_an_empty_host_that_takes_no_vms_is_no_reserve(self, state):
        on = {"EnableAutomaticHostPowerManagement": "true", "HostsInReserve": "1"}
        usable = host("usable", 0, power=HostPower(is_managed=True))
        barred = host("barred", 0, state=state, power=HostPower(is_managed=True))
        assert plan(PowerSavingBalance, usable, barred, **on).power is None
        asleep = HostPower(state="maintenance", by_policy=True)
        resting = [
            host("barred", 0, power=asleep, state="disabled"),
            host("resting", 0, power=asleep),
        ]
        assert plan(PowerSavingBalance, *resting, **on).power.host == "resting"

    @pytest.mark.parametrize(
        "power",
        [
            HostPower(state="down"),
            HostPower(state="down", by_policy=True, is_healthy=False),
            HostPower(state="maintenance"),
            HostPower(state="maintenance", by_policy=True, is_excluded=True),
        ],
    )
    def test_hosts_that_others_have_switched_off_stay_off(self, power):
        on = {"EnableAutomaticHostPowerManagement": "true", "HostsInReserve": "1"}
        assert plan(PowerSavingBalance, host("off", None, power=power), **on).power is None


def overloaded(percent: float, age_s: float = 120, **loads: float) -> HostLoad:
    """A host that has been above the limit for so long, with these VMs."""
    vms = (vm(id, load) for id, load in loads.items())
    return host("busy", percent, *vms, out_of_bounds_since_s=NOW_S - age_s)


class TestEvenLoad:
    """The smallest VM that relieves a host moves, to hosts that stay well below the limit."""

    BUSY = overloaded(90, a=20, b=60, c=200, d=100, e=79)

    def proposed(self, *hosts: HostLoad, **given: Any) -> list[str]:
        return [each for each, _ in moves(plan(EvenLoadBalance, *hosts, **given))]

    def test_the_smallest_vm_that_suffices_comes_first_and_small_ones_not_at_all(self):
        # 90 % of four CPUs are 80 above the target of 70 % and 60 above the limit of 75 %.
        found = plan(EvenLoadBalance, self.BUSY, IDLE)
        assert [each.vm for each in found.migrations] == ["d", "c", "e"]
        assert found.migrations[0].reason == (
            "busy has a load of 90 %, 75 % and more is too much; the VM brings 100 % of a CPU"
        )

    def test_any_move_helps_a_host_that_is_full(self):
        assert self.proposed(overloaded(95, a=20, b=60), IDLE) == ["b", "a"]

    def test_a_destination_stays_below_the_target_and_keeps_memory(self):
        busy = overloaded(90, d=100)
        assert self.proposed(busy, host("fits", 45)) == ["d"]
        found = plan(EvenLoadBalance, busy, host("close", 46))
        assert found.nothing_because == (
            "no VM may move, would help, and has a host with enough headroom "
            "(busy has a load of 90 %, 75 % and more is too much)"
        )
        assert self.proposed(busy, host("close", 46), Headroom="4") == ["d"]
        assert self.proposed(busy, IDLE, MaxFreeMemoryForOverUtilized="15360") == []

    def test_a_host_that_returns_takes_no_vms_until_it_has_been_up_for_a_while(self):
        fits = host("fits", 69)
        first = plan(EvenLoadBalance, self.BUSY, fits, now_s=NOW_S - 60)
        returned = plan(EvenLoadBalance, self.BUSY, fits, IDLE, memory=first.memory)
        assert moves(returned) == []
        later = {"memory": returned.memory, "now_s": NOW_S + 120}
        assert "d" in self.proposed(self.BUSY, fits, IDLE, **later)
        gone = plan(EvenLoadBalance, self.BUSY, host("idle", 0, state="down"), **later)
        assert gone.memory.seen_since_s.keys() == {"busy"}

    def test_a_host_takes_one_vm_at_a_time(self):
        memory = BalanceMemory().with_move("x", "other", "idle", NOW_S - 119)
        found = plan(EvenLoadBalance, self.BUSY, IDLE, memory=memory)
        assert "no VM may move" in found.nothing_because
        assert self.proposed(self.BUSY, IDLE, memory=memory, now_s=NOW_S + 1)
        memory = BalanceMemory().with_move("x", "other", "busy", NOW_S - 1)
        alone = plan(EvenLoadBalance, self.BUSY, memory=memory)
        assert alone.nothing_because.startswith("no host is ready to take VMs")

    def test_a_moved_vm_stays_for_the_time_of_rest(self):
        memory = BalanceMemory().with_move("d", "x", "busy", NOW_S - 3599)
        found = plan(EvenLoadBalance, self.BUSY, IDLE, memory=memory)
        assert "d" not in dict(moves(found))
        assert "d" in self.proposed(self.BUSY, IDLE, memory=found.memory, now_s=NOW_S + 1)
        assert "d" in self.proposed(self.BUSY, IDLE, memory=memory, RestMinutes="59")

    def test_the_load_must_last(self):
        for age_s, reason in ((119, "no host has had too much load for long enough"), (120, "")):
            found = plan(EvenLoadBalance, overloaded(90, age_s, d=100), IDLE)
            assert found.nothing_because == reason


def test_all_hosts_with_most_vms_give_to_those_with_far_fewer():
    some = [vm(f"v{n}", n) for n in (3, 1)]
    hosts = [
        host("a", 30, vm("w"), num_vms=12),
        host("b", 30, num_vms=8),
        host("c", 30, num_vms=7),
        host("d", 30, *some, num_vms=7, is_manager=True),
    ]
    found = plan(EvenGuestsBalance, *hosts)
    assert moves(found) == [("w", ("c",)), ("v1", ("c",)), ("v3", ("c",))]
    assert found.migrations[1].reason == "d counts as 12 VMs, 10 and more are too many"


def test_no_balance_moves_nothing():
    found = plan(NoBalance, BUSY, IDLE)
    assert found == BalancePlan(nothing_because="the policy's balance moves nothing")


class TestClusterLoad:
    def table(self, **facts: Any) -> Any:
        running = [
            {"id": "plain", "vcpus": 2, "memory_mb": 1024, "cpu_percent": 30},
            {"id": "stuck", "migratable": False, "highly_available": True},
            {"id": "pinned", "exclusive_cpus": [3]},
        ]
        virt = {"sockets": 1, "cores": 4, "threads": 4, "cpu_percent": 50, "vms": running} | facts
        return host_table(
            [host_record(host="a", virt=virt, over_commit_since_s=7.0), host_record(host="b")]
        )

    def test_hosts_and_vms_are_those_of_the_table(self):
        [a, b] = cluster_load(self.table(), 60.0).hosts
        assert (a.load, a.shared_cpus, a.load_percent) == (200.0, 3, 67)
        assert (a.num_vms, a.shared_vcpus, a.out_of_bounds_since_s) == (3, 3, 7.0)
        assert a.free_mb == b.free_mb == 8192.0
        assert a.is_settled
        assert [(each.id, each.load, each.can_move) for each in a.vms] == [
            ("plain", 60.0, True),
            ("stuck", 10.0, False),
            ("pinned", 10.0, False),
        ]
        assert [each.highly_available for each in a.vms] == [False, True, False]
        assert (b.load, b.load_percent, b.vms) == (None, None, ())

    def test_a_host_is_not_settled_while_a_vm_is_pending(self):
        hosts = self.table()
        hosts.consume(claim("new", "b", vcpus=1, memory_mb=1024))
        [a, b] = cluster_load(hosts, 60.0).hosts
        assert (a.is_settled, b.is_settled) == (True, False)
        assert b.free_mb < 8192 - 1024


class TestHaReservation:
    def test_each_hosts_vms_must_fit_on_the_others(self):
        large = vm("large", memory_mb=8 * GIB, highly_available=True)
        small = vm("small", memory_mb=GIB, highly_available=True)
        plain = vm("plain", memory_mb=64 * GIB)
        hosts = (
            host("a", 10, large, small, plain, free_mb=0.0),
            host("b", 10, large, free_mb=8 * GIB),
            host("c", 10, plain, free_mb=GIB),
        )
        # The VMs of a fit on b and c, the one of b on neither a nor c.
        assert unprotected_hosts(ClusterLoad(hosts=hosts)) == ["b"]

    def test_load_counts_up_to_twice_the_cpus(self):
        wanted = vm("v", 100, vcpus=4, highly_available=True)
        for percent, expected in ((100, []), (101, ["a"])):
            cluster = ClusterLoad(hosts=(host("a", 10, wanted), host("b", percent)))
            assert unprotected_hosts(cluster) == expected

    @pytest.mark.parametrize("state", ["down", "disabled"])
    def test_hosts_that_take_no_vms_do_not_help(self, state):
        other = host("b", 0, state=state)
        wanted = vm("v", highly_available=True)
        assert unprotected_hosts(ClusterLoad(hosts=(host("a", 10, wanted), other))) == ["a"]

    def test_vms_of_silent_hosts_need_room_until_they_are_seen_elsewhere(self):
        first = host("a", 10, vm("v", highly_available=True), state="down")
        second = host("b", 10, vm("w", highly_available=True), state="down")
        assert unprotected_hosts(ClusterLoad(hosts=(first, second))) == ["a", "b"]
        full = host("c", 10, vm("v", highly_available=False), free_mb=0.0)
        assert unprotected_hosts(ClusterLoad(hosts=(first, second, full))) == ["b"]
        free = host("d", 10)
        assert unprotected_hosts(ClusterLoad(hosts=(first, second, full, free))) == []
