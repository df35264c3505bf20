"""Configurations: refused, checked with --check-config, warned about, read by the command."""

import signal
import socket
import subprocess
import sys

import pytest

from tests.support.servers import LOOPBACK, free_port
from tests.support.workers import WorkerProcess, run_worker, write_config

DRY_RUN = {
    "DEFAULT": {"transport_url": "rabbit://nowhere:1/"},
    "api_database": {"connection": "mysql+pymysql://u:p@nowhere/nova_api"},
    "nova_feed": {"enabled": True, "placement": False},
    "dry_run": {"enabled": True},
}


@pytest.mark.parametrize(
    ("groups", "arguments", "complaint"),
    [
        ({"pending": {"ttl": 5}}, [], "[pending] ttl: 5 s must be longer"),
        ({"scheduler": {"max_attempts": 0}}, [], "max_attempts"),
        ({"monitoring": {"port": 65535}}, ["--embedded", "--instance", "1"],
         "[monitoring] port: 65536"),
        ({"DEFAULT": {"transport_url": "carrier-pigeon://u:hush@x"}}, [],
         "[DEFAULT] transport_url: no driver serves 'carrier-pigeon'; write it like rabbit://"),
        ({"DEFAULT": {"transport_url": "rabbit://u:hush/@h"}}, [],
         "[DEFAULT] transport_url: invalid literal for int() with base 10: ***"),
        ({"DEFAULT": {"transport_url": "rabbit://u:hush@h:99999"}}, [],
         "[DEFAULT] transport_url: 99999 is no port"),
        ({"DEFAULT": {"log_dir": "/no/such"}}, [],
         "[DEFAULT] log_dir, log_file: /no/such/scheduler-worker.log cannot be written: No such"),
        ({"DEFAULT": {"log_config_append": "/no/such"}}, [],
         "[DEFAULT] log_config_append: /no/such: [Errno 2] No such file"),
        ({"DEFAULT": {"transport_url": "rabbit://h"},
          "oslo_messaging_rabbit": {"ssl": True, "ssl_ca_file": "/no/such"}}, [],
         "[oslo_messaging_rabbit] ssl_ca_file: /no/such: No such file or directory"),
        ({"DEFAULT": {"transport_url": "rabbit://h"},
          "oslo_messaging_rabbit": {"ssl": True, "ssl_cert_file": "/no/such"}}, [],
         "[oslo_messaging_rabbit] ssl_cert_file: /no/such: No such file or directory"),
        ({"state": {"url": "rediss://h:1/?ssl_ca_certs=/no/such"}}, ["--embedded"],
         "[state] url: ssl_ca_certs: /no/such: No such file or directory"),
        ({"trusted_computing": {
            "attestation_server": "h", "attestation_server_ca_file": "/no/such"}}, ["--embedded"],
         "[trusted_computing] attestation_server_ca_file: /no/such: No such file or directory"),
        ({}, ["--embedded", "--workers", "2"], "cannot share [state] url = memory://"),
        ({}, [], "[DEFAULT] transport_url is not set, so that no client could reach this worker"),
        ({"DEFAULT": {"transport_url": "local:/"}}, ["--embedded"], "leave out one of them"),
        ({}, ["--no-such-option"], "no-such-option"),
        (DRY_RUN | {"nova_claims": {"enabled": True}}, [], "exclude each other"),
        (DRY_RUN | {"nova_feed": {"enabled": False}}, [],
         "[dry_run] enabled needs [nova_feed] enabled"),
        (DRY_RUN | {"DEFAULT": {"transport_url": "local://x/"}}, [], "[dry_run] enabled needs"),
    ],
)  # fmt: skip
def test_a_configuration_that_cannot_work_is_refused_at_the_start(
    tmp_path, groups, arguments, complaint
):
    done = run_worker(write_config(tmp_path / "bad.conf", **groups), *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "hush" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_check_config_reports_all_problems_at_once(tmp_path):
    config = write_config(
        tmp_path / "bad.conf",
        DEFAULT={"transport_url": "rabbit//u:hush@h", "cpu_allocation_ratio": -1, "my_ip": "::1"},
        filter_scheduler={"enabled_filters": "RamFiltre", "weight_classes": "Wieghers"},
        cluster_lock={"hold_timeout": 0.2, "hold_timout": 20},
        oslo_messaging_rabbit={"heartbeat_timeout_threshold": "often"},
        state={"url": "mysql://u:hush@h"},
        tuning={"policy_files": "/no/such.yaml"},
        scheduler={"workers": 4},
        pendding={"ttl": 3},
    )
    done = run_worker(config, "--check-config")
    assert (done.returncode, done.stderr) == (2, "")
    assert "hush" not in done.stdout
    for line in (
        f"read: {config}",
        "wrong: [DEFAULT] cpu_allocation_ratio: Should be greater than or equal to 0",
        "wrong: [DEFAULT] transport_url: No scheme specified",
        "wrong: [filter_scheduler] weight_classes: nothing is known under Wieghers",
        "[filter_scheduler] enabled_filters: nothing is known under RamFiltre",
        "wrong: [cluster_lock] hold_timeout: 0.2 s is too short",
        "wrong: [oslo_messaging_rabbit] heartbeat_timeout_threshold: ",
        "wrong: [state] url: no engine serves 'mysql'",
        f"unknown: {config}: [cluster_lock] hold_timout is no option that is read; did you mean "
        "hold_timeout?",
        f"unknown: {config}: [pendding] is no group that is read; did you mean [pending]?",
        "left out: /no/such.yaml: No such file or directory",
        "unused: [scheduler] workers is accepted and does nothing here: ",
    ):
        assert line in done.stdout
    assert "my_ip" not in done.stdout


@pytest.mark.parametrize(
    ("groups", "status"),
    [
        ({"scheduler": {"workers": 4}}, 0),
        ({"pendding": {"ttl": 3}}, 1),
        ({"tuning": {"policy_files": "/no/such.yaml"}}, 1),
    ],
)
def test_the_exit_status_of_check_config_says_whether_a_worker_would_start(
    tmp_path, groups, status
):
    config = write_config(tmp_path / "w.conf", **groups)
    assert run_worker(config, "--embedded", "--check-config").returncode == status


def test_check_connections_names_the_servers_that_would_not_serve(
    tmp_path, config, rabbit_vhost_url
):
    done = run_worker(config, "--check-connections")
    assert done.returncode == 0, done.stdout
    broker = rabbit_vhost_url.partition("@")[2].partition("/")[0]
    assert f"connected: RabbitMQ at {broker}" in done.stdout
    assert "connected: the shared state" in done.stdout
    ports = free_port(), free_port()
    unreachable = write_config(
        tmp_path / "nobody.conf",
        DEFAULT={"transport_url": f"rabbit://u:hush@{LOOPBACK}:{ports[0]}/"},
        state={"url": f"redis://{LOOPBACK}:{ports[1]}"},
    )
    done = run_worker(unreachable, "--check-connections")
    assert done.returncode == 2
    assert all(line.startswith("the next connection: ") for line in done.stderr.splitlines())
    assert f"wrong: RabbitMQ cannot be reached: {LOOPBACK}:{ports[0]}: " in done.stdout
    assert f"wrong: The shared state at {LOOPBACK}:{ports[1]} cannot be used: " in done.stdout


def test_a_worker_logs_its_files_and_warns_of_unknown_options(tmp_path):
    config = write_config(tmp_path / "w.conf", pending={"tll": 3})
    with WorkerProcess(config, "--embedded").ready() as worker:
        assert f"Configuration: {config}" in worker.log
        assert "[pending] tll is no option that is read; did you mean ttl?" in worker.log
        write_config(config, pending={"tll": 3, "wait_timout": 1})
        worker.process.send_signal(signal.SIGHUP)
        worker.await_log("[pending] wait_timout is no option that is read")
        assert worker.log.count("[pending] tll ") == 1


def test_a_monitoring_port_in_use_ends_the_start(tmp_path):
    with socket.create_server((LOOPBACK, 0)) as taken:
        config = write_config(tmp_path / "w.conf", monitoring={"port": taken.getsockname()[1]})
        done = run_worker(config, "--embedded")
    assert done.returncode == 1
    assert "The worker cannot start: [monitoring] port: cannot listen on" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_each_of_several_workers_has_its_own_monitoring_port(tmp_path):
    port = free_port() - 2
    config = write_config(tmp_path / "w.conf", monitoring={"port": port})
    with WorkerProcess(config, "--embedded", "--instance", "2").ready():
        socket.create_connection((LOOPBACK, port + 2)).close()


def test_the_version_is_printed():
    command = [sys.executable, "-m", "scheduler_worker", "--version"]
    version = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (version.stdout + version.stderr).strip()[0].isdigit()
