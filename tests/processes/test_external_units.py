"""Units from files: from the directory over enabling and a policy to decisions, as an operator."""

import json
import os
import shutil
import uuid
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from scheduler_worker import conf, events, remedies
from scheduler_worker.backends.sandbox import pool, process
from scheduler_worker.backends.sandbox.pool import Sandboxes
from scheduler_worker.backends.sandbox.process import Sandbox
from scheduler_worker.cli.manage import main
from scheduler_worker.client import SchedulerClient
from scheduler_worker.compose.api import build_api, build_embedded
from scheduler_worker.compose.worker import build_worker
from scheduler_worker.errors import ConfigError, RequestError
from scheduler_worker.scheduling.catalogue import UnitKind, unit_id
from scheduler_worker.scheduling.external.contract import read_filter
from scheduler_worker.scheduling.external.units import PluginCall
from scheduler_worker.service.documents.audit import Actor
from scheduler_worker.service.policies import units
from tests.support.observers import CountingObserver
from tests.support.patience import eventually
from tests.support.sandboxes import HOSTS, PYTHON, directory, sandboxes, settings, write
from tests.support.services import host
from tests.support.web import ask, basic, users_file
from tests.support.workers import write_config

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "external_units" / "spare_hosts.py"
VM = "11111111-1111-1111-1111-111111111111"
SPEC = {"flavor": {"vcpus": 1, "memory_mb": 64, "root_gb": 1, "ephemeral_gb": 0, "swap": 0}}


@pytest.fixture
def place(tmp_path):
    """The directory of units, and the configuration."""
    with directory() as folder:
        shutil.copy(EXAMPLE, folder)
        (folder / EXAMPLE.name).chmod(0o644)
        write(folder, "broken.py", "def broken(:")
        config = write_config(
            tmp_path / "worker.conf",
            DEFAULT={"transport_url": f"local://{uuid.uuid4().hex}/"},
            api={"port": 0, "users_file": users_file(tmp_path, anna="administrator")},
            policy_store={"connection": f"sqlite:///{tmp_path / 'policies.sqlite'}"},
            external_units={
                "directory": folder,
                "python": PYTHON,
                "timeout": 9,
                "isolation": "",
            },
            cluster_lock={"hold_timeout": 20},
        )
        yield folder, config


def manage(config, *words):
    with redirect_stdout(StringIO()) as out:
        status = main(["--config-file", str(config), *words])
    return status, out.getvalue()


def test_a_directory_that_is_away_is_named(place, caplog):
    folder, config = place
    shutil.rmtree(folder)
    assert manage(config, "unit", "list")[0] == 0
    problem = f"[Errno 2] No such file or directory: '{folder}'"
    assert f"directory cannot be read: {problem}" in caplog.text


def listed(api):
    url = urlsplit(api.url)
    headers = basic("anna") | {"Accept": "application/json"}
    found = ask(url.port, f"{url.path}/schedulingpolicyunits", headers=headers).document
    return {each["name"]: each for each in found["scheduling_policy_unit"]}


