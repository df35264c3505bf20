"""Every component of every process: starts and stops in any order, and no thread that is left."""

import logging
import operator
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler_worker import api_process, app
from scheduler_worker.api_process import ApiProcess
from scheduler_worker.components import Component
from tests.support.patience import SOON_S, eventually
from tests.support.servers import free_port
from tests.support.threads import in_thread
from tests.support.workers import load_config

Process = app.Worker | ApiProcess
Build = Callable[[], Process]

NOWHERE = "mysql+pymysql://nova:nova@127.0.0.1:1/nova_api"


def worker(path: Path) -> app.Worker:
    """A worker with everything that needs no server."""
    units = path / "units"
    units.mkdir(exist_ok=True)
    return app.build(
        loaded(
            path,
            monitoring={"port": free_port()},
            decisions={"enabled": True},
            tracing={"enabled": True},
            external_units={"directory": units},
            trusted_computing={"attestation_server": "127.0.0.1", "attestation_port": 1},
        )
    )


def feeding(path: Path) -> app.Worker:
    """A worker whose source of hosts, and Placement, are away."""
    return app.build(
        loaded(
            path,
            nova_feed={"enabled": True, "clusters": "cell"},
            api_database={"connection": NOWHERE},
            nova_claims={"enabled": True},
            placement={"auth_type": "none", "endpoint_override": "http://127.0.0.1:1"},
        )
    )


def api(path: Path) -> ApiProcess:
    """The API with a worker inside."""
    (path / "users.yaml").write_text("{}")
    return api_process.build_embedded(
        loaded(
            path,
            api={"port": free_port(), "users_file": path / "users.yaml"},
            monitoring={"port": free_port(), "api_port": free_port()},
            policy_store={"connection": f"sqlite:///{path / 'policies.sqlite'}"},
        )
    )


def loaded(path: Path, **groups):
    url = f"local://{uuid.uuid4().hex}/"
    return load_config(path / "c.conf", DEFAULT={"transport_url": url}, **groups)


@pytest.fixture(params=[worker, feeding, api], ids=operator.attrgetter("__name__"))
def build(request, tmp_path) -> Build:
    return lambda: request.param(tmp_path)


def stopped_in_the_end(process: Process, before: set[threading.Thread]) -> None:
    process.stop()
    process.stop()
    # Threads of a pool end by themselves once nothing is left to do.
    eventually(lambda: not [each for each in threading.enumerate() if each not in before])


def test_no_thread_is_left_by_a_process_that_ends(build):
    before = set(threading.enumerate())
    process = build()
    with process.running():
        assert set(threading.enumerate()) - before
    stopped_in_the_end(process, before)


@pytest.mark.parametrize("calls", ["stop stop start stop", "start start stop stop start stop"])
def test_a_component_that_was_stopped_stays_so(build, calls):
    before = set(threading.enumerate())
    process, at = build(), 0
    while at < len(process.components.all):
        components = process.components.all
        for earlier in components[:at]:
            earlier.start()
        for call in calls.split():
            getattr(components[at], call)()
        for earlier in reversed(components[:at]):
            earlier.stop()
        stopped_in_the_end(process, before)
        process, at = build(), at + 1
    process.stop()


class _Interrupted:
    """A component at whose start the process is stopped, by another thread."""

    def __init__(self, inner: Component, stop: Callable[[], None], *, after: bool) -> None:
        self.inner = inner
        self._stop = stop
        self._after = after

    def start(self) -> None:
        if not self._after:
            self._stop()
        self.inner.start()
        if self._after:
            self._stop()

    def stop(self) -> None:
        self.inner.stop()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_stop_during_a_start_ends_it_without_errors(tmp_path, caplog, after):
    before = set(threading.enumerate())
    process, at = worker(tmp_path), 0
    while at < len(process.components.all):

        def stop(process: Process = process) -> None:
            in_thread(process.stop, 0.0).result(SOON_S)

        components = process.components.all
        components[at] = _Interrupted(components[at], stop, after=after)
        assert not process.start()
        stopped_in_the_end(process, before)
        assert process.monitor.port == 0
        ours = [each for each in caplog.records if each.name.startswith("scheduler_worker")]
        assert not [each for each in ours if each.levelno > logging.WARNING], at
        process, at = worker(tmp_path), at + 1
    process.stop()
