"""A worker in this process on a bus of its own, and ``scheduler-workerctl`` that asks it."""

import uuid

import pytest

from scheduler_worker import conf
from scheduler_worker.cli.ctl import main
from scheduler_worker.client import SchedulerClient
from scheduler_worker.compose.worker import build_worker
from tests.support.workers import write_config


@pytest.fixture
def worker(tmp_path):
    """The worker, and the file that leads to it."""
    path = write_config(
        tmp_path / "w.conf",
        DEFAULT={"transport_url": f"local://{uuid.uuid4().hex}/", "host": "w1"},
        balancing={"interval": 0},
    )
    with build_worker(conf.load(["--config-file", str(path)])).running() as running:
        yield running, path


@pytest.fixture
def client(worker):
    return SchedulerClient(worker[0].bus)


@pytest.fixture
def ctl(worker, capsys):
    """Runs a command; returns its status, output and error."""

    def run(*words):
        capsys.readouterr()
        status = main([*words, "--config-file", str(worker[1])])
        return status, *capsys.readouterr()

    return run