def test_from_a_file_to_a_decision(place, tmp_path):
    folder, config = place
    policy = tmp_path / "spare.yaml"
    policy.write_text(
        "policies:\n- name: spare\n  filters:\n  - unit: SpareHosts\n"
        f"  parameters: {{spare_hosts: '{HOSTS[1]}'}}\n"
    )
    status, _ = manage(config, "policy", "import", str(policy), "--yes")
    assert status == 1  # it is not enabled yet

    enabled = "The filter SpareHosts is enabled\nThe weight SpareHosts is enabled\n"
    assert manage(config, "unit", "enable", "SpareHosts") == (0, enabled)
    _, said = manage(config, "unit", "list", "-f", "json")
    rows = json.loads(said)
    assert [(row["Name"], row["Kind"], row["Enabled"]) for row in rows] == [
        ("SpareHosts", "filter", True),
        ("broken.py", "filter", False),
        ("SpareHosts", "weight", True),
    ]
    assert "SyntaxError" in said
    assert manage(config, "policy", "import", str(policy), "--yes")[0] == 0

    with build_embedded(conf.load(["--config-file", str(config)])).running() as api:
        units = listed(api)
        assert units["SpareHosts"]["enabled"] == "true"
        assert units["broken.py"]["enabled"] == "false"
        assert "SyntaxError" in units["broken.py"]["description"]
        with SchedulerClient.connect(api.worker.bus.url) as client:
            client.update_hosts([host("h1", uuid=HOSTS[1]), host("h2", uuid=HOSTS[2])])
            cluster = api.worker.fleet.default_cluster
            api.administration.attach(cluster, Actor("anna"), policy="spare")
            found = client.explain(SPEC, [VM])
            rejected = {each["host"]: each["rejected_by"] for each in found["verdicts"]}
            assert rejected == {"h1": "SpareHosts", "h2": None}
            assert found["notes"] == []
            (chosen, *_) = client.select_destinations(SPEC, [VM])[0]
            assert chosen.service_host == "h2"

            write(folder, EXAMPLE.name, "def broken(:")  # policies that use it go on without it
            api.worker.reload()
            found = client.explain(SPEC, [VM])
            assert "there is no file spare_hosts.py that can be loaded" in found["notes"][0]
            assert {each["rejected_by"] for each in found["verdicts"]} == {None}


def test_a_policy_over_rpc_needs_the_switch_too(place, tmp_path, redis_url):
    """The command and a worker share Redis only; there is no API."""
    _, config = place
    with config.open("a") as file:
        file.write(f"\n[state]\nurl = {redis_url}\n")
    filters = [{"unit": "SpareHosts", "parameters": {"spare_hosts": HOSTS[1]}}]
    policy = {"id": "spare", "name": "spare", "version": 1, "filters": filters}
    made = build_worker(conf.load(["--config-file", str(config)]))
    with made.running() as worker, SchedulerClient.connect(worker.bus.url) as client:
        client.update_hosts([host("h1", uuid=HOSTS[1]), host("h2", uuid=HOSTS[2])])
        cluster = worker.fleet.default_cluster
        with pytest.raises(RequestError, match=r"scheduler-worker-manage unit enable SpareHosts"):
            client.attach_cluster_policy(cluster, policy)
        assert manage(config, "unit", "enable", "SpareHosts")[0] == 0
        client.attach_cluster_policy(cluster, policy)
        (chosen, *_) = client.select_destinations(SPEC, [VM])[0]
        assert chosen.service_host == "h2"


def test_a_worker_without_a_wall_serves_and_says_which_one(place, tmp_path, monkeypatch):
    _, config = place
    weaker = "def _landlock(settings): return 'the kernel of this test'\n\n\ndef _former("
    runner = tmp_path / "runner.py"
    runner.write_text(process.RUNNER.read_text().replace("def _landlock(", weaker))
    monkeypatch.setattr(process, "RUNNER", runner)
    text = config.read_text()
    config.write_text(text.replace("isolation = \n", "isolation = landlock\n"))
    assert config.read_text() != text
    why = f"its sandbox lacks landlock (the kernel of this test). {remedies.WALLS}"
    assert why in manage(config, "unit", "list")[1]
    with build_worker(conf.load(["--config-file", str(config)])).running() as worker:
        assert worker.missing() == []
        alarms = worker.vitals.report().unit_alarms
        assert [name.partition(":")[0] for name in alarms] == ["broken.py", "spare_hosts.py"]
        assert all(alarm.endswith(why) for alarm in alarms)
        assert worker.vitals.load().unit_alarms == 2
        with SchedulerClient.connect(worker.bus.url) as client:
            client.update_hosts([host("h1", uuid=HOSTS[1])])
            (chosen, *_) = client.select_destinations(SPEC, [VM])[0]
            assert chosen.service_host == "h1"
            policy = {"id": "p", "name": "p", "version": 1, "filters": [{"unit": "SpareHosts"}]}
            with pytest.raises(RequestError, match="SpareHosts"):
                client.attach_cluster_policy(worker.fleet.default_cluster, policy)


