"""No secret leaves a worker: not by its log, an answer, a page or a dump, whatever it is sent."""

import contextlib
import signal
import uuid
from typing import Any

import pytest
import redis

from scheduler_worker import conf
from scheduler_worker.errors import SchedulerWorkerError
from scheduler_worker.rpc.transport import Bus
from tests.support import web
from tests.support.amqp import Operator, message
from tests.support.patience import PROCESS_S, SOON_S
from tests.support.servers import RedisServer, free_port
from tests.support.services import host
from tests.support.workers import WorkerProcess, connected, write_config

SECRET = "hush" + uuid.uuid4().hex[:8]
"""A text that all planted secrets contain."""

CONTEXT: dict[str, Any] = {
    "request_id": "req-00000000-0000-4000-8000-000000000001",
    "user_id": "u",
    "project_id": "p",
    "auth_token": f"{SECRET}-auth",
    "user_auth_token": f"{SECRET}-user",
    "service_token": f"{SECRET}-service",
    "service_catalog": [{"endpoints": [{"publicURL": f"https://u:{SECRET}-catalog@nova/"}]}],
    "user_auth_token_info": {"password": f"{SECRET}-info"},
}
CELL = {
    "uuid": "3ef4f4de-2b5b-4d86-9e0b-0d1f6c6ff3a6",
    "name": "cell1",
    "database_connection": f"mysql+pymysql://nova:{SECRET}-db@db/nova",
    "transport_url": f"rabbit://nova:{SECRET}-cell@rabbit:5672/",
}
FLAVOR = {"vcpus": 1, "memory_mb": 512}
GOOD = {"flavor": FLAVOR, "num_instances": 1, "requested_destination": {"cell": CELL}}

SPECS = {
    "valid": GOOD,
    "too large": GOOD | {"flavor": {"vcpus": 10**6, "memory_mb": 512}},
    "malformed elsewhere": GOOD | {"flavor": {"vcpus": "x"}},
    "malformed cell": GOOD | {"requested_destination": {"cell": CELL["database_connection"]}},
    "malformed destination": GOOD | {"requested_destination": [CELL]},
    "malformed url": GOOD | {"requested_destination": {"cell": CELL | {"transport_url": [SECRET]}}},
    "url where none belongs": GOOD | {"availability_zone": {"x": CELL["transport_url"]}},
    "url for a number": GOOD | {"flavor": {"vcpus": CELL["transport_url"], "memory_mb": 1}},
    "breaks a filter": GOOD | {"scheduler_hints": {"leak": [f"{SECRET}-hint"]}},
}
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("update_hosts", {"hosts": [host("x", memory_mb=f"amqp://u:{SECRET}@h/")]}),
    ("update_hosts", {"hosts": [host("x") | {"admin_password": SECRET}]}),
    ("update_hosts", {"hosts": [CELL]}),
    ("no_such_method", {"password": SECRET}),
    ("confirm", {"auth_token": SECRET}),
    ("list_hosts", {"cluster": CELL["database_connection"]}),
    ("explain", {"spec_obj": GOOD}),
    ("explain", {"spec_obj": SPECS["malformed cell"]}),
    ("explain", {"spec_obj": SPECS["breaks a filter"]}),
]
RAW: list[tuple[str, dict[str, Any]]] = [
    ("{", {}),
    (f'{{"oslo.version": "2.0", "oslo.message": "{{\\"_context_auth_token\\": \\"{SECRET}', {}),
    (f'{{"oslo.version": "9.0", "oslo.message": "{SECRET}"}}', {}),
    (f'["{SECRET}"]', {"content_type": "application/json"}),
    (SECRET, {}),
]


