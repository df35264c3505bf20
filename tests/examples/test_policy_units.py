"""The example units of policies, and the guide that builds, attaches and removes a policy of them.

The commands of ``docs/migrating-from-ovirt.md``, "A policy over REST, step by step", run as they
stand there, with curl against a REST API that listens.
"""

import contextlib
import os
import re
import uuid
from importlib import import_module
from pathlib import Path

import pytest

from scheduler_worker.cli.policy_texts import read_policies
from scheduler_worker.client import SchedulerClient
from scheduler_worker.compose.api import build_embedded
from scheduler_worker.service.documents.policy_rules import check_policy
from tests.support.hosts import host_record, host_table, request_spec
from tests.support.packages import install
from tests.support.pages import Shell, section
from tests.support.servers import program
from tests.support.services import host
from tests.support.units import made
from tests.support.web import PASSWORD, users_file
from tests.support.workers import load_config

DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDE = DOCS / "migrating-from-ovirt.md"


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


# The guide


@pytest.fixture
def api(installed, tmp_path):
    """A worker with two hosts, and the REST API beside it."""
    loaded = load_config(
        tmp_path / "worker.conf",
        DEFAULT={"transport_url": f"local://{uuid.uuid4().hex}/"},
        api={"port": 0, "users_file": users_file(tmp_path, anna="administrator")},
        policy_store={"connection": f"sqlite:///{tmp_path / 'policies.sqlite'}"},
    )
    with build_embedded(loaded).running() as running:
        with SchedulerClient.connect(running.worker.bus.url) as client:
            client.update_hosts([host("h1"), host("h2", memory_mb_used=3000)])
        yield running


@pytest.fixture
def shell(api):
    program("curl")  # which the guide types
    environment = {**os.environ, "no_proxy": "*", "API": api.url, "LOGIN": f"anna:{PASSWORD}"}
    with contextlib.closing(Shell(DOCS, environment)) as found:
        yield found


def follow(shell: Shell, title: str) -> None:
    """Run a section of the guide, but for the lines that name URL and password."""
    text = section(GUIDE.read_text(), title)
    shell.follow(re.sub(r"^\$ export .*\n", "", text, flags=re.MULTILINE))


def in_force(api):
    with SchedulerClient.connect(api.worker.bus.url) as client:
        return client.get_cluster_policy("default")


def test_the_guide_from_the_first_request_to_the_last(api, shell):
    follow(shell, "A policy over REST, step by step")
    follow(shell, "Build")
    found = api.administration.library().policy_called("roomy").document
    assert [each.unit for each in found.filters] == ["SpareMemory"]
    assert found.parameters == {"SpareMemoryMb": "2048"}
    assert in_force(api)["name"] == "nova"

    follow(shell, "Attach")
    assert in_force(api)["name"] == "roomy"
    assert in_force(api)["parameters"] == {"SpareMemoryMb": "512", "MemoryTargetPercent": "100"}
    with SchedulerClient.connect(api.worker.bus.url) as client:
        found = client.explain({"flavor": {"vcpus": 2, "memory_mb": 4096}})
    # Of 8192 MiB the second host uses 3000, and would 7096 with the VM: closer to the target.
    assert (found["policy"]["name"], found["chosen"]) == ("roomy", "h2")

    follow(shell, "Undo")
    assert in_force(api)["name"] == "nova"
    assert all(each.is_locked for each in api.administration.library().policies())
    assert "SpareMemory" not in {each.name for each in api.administration.library().units}


def test_the_yaml_of_the_page_about_policies_names_the_example_units(api):
    page = (DOCS / "cluster-policies.md").read_text()
    [text] = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    [given] = read_policies(text, "the page")
    assert given.document.name == "roomy"
    check_policy(given.document, api.administration.library().units, {})
