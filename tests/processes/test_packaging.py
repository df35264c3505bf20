"""Packages: a complete source archive, a wheel with its data files, a unit that starts."""

import configparser
import os
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tests.support.packages import ROOT, build, checkout
from tests.support.patience import PROCESS_S
from tests.support.servers import program
from tests.support.workers import NotifySocket, write_config

UNIT = "scheduler-worker@.service"
API_UNIT = "scheduler-worker-api.service"
KUBERNETES = "share/scheduler_worker/kubernetes"


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A clean checkout."""
    return checkout(tmp_path_factory.mktemp("source") / "s")


@pytest.fixture(scope="module")
def unpacked(source, tmp_path_factory) -> tuple[Path, set[str]]:
    """The unpacked source archive, and the files of the checkout."""
    files = {str(each.relative_to(source)) for each in source.rglob("*") if each.is_file()}
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", source, folder)) as archive:
        archive.extractall(folder, filter="data")
    (found,) = [each for each in folder.iterdir() if each.is_dir()]
    return found, files


@pytest.fixture(scope="module")
def machine(unpacked, tmp_path_factory) -> Path:
    """The root of a file system on which root has run ``pip install`` of the archive."""
    wheel = build("wheel", unpacked[0], tmp_path_factory.mktemp("wheel"))
    root = tmp_path_factory.mktemp("machine")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    where = ["--root", str(root), "--prefix", "/usr/local", "--ignore-installed"]
    quiet = ["--no-warn-script-location", "--disable-pip-version-check"]
    subprocess.run([*pip, *where, *quiet, str(wheel)], check=True, capture_output=True)
    return root


def test_the_source_archive_is_complete(unpacked):
    archive, files = unpacked
    assert {"CHANGELOG.md", "Makefile", "tools/dev-services", "docs/runbook.md"} <= files
    assert [each for each in sorted(files) if not (archive / each).is_file()] == []


def test_the_wheel_has_the_operators_files(machine):
    local = machine / "usr/local"
    for shipped, where in {
        "etc/scheduler_worker/scheduler_worker.conf.sample": "etc/scheduler_worker",
        f"etc/systemd/{UNIT}": "lib/systemd/system",
        f"etc/systemd/{API_UNIT}": "lib/systemd/system",
        "etc/sysusers.d/scheduler_worker.conf": "lib/sysusers.d",
        "docs/runbook.md": "share/doc/scheduler_worker/docs",
        "docs/decisions/0017-simulation.md": "share/doc/scheduler_worker/docs/decisions",
        "CHANGELOG.md": "share/doc/scheduler_worker",
        "etc/grafana/scheduler_worker.json": "share/scheduler_worker/grafana",
        "etc/container/Containerfile": "share/scheduler_worker/container",
        "etc/container/seccomp.json": "share/scheduler_worker/container",
        "etc/kubernetes/base/worker.yaml": f"{KUBERNETES}/base",
        "etc/kubernetes/base/scheduler_worker.conf": f"{KUBERNETES}/base",
        "etc/kubernetes/external-units/kustomization.yaml": f"{KUBERNETES}/external-units",
        "etc/kubernetes/keda/kustomization.yaml": f"{KUBERNETES}/keda",
        "etc/prometheus/alerts.yaml": "share/scheduler_worker/prometheus",
        "etc/scheduler_worker/tuning/ksm.yaml": "share/scheduler_worker/tuning",
        "etc/scheduler_worker/tuning/policy.schema.json": "share/scheduler_worker/tuning",
    }.items():
        path = ROOT / shipped
        assert (local / where / path.name).read_text() == path.read_text()
    policies = sorted(each.name for each in (ROOT / "etc/scheduler_worker/tuning").glob("*.yaml"))
    found = (local / "share/scheduler_worker/tuning").glob("*.yaml")
    assert sorted(each.name for each in found) == policies
    (package,) = local.glob("lib/python*/*/scheduler_worker")
    kept = {each.name for each in (ROOT / "scheduler_worker/backends/redis").glob("*.lua")}
    assert {each.name for each in (package / "backends/redis").glob("*.lua")} == kept
    pages = {each.name for each in (ROOT / "scheduler_worker/api/console/assets").iterdir()}
    assert {each.name for each in (package / "api/console/assets").iterdir()} == pages
    assert (package / "py.typed").exists()


def test_the_metadata_names_the_licence_as_spdx_does(machine):
    folders = [str(each) for each in machine.glob("usr/local/lib/python*/*-packages")]
    (found,) = distributions(path=folders)
    assert found.metadata["License-Expression"] == "Apache-2.0"
    assert found.metadata.get_all("License-File") == ["LICENSE"]


def test_systemd_accepts_the_units(machine):
    """It finds the command where pip installs it, and accepts every setting."""
    verify, kill = program("systemd-analyze"), Path(program("kill"))
    units = machine / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    for each in Path("/lib/systemd/system").glob("*.target"):
        shutil.copy(each, units)
    (machine / "bin").mkdir()
    shutil.copy(kill, machine / "bin/kill")
    done = subprocess.run(
        [verify, f"--root={machine}", "verify", UNIT.replace("@", "@1"), API_UNIT],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_systemd_creates_the_account_of_the_unit(machine):
    (machine / "etc").mkdir(exist_ok=True)
    command = [program("systemd-sysusers"), f"--root={machine}", "scheduler_worker.conf"]
    subprocess.run(command, check=True, capture_output=True)
    users = [line.split(":")[0] for line in (machine / "etc/passwd").read_text().splitlines()]
    assert unit(machine)["User"] in users


def unit(machine) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read(machine / "usr/local/lib/systemd/system" / UNIT)
    return parser["Service"]


def test_the_command_of_the_unit_starts_a_worker(machine, tmp_path):
    service = unit(machine)
    assert "2" in service["RestartPreventExitStatus"].split(), "as the command ends by ConfigError"
    command = service["ExecStart"].replace("%i", "1").split()
    config = write_config(tmp_path / "w.conf", DEFAULT={"transport_url": "local:/"})
    command[command.index("--config-file") + 1] = str(config)
    command[0] = str(machine / "usr/local/bin" / command[0])
    (packages,) = (each.parent for each in machine.glob("usr/local/lib/python*/*/scheduler_worker"))
    manager = NotifySocket(tmp_path / "notify")
    environment = {**os.environ, "NOTIFY_SOCKET": str(manager.path), "PYTHONPATH": str(packages)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        manager.until("READY=1")
    finally:
        process.terminate()
        assert process.wait(PROCESS_S) == 0
        manager.close()
