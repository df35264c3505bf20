"""The wheel alone makes a client; with the extra ``server`` every program and command starts."""

import contextlib
import os
import shutil
import subprocess
import uuid
import venv
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.settings import StateSettings
from scheduler_worker.cli.ctl import Ctl
from scheduler_worker.cli.manage import Manage
from scheduler_worker.client import SchedulerClient
from scheduler_worker.compose.engines import open_state
from scheduler_worker.operations import OPERATIONS
from scheduler_worker.operations.policies import create_policy, remove_policy
from scheduler_worker.operations.rehearsals import begin_rehearsal
from scheduler_worker.operations.units import list_units
from tests.support import commands, tuners
from tests.support.edges import AnyOperation, lose_worker, right
from tests.support.engine import PASSWORD, USER, FakeEngine
from tests.support.json_server import serving
from tests.support.packages import ROOT, build, checkout, registered_in
from tests.support.patience import PROCESS_S, eventually
from tests.support.sandboxes import PYTHON
from tests.support.servers import free_port
from tests.support.services import host
from tests.support.threads import Threads
from tests.support.web import ask, basic
from tests.support.workers import WorkerProcess, connected, write_config

CTL, MANAGE = "scheduler-workerctl", "scheduler-worker-manage"
DAEMONS = {
    "scheduler-worker": "Serving topic",
    "scheduler-worker-api": "Serving the REST API at",
}
"""What each says in its log once it serves."""
SPEC = {"flavor": {"vcpus": 2, "memory_mb": 4096, "root_gb": 20}, "num_instances": 1}
BALLOON = (
    "{root}/etc/scheduler_worker/tuning/examples/memory_balloon.yaml "
    "--samples {root}/tests/examples/tuning/balloon_samples.yaml"
)
EDITOR = "#!/bin/sh\nexec echo '  balance: {unit: EvenLoad}' >> \"$1\"\n"
PROGRAM = """
import importlib.util
from scheduler_worker.client import SchedulerClient
from scheduler_worker.operations import hosts
for name in "cheroot", "numpy", "redis", "sqlalchemy":
    assert importlib.util.find_spec(name) is None, name
with SchedulerClient.connect({url!r}) as client:
    [[chosen, *_]] = client.select_destinations({spec}, ["of-a-client"])
    [found] = client.call(hosts.list_hosts, hosts.HostQuery(name=chosen.service_host)).items
    print(found.name)
"""
"""Of a programmer who has the client alone."""
OF_DEVELOPERS = {"dev", "docs", "sdk", "test"}
LOCAL = {"transport_url": "local:/"}
NOVA_URL = {"connection": "mysql+pymysql://a:b@localhost/nova_api"}
FILES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "claims": {"DEFAULT": LOCAL, "nova_claims": {"enabled": True}},
    "feed": {"DEFAULT": LOCAL, "nova_feed": {"enabled": True}, "api_database": NOVA_URL},
    "keystone": {"api": {"auth": "keystone"}},
    "mariadb": {"policy_store": {"connection": "mariadb://a:b@localhost/c"}},
    "migrations": {"DEFAULT": LOCAL, "balancing": {"target": "nova"}},
    "postgresql": {"policy_store": {"connection": "postgresql://a:b@localhost/c"}},
    "tracing": {"DEFAULT": LOCAL, "tracing": {"enabled": True}},
}
"""Files of options that need an extra."""
MISSED = [
    ("chart", f"{CTL} tuning run {BALLOON} --chart picture.png"),
    ("keystone", "scheduler-worker-api --config-file keystone.conf --embedded"),
    ("mariadb", f"{MANAGE} --config-file mariadb.conf db version"),
    ("nova", f"{CTL} doctor --config-file claims.conf"),
    ("nova", "scheduler-worker --config-file claims.conf"),
    ("nova", "scheduler-worker --config-file feed.conf"),
    ("nova", "scheduler-worker --config-file migrations.conf"),
    ("postgresql", f"{MANAGE} --config-file postgresql.conf db version"),
    ("tracing", "scheduler-worker --config-file tracing.conf"),
]
"""Extras of the server, and lines that need them."""
SERVERS = [*DAEMONS, f"{CTL} worker list", f"{MANAGE} db version", "python -m scheduler_worker"]
"""Lines that need the extra ``server``."""


def test_every_command_has_an_example():
    assert set(commands.CTL) == commands.of(Ctl())
    assert set(commands.MANAGE) == commands.of(Manage())


def test_every_extra_of_operators_has_an_example():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    examples = {"server", *(extra for extra, _ in MISSED)}
    assert examples == set(setup["options.extras_require"]) - OF_DEVELOPERS


