"""``scheduler-worker-api`` as a process: alone with a worker inside, and several beside workers."""

import contextlib
import re
import signal
import subprocess
import sys
from pathlib import Path

import ovirtsdk4 as sdk
import pytest
import redis
from ovirtsdk4 import types

from scheduler_worker import api_process
from scheduler_worker.errors import ConfigError
from tests.support.patience import PROCESS_S
from tests.support.servers import free_port
from tests.support.web import PASSWORD, users_file
from tests.support.workers import load_config, write_config

PROGRAM = Path(sys.executable).with_name("scheduler-worker-api")


@contextlib.contextmanager
def program(*arguments, log):
    """The command; always ended when the block is left."""
    with log.open("w") as written:
        process = subprocess.Popen(
            [PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=written, text=True
        )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process):
    process.send_signal(signal.SIGTERM)
    return process.wait(PROCESS_S)


def connected(url, **credentials):
    return sdk.Connection(url=url, insecure=True, **credentials)


@pytest.fixture
def settings(tmp_path, redis_url):
    """The options of an API process beside workers, with an administrator."""
    return {
        "DEFAULT": {"use_stderr": "true"},
        "state": {"url": redis_url},
        "policy_store": {"connection": f"sqlite:///{tmp_path / 'policies.sqlite'}"},
        "api": {"port": free_port(), "users_file": users_file(tmp_path, anna="administrator")},
    }


def built(tmp_path, settings):
    return api_process.build(load_config(tmp_path / "built.conf", **settings))


def test_the_demo_prints_one_line_and_serves(tmp_path):
    config = write_config(tmp_path / "api.conf", api={"port": free_port()})
    with program("--config-file", str(config), "--demo", log=tmp_path / "log") as process:
        line = process.stdout.readline()
        found = re.fullmatch(r"api: (\S+/ovirt-engine/api) user: (\S+) password: (\S+)\n", line)
        assert found, (tmp_path / "log").read_text()
        url, user, password = found.groups()
        with connected(url, username=user, password=password) as connection:
            system = connection.system_service()
            policies = system.scheduling_policies_service()
            policy = policies.add(types.SchedulingPolicy(name="mine"))
            clusters = system.clusters_service()
            [cluster] = clusters.list()
            attached = clusters.cluster_service(cluster.id).update(
                types.Cluster(scheduling_policy=types.SchedulingPolicy(id=policy.id))
            )
            assert attached.scheduling_policy.id == policy.id
        assert ended(process) == 0
        assert process.stdout.read() == ""
    assert password not in (tmp_path / "log").read_text()


def test_processes_share_policies_tokens_and_users(tmp_path, settings):
    config = write_config(tmp_path / "api.conf", **settings)
    other = {**settings, "api": {**settings["api"], "port": free_port()}}
    with built(tmp_path, other).running() as second:
        with program("--config-file", str(config), log=tmp_path / "log") as process:
            url = f"http://127.0.0.1:{settings['api']['port']}/ovirt-engine/api"
            with (tmp_path / "log").open() as log:
                read = ""
                while "Serving the REST API" not in read:
                    assert process.poll() is None, read
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(0.05)
                    read += log.read()
            first = connected(url, username="anna", password=PASSWORD)
            policies = first.system_service().scheduling_policies_service()
            policy = policies.add(types.SchedulingPolicy(name="shared"))
            secret = first.authenticate()
            with connected(second.url, token=secret) as connection:
                system = connection.system_service()
                one = system.scheduling_policies_service().policy_service(policy.id)
                assert one.get().name == "shared"
                one.remove()
            with pytest.raises(sdk.AuthError):  # the second has logged the token out
                connected(url, token=secret).system_service().get()
            assert all(each.locked for each in policies.list())
            first.close(logout=False)
            assert ended(process) == 0


def test_a_lost_state_gets_its_policies_back_at_the_start(tmp_path, settings):
    with (
        built(tmp_path, settings).running() as api,
        connected(api.url, username="anna", password=PASSWORD) as connection,
    ):
        system = connection.system_service()
        policy = system.scheduling_policies_service().add(types.SchedulingPolicy(name="mine"))
        [cluster] = system.clusters_service().list()
        system.clusters_service().cluster_service(cluster.id).update(
            types.Cluster(scheduling_policy=types.SchedulingPolicy(id=policy.id))
        )
    with redis.Redis.from_url(settings["state"]["url"]) as client:
        client.flushall()
    with built(tmp_path, settings).running() as api:
        replica = api._fleet.cluster("default")
        with replica.lock:
            replica.refresh(api._fleet.store)
        assert replica.policy.id == policy.id


def test_a_state_that_no_worker_can_share_is_refused(tmp_path, settings):
    with pytest.raises(ConfigError, match=r"memory://.*--embedded"):
        built(tmp_path, {**settings, "state": {"url": "memory://"}})


def test_missing_users_end_the_command_with_the_fix(tmp_path, settings):
    settings["api"]["users_file"] = tmp_path / "missing.yaml"
    config = write_config(tmp_path / "api.conf", **settings)
    with program("--config-file", str(config), log=tmp_path / "log") as process:
        assert process.wait(PROCESS_S) == 2
    assert "scheduler-worker-manage user add" in (tmp_path / "log").read_text()
