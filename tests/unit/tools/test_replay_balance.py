"""The simulated day in which balances are compared."""

import numpy as np
from replay.balance.day import MINUTES, Day, Outage, Vm
from replay.balance.simulation import Outcome, Simulation
from replay.cli import main

from scheduler_worker.model.cluster_load import BalancePlan, ClusterLoad, Migration
from scheduler_worker.scheduling.plugin import Balance


def rows(capsys, *arguments):
    assert main(["balance", *arguments]) == 0
    title, _, *lines = capsys.readouterr().out.splitlines()
    return title, {
        name: tuple(float(each.replace(",", "")) for each in numbers)
        for name, *numbers in map(str.split, lines)
    }


def test_fewer_moves_keep_hosts_below_the_limit_for_longer(capsys):
    title, found = rows(capsys, "--seed", "12")
    assert title == "1 day(s) from seed 12: 20 hosts of 32 CPUs, 340 VMs, limit 75 %"
    assert list(found) == ["None", "OptimalForEvenDistribution", "EvenLoad"]
    none, ovirt, ours = found.values()
    assert none[:3] == (0, 0, 0)
    assert ours[0] <= ovirt[0] / 2  # moves
    assert ours[2] == 0  # undone
    assert ours[3] <= ovirt[3] < none[3]  # above the limit


def test_the_same_seed_gives_the_same_days(capsys):
    arguments = ("--hosts", "6", "--days", "2", "--balance", "OptimalForEvenDistribution")
    first = rows(capsys, "--seed", "3", *arguments)
    assert rows(capsys, "--seed", "3", *arguments) == first
    assert rows(capsys, "--seed", "4", *arguments) != first


class Eager(Balance):
    """Proposes every move, and writes down what it sees."""

    def __init__(self):
        super().__init__()
        self.seen: list[ClusterLoad] = []

    def plan(self, cluster, memory, now_s):
        self.seen.append(cluster)
        found = [
            Migration(vm=vm.id, source=host.name, destinations=(other.name,), reason="")
            for host in cluster.settled
            for vm in host.vms
            for other in cluster.settled
            if vm.can_move and other.name != host.name
        ]
        return BalancePlan(migrations=tuple(found), memory=memory)


def test_a_migration_takes_time_and_a_host_that_fails_returns_empty():
    def vm(id, last, percent, *, can_move):
        demand = np.full(MINUTES, percent)
        return Vm(id, 4, 16 * 1024, 0, last, can_move=can_move, demand=demand)

    # The small VM shares host 0 with the large one until it moves, which takes three minutes.
    small = vm("small", 1000, 100.0, can_move=True)
    large = vm("large", MINUTES, 320.0, can_move=False)
    other = vm("other", 1, 330.0, can_move=False)
    outages = [Outage(1, 10, 20)]
    day = Day(hosts=2, cpus=4, memory_mb=65536, vms=[large, other, small], outages=outages)
    balance = Eager()
    outcome = Simulation(day, balance, 75).run()
    on_1 = [
        minute
        for minute, cluster in enumerate(balance.seen)
        for host in cluster.hosts
        if host.name == "1" and any(each.id == "small" for each in host.vms)
    ]
    moving = [minute for minute, each in enumerate(balance.seen) if not each.hosts[0].is_settled]
    down = [minute for minute, each in enumerate(balance.seen) if len(each.hosts) == 1]
    assert moving == [2, 3, 21, 22]
    assert on_1 == [*range(4, 10), *range(23, 1000)]
    assert down == [*range(10, 20)]
    assert max(each.hosts[0].mean_percent() or 0 for each in balance.seen) == 100
    assert outcome == Outcome(
        moves=2, undone=0, most_in_an_hour=2, minutes_above=1441, minutes_full=17
    )