class Installation:
    """A virtual environment with the wheel, and a folder in which its commands run."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs = programs
        self.folder = folder
        self.port = free_port()
        self.config = folder / ".scheduler_worker" / "scheduler_worker.conf"
        """Where programs look for it by default, for this folder is the user's home."""
        self.config.parent.mkdir(parents=True)
        editor = folder / "editor"
        editor.write_text(EDITOR)
        editor.chmod(0o755)
        self._environment = {
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
            "VISUAL": str(editor),
        }

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line in a shell, whose environment names no other modules."""
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROCESS_S,
            check=False,
        )

    def failures(self, lines: Sequence[str], threads: int = 1) -> str:
        """What each line printed that did not exit with 0."""
        with Threads(threads) as pool:
            found = list(pool.map(self.run, lines))
        return "".join(
            f"{line}: {each.returncode} {each.stdout}{each.stderr}"
            for line, each in zip(lines, found, strict=True)
            if each.returncode
        )

    def start(self, name: str) -> WorkerProcess:
        return WorkerProcess(self.config, name=name, program=self.programs / name)


@contextlib.contextmanager
def installed(folder: Path, *what: str) -> Iterator[Path]:
    """The programs of a fresh environment with something, and nothing but what it requires."""
    venv.create(folder / "venv", with_pip=True)
    pip = [str(folder / "venv/bin/python"), "-m", "pip", "install", "--quiet"]
    done = subprocess.run([*pip, *what], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)  # it would put the checkout before the wheel
        yield folder / "venv/bin"
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return build("wheel", checkout(folder / "source"), folder)


@pytest.fixture(scope="module")
def programs(wheel, tmp_path_factory) -> Iterator[Path]:
    """The programs of an environment with the server."""
    with installed(tmp_path_factory.mktemp("plain"), f"{wheel}[server]") as found:
        yield found


@pytest.fixture(scope="module")
def light(wheel, tmp_path_factory) -> Iterator[Path]:
    """The programs of an environment with the client alone."""
    with installed(tmp_path_factory.mktemp("light"), str(wheel)) as found:
        yield found


@pytest.fixture
def installation(programs, tmp_path) -> Installation:
    return Installation(programs, tmp_path)


@pytest.mark.deep
def test_every_program_and_command_has_help(installation, programs):
    (site,) = programs.parent.glob("lib/python*/site-packages")
    scripts = {
        each.name
        for each in registered_in(site, "console_scripts")
        if each.module.startswith("scheduler_worker.")
    }
    assert scripts == {*DAEMONS, CTL, MANAGE}
    words = [
        *sorted(scripts),
        *(f"{CTL} {name}" for name in commands.CTL),
        *(f"{MANAGE} {name}" for name in commands.MANAGE),
    ]
    assert installation.failures([f"{each} --help" for each in words], threads=2) == ""


@pytest.fixture
def client(
    installation, rabbit_vhost_url, redis_url, make_open_directory
) -> Iterator[SchedulerClient]:
    """Of a worker that knows hosts, and has tuned one."""
    units = make_open_directory()
    units.chmod(0o755)  # for the account that a sandbox has
    shutil.copy(ROOT / "examples/external_units/spare_hosts.py", units)
    folder = installation.folder
    (folder / "password").write_text(f"{PASSWORD}\n")
    (folder / "balloon.yaml").write_text(tuners.BALLOON)
    (folder / "clusters.yaml").write_text('parameters: {"*": {balloon_min: 500}}\n')
    write_config(
        installation.config,
        DEFAULT={"transport_url": rabbit_vhost_url, "host": "one", "service_down_time": 600},
        state={"url": redis_url},
        api={"users_file": folder / "users.yaml", "port": installation.port},
        policy_store={"connection": f"sqlite:///{folder}/policies.sqlite"},
        external_units={"directory": units, "isolation": "", "python": PYTHON},
        tuning={"enabled": True, "interval": 0.2, "clusters_file": folder / "clusters.yaml"},
    )
    with (
        installation.start("scheduler-worker").ready() as worker,
        connected(rabbit_vhost_url) as client,
    ):
        client.update_hosts(yaml.safe_load((ROOT / "examples/hosts.yaml").read_text()))
        vms = {"v": {"memory": {"balloon": 1000.0}}}
        client.update_hosts([host("tuned", cluster="east", vms=vms)])
        client.set_tuning_policy("balloon", tuners.BALLOON)
        eventually(lambda: bool(client.list_tuned_hosts()["tuned_hosts"]))
        yield client
        assert worker.stop() == 0


def placed(client: SchedulerClient) -> str:
    """An instance whose decision is stored."""
    instance = str(uuid.uuid4())
    client.select_destinations(SPEC, [instance])
    eventually(lambda: bool(client.list_decisions(instance=instance)["decisions"]))
    return instance


def lose(url: str) -> None:
    """A worker that was killed, which can be dismissed."""
    with contextlib.closing(
        open_state(StateSettings(url=url, hold_timeout_s=5.0), SystemClock())
    ) as state:
        lose_worker(state, "w0")


@pytest.mark.deep
def test_every_command_works(installation, client, redis_url):
    lose(redis_url)
    with serving(FakeEngine) as engine:
        values = {
            "root": ROOT,
            "instance": placed(client),
            "engine": engine.url,
            "user": USER,
            "balloon": BALLOON.format(root=ROOT),
        }
        lines = [
            f"{program} {name} {arguments.format(**values)}"
            for program, examples in ((CTL, commands.CTL), (MANAGE, commands.MANAGE))
            for name, arguments in examples.items()
        ]
        assert installation.failures(lines) == ""


MADE: Mapping[AnyOperation, str] = {create_policy: "packing", begin_rehearsal: "r0"}
"""Operations that make what others need, and how those call it."""


def ask_rest(port: int, operation: AnyOperation, given: Mapping[str, Any]) -> Any:
    """The plain answer of the API process as it is installed; None: there is none."""
    path = f"/v1{operation.path}".format(**given)
    rest = {name: given[name] for name in given if f"{{{name}}}" not in str(operation.path)}
    body = rest if operation.method in {"POST", "PUT"} else b""
    headers = basic("anna", PASSWORD) | {"If-Match": "*"}
    answer = ask(port, path, str(operation.method), body, headers)
    assert 200 <= answer.status < 300, (operation.name, answer.text)
    return answer.document


@pytest.mark.deep
def test_every_operation_works_over_rpc_and_rest(installation, client, redis_url):
    manage = f"{MANAGE} user add anna --role administrator < password", f"{MANAGE} db upgrade"
    assert installation.failures(manage) == ""
    order = ["POST", "PUT", "GET", "DELETE"]
    with installation.start("scheduler-worker-api") as api:
        api.await_log(DAEMONS["scheduler-worker-api"])
        rest = partial(ask_rest, installation.port)
        units = rest(list_units, {})["items"]
        unit = next(each["id"] for each in units if each["can_be_switched"])
        for edge in "REST", "RPC":
            lose(redis_url)
            ids = {"one": placed(client), "host-east": "tuned", "w1": "one"}
            ids |= {name: f"{name} over {edge}" for name in ("other", "packed")}
            for each in sorted(OPERATIONS, key=lambda each: order.index(each.method)):
                if each is remove_policy:  # the other one is attached now
                    ids["packing"] = rest(create_policy, {"name": "spare"})["id"]
                given = right(each, unit, tuners.BALLOON)
                given = {name: ids.get(str(value), value) for name, value in given.items()}
                if edge == "RPC" and each.home != "api":
                    made = client.call(each, msgspec.convert(given, each.parameters))
                    if each in MADE:
                        ids[MADE[each]] = made.id
                elif edge == "REST" and each.path is not None:
                    answer = rest(each, given)
                    if each in MADE:
                        ids[MADE[each]] = answer["id"]
        assert api.stop() == 0


def assert_names(extra: str, done: subprocess.CompletedProcess[str]) -> None:
    """It failed, and its one reason is an extra that is missing."""
    said = f"{done.stdout}{done.stderr}"
    assert done.returncode in {1, 2}, said
    assert f"run: pip install 'scheduler_worker[{extra}]'" in said
    assert "Traceback" not in said


@pytest.mark.deep
@pytest.mark.parametrize(("extra", "line"), MISSED)
def test_what_needs_an_extra_names_it(installation, extra, line):
    for name, groups in FILES.items():
        write_config(installation.folder / f"{name}.conf", **groups)
    assert_names(extra, installation.run(line.format(root=ROOT)))


@pytest.mark.deep
def test_a_client_needs_no_server(light, client, rabbit_vhost_url, tmp_path):
    alone = Installation(light, tmp_path / "home")
    (tmp_path / "program.py").write_text(PROGRAM.format(url=rabbit_vhost_url, spec=SPEC))
    done = alone.run(f"python {tmp_path}/program.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("compute-")


@pytest.mark.deep
def test_a_program_without_the_server_names_it(light, tmp_path):
    alone = Installation(light, tmp_path / "home")
    for line in SERVERS:
        assert_names("server", alone.run(line))
