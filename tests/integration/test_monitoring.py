"""What watches a worker sees: pages over HTTP, a line for each decision, a dump while it hangs."""

import http.client
import json
import logging
import os
import signal
import socket
import threading
import uuid

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler_worker import app, conf
from scheduler_worker.client import SchedulerClient
from scheduler_worker.errors import ConfigError, NoValidHost
from scheduler_worker.monitoring import Load, Monitor
from scheduler_worker.monitoring.http import _MAX_CLIENTS, HttpServer, Page
from tests.support.servers import LOOPBACK, RedisServer, free_port
from tests.support.services import host
from tests.support.workers import WorkerProcess, connected, write_config

SPEC = {"flavor": {"vcpus": 1, "memory_mb": 512}, "num_instances": 1}


def get(port, path, *, method="GET", accept="", timeout_s=10.0):
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=timeout_s)
    connection.request(method, path, headers={"Accept": accept} if accept else {})
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body, answer.headers


class Told:
    """A worker that says what a test told it."""

    def __init__(self):
        self.hung = None
        self.lacks = []

    def is_alive(self):
        return self.hung

    def missing(self):
        return self.lacks

    def load(self):
        return Load()

    def describe(self):
        return {}


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def port(told):
    """Where a monitor of that worker listens."""
    monitor = Monitor(told, port=free_port())
    monitor.start()
    yield monitor.port
    monitor.stop()


def test_livez_says_whether_the_process_is_beyond_help(told, port):
    assert get(port, "/livez")[:2] == (200, "alive\n")
    told.hung = "no sign of life"
    assert get(port, "/livez")[:2] == (503, "no sign of life\n")


def test_readyz_lists_what_is_missing(told, port):
    told.lacks = ["the bus is away", "the state is away"]
    assert get(port, "/readyz")[:2] == (503, "the bus is away\nthe state is away\n")
    status, body, headers = get(port, "/readyz", accept="application/json")
    assert status == 503
    assert json.loads(body) == {"ready": False, "missing": told.lacks}
    assert headers["Content-Type"] == "application/json"


def test_readyz_of_a_worker_that_misses_nothing(port):
    assert get(port, "/readyz?verbose")[:2] == (200, "ready\n")


def test_metrics_are_what_prometheus_reads(port):
    status, body, headers = get(port, "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=")
    names = {each.name for each in text_string_to_metric_families(body)}
    assert {"scheduler_requests", "scheduler_build_info", "process_cpu_seconds"} <= names


def test_there_is_nothing_else(port):
    assert get(port, "/")[0] == 404
    assert get(port, "/metrics/../../etc/passwd")[0] == 404
    status, _, headers = get(port, "/livez", method="POST")
    assert status == 405
    assert headers["Allow"] == "GET, HEAD"
    assert get(port, "/livez", method="BREW")[0] == 501
    assert get(port, "/livez", method="HEAD")[:2] == (200, "")
    assert "Server" not in get(port, "/livez")[2]


def test_a_page_that_breaks_tells_nothing_of_itself(caplog):
    def broken(accept):
        raise RuntimeError("inside")

    server = HttpServer(LOOPBACK, 0, {"/x": broken})
    server.start()
    status, body, _ = get(server.port, "/x")
    server.stop()
    assert status == 500
    assert "inside" not in body
    assert "inside" in caplog.text


def test_clients_that_say_nothing_keep_nobody_else_out_for_ever():
    """Some of them take all places; what comes beyond is refused at once, until one is free."""
    entered = threading.Semaphore(0)
    let_go = threading.Event()

    def page(accept):
        entered.release()
        let_go.wait()
        return Page(b"late")

    server = HttpServer(LOOPBACK, 0, {"/x": page})
    server.start()
    clients = [socket.create_connection((LOOPBACK, server.port)) for _ in range(_MAX_CLIENTS)]
    for each in clients:
        each.sendall(b"GET /x HTTP/1.0\r\n\r\n")
    for _ in clients:
        assert entered.acquire(timeout=20)
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        get(server.port, "/x")
    let_go.set()
    for each in clients:
        assert b"late" in b"".join(iter(lambda each=each: each.recv(4096), b""))
        each.close()
    assert get(server.port, "/x")[1] == "late"
    server.stop()


