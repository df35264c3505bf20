"""Monitoring of a worker: pages over HTTP, a log line for each decision, dumps while it hangs."""

import contextlib
import json
import logging
import signal
import socket
import uuid

import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families

from scheduler_worker.client import SchedulerClient
from scheduler_worker.compose.worker import build_worker
from scheduler_worker.errors import ConfigError, NoValidHost, StateUnavailable
from scheduler_worker.monitoring import Load, Monitor
from scheduler_worker.monitoring.settings import MonitoringSettings
from tests.support.servers import LOOPBACK, RedisServer, free_port
from tests.support.services import host
from tests.support.web import ask
from tests.support.workers import WorkerProcess, connected, load_config

SPEC = {"flavor": {"vcpus": 1, "memory_mb": 512}, "num_instances": 1}


def get(port, path, *, method="GET", accept=""):
    status, headers, text = ask(port, path, method, headers={"Accept": accept} if accept else {})
    return status, text, headers


class Told:
    """A worker with the health that a test sets."""

    def __init__(self):
        self.hung = None
        self.lacks = []

    def is_alive(self):
        if isinstance(self.hung, Exception):
            raise self.hung
        return self.hung

    def missing(self):
        return self.lacks

    def load(self):
        return Load()

    def describe(self):
        return {}


@pytest.fixture
def health():
    return Told()


@pytest.fixture
def port(health):
    """Where a monitor of that worker listens."""
    monitor = Monitor(MonitoringSettings(port=free_port()))
    monitor.watch(health)
    monitor.start()
    yield monitor.port
    monitor.stop()


def test_a_monitor_without_a_port_does_not_listen():
    monitor = Monitor()
    monitor.start()
    assert monitor.port == 0
    monitor.stop()


def test_livez_reports_a_process_that_hangs(health, port):
    assert get(port, "/livez")[:2] == (200, "alive\n")
    health.hung = "no heartbeat"
    assert get(port, "/livez")[:2] == (503, "no heartbeat\n")


def test_readyz_of_a_worker_that_is_ready(port):
    assert get(port, "/readyz?verbose")[:2] == (200, "ready\n")


def test_connections_that_send_nothing_keep_no_page_from_its_readers(port):
    with contextlib.ExitStack() as clients:
        for _ in range(100):
            clients.enter_context(socket.create_connection((LOOPBACK, port)))
        assert [get(port, path)[0] for path in ("/livez", "/readyz", "/metrics")] == [200] * 3
    ended = 'scheduler_http_connections_ended_total{reason="crowded"}'
    assert ended in get(port, "/metrics")[1]


def test_readyz_lists_what_is_missing(health, port):
    health.lacks = ["the bus is away", "the state is away"]
    assert get(port, "/readyz")[:2] == (503, "the bus is away\nthe state is away\n")
    status, body, headers = get(port, "/readyz", accept="application/json")
    assert status == 503
    assert json.loads(body) == {"ready": False, "missing": health.lacks}
    assert headers["Content-Type"] == "application/json"
    _, body, _ = get(port, "/readyz", accept="text/plain, application/json;q=0.1")
    assert body == "the bus is away\nthe state is away\n"


def test_metrics_have_the_format_of_prometheus(port):
    status, body, headers = get(port, "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=")
    names = {each.name for each in text_string_to_metric_families(body)}
    assert {"scheduler_requests", "scheduler_build_info", "process_cpu_seconds"} <= names


def test_there_are_no_other_pages(port):
    assert get(port, "/")[0] == 404
    assert get(port, "/metrics/../../etc/passwd")[0] == 404
    status, _, headers = get(port, "/livez", method="POST")
    assert status == 405
    assert headers["Allow"] == "GET, HEAD"
    assert get(port, "/livez", method="BREW")[0] == 405
    assert get(port, "/livez", method="HEAD")[:2] == (200, "")


def test_a_page_that_fails_shows_no_details(health, port, caplog):
    health.hung = RuntimeError("inside")
    status, body, _ = get(port, "/livez")
    assert status == 500
    assert "inside" not in body
    assert "inside" in caplog.text


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(ConfigError, match=r"\[monitoring\] port: cannot listen on 192.0.2.1"):
        Monitor(MonitoringSettings(address="192.0.2.1", port=free_port())).start()


@pytest.mark.parametrize("has_ipv6", [True, False])
def test_every_address_is_also_that_of_the_protocol_that_a_machine_has(monkeypatch, has_ipv6):
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: has_ipv6)
    monitor = Monitor(MonitoringSettings(address="::", port=free_port()))
    monitor.start()
    reached = []
    for loopback in ("127.0.0.1", "::1"):
        with contextlib.suppress(OSError):
            socket.create_connection((loopback, monitor.port)).close()
            reached.append(loopback)
    monitor.stop()
    assert reached == (["127.0.0.1", "::1"] if has_ipv6 else ["127.0.0.1"])


