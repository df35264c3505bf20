"""``scheduler-worker-api`` as a process: with a worker inside, beside others, beside a worker."""

import contextlib
import re
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import ovirtsdk4 as sdk
import pytest
import redis
from ovirtsdk4 import types

from scheduler_worker.backends.settings import PolicyStoreSettings
from scheduler_worker.compose import engines
from scheduler_worker.compose.api import build_api
from scheduler_worker.compose.worker import build_worker
from scheduler_worker.errors import ArchiveUnavailable, ConfigError
from scheduler_worker.model.host_reports import HostReport
from tests.support import web
from tests.support.interrupted import raising
from tests.support.patience import PROCESS_S
from tests.support.servers import free_port
from tests.support.services import host, request, reservations_of
from tests.support.tuners import BALLOON
from tests.support.web import PASSWORD, basic, users_file
from tests.support.workers import WorkerProcess, load_config, write_config

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


def connected(url, **credentials):
    return sdk.Connection(url=url, insecure=True, **credentials)


@pytest.fixture
def settings(tmp_path, redis_url):
    """The options of an API process and of the worker beside it, with an administrator."""
    (tmp_path / "ksm.yaml").write_text(BALLOON)
    return {
        "DEFAULT": {"use_stderr": "true"},
        "state": {"url": redis_url},
        "policy_store": {"connection": f"sqlite:///{tmp_path / 'policies.sqlite'}"},
        "tuning": {"policy_files": tmp_path / "ksm.yaml"},
        "api": {"port": free_port(), "users_file": users_file(tmp_path, anna="administrator")},
        "monitoring": {"api_port": free_port()},
        "filter_scheduler": {"enabled_filters": "ComputeFilter,RamFilter"},
    }


def built(tmp_path, settings, build=build_api):
    return build(load_config(tmp_path / "built.conf", **settings))


def test_the_demo_prints_one_line_and_serves(tmp_path):
    config = write_config(tmp_path / "api.conf", api={"port": free_port()})
    with program("--config-file", str(config), "--demo", log=tmp_path / "log") as process:
        line = process.stdout.readline()
        found = re.fullmatch(r"api: (\S+/ovirt-engine/api) user: (\S+) password: (\S+)\n", line)
        assert found, (tmp_path / "log").read_text()
        url, user, password = found.groups()
        with connected(url, username=user, password=password) as connection:
            system = connection.system_service()
            assert system.scheduling_policies_service().add(types.SchedulingPolicy(name="mine"))
            assert len(system.clusters_service().list()) == 1
        process.terminate()
        assert process.wait(PROCESS_S) == 0
        assert process.stdout.read() == ""
    assert password not in (tmp_path / "log").read_text()


@pytest.fixture(params=["none", "sqlite", "postgresql"])
def archived(request, tmp_path, settings):
    """The options with an archive of each kind, and without one."""
    url = ""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'policies.sqlite'}"
    elif request.param == "postgresql":
        url = request.getfixturevalue("postgres_server").create_database()
        with contextlib.closing(
            engines.open_policy_schema(PolicyStoreSettings(connection=url))
        ) as schema:
            schema.upgrade()
    return {**settings, "policy_store": {"connection": url}}


def test_processes_share_policies_tokens_and_users(tmp_path, archived):
    settings = archived
    config = write_config(tmp_path / "api.conf", **settings)
    other = {**settings, "api": {**settings["api"], "port": free_port()}}
    other["monitoring"] = {"api_port": free_port()}
    with built(tmp_path, other).running() as second:
        with WorkerProcess(config, program=PROGRAM) as process:
            url = f"http://127.0.0.1:{settings['api']['port']}/ovirt-engine/api"
            process.await_log("Serving the REST API")
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
            assert process.stop() == 0


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
        replica = api._parts.fleet.cluster("default")
        with replica.lock:
            replica.refresh(api._parts.fleet.store)
        assert replica.policy.id == policy.id


def test_a_state_that_no_worker_can_share_is_refused(tmp_path, settings):
    with pytest.raises(ConfigError, match=r"memory://.*--embedded"):
        built(tmp_path, {**settings, "state": {"url": "memory://"}})