def test_a_port_in_use_is_refused_by_its_name():
    with socket.create_server((LOOPBACK, 0)) as taken:
        monitor = Monitor(Told(), port=taken.getsockname()[1])
        with pytest.raises(ConfigError, match=r"\[monitoring\] port: cannot listen on 127.0.0.1"):
            monitor.start()
        monitor.stop()


def test_an_address_that_is_not_ours_is_refused_too():
    with pytest.raises(ConfigError, match=r"\[monitoring\] port: cannot listen on 192.0.2.1"):
        Monitor(Told(), address="192.0.2.1", port=free_port()).start()


@pytest.fixture
def worker(tmp_path):
    config = write_config(
        tmp_path / "w.conf",
        DEFAULT={"transport_url": f"local://{uuid.uuid4().hex}/", "service_down_time": 600},
        monitoring={"port": free_port()},
    )
    with app.build(conf.load(["--config-file", str(config)])).running() as running:
        yield running


def test_a_decision_is_counted_and_told(worker, caplog):
    client = SchedulerClient(worker.bus)
    with caplog.at_level(logging.INFO):
        client.update_hosts([host("h")])
        client.select_destinations(SPEC, ["i1"])
        with pytest.raises(NoValidHost):
            client.select_destinations(SPEC | {"flavor": {"vcpus": 99, "memory_mb": 1}}, ["i2"])
        exposed = get(worker.monitor.port, "/metrics")[1]
        worker.stop()  # which writes what its journal gathered
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
    assert " cluster=default result=placed hosts=h instances=1 " in lines[0]
    assert " result=NoValidHost hosts=- " in lines[1]
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
    config = write_config(
        tmp_path / "w.conf",
        state={"url": f"redis://{LOOPBACK}:{free_port()}"},
        monitoring={"port": port},
    )
    worker = app.build(conf.load(["--config-file", str(config)]))
    with pytest.raises(Exception, match="cannot be"):
        worker.start()
    worker.stop(0)
    with pytest.raises(ConnectionRefusedError):
        get(port, "/livez")


@pytest.mark.servers
def test_a_state_that_hangs_is_missed_in_time_and_dumped(tmp_path, rabbit_vhost_url):
    """Redis takes connections and answers nothing; the requests in hand hang with it."""
    port = free_port()
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    with RedisServer(tmp_path / "redis") as redis:
        config = write_config(
            tmp_path / "w.conf",
            DEFAULT={"transport_url": rabbit_vhost_url, "service_down_time": 600},
            state={"url": redis.url},
            monitoring={"port": port, "dump_dir": dumps},
        )
        with WorkerProcess(config) as worker, connected(rabbit_vhost_url, timeout_s=5) as client:
            client.update_hosts([host("h")])
            assert get(port, "/readyz")[0] == 200
            os.kill(redis.pid, signal.SIGSTOP)
            try:
                client.request_destinations(SPEC, ["i1"], reply_to={"topic": "nobody"})
                status, body, _ = get(port, "/readyz", timeout_s=5)
                while status == 200:  # an answer may be a second old
                    status, body, _ = get(port, "/readyz", timeout_s=5)
                assert (status, body) == (503, "the state does not answer within 2 s\n")
                assert get(port, "/livez")[0] == 200
                assert get(port, "/metrics")[0] == 200
                worker.process.send_signal(signal.SIGUSR1)
                worker.await_log("== Worker ==")
                worker.await_log("clusters = ")
            finally:
                os.kill(redis.pid, signal.SIGCONT)
            (path,) = dumps.iterdir()
            dumped = path.read_text()
            assert "redis" in dumped.partition("== Threads ==")[2].partition("== Settings ==")[0]
            assert '"default"' in dumped.partition("== Worker ==")[2]
            assert worker.stop() == 0
