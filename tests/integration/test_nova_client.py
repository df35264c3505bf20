"""Nova's own client is served as by Nova's scheduler."""

import json
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.support.patience import PROCESS_S, eventually
from tests.support.services import host
from tests.support.workers import WorkerProcess, connected, write_config

CLIENT = Path(__file__).with_name("nova_client.py")
CELL = "dddddddd-0000-4000-8000-000000000001"


class Nova:
    """Runs the client script under Nova's interpreter, one command at a time."""

    def __init__(self, python: Path, config: Path) -> None:
        self._log = config.with_suffix(".log").open("w")
        self.process = subprocess.Popen(
            [str(python), str(CLIENT), str(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def do(self, name: str, **command):
        self.process.stdin.write(json.dumps({"do": name, **command}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the Nova client ended"
        return json.loads(line)

    def ok(self, name: str, **command):
        answer = self.do(name, **command)
        assert "ok" in answer, answer
        return answer["ok"]

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(PROCESS_S)
        self.process.stdout.close()
        self._log.close()


@pytest.fixture
def serve(tmp_path, config, rabbit_vhost_url, nova_python):
    """A worker with three hosts, and a factory of Nova clients."""
    clients = []

    def nova(**groups) -> Nova:
        default = {"transport_url": rabbit_vhost_url, "rpc_response_timeout": 30}
        name = f"nova{len(clients)}.conf"
        clients.append(Nova(nova_python, write_config(tmp_path / name, DEFAULT=default, **groups)))
        return clients[-1]

    with WorkerProcess(config).ready() as worker, connected(rabbit_vhost_url) as client:
        client.update_hosts(
            [host(f"h{number}", memory_mb=16384 - number, cell_uuid=CELL, cpu_allocation_ratio=2.0)
             for number in range(3)]
        )  # fmt: skip
        yield nova, client, worker
    for each in clients:
        each.close()


def ids(count: int = 1) -> list[str]:
    return [str(uuid.uuid4()) for _ in range(count)]


def test_selections_are_novas_own_objects(serve):
    nova, client, _ = serve
    [uuid_] = ids()
    [[chosen, *alternates]] = nova().ok("select", uuids=[uuid_])
    assert chosen["class"] == "Selection"
    assert (chosen["host"], chosen["node"], chosen["cell"]) == ("h0", "h0", CELL)
    assert (chosen["uuid"], chosen["zone"]) == ("uuid-h0", "nova")
    assert (chosen["vcpu"], chosen["memory_mb"]) == (8, 16384)
    assert [each["host"] for each in alternates] == ["h1", "h2"]
    assert [
        each["instance_uuid"] for each in client.list_reservations(limit=1000)["reservations"]
    ] == [uuid_]


@pytest.mark.deep
def test_a_multi_create_of_a_group_and_its_refusal(serve):
    nova, client, _ = serve
    uuids = ids(4)
    group = {"uuid": str(uuid.uuid4()), "policy": "anti-affinity", "members": uuids, "hosts": [],
             "policies": ["anti-affinity"]}  # fmt: skip
    conductor = nova()
    refused = conductor.do("select", uuids=uuids, spec={"group": group})["raised"]
    assert "nova.exception.NoValidHost" in refused[2]
    # oslo.messaging appends the traceback of the failure: ours is one line, without paths.
    text = "No valid host was found. There are not enough hosts available."
    assert refused[3].splitlines() == [text, f"nova.exception.NoValidHost: {text}"]
    assert client.list_reservations(limit=1000)["reservations"] == []
    placed = conductor.ok("select", uuids=uuids[:3], spec={"group": group})
    assert sorted(some[0]["host"] for some in placed) == ["h0", "h1", "h2"]


@pytest.mark.parametrize("version", ["4.4", "4.3", "4.0"])
def test_capped_clients_get_what_they_ask_for(serve, version):
    nova, client, _ = serve
    older = nova(upgrade_levels={"scheduler": version})
    [chosen] = older.ok("select", uuids=ids(), objects=False, alternates=False)
    assert (chosen["host"], chosen["nodename"]) == ("h0", "h0")
    assert chosen["limits"]["memory_mb"] == 16384
    assert len(client.list_reservations(limit=1000)["reservations"]) == 1
    refused = older.do(
        "select", uuids=ids(), objects=False, alternates=False, spec={"flavor": {"vcpus": 99}}
    )
    assert "nova.exception.NoValidHost" in refused["raised"][2]


@pytest.mark.deep
def test_fanout_casts_take_effect(serve):
    nova, client, _ = serve
    compute = nova()
    aggregate = {"id": 1, "uuid": str(uuid.uuid4()), "called": "zone"}
    zone = {"availability_zone": "az9"}
    compute.ok("update_aggregate", **aggregate, hosts=["h2"], metadata=zone)
    eventually(lambda: "ok" in compute.do("select", uuids=ids(), spec=zone))
    [[chosen, *_]] = compute.ok("select", uuids=ids(), spec=zone)
    assert (chosen["host"], chosen["zone"]) == ("h2", "az9")
    compute.ok("delete_aggregate", **aggregate)
    eventually(lambda: "raised" in compute.do("select", uuids=ids(), spec=zone))

    first, second, third = ids(3)
    compute.ok("update_instances", host="h1", uuids=[first, second])
    eventually(lambda: instances(client, "h1") == sorted([first, second]))
    compute.ok("delete_instance", host="h1", uuid=first)
    eventually(lambda: instances(client, "h1") == [second])
    compute.ok("sync_instances", host="h1", uuids=[second, third])
    eventually(lambda: instances(client, "h1") == sorted([second, third]))


def instances(client, name: str) -> list[str]:
    return sorted(client.get_host(name)["instance_uuids"])