@pytest.fixture
def worker(tmp_path):
    config = load_config(
        tmp_path / "w.conf",
        DEFAULT={"transport_url": f"local://{uuid.uuid4().hex}/", "service_down_time": 600},
        monitoring={"port": free_port()},
    )
    with build_worker(config).running() as running:
        yield running


def test_a_decision_is_counted_and_logged(worker, caplog):
    client = SchedulerClient(worker.bus)
    with caplog.at_level(logging.INFO):
        client.update_hosts([host("h")])
        client.select_destinations(SPEC, ["i1"])
        with pytest.raises(NoValidHost):
            client.select_destinations(SPEC | {"flavor": {"vcpus": 99, "memory_mb": 1}}, ["i2"])
        exposed = get(worker.monitor.port, "/metrics")[1]
        worker.stop()  # writes the waiting lines of the journal
    samples = {
        (each.name, *each.labels.values()): each.value
        for family in text_string_to_metric_families(exposed)
        for each in family.samples
    }
    assert samples["scheduler_requests_total", "select_destinations", "ok"] == 1
    assert samples["scheduler_requests_total", "select_destinations", "NoValidHost"] == 1
    assert samples["scheduler_no_valid_host_total", "CoreFilter"] == 1
    assert samples["scheduler_pending_reservations", "default"] == 1
    assert samples["scheduler_lock_hold_seconds_count", "default"] >= 1
    assert samples["scheduler_bus_connected",] == 1
    lines = [
        record.getMessage()
        for record in caplog.records
        if record.name == "scheduler_worker.monitoring.journal"
    ]
    assert len(lines) == 2
    placed = " result=placed reason=- hosts=h instances=1 instance_uuids=i1 "
    assert " cluster=default policy=nova@" in lines[0] and placed in lines[0]
    assert ' result=NoValidHost reason="There are not enough hosts available." ' in lines[1]
    assert " rejections=CoreFilter:1 " in lines[1]


def test_a_worker_that_stops_is_not_ready_and_closes_the_port(worker):
    port = worker.monitor.port
    assert get(port, "/readyz")[0] == 200
    worker.stop()
    assert worker.missing()
    with pytest.raises(ConnectionRefusedError):
        get(port, "/livez")


def test_a_worker_that_cannot_start_leaves_no_port_open(tmp_path):
    port = free_port()
    state = {"url": f"redis://{LOOPBACK}:{free_port()}"}
    worker = build_worker(load_config(tmp_path / "w.conf", state=state, monitoring={"port": port}))
    with pytest.raises(Exception, match="cannot be"):
        worker.start()
    worker.stop(0)
    with pytest.raises(ConnectionRefusedError):
        get(port, "/livez")


@pytest.mark.deep
def test_a_redis_that_refuses_writes_or_hangs_is_reported_in_time_and_the_worker_can_be_dumped(
    tmp_path, configure, rabbit_vhost_url
):
    port = free_port()
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    with RedisServer(tmp_path / "redis") as server, redis.Redis.from_url(server.url) as operator:
        monitoring = {"port": port, "dump_dir": dumps}
        config = configure("w", state={"url": server.url}, monitoring=monitoring)
        with WorkerProcess(config).ready() as worker, connected(rabbit_vhost_url) as client:
            client.update_hosts([host("h")])
            caster = client._bus.client("scheduler", namespace="scheduler_worker")
            operator.config_set("maxmemory", 1)
            with pytest.raises(StateUnavailable, match="its log says why") as refused:
                client.select_destinations(SPEC, ["i0"])
            assert str(server.port) not in str(refused.value)
            caster.cast("update_hosts", {}, hosts=[host("c")])
            body = until(port, 503)
            assert body.startswith(f"The shared state at {LOOPBACK}:{server.port} cannot be used: ")
            assert "used memory > 'maxmemory'" in body
            operator.config_set("maxmemory", 0)
            until(port, 200)
            with server.paused():
                client.request_destinations(SPEC, ["i1"], reply_to={"topic": "nobody"})
                assert until(port, 503) == "the state does not answer within 2 s\n"
                assert get(port, "/livez")[0] == 200
                assert get(port, "/metrics")[0] == 200
                worker.process.send_signal(signal.SIGUSR1)
                worker.await_log("== Worker ==")
                worker.await_log("clusters = ")
            (path,) = dumps.iterdir()
            dumped = path.read_text()
            assert "redis" in dumped.partition("== Threads ==")[2].partition("== Settings ==")[0]
            assert '"default"' in dumped.partition("== Worker ==")[2]
            assert worker.stop() == 0
        assert "The shared state can be used again, after " in worker.log
        assert "update_hosts was cast and failed" not in worker.log


def until(port: int, expected: int) -> str:
    """The first body with this status; one may be a second old."""
    status, body, _ = get(port, "/readyz")
    while status != expected:
        status, body, _ = get(port, "/readyz")
    return body
