"""A whole worker that balances: agents, or a Nova, move VMs and switch hosts as they are asked."""

import contextlib
import queue
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scheduler_worker.client import SchedulerClient
from scheduler_worker.compose.worker import build_worker
from scheduler_worker.errors import NoValidHost
from tests.support import nova_api
from tests.support.agents import Agent
from tests.support.balancers import busy_host, power_saving
from tests.support.patience import NEVER_S, SOON_S, eventually
from tests.support.workers import WorkerProcess, all_ready, connected, load_config

INTERVAL_S = 0.1
VM: dict[str, Any] = {"flavor": {"vcpus": 1, "memory_mb": 64, "root_gb": 0}}
EVEN = {
    "id": "even",
    "name": "even",
    "version": 1,
    "balance": {"unit": "OptimalForEvenGuestDistribution"},
    "parameters": {"HighVmCount": "4", "MigrationThreshold": "2", "SpmVmGrace": "0"},
}


class Datacenter:
    """Hosts and their VMs, as they are reported."""

    def __init__(self, client: SchedulerClient, **vms: list[str]) -> None:
        self.client = client
        self.vms = vms
        self.report()

    def report(self) -> None:
        self.client.update_hosts(
            [
                busy_host(name, "default", **dict.fromkeys(vms, 10.0))
                for name, vms in self.vms.items()
            ]
        )

    def move(self, vm: str) -> str:
        """As for any live migration, the destination is asked for."""
        [source] = [name for name, vms in self.vms.items() if vm in vms]
        spec = VM | {"instance_uuid": vm, "ignore_hosts": [source]}
        [[chosen]] = self.client.select_destinations(spec, [vm])
        self.vms[source].remove(vm)
        self.vms[chosen.service_host].append(vm)
        self.report()
        self.client.release([vm])
        return chosen.service_host


@pytest.fixture
def serve(tmp_path) -> Iterator[Callable[..., SchedulerClient]]:
    """Starts a worker in this process; returns a client of it."""
    with contextlib.ExitStack() as stack:

        def start(balancing: dict[str, Any], **groups: Any) -> SchedulerClient:
            config = load_config(
                tmp_path / "worker.conf",
                DEFAULT={"transport_url": f"local://{uuid.uuid4().hex}/", "host": "w1"},
                balancing={"interval": INTERVAL_S, "max_migrations": 1} | balancing,
                **groups,
            )
            worker = stack.enter_context(build_worker(config).running())
            return SchedulerClient(worker.bus, timeout_s=SOON_S)

        yield start


def last_round(client: SchedulerClient) -> dict[str, Any]:
    return client.get_balancing("default")["last_round"] or {"considered": [], "power": []}


def test_an_agent_relieves_a_host_once_the_balance_is_switched_on(serve):
    client = serve({})
    datacenter = Datacenter(client, a=["a1", "a2", "a3", "a4", "a5"], b=["b1"])
    moved: list[str] = []

    def migrate(_context: object, **asked: Any) -> None:
        moved.append(asked["vm"])
        names = asked["cluster"], asked["migration"]
        destination = datacenter.move(asked["vm"])
        assert (asked["source"], [destination]) == ("a", asked["candidates"])
        client.report_migration(*names, "started", destination=destination)
        assert client.report_migration(*names, "done")

    with contextlib.closing(Agent(client._bus, "balancing_agent", "dc", migrate=migrate)):
        client.attach_cluster_policy("default", EVEN)
        eventually(lambda: bool(last_round(client)["considered"]))
        [considered, *_] = last_round(client)["considered"]
        assert (considered["outcome"], moved) == ("would be asked for", [])
        client.set_balancing_mode("default", "on")
        eventually(lambda: len(datacenter.vms["a"]) < 4)
    assert len(set(moved)) == len(moved), "no VM is moved twice"