@pytest.fixture
def loads(monkeypatch) -> list[str]:
    """The names of the files that sandboxes are started for."""
    started: list[str] = []

    class Named(Sandbox):
        def __init__(self, file: Path, *others: Any) -> None:
            started.append(file.name)
            super().__init__(file, *others)

    monkeypatch.setattr(pool, "Sandbox", Named)
    return started


MADE = "for name in ('Ma' + 'de',): globals()[name] = type(name, (), {'do_filter': print})"


def test_commands_load_the_files_of_the_units_that_they_name(place, tmp_path, loads):
    folder, config = place
    write(folder, "other.py", "class Other:\n    def do_filter(self, *asked): pass")
    for words, files in (
        (["unit", "enable", "SpareHosts"], ["spare_hosts.py"]),
        (["unit", "enable", unit_id(UnitKind.FILTER, "Other")], ["other.py"]),
        (["unit", "disable", "Other"], ["other.py"]),
        (["policy", "list"], []),
        (["policy", "export"], []),
        (["unit", "list"], ["broken.py", "other.py", "spare_hosts.py"]),
    ):
        loads.clear()
        assert manage(config, *words)[0] == 0, words
        assert sorted(loads) == files, words
    policy = tmp_path / "spare.yaml"
    policy.write_text(
        "policies:\n- name: spare\n  filters: [{unit: SpareHosts}, {unit: RamFilter}]"
    )
    loads.clear()
    assert manage(config, "policy", "import", str(policy), "--yes")[0] == 0
    assert loads == ["spare_hosts.py"]


def test_a_class_whose_name_is_not_in_the_text_of_its_file_is_found(place, loads):
    folder, config = place
    write(folder, "made.py", MADE)
    assert manage(config, "unit", "enable", "Made")[0] == 0
    assert loads == ["made.py"]


HANGS = """
import time
class {}:
    def do_filter(self, hosts, vm, properties): time.sleep(3600)
"""


@pytest.mark.deep
def test_units_that_hang_do_not_outlast_the_lease_of_a_decision(place, tmp_path, monkeypatch):
    folder, config = place
    names = [f"Hangs{number}" for number in range(6)]
    for name in names:
        write(folder, f"{name.lower()}.py", HANGS.format(name))
    text = config.read_text().replace("timeout = 9", "timeout = 1")
    config.write_text(text.replace("hold_timeout = 20", "hold_timeout = 4"))
    policy = tmp_path / "hangs.yaml"
    uses = "".join(f"  - unit: {name}\n" for name in names)
    policy.write_text(f"policies:\n- name: hangs\n  filters:\n{uses}")
    assert manage(config, "unit", "list")[0] == 0
    for name in names:
        assert manage(config, "unit", "enable", name)[0] == 0
    assert manage(config, "policy", "import", str(policy), "--yes")[0] == 0
    with build_embedded(conf.load(["--config-file", str(config)])).running() as api:
        outcomes = []
        monkeypatch.setattr(api.worker.monitor, "decided", outcomes.append)
        with SchedulerClient.connect(api.worker.bus.url) as client:
            client.update_hosts([host("h1", uuid=HOSTS[1])])
            cluster = api.worker.fleet.default_cluster
            api.administration.attach(cluster, Actor("anna"), policy="hangs")
            (chosen, *_) = client.select_destinations(SPEC, [VM])[0]
            assert chosen.service_host == "h1"
        assert [each.attempts for each in outcomes] == [1]


@pytest.mark.parametrize("is_embedded", [True, False], ids=["embedded", "beside the workers"])
def test_files_are_watched_while_the_api_serves(place, monkeypatch, redis_url, is_embedded):
    folder, config = place
    monkeypatch.setattr(units, "WATCH_S", 0.05)
    if not is_embedded:
        with config.open("a") as file:
            file.write(f"\n[state]\nurl = {redis_url}\n")
    build = build_embedded if is_embedded else build_api
    with build(conf.load(["--config-file", str(config)])).running() as api:
        sees_a_change_of_files(api, folder)


