"""The wheel with what it requires and without its extras: every program and command starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.cli.ctl import Ctl
from scheduler_worker.cli.manage import Manage
from tests.support import commands
from tests.support.archives import ROOT, build, checkout
from tests.support.engine import PASSWORD, USER, running_engine
from tests.support.examples import registered_in
from tests.support.patience import PROCESS_S, eventually
from tests.support.servers import free_port
from tests.support.threads import Threads
from tests.support.tuners import tuned
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
"""Extras, and lines that need them."""


def test_every_command_has_an_example() -> None:
    assert set(commands.CTL) == commands.of(Ctl())
    assert set(commands.MANAGE) == commands.of(Manage())


def test_every_extra_of_operators_has_an_example() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert {extra for extra, _ in MISSED} == set(setup["options.extras_require"]) - OF_DEVELOPERS


class Installation:
    """A virtual environment with the wheel, and a folder in which its commands run."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs = programs
        self.folder = folder
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


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The programs of a fresh environment with the wheel, and nothing but what it requires."""
    folder = tmp_path_factory.mktemp("plain")
    wheel = build("wheel", checkout(folder / "source"), folder)
    venv.create(folder / "venv", with_pip=True)
    pip = [str(folder / "venv/bin/python"), "-m", "pip", "install", "--quiet"]
    done = subprocess.run([*pip, str(wheel)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)  # it would put the checkout before the wheel
        yield folder / "venv/bin"
    shutil.rmtree(folder)


@pytest.fixture
def installation(programs: Path, tmp_path: Path) -> Installation:
    return Installation(programs, tmp_path)


@pytest.mark.deep
def test_every_program_and_command_has_help(installation: Installation, programs: Path) -> None:
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


def tune(redis_url: str) -> None:
    """Store what a cycle has set on compute-1, whose agent there is not."""
    clock = SystemClock()
    state = RedisState(redis_url, clock=clock, hold_timeout_s=2.0)
    tuned(state, "east", "7d3f2c5e-5b8e-4c36-9f0e-2a8d1b6c4e01", clock.time_s())
    state.close()


@pytest.mark.deep
def test_every_command_works(
    installation: Installation,
    rabbit_vhost_url: str,
    redis_url: str,
    make_open_directory: Callable[[], Path],
) -> None:
    units = make_open_directory()
    units.chmod(0o755)  # for the account that a cage has
    shutil.copy(ROOT / "examples/external_units/spare_hosts.py", units)
    (installation.folder / "password").write_text(f"{PASSWORD}\n")
    write_config(
        installation.config,
        DEFAULT={"transport_url": rabbit_vhost_url, "host": "one", "service_down_time": 600},
        state={"url": redis_url},
        api={"users_file": installation.folder / "users.yaml", "port": free_port()},
        policy_store={"connection": f"sqlite:///{installation.folder}/policies.sqlite"},
        external_units={"directory": units},
    )
    instance = str(uuid.uuid4())
    with (
        running_engine() as engine,
        installation.start("scheduler-worker").ready() as worker,
        connected(rabbit_vhost_url) as client,
    ):
        client.update_hosts(yaml.safe_load((ROOT / "examples/hosts.yaml").read_text()))
        client.select_destinations(SPEC, [instance])
        client.set_tuning_policy(
            "mine", (ROOT / "etc/scheduler_worker/tuning/ksm.yaml").read_text()
        )
        tune(redis_url)
        eventually(lambda: bool(client.list_decisions(instance=instance)["decisions"]))
        values = {
            "root": ROOT,
            "instance": instance,
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
        with installation.start("scheduler-worker-api") as api:
            api.await_log(DAEMONS["scheduler-worker-api"])
            assert api.stop() == 0
        assert worker.stop() == 0


@pytest.mark.deep
@pytest.mark.parametrize(("extra", "line"), MISSED)
def test_what_needs_an_extra_names_it(installation: Installation, extra: str, line: str) -> None:
    for name, groups in FILES.items():
        write_config(installation.folder / f"{name}.conf", **groups)
    done = installation.run(line.format(root=ROOT))
    said = f"{done.stdout}{done.stderr}"
    assert done.returncode in {1, 2}, said
    assert f"run: pip install 'scheduler_worker[{extra}]'" in said
    assert "Traceback" not in said