@pytest.fixture
def redis_server(tmp_path):
    with RedisServer(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def config(tmp_path, redis_server, rabbit_server, rabbit_vhost_url):
    """A worker that logs everything, and logs in everywhere with a planted password."""
    name, vhost = f"user-{uuid.uuid4().hex[:8]}", rabbit_vhost_url.rpartition("/")[2]
    rabbit_server.add_user(name, f"{SECRET}-rabbit")
    rabbit_server.permit(name, ".*", ".*", ".*", vhost)
    with redis.Redis.from_url(redis_server.url) as client:
        client.acl_setuser(
            "w", enabled=True, passwords=[f"+{SECRET}-redis"], keys=["*"], commands=["+@all"]
        )
    (tmp_path / "dumps").mkdir()
    yield write_config(
        tmp_path / "worker.conf",
        DEFAULT={
            "debug": True,
            "default_log_levels": "amqp=DEBUG,kombu=DEBUG,oslo_messaging=DEBUG,redis=DEBUG",
            "transport_url": rabbit_vhost_url.replace("guest:guest", f"{name}:{SECRET}-rabbit"),
            "service_down_time": 600,
        },
        state={"url": redis_server.url.replace("//", f"//w:{SECRET}-redis@")},
        monitoring={"port": free_port(), "dump_dir": tmp_path / "dumps"},
        filter_scheduler={
            "available_filters": [
                "scheduler_worker.filters.all_filters",
                "tests.support.plugins.LeakyFilter",
            ],
            "enabled_filters": "ComputeFilter,CoreFilter,LeakyFilter",
        },
    )
    rabbit_server.delete_user(name)


@pytest.fixture
def ask(rabbit_vhost_url):
    """Calls a method; the answer, or the refusal, as text."""
    with Bus(conf.load(), url=rabbit_vhost_url) as bus:
        clients = {
            None: bus.client("scheduler", version="4.5", timeout_s=SOON_S),
            "scheduler_worker": bus.client(
                "scheduler", namespace="scheduler_worker", timeout_s=SOON_S
            ),
        }

        def ask(namespace, method, **arguments):
            try:
                return repr(clients[namespace].call(method, CONTEXT, **arguments))
            except SchedulerWorkerError as error:
                return f"{type(error).__name__}: {error}"

        ask.cast = lambda method, **arguments: clients["scheduler_worker"].cast(  # type: ignore[attr-defined]
            method, CONTEXT, **arguments
        )
        yield ask


def test_no_secret_leaves_the_worker(config, tmp_path, redis_server, rabbit_vhost_url, ask):
    port = conf.load(["--config-file", str(config)]).monitoring.port
    outputs: dict[str, str] = {}
    with WorkerProcess(config).ready() as worker, connected(rabbit_vhost_url) as client:
        client.update_hosts([host("h", cell_uuid=CELL["uuid"])])
        for name, spec in SPECS.items():
            outputs[name] = ask(
                None, "select_destinations", spec_obj=spec, instance_uuids=[str(uuid.uuid4())]
            )
            ask.cast("request_destinations", spec_obj=spec, reply_to={"topic": "nobody"})
        for number, (method, arguments) in enumerate(OTHERS):
            outputs[f"{method} {number}"] = ask("scheduler_worker", method, **arguments)
            ask.cast(method, **arguments)
        with contextlib.closing(Operator(rabbit_vhost_url)) as operator:
            for body, properties in RAW:
                operator.put("scheduler", body, **properties)
            body, _ = message("select_destinations", args={"auth_token": SECRET}, **CONTEXT)
            operator.put("scheduler", body)
        outputs["after all"] = ask(
            None, "select_destinations", spec_obj=GOOD, instance_uuids=["last"]
        )
        worker.process.send_signal(signal.SIGUSR1)
        worker.await_log("clusters = ")
        redis_server.kill()
        ask.cast("update_hosts", hosts=[host("h", cell_uuid=CELL["uuid"])])
        worker.await_log("left to other workers")
        for path in ("/metrics", "/readyz", "/livez"):
            outputs[path] = web.ask(port, path).text
        worker.stop()
        outputs["log"] = worker.log
    (dump,) = (tmp_path / "dumps").iterdir()
    outputs["dump"] = dump.read_text()

    lines = ((name, line) for name, text in outputs.items() for line in text.splitlines())
    assert [f"{name}: {line}" for name, line in lines if SECRET in line] == []
    _check_coverage(outputs)


def _check_coverage(outputs):
    """Check that the secrets' places were reached."""
    assert "'host': 'h'" in outputs["valid"]
    assert "NoValidHost" in outputs["too large"]
    assert "spec_obj.flavor.vcpus" in outputs["malformed elsewhere"]
    assert "spec_obj.requested_destination.cell" in outputs["malformed cell"]
    assert "InternalError" in outputs["breaks a filter"]
    assert "keystone" not in outputs["breaks a filter"]
    assert "NoSuchMethod" in outputs["no_such_method 3"]
    assert "'host': 'h'" in outputs["after all"]
    assert "state" in outputs["/readyz"]
    log = outputs["log"]
    assert "https://***@keystone/ (auth_token=***" in log, "the trace is there, its secrets are not"
    assert "DEBUG somebody.elses.filter [-] asked for {'auth_token': ***}" in log
    assert log.count("result=placed") > 2
    assert " DEBUG oslo_messaging" in log
    assert "state.url" in outputs["dump"]


@pytest.mark.deep
def test_no_secret_leaves_the_worker_when_a_password_is_refused(
    tmp_path, rabbit_vhost_url, redis_server
):
    for name, groups in {
        "rabbit": {
            "DEFAULT": {"transport_url": rabbit_vhost_url.replace("guest:", f"guest:{SECRET}")},
            "state": {"url": redis_server.url},
        },
        "redis": {
            "DEFAULT": {"transport_url": rabbit_vhost_url},
            "state": {"url": redis_server.url.replace("//", f"//w:{SECRET}@")},
        },
        "no url": {"DEFAULT": {"transport_url": f"rabbit://u:{SECRET}@h:port/"}},
        "no state": {"state": {"url": f"sql://u:{SECRET}@h/"}},
        "no number": {"state": {"url": f"redis://u:{SECRET}@h:port/"}},
    }.items():
        config = write_config(tmp_path / f"{name}.conf", **groups)
        with WorkerProcess(config, name=name) as worker:
            assert worker.process.wait(PROCESS_S) in {1, 2}, name
            assert worker.log.strip(), name
            assert SECRET not in worker.log, name
            assert "Traceback" not in worker.log, name
