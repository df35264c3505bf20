"""Balancing end to end: two workers, hosts whose agents obey, RabbitMQ and Redis."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from scheduler_worker.client import SchedulerClient
from scheduler_worker.errors import NoValidHost
from scheduler_worker.rpc.transport import Bus
from scheduler_worker.service.balancing.ledgers import BalancingRecords
from tests.support.agents import Agent, read, two_workers
from tests.support.datacenter import (
    INTERVAL_S,
    MOST,
    POLICY,
    Datacenter,
    round_of_another,
    rounds,
)
from tests.support.workers import connected


class AgentsDatacenter(Datacenter):
    """One with an agent that migrates VMs."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.asked: list[dict[str, Any]] = []
        self.silent = threading.Event()
        """While it is set, migrations are noted and not carried out."""
        self._agent = Agent(bus, "balancing_agent", "dc", migrate=self._migrate)

    def _migrate(self, context: object, **asked: Any) -> None:
        with self.changed:
            self.asked.append(asked)
            self.changed.notify_all()
        if not self.silent.is_set():
            self.obey(asked)

    def obey(self, asked: dict[str, Any]) -> None:
        """Choose a host, move the VM, answer."""
        cluster, migration, vm, source = (
            asked[each] for each in ("cluster", "migration", "vm", "source")
        )
        try:
            host = self.choose(vm, source)
        except NoValidHost as refused:
            self.client.report_migration(cluster, migration, "refused", reason=refused.reason)
            return
        assert host in asked["candidates"]
        self.client.report_migration(cluster, migration, "started", destination=host)
        self.move(vm, source, host)
        assert self.client.report_migration(cluster, migration, "done")

    def close(self) -> None:
        super().close()
        self._agent.close()


def balancing_worker(redis_url: str) -> str:
    """The worker that has the cluster's turn."""
    return read(redis_url, BalancingRecords()).leaders["default"].worker.partition("/")[0]


@pytest.mark.deep
def test_an_overloaded_host_is_relieved_although_the_balancing_worker_is_killed(
    configure, rabbit_vhost_url, redis_url
):
    options = {"interval": INTERVAL_S, "begin_timeout": 600, "max_migrations": 1}
    with (
        two_workers(configure, balancing=options) as workers,
        connected(rabbit_vhost_url) as client,
    ):
        datacenter = AgentsDatacenter(client._bus)
        datacenter.silent.set()
        try:
            datacenter.start()
            client.attach_cluster_policy("default", POLICY)
            shown_by(client)
            assert datacenter.asked == [], "the default is a dry run"
            client.set_balancing_mode("default", "on")

            # The first one is asked for, nobody answers, and its worker dies.
            datacenter.wait_for(lambda: datacenter.asked)
            killed = balancing_worker(redis_url)
            workers.pop(killed).kill()
            round_of_another(client, killed)
            assert [each["vm"] for each in datacenter.asked] == [datacenter.asked[0]["vm"]]
            [under_way] = client.get_balancing("default")["under_way"]
            assert under_way["id"] == datacenter.asked[0]["migration"]

            # Now the agent obeys, and the other worker goes on until no host has too many VMs.
            datacenter.silent.clear()
            datacenter.obey(datacenter.asked[0])
            datacenter.wait_for(lambda: len(datacenter.vms["a"]) < MOST)
            status = client.get_balancing("default")
            assert {*workers} == {status["worker"]}
        finally:
            datacenter.close()
        twice = Counter(each["vm"] for each in datacenter.asked)
        assert max(twice.values()) == 1, "no VM is moved twice, and none back"
        assert {*datacenter.vms["c"]} == {"c0"}, "the busy host gets nothing"
        assert not any("c" in each["candidates"] for each in datacenter.asked)
        [remaining] = workers.values()
        assert remaining.stop() == 0


def shown_by(client: SchedulerClient) -> None:
    """Wait for a round that would ask for a migration."""
    for found in rounds(client):
        if found["last_round"] and found["last_round"]["considered"]:
            assert found["last_round"]["considered"][0]["outcome"] == "would be asked for"
            return
