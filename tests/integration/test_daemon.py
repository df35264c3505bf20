"""The daemon: signals, drain, reload, several processes, systemd, outages of its servers."""

import contextlib
import os
import re
import signal
import threading
import time
import uuid
from pathlib import Path

import pytest

from scheduler_worker import codec, conf
from scheduler_worker.cli import signals, systemd
from scheduler_worker.compose.worker import build_worker
from scheduler_worker.errors import SchedulerWorkerError
from scheduler_worker.scheduling.options import ALL_FILTERS
from tests.support.amqp import Operator, message
from tests.support.patience import PROCESS_S, SOON_S, eventually
from tests.support.servers import LOOPBACK, free_port
from tests.support.services import host
from tests.support.threads import in_thread
from tests.support.workers import NotifySocket, WorkerProcess, connected, run_worker, write_config

SPEC = {"flavor": {"vcpus": 1, "memory_mb": 512, "root_gb": 1}, "num_instances": 1}


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """A service manager that expects a heartbeat every three seconds, and never kills."""
    notify = NotifySocket(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(notify.path))
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")
    yield notify
    notify.close()


def test_systemd_is_notified_of_the_status(tmp_path, manager):
    with WorkerProcess(write_config(tmp_path / "w.conf"), "--embedded") as worker:
        assert manager.next() == "STATUS=Starting"
        assert manager.until("READY=1") == "READY=1\nSTATUS=Serving"
        for _ in range(3):
            manager.until("WATCHDOG=1")
        before_s = time.monotonic()
        worker.process.send_signal(signal.SIGHUP)
        words = manager.until("RELOADING=1").splitlines()
        sent_us = int(words[1].removeprefix("MONOTONIC_USEC="))
        assert before_s <= sent_us / 1e6 <= time.monotonic()
        manager.until("READY=1")
        assert worker.stop() == 0
        manager.until("STOPPING=1")


def test_a_manager_that_reads_nothing_is_not_waited_for(manager, monkeypatch):
    monkeypatch.setattr(systemd, "LONGEST_S", 0.001)
    queued = int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text())
    for _ in range(queued + 2):
        systemd.notify("STATUS=Serving")


def test_a_worker_that_the_watchdog_ends_leaves_its_stacks(tmp_path):
    with WorkerProcess(write_config(tmp_path / "w.conf"), "--embedded").ready() as worker:
        worker.process.send_signal(signal.SIGABRT)
        assert worker.process.wait(PROCESS_S) == -signal.SIGABRT
        assert "Fatal Python error: Aborted" in worker.log
        assert "daemon.py" in worker.log


def test_every_thread_blocks_the_signals(tmp_path):
    """Or the kernel gives one to a thread of some library, and the process ends by it."""
    watched = sum(1 << (number - 1) for number in signals.WATCHED)
    with WorkerProcess(write_config(tmp_path / "w.conf"), "--embedded").ready() as worker:
        tasks = list(Path(f"/proc/{worker.process.pid}/task").iterdir())
        others = [each for each in tasks if each.name != str(worker.process.pid)]
        assert others
        for each in others:
            with contextlib.suppress(OSError):  # one that started the worker may have ended
                status = (each / "status").read_text()
                (blocked,) = re.findall(r"^SigBlk:\s*(\w+)", status, re.MULTILINE)
                assert int(blocked, 16) & watched == watched, status


@pytest.mark.deep
def test_the_supervisor_sends_heartbeats_while_all_its_workers_do(config, manager):
    with WorkerProcess(config, "--workers", "2") as workers:
        manager.until("READY=1")
        for _ in range(3):
            manager.until("WATCHDOG=1")
        child = _children(workers)[1]
        os.kill(child, signal.SIGSTOP)
        while manager.next(timeout_s=3) is not None:
            pass
        os.kill(child, signal.SIGCONT)
        manager.until("WATCHDOG=1")
        workers.process.send_signal(signal.SIGUSR1)
        _await_dumps(workers, 2)
        assert workers.stop() == 0
        manager.until("STOPPING=1")


def _await_dumps(worker, number: int) -> None:
    while worker.log.count(" clusters = ") < number:
        threading.Event().wait(0.02)


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}/exe").exists()


def _children(workers) -> list[int]:
    pid = workers.process.pid
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_sigterm_finishes_the_requests_in_hand(config, rabbit_vhost_url):
    placed: list[str] = []
    over = threading.Event()

    def ask(client) -> None:
        while not over.is_set():
            client.select_destinations(SPEC, [instance := str(uuid.uuid4())])
            placed.append(instance)

    with (
        WorkerProcess(config).ready() as worker,
        connected(rabbit_vhost_url, timeout_s=SOON_S) as client,
    ):
        client.update_hosts([host(f"h{number}", vcpus=10_000, memory_mb=10**8, local_gb=10**6)
                             for number in range(50)])  # fmt: skip
        asking = [in_thread(ask, client) for _ in range(8)]
        eventually(lambda: len(placed) >= 50)
        assert worker.stop() == 0
        assert "Stopped" in worker.log
        over.set()
        with WorkerProcess(config, name="next"):  # serves the requests that the first had not begun
            for each in asking:
                each.result(SOON_S)