def test_missing_users_end_the_command_with_the_fix(tmp_path, settings):
    settings["api"]["users_file"] = tmp_path / "missing.yaml"
    config = write_config(tmp_path / "api.conf", **settings)
    with WorkerProcess(config, program=PROGRAM) as api:
        assert api.process.wait(PROCESS_S) == 2
        assert "scheduler-worker-manage user add" in api.log


# ``/v1`` beside a worker, on one Redis and one archive


@pytest.fixture
def worker(tmp_path, settings):
    """A worker that serves no bus: its use cases are called here."""
    found = built(tmp_path, settings, build_worker)
    yield found
    found.stop()


@pytest.fixture
def api(tmp_path, settings, worker):
    with built(tmp_path, settings).running() as found:
        yield found


def ask(api, method, path, body=b"", **headers):
    """Status, headers and JSON of an answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = web.ask(urlsplit(api.url).port, path, method, body, basic("anna") | named)
    return answer.status, answer.headers, answer.document


def report(worker, *hosts):
    worker.inventory.update_hosts([msgspec.convert(each, HostReport) for each in hosts])


def test_what_a_worker_knows_is_shown_and_its_reservations_are_released(api, worker):
    report(worker, host("a", cluster="east"), host("b", cluster="west", memory_mb=512))
    worker.scheduler.select(request("one", memory_mb=1024))
    _, _, found = ask(api, "GET", "/v1/hosts")
    shown = {each["name"]: (each["state"], each["reservations"]) for each in found["items"]}
    assert shown == {"a": ("up", 1), "b": ("up", 0)}
    spec = {"flavor": {"vcpus": 1, "memory_mb": 1024}}
    _, _, explained = ask(api, "POST", "/v1/explain", {"spec_obj": spec})
    assert explained["chosen"] == "a"
    assert ask(api, "DELETE", "/v1/reservations/one@uuid-a")[0] == 204
    assert reservations_of(worker.fleet) == []
    [entry] = ask(api, "GET", "/v1/audit?resource=one@uuid-a")[2]["items"]
    assert (entry["user"], entry["origin"], entry["before"]["host"]) == ("anna", "127.0.0.1", "a")
    [of_file] = ask(api, "GET", "/v1/tuning-policies")[2]["items"]
    assert (of_file["name"], of_file["origin"]) == ("ksm", "file")


def page(api, path):
    """Status and text of a page for monitoring, which needs no log-in."""
    status, _, text = web.ask(api.monitor.port, path)
    return status, text


def test_health_and_metrics_need_no_log_in(api):
    assert page(api, "/livez") == (200, "alive\n")
    assert page(api, "/readyz") == (200, "ready\n")
    assert ask(api, "GET", "/v1/hosts")[0] == 200
    metrics = page(api, "/metrics")[1]
    served = 'scheduler_api_requests_total{method="GET",route="/v1/hosts",status="200"} 1.0'
    assert served in metrics
    assert 'scheduler_api_dependency_up{dependency="state"} 1.0' in metrics
    port = api.monitor.port
    api.stop()
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        pass


def test_an_archive_that_is_away_is_said_and_edits_go_on(api, monkeypatch):
    archive = api._parts.copies.open()
    monkeypatch.setattr(archive, "state", raising(ArchiveUnavailable("no database")))
    assert page(api, "/readyz") == (200, "ready\n")
    down = 'scheduler_api_dependency_up{dependency="archive of policies"} 0.0'
    assert down in page(api, "/metrics")[1]
    json = {"Content_Type": "application/json"}
    status, _, made = ask(api, "POST", "/v1/policies", b'{"name": "packing"}', **json)
    assert (status, made["name"]) == (201, "packing")
    _, _, health = ask(api, "GET", "/v1/health")
    said = " ".join(each["message"] for each in health["findings"])
    assert "no database; edits are in the shared state, and copied later" in said
    monkeypatch.undo()
    assert api._parts.copies.problem() is None
    assert archive.documents() == api._parts.book.documents()