def sees_a_change_of_files(api, folder):
    assert listed(api)["SpareHosts"]["enabled"] == "false"
    write(folder, "broken.py", UNIT.format(1))
    eventually(lambda: "Unit" in listed(api))
    found = listed(api)
    assert found["Unit"]["enabled"] == "false"
    assert "broken.py" not in found
    write(folder, "new.py", "def broken(:")
    eventually(lambda: "SyntaxError" in listed(api).get("new.py", {}).get("description", ""))
    assert listed(api)["new.py"]["enabled"] == "false"


def asked(made, name="Unit"):
    plugin = next(
        (each for file in made.refresh() for each in file.classes if each.name == name), None
    )
    return plugin and made.ask(
        PluginCall(plugin=plugin, hosts=HOSTS, vm=VM, properties={}), read_filter
    )


UNIT = "class Unit:\n    def do_filter(self, hosts, vm, properties): print(hosts[{}:])\n"


def test_files_are_read_again_where_they_changed():
    with directory() as folder:
        made = Sandboxes(settings(folder))
        try:
            assert made.refresh() == []
            path = write(folder, "unit.py", UNIT.format(3))
            assert asked(made) == set(HOSTS[3:])
            write(folder, "unit.py", UNIT.format(" 4 "))
            assert asked(made) == set(HOSTS[4:])
            path.unlink()
            assert asked(made) is None
            (file,) = made.refresh()
            assert file.problem == "the file is gone"
            assert [each.name for each in file.classes] == ["Unit"]
        finally:
            made.close()


def test_a_file_that_changed_unseen_is_not_run():
    with directory() as folder:
        made = Sandboxes(settings(folder, processes=1, timeout_s=1.0))
        try:
            write(folder, "unit.py", "class Unit:\n def do_filter(s, h, v, p):\n  while 1: 0\n")
            (plugin,) = made.refresh()[0].classes
            question = PluginCall(plugin=plugin, hosts=HOSTS, vm=VM, properties={})
            write(folder, "unit.py", UNIT.format(3))
            assert made.ask(question, read_filter) is None
            eventually(lambda: not made._pools["unit.py"]._free.empty())  # the next did not start
            assert made.ask(question, read_filter) is None
            assert "has changed and is not read again yet" in (made.trouble(plugin) or "")
        finally:
            made.close()


def test_a_failure_that_passes_all_hosts_is_counted_as_such():
    seen = CountingObserver()
    text = "class Unit:\n    def do_filter(self, hosts, vm, properties): 1/0\n"
    with sandboxes(text, seen) as made:
        assert [asked(made), asked(made)] == [None, None]
    assert seen.of(events.UNIT_CALLS) == {("Unit", "passed"): 2}


SLOW = """
class Unit:
    on_failure = "refuse"
    properties_validation = "slow=yes"
    def do_filter(self, hosts, vm, properties):
        while "slow" in properties: pass
        print(hosts)
"""


def test_the_call_after_one_that_was_killed_is_served_and_repeated_ones_are_not_made():
    seen = CountingObserver()
    with sandboxes(SLOW, seen, processes=1, rest_s=3600.0, timeout_s=3.0) as made:
        ((plugin,),) = [file.classes for file in made.refresh()]

        def ask(**properties):
            question = PluginCall(plugin=plugin, hosts=HOSTS, vm=VM, properties=properties)
            eventually(lambda: not made._pools["units.py"]._free.empty())  # one is there again
            return made.ask(question, read_filter)

        for _ in range(2):
            assert ask(slow="yes") is None
            assert made.trouble(plugin) == "it did not answer in time"
            assert ask() == set(HOSTS)
        assert (ask(slow="yes"), ask(slow="yes"), ask()) == (None, None, None)
        assert "not called for a while" in (made.trouble(plugin) or "")
    assert seen.of(events.UNIT_CALLS) == {("Unit", "refused"): 5, ("Unit", "ok"): 2}


def test_the_user_is_never_root():
    with directory() as folder:
        if os.geteuid() == 0:
            with pytest.raises(ConfigError, match="must not run as root"):
                Sandboxes(settings(folder, user="root"))
            with pytest.raises(ConfigError, match="no user 'no-such-user'"):
                Sandboxes(settings(folder, user="no-such-user"))
        else:
            assert Sandboxes(settings(folder, user="root")).refresh() == []