def test_a_stop_does_not_wait_for_a_reload_that_hangs(tmp_path):
    config = write_config(tmp_path / "w.conf")
    with WorkerProcess(config, "--embedded").ready() as worker, contextlib.ExitStack() as stack:
        config.unlink()
        os.mkfifo(config)
        worker.process.send_signal(signal.SIGHUP)

        def is_read() -> bool:
            try:
                stack.callback(os.close, os.open(config, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                return False
            return True

        eventually(is_read)
        assert worker.stop() == 0


@pytest.mark.deep
def test_several_processes(config, rabbit_vhost_url):
    with (
        WorkerProcess(config, "--workers", "2").ready() as workers,
        connected(rabbit_vhost_url) as client,
    ):
        workers.await_log("All 2 workers are ready")
        client.update_hosts([host("h", vcpus=8, cpu_allocation_ratio=1.0, memory_mb=65536)])
        placed = [client.select_destinations(SPEC, [f"i{n}"])[0][0] for n in range(8)]
        assert {each.service_host for each in placed} == {"h"}
        with pytest.raises(SchedulerWorkerError, match="No valid host"):
            client.select_destinations(SPEC, ["one too many"])
        os.kill(_children(workers)[0], signal.SIGKILL)
        workers.await_log("starting it again")
        assert workers.stop() == 0


def test_a_worker_whose_server_fails_exits_with_a_status_for_a_restart(configure, rabbit_vhost_url):
    fragile = {
        "available_filters": [ALL_FILTERS, "tests.support.plugins.FragileFilter"],
        "enabled_filters": "FragileFilter",
    }
    with WorkerProcess(configure("w", filter_scheduler=fragile)).ready() as worker:
        with contextlib.closing(Operator(rabbit_vhost_url)) as operator:
            operator.put("scheduler", message("break")[0])
        assert worker.process.wait(PROCESS_S) == 70
        assert "The worker cannot go on and ends" in worker.log
        assert "a defect" in worker.log


@pytest.mark.deep
def test_a_supervisor_exits_with_the_status_of_workers_that_cannot_start(configure):
    config = configure("w", filter_scheduler={"enabled_filters": "RamFiltre"})
    done = run_worker(config, "--workers", "2")
    assert done.returncode == 2
    assert "did you mean RamFilter?" in done.stderr


def test_workers_end_when_their_supervisor_is_killed(config):
    """Although it leaves heartbeats unread, which resets the connection."""
    with WorkerProcess(config, "--workers", "2") as workers:
        workers.await_log("All 2 workers are ready")
        children = _children(workers)
        workers.process.send_signal(signal.SIGSTOP)
        for times in (2, 4):  # the second dumps come after a heartbeat
            for each in children:
                os.kill(each, signal.SIGUSR1)
            _await_dumps(workers, times)
        workers.kill()
        try:
            eventually(lambda: not any(map(_runs, children)))
        finally:
            for each in filter(_runs, children):
                os.kill(each, signal.SIGKILL)
        assert workers.log.count("The supervisor is gone; stopping") == 2


def test_a_worker_that_waits_for_the_broker_can_be_stopped(tmp_path):
    away = {"transport_url": f"rabbit://{LOOPBACK}:{free_port()}/"}
    config = write_config(tmp_path / "w.conf", DEFAULT=away)
    with WorkerProcess(config) as worker:
        worker.await_log("RabbitMQ cannot be reached")
        assert worker.stop() == 0
        assert "Traceback" not in worker.log


@pytest.mark.deep
def test_a_ready_worker_has_loaded_the_clusters(tmp_path, config):
    reports = [host(f"h{n}", cluster=f"c{n % 3}") for n in range(300)]
    with build_worker(conf.load(["--config-file", str(config)])).running() as filling:
        filling.inventory.update_hosts(codec.decode_host_reports(reports))
    loaded = "Loaded 3 clusters with 300 hosts and 0 reservations in"
    with WorkerProcess(config) as worker:
        worker.await_log("Serving topic")
        assert loaded in worker.log.partition("Serving topic")[0]
    with WorkerProcess(config, "--workers", "2", name="two") as workers:
        workers.await_log("All 2 workers are ready")
        assert workers.log.partition("All 2 workers")[0].count(loaded) == 2
