"""The example units of policies, and the guide that builds, attaches and removes a policy of them.

The commands of ``docs/policy-guide.md`` run as they stand there, with curl against a REST API that
listens.
"""

import contextlib
import os
import re
import shutil
import subprocess
import uuid
from importlib import import_module
from pathlib import Path

import pytest
from msgspec import structs

from scheduler_worker import api_process, conf
from scheduler_worker.api.users import edited, new_user
from scheduler_worker.cli.policy_texts import read_policies
from scheduler_worker.client import SchedulerClient
from scheduler_worker.operations.callers import Grant
from tests.support.examples import install, registered_in
from tests.support.hosts import host_record, host_table, request_spec
from tests.support.patience import PROCESS_S
from tests.support.services import host
from tests.support.units import made
from tests.support.workers import write_config

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "policy-guide.md"
TOOL = "/etc/scheduler_worker/tool.conf"
PASSWORD = "correct horse"


def blocks(language: str) -> list[str]:
    pattern = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return pattern.findall(GUIDE.read_text())


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    target = install(tmp_path_factory.mktemp("units"), "policy_units")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(target))
        yield target


@pytest.fixture(scope="module")
def units(installed):
    return import_module("memory_units")


@pytest.fixture
def hosts():
    """Hosts of 8 GiB, of which nothing, a half and almost all is used, and one without memory."""
    used = {"empty": 0, "half": 4096, "full": 7168}
    records = [host_record(host=name, memory_mb_used=mb) for name, mb in used.items()]
    return host_table([*records, host_record(host="none", memory_mb=0)])


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("scheduler_worker.policy_filters", "SpareMemory", "memory_units:SpareMemoryFilter"),
        ("scheduler_worker.policy_weights", "MemoryUse", "memory_units:MemoryUseCost"),
    ],
)
def test_the_worker_finds_them(installed, group, name, value):
    assert [(each.name, each.value) for each in registered_in(installed, group)] == [(name, value)]


@pytest.mark.parametrize(
    ("spare_mb", "passed"),
    [("0", [True, True, True, False]), ("1", [True, True, False, False])],
)
def test_the_filter_keeps_memory_to_spare(units, hosts, spare_mb, passed):
    unit = made(units.SpareMemoryFilter, SpareMemoryMb=spare_mb)
    spec = request_spec(memory_mb=1024)
    assert unit.passes(hosts, spec).tolist() == passed
    assert [unit.host_passes(each, spec) for each in hosts.states()] == passed


def test_the_filter_gives_its_reason_with_figures(units, hosts):
    reason = units.SpareMemoryFilter().reason(hosts.state(2), request_spec(memory_mb=512))
    assert reason == "has 1024 MiB free, needs 1536 MiB: 512 for the VM, 1024 to spare"


@pytest.mark.parametrize(
    ("target", "costs"),
    [("0", [12.5, 62.5, 100, 100]), ("100", [87.5, 37.5, 0, 0]), ("60", [47.5, 2.5, 40, 40])],
)
def test_the_cost_is_the_distance_from_the_target(units, hosts, target, costs):
    unit = made(units.MemoryUseCost, MemoryTargetPercent=target)
    assert unit.lower_is_better
    assert unit.weigh(hosts, request_spec(memory_mb=1024)).tolist() == costs


def test_the_units_that_the_guide_writes_decide_as_those_of_the_package(units):
    found = {}
    for program in blocks("python")[:2]:
        exec(program, found)
    hosts = host_table(host_record(host=f"h{mb}", memory_mb_used=mb) for mb in (7168, 0, 4096))
    spec = request_spec(memory_mb=1024)
    masks = [made(each["SpareMemoryFilter"]).passes(hosts, spec) for each in (found, vars(units))]
    costs = [made(each["MemoryUseCost"]).weigh(hosts, spec) for each in (found, vars(units))]
    assert masks[0].tolist() == masks[1].tolist() == [False, True, True]
    assert costs[0].argsort().tolist() == costs[1].argsort().tolist() == [1, 2, 0]


# The guide


@pytest.fixture
def api(installed, tmp_path):
    """A worker with two hosts, and the REST API beside it."""
    users = tmp_path / "users.yaml"
    with edited(users) as known:
        known["anna"] = new_user("anna", PASSWORD, (Grant("administrator"),))
    config = write_config(
        tmp_path / "worker.conf",
        DEFAULT={"transport_url": f"local://{uuid.uuid4().hex}/"},
        api={"port": 0, "users_file": users},
        policy_store={"connection": f"sqlite:///{tmp_path / 'policies.sqlite'}"},
    )
    loaded = conf.load(["--config-file", str(config)])
    with api_process.build_embedded(loaded).running() as running:
        running.config_file = config  # type: ignore[attr-defined]
        with SchedulerClient.connect(running.worker.bus.url) as client:
            client.update_hosts([host("h1"), host("h2", memory_mb_used=3000)])
        yield running


class Shell:
    """Runs the guide's commands one after the other, in one shell."""

    def __init__(self, url: str) -> None:
        self._bash = subprocess.Popen(
            ["bash"],
            env={**os.environ, "no_proxy": "*", "API": url, "LOGIN": f"anna:{PASSWORD}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def close(self) -> None:
        self._bash.communicate(timeout=PROCESS_S)

    def run(self, section: str) -> None:
        """Run the commands of a section; each prints what is printed there."""
        text = GUIDE.read_text().partition(f"\n## {section}")[2].partition("\n## ")[0]
        for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
            for command, printed in re.findall(
                r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE
            ):
                if not command.startswith("export"):
                    assert self.output(command) == f"{printed}status 0\n", command

    def output(self, command: str) -> str:
        """What a command prints, and its status."""
        assert self._bash.stdin
        assert self._bash.stdout
        marker = uuid.uuid4().hex
        self._bash.stdin.write(f"{command}\nstatus=$?; echo; echo {marker}; echo $status\n")
        self._bash.stdin.flush()
        lines = list(iter(self._bash.stdout.readline, f"{marker}\n"))
        printed = "".join(lines).removesuffix("\n")
        return f"{printed}status {self._bash.stdout.readline()}"


@pytest.fixture
def shell(api):
    with contextlib.closing(Shell(api.url)) as found:
        yield found


def in_force(api):
    with SchedulerClient.connect(api.worker.bus.url) as client:
        return client.get_cluster_policy("default")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_guide_from_the_first_request_to_the_last(api, shell, capsys):
    shell.run("3.")
    shell.run("4.")
    found = api.administration.library.policy_called("roomy").document
    [given] = read_policies(blocks("yaml")[0], "the guide")
    assert given.document == structs.replace(found, id=given.document.id, version=1)
    assert in_force(api)["name"] == "nova"

    shell.run("5.")
    assert in_force(api)["name"] == "roomy"
    assert in_force(api)["parameters"] == {"SpareMemoryMb": "512", "MemoryTargetPercent": "100"}
    program = blocks("python")[2].replace(TOOL, str(api.config_file))
    exec(program, {})
    # Of 8192 MiB the second host uses 3000, and would 7096 with the VM: closer to the target.
    assert "policy roomy chooses h2\n" in capsys.readouterr().out

    shell.run("7.")
    assert in_force(api)["name"] == "nova"
    assert all(each.is_locked for each in api.administration.library.policies())
    assert "SpareMemory" not in {each.name for each in api.administration.library.units()}
