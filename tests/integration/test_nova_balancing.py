"""Balancing by Nova end to end: two workers, RabbitMQ, Redis, and a Nova on the loopback."""

from __future__ import annotations

import queue
import threading
from collections import Counter

import pytest

from scheduler_worker.errors import NoValidHost
from scheduler_worker.rpc.transport import Bus
from tests.support import nova_api
from tests.support.datacenter import (
    INTERVAL_S,
    MOST,
    POLICY,
    VMS,
    Datacenter,
    round_of_another,
    rounds,
)
from tests.support.nova_api import FakeNova
from tests.support.patience import SOON_S
from tests.support.workers import WorkerProcess, connected


class NovasDatacenter(Datacenter):
    """One in which Nova's conductor and computes carry out what its API has accepted."""

    def __init__(self, bus: Bus, nova: FakeNova) -> None:
        super().__init__(bus)
        self._nova = nova
        nova.hosts |= {vm: host for host, vms in VMS.items() for vm in vms}
        nova.on_migrate = self._accept
        self._accepted: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.arrived = threading.Event()
        """Set once Nova was asked for the first migration."""
        self.goes_on = threading.Event()
        """Until it is set, Nova neither answers nor migrates."""
        self._conductor = threading.Thread(target=self._conduct, daemon=True)
        self._conductor.start()

    def _accept(self, vm: str) -> None:
        self._accepted.put(vm)
        self.arrived.set()
        self.goes_on.wait()

    def _conduct(self) -> None:
        while (vm := self._accepted.get()) is not None:
            self.goes_on.wait()
            self._migrate(vm)

    def _migrate(self, vm: str) -> None:
        source = self._nova.hosts[vm]
        row = self._nova.migrate(vm)
        try:
            host = self.choose(vm, source)
        except NoValidHost:
            row["status"] = "error"
        else:
            row |= {"dest_compute": host, "status": "running"}
            self.move(vm, source, host)
            self._nova.hosts[vm] = host
            row["status"] = "completed"
        del self._nova.tasks[vm]

    def close(self) -> None:
        self.goes_on.set()
        self._accepted.put(None)
        self._conductor.join(SOON_S)
        super().close()


@pytest.mark.deep
def test_nova_relieves_a_host_although_the_worker_that_asked_is_killed(configure, rabbit_vhost_url):
    def worker(name: str) -> WorkerProcess:
        options = {"target": "nova", "mode": "on", "interval": INTERVAL_S}
        config = configure(
            name,
            balancing=options | {"begin_timeout": 600, "max_migrations": 1},
            nova=nova_api.options(nova, username=name),
        )
        return WorkerProcess(config, name=name)

    with (
        nova_api.running_nova() as nova,
        worker("w1") as w1,
        worker("w2") as w2,
        connected(rabbit_vhost_url) as client,
    ):
        w1.ready(), w2.ready()
        workers = {"w1": w1, "w2": w2}
        datacenter = NovasDatacenter(client._bus, nova)
        try:
            datacenter.start()
            client.attach_cluster_policy("default", POLICY)

            # Nova has the first request, and its worker dies before it is answered.
            assert datacenter.arrived.wait(SOON_S)
            [first] = nova.asked_for("POST", "/action")
            killed = nova.keystone.tokens[first.headers["X-Auth-Token"]]["user"]["name"]
            workers.pop(killed).kill()
            round_of_another(client, killed)
            assert nova.asked_for("POST", "/action") == [first]
            [under_way] = client.get_balancing("default")["under_way"]
            assert first.headers["X-OpenStack-Request-ID"] == f"req-{under_way['id']}"

            # Nova goes on, and so does the other worker, until no host has too many VMs.
            datacenter.goes_on.set()
            datacenter.wait_for(lambda: len(datacenter.vms["a"]) < MOST)
            last = next(found for found in rounds(client) if not found["under_way"])
            assert (last["worker"], last["waiting"]) == (*workers, [])
        finally:
            datacenter.close()
        asked = Counter(each.path.split("/")[3] for each in nova.asked_for("POST", "/action"))
        assert max(asked.values()) == 1, "no VM is moved twice, and none back"
        assert [row["status"] for row in nova.migrations] == ["completed"] * len(asked)
        assert {row["dest_compute"] for row in nova.migrations} <= {"b", "d"}
        assert {*datacenter.vms["c"]} == {"c0"}, "the busy host gets nothing"
        [remaining] = workers.values()
        assert remaining.stop() == 0
