"""Nova's own client is served as by Nova's scheduler."""

import json
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.support.patience import PROCESS_S
from tests.support.services import host
from tests.support.workers import WorkerProcess, connected, reserved, write_config

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

    def select(self, **command):
        """The answer to a request for one new instance."""
        self.process.stdin.write(json.dumps({"uuids": [str(uuid.uuid4())], **command}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the Nova client ended"
        return json.loads(line)

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

    with WorkerProcess(config).ready(), connected(rabbit_vhost_url) as client:
        client.update_hosts(
            [host(f"h{number}", memory_mb=16384 - number, cell_uuid=CELL, cpu_allocation_ratio=2.0)
             for number in range(3)]
        )  # fmt: skip
        yield nova, client
    for each in clients:
        each.close()


def test_selections_are_novas_own_objects(serve):
    nova, client = serve
    [[chosen, *alternates]] = nova().select()["ok"]
    assert chosen["class"] == "Selection"
    assert (chosen["host"], chosen["node"], chosen["cell"]) == ("h0", "h0", CELL)
    assert (chosen["uuid"], chosen["zone"]) == ("uuid-h0", "nova")
    assert (chosen["vcpu"], chosen["memory_mb"]) == (8, 16384)
    assert [each["host"] for each in alternates] == ["h1", "h2"]
    assert len(reserved(client)) == 1


@pytest.mark.parametrize("version", ["4.4", "4.3", "4.0"])
def test_capped_clients_get_what_they_ask_for(serve, version):
    nova, client = serve
    older = nova(upgrade_levels={"scheduler": version})
    [chosen] = older.select(objects=False, alternates=False)["ok"]
    assert (chosen["host"], chosen["nodename"]) == ("h0", "h0")
    assert chosen["limits"]["memory_mb"] == 16384
    assert len(reserved(client)) == 1
    refused = older.select(objects=False, alternates=False, flavor={"vcpus": 99})
    assert "nova.exception.NoValidHost" in refused["raised"]
