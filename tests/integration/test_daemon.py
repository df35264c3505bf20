"""The daemon: bad configurations, drain, reload, several processes, a Redis that goes away."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import kombu
import pytest

from scheduler_worker.cli import signals
from scheduler_worker.errors import SchedulerWorkerError, StateUnavailable
from tests.support.servers import LOOPBACK, RedisServer, free_port
from tests.support.services import host
from tests.support.systemd import NotifySocket
from tests.support.workers import WorkerProcess, connected, write_config

SPEC = {"flavor": {"vcpus": 1, "memory_mb": 512, "root_gb": 1}, "num_instances": 1}


def run(config, *arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "scheduler_worker", "--config-file", str(config)]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("groups", "arguments", "complaint"),
    [
        ({"filter_scheduler": {"enabled_filters": "RamFilter,CoreFiter"}}, [],
         "CoreFiter (did you mean CoreFilter?)"),
        ({"filter_scheduler": {"weight_classes": "os.path"}}, [], "weight_classes"),
        ({"cluster_lock": {"hold_timeout": 0.2, "max_batch": 64}}, [],
         "[cluster_lock] hold_timeout: 0.2 s is too short for batches of 64"),
        ({"pending": {"ttl": 5}}, [], "[pending] ttl: 5 s must be longer"),
        ({"scheduler": {"max_attempts": 0}}, [], "max_attempts"),
        ({"state": {"url": "mysql://x"}}, [], "nothing serves 'mysql'"),
        ({"monitoring": {"port": 65535}}, ["--instance", "1"], "[monitoring] port: 65536"),
        ({"DEFAULT": {"transport_url": "carrier-pigeon://x"}}, [], "transport_url"),
        ({}, ["--workers", "2"], "cannot share [state] url = memory://"),
        ({}, ["--no-such-option"], "no-such-option"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_said_at_the_start(tmp_path, groups, arguments, complaint):
    done = run(write_config(tmp_path / "bad.conf", **groups), *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_a_redis_that_cannot_be_reached_ends_the_start(tmp_path):
    config = write_config(
        tmp_path / "w.conf", state={"url": f"redis://u:secret@127.0.0.1:{free_port()}"}
    )
    done = run(config)
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "The worker cannot start: The shared state at 127.0.0.1" in said
    assert "secret" not in said


def test_a_monitoring_port_in_use_ends_the_start(tmp_path):
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        done = run(write_config(tmp_path / "w.conf", monitoring={"port": port}))
    assert done.returncode == 1
    assert "The worker cannot start: [monitoring] port: cannot listen on" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_one_of_several_workers_listens_on_a_port_of_its_own(tmp_path):
    port = free_port() - 2
    config = write_config(tmp_path / "w.conf", monitoring={"port": port})
    with WorkerProcess(config, "--instance", "2").ready():
        socket.create_connection((LOOPBACK, port + 2)).close()


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """A service manager that wants a sign of life every three seconds."""
    notify = NotifySocket(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(notify.path))
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")
    yield notify
    notify.close()


def test_systemd_is_told_how_the_worker_is(tmp_path, manager):
    with WorkerProcess(write_config(tmp_path / "w.conf")) as worker:
        assert manager.next() == "STATUS=Starting"
        assert manager.until("READY=1") == "READY=1\nSTATUS=Serving"
        for _ in range(3):
            manager.until("WATCHDOG=1", timeout_s=3)
        worker.process.send_signal(signal.SIGHUP)
        words = manager.until("RELOADING=1").splitlines()
        sent_us = int(words[1].removeprefix("MONOTONIC_USEC="))
        assert abs(time.monotonic() - sent_us / 1e6) < 10
        manager.until("READY=1")
        assert worker.stop() == 0
        manager.until("STOPPING=1")


def test_a_worker_that_stands_still_shows_no_life(tmp_path, manager):
    with WorkerProcess(write_config(tmp_path / "w.conf")) as worker:
        manager.until("WATCHDOG=1")
        with worker.paused():
            while manager.next(timeout_s=3) is not None:
                pass
        manager.until("WATCHDOG=1", timeout_s=3)


def test_a_worker_whose_watchdog_bites_leaves_its_stacks(tmp_path):
    with WorkerProcess(write_config(tmp_path / "w.conf")).ready() as worker:
        worker.process.send_signal(signal.SIGABRT)
        assert worker.process.wait(20) == -signal.SIGABRT
        assert "Fatal Python error: Aborted" in worker.log
        assert "daemon.py" in worker.log


def test_every_thread_holds_the_signals_back(tmp_path):
    """Or the kernel gives one to a thread of some library, and the process ends by it."""
    watched = sum(1 << (number - 1) for number in signals.WATCHED)
    with WorkerProcess(write_config(tmp_path / "w.conf")).ready() as worker:
        tasks = list(Path(f"/proc/{worker.process.pid}/task").iterdir())
        others = [each for each in tasks if each.name != str(worker.process.pid)]
        assert others
        for each in others:
            status = (each / "status").read_text()
            (blocked,) = re.findall(r"^SigBlk:\s*(\w+)", status, re.MULTILINE)
            assert int(blocked, 16) & watched == watched, (each / "comm").read_text()


def test_sigusr1_dumps_and_changes_nothing_else(tmp_path):
    with WorkerProcess(write_config(tmp_path / "w.conf")).ready() as worker:
        for times in range(1, 3):
            worker.process.send_signal(signal.SIGUSR1)
            _await_dumps(worker, times)
        assert "-- MainThread (" in worker.log
        assert worker.stop() == 0


@pytest.mark.servers
def test_the_supervisor_shows_life_while_all_its_workers_do(config, manager):
    with WorkerProcess(config, "--workers", "2") as workers:
        manager.until("READY=1")
        for _ in range(3):
            manager.until("WATCHDOG=1", timeout_s=3)
        child = _children(workers)[1]
        os.kill(child, signal.SIGSTOP)
        while manager.next(timeout_s=3) is not None:
            pass
        os.kill(child, signal.SIGCONT)
        manager.until("WATCHDOG=1", timeout_s=5)
        workers.process.send_signal(signal.SIGUSR1)
        _await_dumps(workers, 2)
        assert workers.stop() == 0
        manager.until("STOPPING=1")


def _await_dumps(worker, number: int) -> None:
    while worker.log.count(" clusters = ") < number:
        threading.Event().wait(0.02)


def _children(workers) -> list[int]:
    pid = workers.process.pid
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_help_and_version():
    command = [sys.executable, "-m", "scheduler_worker"]
    told = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    assert "--config-file" in told
    assert "--workers" in told
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert (version.stdout + version.stderr).strip()[0].isdigit()


@pytest.mark.servers
def test_sigterm_finishes_what_was_taken(config, rabbit_vhost_url):
    outcomes: list[str] = []

    def ask(client) -> None:
        while True:
            try:
                client.select_destinations(SPEC, [str(uuid.uuid4())])
                outcomes.append("placed")
            except SchedulerWorkerError as error:
                outcomes.append(type(error).__name__)
                return

    with WorkerProcess(config) as worker, connected(rabbit_vhost_url, timeout_s=3.0) as client:
        client.update_hosts([host(f"h{number}", vcpus=10_000, memory_mb=10**8, local_gb=10**6)
                             for number in range(50)])  # fmt: skip
        threads = [threading.Thread(target=ask, args=[client]) for _ in range(8)]
        for each in threads:
            each.start()
        while len(outcomes) < 50:
            threading.Event().wait(0.005)
        started = time.monotonic()
        assert worker.stop() == 0
        assert time.monotonic() - started < 10
        for each in threads:
            each.join(30)
        assert "Stopped" in worker.log
    assert outcomes.count("placed") >= 50
    assert set(outcomes) <= {"placed", "CallTimeout", "BusUnavailable"}


@pytest.mark.servers
def test_sighup_reads_mutable_options_again(tmp_path, config, rabbit_vhost_url):
    with WorkerProcess(config) as worker, connected(rabbit_vhost_url) as client:
        client.update_hosts([host("small", memory_mb=4096), host("large")])
        assert client.select_destinations(SPEC, ["i1"])[0][0].service_host == "large"
        text = config.read_text()
        config.write_text(text + "[filter_scheduler]\nram_weight_multiplier = -1.0\n")
        worker.process.send_signal(signal.SIGHUP)
        worker.await_log("The configuration was read again")
        assert client.select_destinations(SPEC, ["i2"])[0][0].service_host == "small"
        config.write_text(text + "[filter_scheduler]\nhost_subset_size = none\n")
        worker.process.send_signal(signal.SIGHUP)
        worker.await_log("The configuration stays as it was")
        assert client.select_destinations(SPEC, ["i3"])[0][0].service_host == "small"
        assert worker.stop() == 0


@pytest.mark.servers
def test_several_processes(config, rabbit_vhost_url):
    with WorkerProcess(config, "--workers", "2") as workers, connected(rabbit_vhost_url) as client:
        workers.await_log("All 2 workers are ready")
        client.update_hosts([host("h", vcpus=8, cpu_allocation_ratio=1.0, memory_mb=65536)])
        placed = [client.select_destinations(SPEC, [f"i{n}"])[0][0] for n in range(8)]
        assert {each.service_host for each in placed} == {"h"}
        with pytest.raises(SchedulerWorkerError, match="No valid host"):
            client.select_destinations(SPEC, ["one too many"])
        os.kill(_children(workers)[0], signal.SIGKILL)
        workers.await_log("starting it again")
        assert workers.stop() == 0


@pytest.mark.servers
def test_a_redis_that_goes_away_and_comes_back(tmp_path, rabbit_vhost_url):
    redis = RedisServer(tmp_path / "redis")
    with redis:
        config = write_config(
            tmp_path / "w.conf",
            DEFAULT={"transport_url": rabbit_vhost_url, "service_down_time": 600},
            state={"url": redis.url},
        )
        with WorkerProcess(config) as worker, connected(rabbit_vhost_url) as client:
            client.update_hosts([host("h")])
            assert client.select_destinations(SPEC, ["i1"])[0][0].service_host == "h"
            redis.kill()
            with pytest.raises(StateUnavailable, match="cannot be used"):
                client.select_destinations(SPEC, ["i2"])
            assert worker.process.poll() is None
            redis.restart()
            assert client.select_destinations(SPEC, ["i2"])[0][0].service_host == "h"
            promised = {each["instance_uuid"] for each in client.every_reservation()}
            assert promised == {"i1", "i2"}, "what was promised before is still promised"


@pytest.mark.servers
def test_messages_that_are_no_messages_are_passed_over(config, rabbit_vhost_url):
    with WorkerProcess(config) as worker, connected(rabbit_vhost_url) as client:
        client.update_hosts([host("h")])
        url = rabbit_vhost_url.replace("rabbit://", "amqp://")
        with kombu.Connection(url) as connection:
            producer = connection.Producer()
            for body, kind in (
                ('{"oslo.version": "2.0", "oslo.mess', "application/json"),
                ('{"oslo.version": "2.0", "oslo.message": "{"}', "application/json"),
                ("[]", "application/json"),
                ('{"oslo.version": "2.0", "oslo.message": "{}"}', "application/json"),
                (b"\xff\x00", "application/octet-stream"),
            ):
                producer.publish(
                    body, exchange="nova", routing_key="scheduler", content_type=kind,
                    content_encoding="utf-8" if isinstance(body, str) else "binary",
                )  # fmt: skip
        assert client.select_destinations(SPEC, ["i1"])[0][0].service_host == "h"
        assert [each["instance_uuid"] for each in client.every_reservation()] == ["i1"]
        assert worker.stop() == 0


@pytest.mark.servers
def test_malformed_messages_change_nothing(config, rabbit_vhost_url):
    with WorkerProcess(config) as worker, connected(rabbit_vhost_url) as client:
        client.update_hosts([host("h")])
        for bad, field in (
            ({}, "spec_obj.flavor"),
            ({"flavor": {"vcpus": -1, "memory_mb": 1}}, "spec_obj.flavor.vcpus"),
            ({"flavor": {"vcpus": 1, "memory_mb": 2**60}}, "spec_obj.flavor.memory_mb"),
            ({"flavor": {"vcpus": "many", "memory_mb": 1}}, "spec_obj.flavor.vcpus"),
        ):
            with pytest.raises(SchedulerWorkerError, match=field.replace(".", r"\.")):
                client.select_destinations(bad, ["i1"])
        with pytest.raises(SchedulerWorkerError, match="'i1' is listed twice"):
            client.select_destinations(SPEC, ["i1", "i1"])
        with pytest.raises(SchedulerWorkerError, match=r"hosts\[0\]\.memory_mb"):
            client.update_hosts([host("x", memory_mb=-5)])
        with pytest.raises(SchedulerWorkerError, match=r"cluster: there is no cluster 'nowhere'"):
            client.list_hosts("nowhere")
        known = SPEC | {"scheduler_hints": {"no_such_hint": ["x"]}}
        assert client.select_destinations(known, ["i2"])[0][0].service_host == "h"
        assert [each["instance_uuid"] for each in client.every_reservation()] == ["i2"]
        assert worker.stop() == 0