def test_nova_relieves_a_host(serve):
    with nova_api.running_nova() as nova:
        client = serve({"target": "nova", "mode": "on"}, nova=nova_api.options(nova))
        datacenter = Datacenter(client, a=["a1", "a2", "a3", "a4", "a5"], b=["b1"])
        nova.hosts |= {vm: name for name, vms in datacenter.vms.items() for vm in vms}

        def migrate(vm: str) -> None:
            row = nova.migrate(vm)
            nova.hosts[vm] = datacenter.move(vm)
            row |= {"dest_compute": nova.hosts[vm], "status": "completed"}
            del nova.tasks[vm]

        nova.on_migrate = migrate
        client.attach_cluster_policy("default", EVEN)
        eventually(lambda: len(datacenter.vms["a"]) < 4)
        eventually(lambda: not client.get_balancing("default")["under_way"])
        assert client.get_balancing("default")["waiting"] == []


def test_an_agent_switches_an_empty_host_off_and_on_again(serve):
    client = serve({"mode": "on"})
    datacenter = Datacenter(client, a=["a1"], b=[], c=[])
    steps: list[tuple[str, str]] = []

    def switch(host: str, state: str) -> None:
        client.update_hosts([power(host, state)])

    def set_host_power(_context: object, **asked: Any) -> None:
        host, to = asked["host"], asked["to"]
        names = asked["cluster"], asked["action"]
        assert client.report_power(*names, "started")
        with pytest.raises(NoValidHost):
            client.select_destinations(VM | {"force_hosts": [host]})
        switch(host, to)
        steps.append((host, to))
        client.report_power(*names, "done")

    methods = {"set_host_power": set_host_power}
    with contextlib.closing(Agent(client._bus, "balancing_agent", "dc", **methods)):
        for name in "bc":
            switch(name, "up")
        client.attach_cluster_policy("default", power_saving())
        eventually(lambda: len(steps) == 2)
        [(asleep, _), _] = steps
        assert steps == [(asleep, "maintenance"), (asleep, "down")]
        [awake] = {"b", "c"} - {asleep}
        datacenter.vms = {awake: ["load"]}
        datacenter.report()
        eventually(lambda: steps[-1] == (asleep, "up"))


@pytest.mark.deep
def test_another_worker_goes_on_with_a_power_action_when_the_balancing_one_is_killed(
    configure, rabbit_vhost_url
):
    settings = {"mode": "on", "interval": INTERVAL_S, "begin_timeout": NEVER_S}
    workers = {
        name: WorkerProcess(configure(name, balancing=settings), name=name)
        for name in ("one", "two")
    }
    steps: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    methods = {"set_host_power": lambda _context, **asked: steps.put(asked)}
    with (
        all_ready(*workers.values()),
        connected(rabbit_vhost_url) as client,
        contextlib.closing(Agent(client._bus, "balancing_agent", "dc", **methods)),
    ):
        Datacenter(client, a=["a1"], b=[], c=[])
        client.update_hosts([power(name, "up") for name in "bc"])
        client.attach_cluster_policy("default", power_saving())
        first = steps.get(timeout=SOON_S)
        killed = client.get_balancing("default")["worker"]
        workers[killed].kill()
        eventually(lambda: client.get_balancing("default")["worker"] != killed)
        taken_over = last_round(client)["at"]
        eventually(lambda: last_round(client)["at"] > taken_over)
        with pytest.raises(NoValidHost):
            client.select_destinations(VM | {"force_hosts": [first["host"]]})
        client.update_hosts([power(first["host"], first["to"])])
        assert client.report_power(first["cluster"], first["action"], "done")
        second = steps.get(timeout=SOON_S)
    found = [(each["host"], each["to"]) for each in (first, second)]
    assert found == [(first["host"], "maintenance"), (first["host"], "down")]
    assert steps.empty()


def power(host: str, state: str) -> dict[str, Any]:
    """A report of the state of a host that the policy may switch."""
    return {"host": host, "power": {"state": state, "is_managed": True}}
