"""Power saving end to end: two workers, hosts that sleep and wake up, RabbitMQ and Redis."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from scheduler_worker.client import SchedulerClient
from scheduler_worker.errors import NoValidHost
from scheduler_worker.rpc.transport import Bus
from tests.integration.test_balancing import balancing_worker
from tests.support.agents import Agent, two_workers
from tests.support.balancers import busy_host
from tests.support.datacenter import round_of_another
from tests.support.patience import SOON_S
from tests.support.workers import connected

INTERVAL_S = 0.3
REPORT_S = 0.1
POLICY: dict[str, Any] = {
    "id": "save",
    "name": "save",
    "version": 1,
    "filters": [{"unit": "RamFilter"}],
    "balance": {"unit": "OptimalForPowerSaving"},
    "parameters": {
        "HighUtilization": "80",
        "MinFreeMemoryForUnderUtilized": "60000",
        "EnableAutomaticHostPowerManagement": "true",
        "HostsInReserve": "1",
    },
}
"""A host that has nearly all of its memory left gives up its VMs, without a wait of minutes."""
BIG = {"memory_mb": 20_000, "cpu_percent": 100.0}
SMALL = {"memory_mb": 1_000, "cpu_percent": 10.0}


class SleepyDatacenter:
    """Three hosts, and the agent that migrates VMs between them and lets hosts sleep."""

    def __init__(self, bus: Bus) -> None:
        self.vms: dict[str, dict[str, Any]] = {"a": {"big": BIG}, "b": {"small": SMALL}, "c": {}}
        self.states = dict.fromkeys(self.vms, "up")
        self.asked: list[dict[str, Any]] = []
        self.powered: list[tuple[str, str]] = []
        self.silent = threading.Event()
        """While it is set, power actions are noted and not carried out."""
        self._changed = threading.Condition()
        methods = {"migrate": self._migrate, "set_host_power": self._set_host_power}
        self._agent = Agent(bus, "balancing_agent", "dc", **methods)
        self._client = self._agent.client
        self._stopping = threading.Event()
        self._reporter = threading.Thread(target=self._report_all, daemon=True)

    def start(self) -> None:
        self.report()
        self._reporter.start()

    def report(self) -> None:
        """Hosts that run report themselves; the power of all is reported for them."""
        with self._changed:
            reports = [self._report_of(host) for host in self.vms if self.states[host] != "down"]
            powers = [
                {"host": host, "power": {"state": state, "is_managed": True}}
                for host, state in self.states.items()
            ]
            self._client.update_hosts(reports)
            self._client.update_hosts(powers)

    def _report_of(self, host: str) -> dict[str, Any]:
        found = busy_host(host, "default", **self.vms[host])
        found["virt"]["committed_mb"] = sum(vm["memory_mb"] for vm in self.vms[host].values())
        return found

    def _report_all(self) -> None:
        while not self._stopping.wait(REPORT_S):
            self.report()

    def _migrate(self, context: object, **asked: Any) -> None:
        destination = "a"
        assert destination in asked["candidates"]
        names = asked["cluster"], asked["migration"]
        self._client.report_migration(*names, "started", destination=destination)
        with self._changed:
            vm = asked["vm"]
            self.vms[destination][vm] = self.vms[asked["source"]].pop(vm)
            self._changed.notify_all()
        self.report()
        self._client.report_migration(*names, "done")

    def _set_host_power(self, context: object, **asked: Any) -> None:
        with self._changed:
            self.asked.append(asked)
            self._changed.notify_all()
        if not self.silent.is_set():
            self.obey(asked)

    def obey(self, asked: dict[str, Any]) -> None:
        """Bring the host into the state, report it, answer."""
        host, to = asked["host"], asked["to"]
        names = asked["cluster"], asked["action"]
        assert self._client.report_power(*names, "started")
        with self._changed:
            assert not self.vms[host], "no host with VMs is put to sleep"
            self.states[host] = to
        self.report()
        self._client.report_power(*names, "done")
        with self._changed:
            self.powered.append((host, to))
            self._changed.notify_all()

    def add(self, host: str, **vms: Any) -> None:
        """Load comes."""
        with self._changed:
            self.vms[host].update(vms)

    def wait_for(self, what: Any) -> None:
        """Until the condition holds of what the agent has been asked or has done."""
        with self._changed:
            assert self._changed.wait_for(what, SOON_S), (self.asked, self.vms, self.states)

    def close(self) -> None:
        self._stopping.set()
        self._reporter.join(SOON_S)
        self._agent.close()


@pytest.mark.deep
def test_a_host_is_emptied_and_sleeps_and_wakes_up_although_the_balancing_worker_is_killed(
    configure, rabbit_vhost_url, redis_url
):
    options = {"interval": INTERVAL_S, "begin_timeout": 600}
    with (
        two_workers(configure, balancing=options) as workers,
        connected(rabbit_vhost_url) as client,
    ):
        datacenter = SleepyDatacenter(client._bus)
        datacenter.silent.set()
        try:
            datacenter.start()
            client.attach_cluster_policy("default", POLICY)
            client.set_balancing_mode("default", "on")

            # The small VM leaves its host, and an empty one is to go into maintenance: no answer.
            datacenter.wait_for(lambda: datacenter.asked)
            [asked] = datacenter.asked
            host, other = asked["host"], "b" if asked["host"] == "c" else "c"
            assert datacenter.vms == {"a": {"big": BIG, "small": SMALL}, "b": {}, "c": {}}
            refuses(client, host)
            killed = balancing_worker(redis_url)
            workers.pop(killed).kill()
            round_of_another(client, killed)
            assert datacenter.asked == [asked]
            under_way = client.get_balancing("default")["power_under_way"]
            assert under_way["id"] == asked["action"]
            refuses(client, host)

            # The agent obeys, and the other worker goes on until the host is switched off.
            datacenter.silent.clear()
            datacenter.obey(asked)
            datacenter.wait_for(lambda: (host, "down") in datacenter.powered)
            refuses(client, host)
            assert placed(client, only_hosts=[other]) == other

            # Load comes to the one that was in reserve: the host is woken up, and takes VMs.
            datacenter.add(other, load=BIG)
            datacenter.wait_for(lambda: (host, "up") in datacenter.powered)
            assert placed(client, only_hosts=[host]) == host
        finally:
            datacenter.close()
        steps = [(each["host"], each["to"]) for each in datacenter.asked]
        assert steps == [(host, "maintenance"), (host, "down"), (host, "up")]
        [remaining] = workers.values()
        assert remaining.stop() == 0


def placed(client: SchedulerClient, **where: Any) -> str:
    """The host of a new VM, whose reservation is released again."""
    spec = {"flavor": {"vcpus": 1, "memory_mb": 64, "root_gb": 0}, **where}
    [[chosen]] = client.select_destinations(spec, ["new"])
    client.release(["new"])
    return chosen.service_host


def refuses(client: SchedulerClient, host: str) -> None:
    """No VM is placed on a host, not even by force."""
    for where in ({"only_hosts": [host]}, {"force_hosts": [host]}):
        with pytest.raises(NoValidHost):
            placed(client, **where)
