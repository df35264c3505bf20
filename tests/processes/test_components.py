"""Every component of every process: starts and stops in any order, and no thread that is left."""

import logging
import operator
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler_worker.components import Component, Hook, Periodic
from scheduler_worker.compose.api import ApiProcess, build_api, build_embedded
from scheduler_worker.compose.worker import Worker, build_worker
from tests.support.patience import SOON_S, eventually
from tests.support.servers import free_port
from tests.support.threads import in_thread
from tests.support.workers import load_config

Process = Worker | ApiProcess
Build = Callable[[], Process]

NOWHERE = "mysql+pymysql://nova:nova@127.0.0.1:1/nova_api"


def worker(path: Path) -> Worker:
    """A worker with everything that needs no server."""
    units = path / "units"
    units.mkdir(exist_ok=True)
    return build_worker(
        loaded(
            path,
            monitoring={"port": free_port()},
            decisions={"enabled": True},
            tracing={"enabled": True},
            external_units={"directory": units},
            trusted_computing={"attestation_server": "127.0.0.1", "attestation_port": 1},
        )
    )


def feeding(path: Path) -> Worker:
    """A worker whose source of hosts, and Placement, are away."""
    return build_worker(
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
    return build_embedded(
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


def alone(path: Path) -> ApiProcess:
    """The API beside workers whose state and Placement are away."""
    (path / "users.yaml").write_text("{}")
    return build_api(
        loaded(
            path,
            state={"url": "redis://127.0.0.1:1/0"},
            api={"port": free_port(), "users_file": path / "users.yaml"},
            monitoring={"api_port": free_port()},
            policy_store={"connection": f"sqlite:///{path / 'policies.sqlite'}"},
            nova_feed={"enabled": True},
            api_database={"connection": NOWHERE},
            placement={"auth_type": "none", "endpoint_override": "http://127.0.0.1:1"},
        )
    )


WORKER = (
    "Monitor (close) _warn_of_options Advice _load Trust Recorder (_finish_requests) (stop) "
    "start/_stop_server start (stop_waiting) Tuner Balancer unit-files Upkeep"
)
ORDER = {
    worker: WORKER,
    feeding: "Monitor (close) _warn_of_options Advice _load Recorder (_finish_requests) (stop) "
    "start/_stop_server start (stop_waiting) SharingProviders Feeder ProviderFeed Looker "
    "taking-over Tuner Balancer Upkeep",
    api: "_open_archive start/<lambda> unit-files (stop) start/<lambda>",
    alone: "_open_archive/close (close) SharingProviders Upkeep unit-files (stop) start/<lambda> "
    "ApiMonitor",
}


def named(component: Component) -> str:
    """Its class; the name of a thread without one; the functions of a hook, a stop in brackets."""
    if isinstance(component, Hook):
        start, stop = (getattr(each, "func", each).__name__ for each in component)
        nothing = Hook().start.__name__
        if start == nothing == stop or component.stop is Hook().stop:
            return start
        return f"({stop})" if component.start is Hook().start else f"{start}/{stop}"
    if type(component) is Periodic:
        return component._thread.name.replace(" ", "-")
    return type(component).__name__


@pytest.mark.parametrize("made", ORDER, ids=operator.attrgetter("__name__"))
def test_components_start_in_this_order(tmp_path, made):
    """Each uses those before it, and serves until those after it have stopped."""
    process = made(tmp_path)
    found = [named(each) for each in process.components.all]
    process.stop()
    assert found == ORDER[made].split()


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
