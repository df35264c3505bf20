"""The scene in which tenants ask workers for places, and hosts report."""

from functools import partial

from scheduler_worker.rpc.serving import server
from scheduler_worker.service.requests import deciding
from tests.simulation import plan as plans
from tests.simulation.broker import Broker, Loop
from tests.simulation.history import History
from tests.simulation.machine import Machine, Process
from tests.simulation.plan import Plan, Setting
from tests.simulation.stage import Stage, StandIn
from tests.simulation.tenants import Client, Hosts, Racks, Tenant
from tests.simulation.workers import ObservedQueue, Scheduling

REPORTED_S = 14.0
"""When all hosts report in the quiet time."""
CAUGHT_UP_S = 3.0
"""So long before the end all workers look at the store once more."""


class Placing(Stage):
    """A run in which workers place the instances of tenants."""

    def __init__(self, plan: Plan, machine: Machine, history: History) -> None:
        super().__init__(plan, machine, history)
        setting: Setting = self.setting
        self.broker = Broker(machine, history, counts=setting.counts)
        self.racks = Racks(machine, setting)
        self.client = Client(machine, self.broker, history)
        self.people = Process("client")
        self.workers = [
            Scheduling(f"w{number}", self.store, self.broker, history, setting)
            for number in range(1, setting.workers + 1)
        ]
        self.hosts = Hosts(self.client, self.racks)

    @classmethod
    def stand_ins(cls, machine: Machine, history: History) -> list[StandIn]:
        return [
            (server, "Loop", partial(Loop, machine)),
            (server, "TICK_S", 10.0),
            (deciding, "ClusterQueue", partial(ObservedQueue, history, machine)),
        ]

    def begin(self) -> None:
        self.hosts.report_all()

    def end(self) -> None:
        self.machine.at(plans.ENDS_S + REPORTED_S, self.hosts.report_all)
        self.machine.run(plans.ENDS_S + self.quiet_s - CAUGHT_UP_S)
        for worker in self.workers:
            worker.catch_up()
        self.machine.run(plans.ENDS_S + self.quiet_s)

    # Deeds

    def _ask(self, deed: plans.Ask) -> None:
        self.machine.spawn(self.people, Tenant(self.client, self.hosts, self.machine, deed).run)

    def _report(self, deed: plans.Report) -> None:
        self.hosts.report(deed.host, lists=deed.lists, is_cast=deed.is_cast)

    def _use(self, deed: plans.Use) -> None:
        self.racks.use(deed.host, deed.vcpus)

    def _delete(self, deed: plans.Delete) -> None:
        self.hosts.delete(deed.host)

    def _rename(self, deed: plans.Rename) -> None:
        self.racks.rename(deed.host)
        self.hosts.report(deed.host)

    def _move(self, deed: plans.Move) -> None:
        self.racks.clusters[deed.host] = deed.cluster
        self.hosts.report(deed.host)

    def _remove(self, deed: plans.Remove) -> None:
        self.hosts.remove(deed.host)

    def _unlink(self, deed: plans.Unlink) -> None:
        self.workers[deed.worker].unlink()

    def _block(self, deed: plans.Block) -> None:
        self.broker.block()
        self.machine.at(deed.for_s, self.broker.unblock)

    def _nack(self, deed: plans.Nack) -> None:
        self.broker.set_nacks(True)
        self.machine.at(deed.for_s, partial(self.broker.set_nacks, False))

    def _restart(self, deed: plans.Restart) -> None:
        self.broker.go_down()
        self.machine.at(deed.for_s, self.broker.come_up)
