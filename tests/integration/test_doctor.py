"""``scheduler-workerctl doctor`` on real servers."""

import contextlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import make_url

from scheduler_worker import conf, remedies
from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.sandbox.pool import refused_walls
from scheduler_worker.backends.settings import StateSettings
from scheduler_worker.cli.ctl import main
from scheduler_worker.cli.manage import main as manage_main
from scheduler_worker.compose.engines import open_state
from scheduler_worker.doctor import examination
from scheduler_worker.model.worker_reports import WorkerFacts, WorkerReport
from scheduler_worker.rpc.transport import Bus
from scheduler_worker.service.health.rules import UNIT_FILES
from scheduler_worker.service.state.presence import Presence
from tests.support.amqp import Operator
from tests.support.foreign import ForeignServer
from tests.support.nova_databases import NovaCloud, now_utc
from tests.support.placement_server import Cloud, PlacementServer
from tests.support.sandboxes import PYTHON, directory, write
from tests.support.sandboxes import settings as sandbox_settings
from tests.support.servers import LOOPBACK, free_port
from tests.support.workers import WorkerProcess, write_config

Finding = dict[str, str]


class Doctor:
    """Writes configurations, each with the plain groups and others, and examines them."""

    def __init__(self, directory: Path, capsys, **plain: dict[str, Any]) -> None:
        self.plain = plain
        self._directory = directory
        self._capsys = capsys

    def written(self, name: str = "doctor", **groups) -> Path:
        found = self.plain | groups
        found["DEFAULT"] = found["DEFAULT"] | {"host": name}
        return write_config(self._directory / f"{name}.conf", **found)

    def __call__(self, **groups) -> list[Finding]:
        return self.examine(self.written(**groups))

    def examine(self, path: Path) -> list[Finding]:
        self._capsys.readouterr()
        status = main(["doctor", "--json", "--config-file", str(path)])
        findings: list[Finding] = json.loads(self._capsys.readouterr().out)["findings"]
        assert status == any(finding["status"] == "failed" for finding in findings)
        return findings


@pytest.fixture
def examined(tmp_path, rabbit_url, redis_url, own_placement, capsys) -> Doctor:
    """The doctor on a configuration with Nova."""
    topic = f"scheduler-{uuid.uuid4().hex[:8]}"
    return Doctor(
        tmp_path,
        capsys,
        DEFAULT={"transport_url": rabbit_url},
        rpc={"topic": topic},
        state={"url": redis_url, "prefix": topic},
        nova_feed={"enabled": True},
        nova_claims={"enabled": True},
        placement=own_placement.options(),
    )


@pytest.fixture
def plain(tmp_path, capsys) -> Doctor:
    """On one without Nova, and without a broker unless one is named."""
    return Doctor(tmp_path, capsys, DEFAULT={"transport_url": "local:/"})


def messages(findings: list[Finding], status: str = "failed") -> list[str]:
    return [finding["message"] for finding in findings if finding["status"] == status]


def of(check: str, findings: list[Finding]) -> list[tuple[str, str]]:
    """Status, message and fix of each finding of a check."""
    return [
        (finding["status"], f"{finding['message']} {finding['fix']}".strip())
        for finding in findings
        if finding["check"].startswith(check)
    ]


def with_providers(nova: NovaCloud, placement: PlacementServer, *hosts: str) -> None:
    cloud = Cloud(placement)
    for host in hosts:
        nova.add_hosts(host, uuid=cloud.add(f"{host}-{uuid.uuid4().hex[:6]}", VCPU=4))


def read_only(nova: NovaCloud) -> dict[str, str]:
    """``[api_database]`` of a cloud whose accounts may only read."""
    for name, url in nova.cell_urls.items():
        nova.change_mapping(name, database_connection=nova.reader_of(url))
    return {"connection": nova.reader_of(nova.api_url)}


@pytest.mark.deep
def test_a_cloud_that_is_well_has_nothing_failed(nova_cloud, examined, own_placement):
    with_providers(nova_cloud, own_placement, "a", "b")
    found = examined(api_database=read_only(nova_cloud))
    assert messages(found) == []
    for expected in (
        "connected",
        "the account may only read",
        "2 compute services are up",
        "this host's, the database's and the conductors' clocks agree",
        "it speaks versions 1.0 to 1.39",
        "2 compute nodes have their resource providers",
        "0 workers share the state: none",
        "0 consumers, 0 of them workers that this state knows; 0 messages wait",
    ):
        assert expected in messages(found, "ok"), found


def test_an_account_that_may_write_is_worth_a_warning(nova_cloud, examined, own_placement):
    with_providers(nova_cloud, own_placement, "a")
    found = examined(api_database={"connection": nova_cloud.api_url})
    warned = [each for each in found if "the worker only reads" in each["message"]]
    assert {each["status"] for each in warned} == {"warning"}
    assert [each["check"].partition(" at ")[0] for each in warned] == [
        "Nova's API database",
        "the cell cell1",
    ]
    assert messages(found) == []


def test_the_latest_heartbeat_shows_a_conductors_clock(maria_cloud, examined, own_placement):
    with_providers(maria_cloud, own_placement, "a", "b")
    maria_cloud.change_service("b", last_seen_up=now_utc(-30))
    failed = messages(examined(api_database=read_only(maria_cloud)))
    assert any("more than [nova_feed] overlap" in message for message in failed)


def test_a_table_that_is_missing_ends_the_examination(maria_cloud, examined, own_placement):
    with_providers(maria_cloud, own_placement, "a")
    maria_cloud.drop("services")
    found = examined(api_database=read_only(maria_cloud))
    assert any("services" in message for message in messages(found))
    assert found[-1]["check"] == "the rest"


@pytest.mark.deep
def test_another_program_on_the_queue_is_found(
    maria_cloud, examined, own_placement, rabbit_url, monkeypatch
):
    monkeypatch.setattr(examination, "_BETWEEN_LOOKS_S", 0.1)
    with_providers(maria_cloud, own_placement, "a")
    examined.plain["api_database"] = read_only(maria_cloud)
    with Bus(conf.load(), url=rabbit_url) as bus:
        other = ForeignServer(bus, examined.plain["rpc"]["topic"], "nova-scheduler", ())
        other.start()
        try:
            found = examined()
            assert messages(found) == []
            warned = messages(found, "warning")
            assert any("the others are nova-schedulers" in message for message in warned)
            unlike = examined.written("w1", nova_claims={"enabled": False})
            with WorkerProcess(unlike, name="w1").ready():
                found = examined()
                assert any("another program gets a part" in message for message in messages(found))
                differs = "[nova_claims] enabled is on for this configuration, and off for w1"
                assert differs in messages(found)
        finally:
            other.stop()


def test_a_file_that_no_worker_can_start_with_is_all_that_is_said(tmp_path, plain, capsys):
    path = write_config(tmp_path / "bad.conf", nova_feed={"enabled": True, "interval": 0.1})
    found = plain.examine(path)
    assert {each["check"] for each in found} == {"the configuration"}
    assert any("interval" in message for message in messages(found))
    assert main(["doctor", "--config-file", str(tmp_path / "none.conf")]) == 2
    assert "none.conf" in capsys.readouterr().err


def test_a_broker_that_cannot_serve_is_found(plain, rabbit_vhost_url):
    wrong = rabbit_vhost_url.replace("guest:guest", "guest:wrong")
    [(status, text)] = of("RabbitMQ at", plain(DEFAULT={"transport_url": wrong}))
    assert (status, "See [DEFAULT] transport_url" in text) == ("failed", True)
    with contextlib.closing(Operator(rabbit_vhost_url)) as operator:
        operator.declare("scheduler", durable=True)
    findings = of("RabbitMQ at", plain(DEFAULT={"transport_url": rabbit_vhost_url}))
    assert any("set amqp_durable_queues" in text for _, text in findings)


def test_a_redis_that_evicts_is_worth_a_warning(plain, redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            findings = of("the shared state", plain(state={"url": redis_url}))
        finally:
            client.config_set("maxmemory-policy", "noeviction")
    assert any("set maxmemory-policy noeviction" in text for _, text in findings)


def test_machines_that_report_as_one_are_named(plain, redis_url):
    settings = StateSettings(url=redis_url, prefix=uuid.uuid4().hex, hold_timeout_s=5.0)
    facts = WorkerFacts(name="a", version="1", topic="elsewhere")
    report = WorkerReport(contests=("host a is reported with uuid u, v by turns",))
    with contextlib.closing(open_state(settings, SystemClock())) as state:
        Presence(state, facts, lambda: report).renew()
        found = of("the hosts", plain(state={"url": redis_url, "prefix": settings.prefix}))
    assert found == [("warning", f"{report.contests[0]} {remedies.CONTESTED}")]


@pytest.fixture
def unit_options() -> Iterator[dict[str, Any]]:
    with directory() as folder:
        write(folder, "spare.py", "class Spare: pass")
        yield {"directory": folder, "python": PYTHON}


def test_a_sandbox_is_examined(plain, unit_options):
    refused = refused_walls(sandbox_settings(unit_options["directory"]))
    [(status, message)] = of("external units", plain(external_units=unit_options))
    assert status == ("failed" if refused else "ok")
    less = unit_options | {"isolation": ""}
    [(status, message)] = of("external units", plain(external_units=less))
    assert status == ("warning" if refused else "ok")
    assert all(wall in message for wall in refused)


def test_what_the_user_of_a_sandbox_cannot_read_is_named(plain, unit_options):
    file = unit_options["directory"] / "spare.py"
    file.chmod(0)
    [(status, message)] = of("external units", plain(external_units=unit_options))
    assert status == "failed"
    assert f"cannot read {file}, for {file} is closed to it" in message
    assert remedies.UNREADABLE_UNITS in message
    away = unit_options | {"directory": file / "away"}
    [(status, message)] = of("external units", plain(external_units=away))
    assert (status, "Not a directory" in message) == ("failed", True)


def test_files_that_workers_do_not_load_are_named(plain, redis_url):
    prefix = uuid.uuid4().hex
    report = WorkerReport(unit_alarms=("spare.py: its sandbox lacks landlock",))
    facts = WorkerFacts(name="a", version="1", topic="elsewhere")
    settings = StateSettings(url=redis_url, prefix=prefix, hold_timeout_s=5.0)
    with contextlib.closing(open_state(settings, SystemClock())) as state:
        Presence(state, facts, lambda: report).renew()
        found = of("external units", plain(state={"url": redis_url, "prefix": prefix}))
    assert found == [("warning", f"{report.unit_alarms[0]} {UNIT_FILES}")]


def test_mistakes_in_files_are_worth_warnings(plain, tmp_path):
    policy = tmp_path / "broken.yaml"
    policy.write_text("version: 1\nrules: [")
    findings = of(
        "the configuration",
        plain(cluster_lock={"acquire_timout": 30}, tuning={"policy_files": policy}),
    )
    warned = [text for status, text in findings if status == "warning"]
    for words in ("acquire_timeout", "broken.yaml:2"):
        assert any(words in text for text in warned)


def test_a_placement_that_is_away_is_found(plain):
    url = f"http://{LOOPBACK}:{free_port()}"
    account = {"auth_type": "none", "endpoint": url, "endpoint_override": url}
    [(status, text)] = of("Placement", plain(nova_claims={"enabled": True}, placement=account))
    assert (status, "See [placement], and whether it answers" in text) == ("failed", True)


def test_a_database_that_refuses_its_account_is_named(plain, maria_cloud):
    url = make_url(maria_cloud.api_url).set(username="nobody", password="wrong")
    findings = plain(
        nova_feed={"enabled": True, "placement": False},
        api_database={"connection": url.render_as_string(hide_password=False)},
    )
    fixes = [finding["fix"] for finding in findings if finding["status"] == "failed"]
    assert any("[api_database] connection" in fix for fix in fixes), findings


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(["~*"], id="no command"),
        pytest.param(["~*", "+@all", "-hset", "-zadd"], id="no command of a script"),
        pytest.param(["~other:*", "+@all"], id="no key"),
    ],
)
def test_an_account_of_redis_without_rights_is_told_from_a_redis_that_is_away(
    plain, redis_url, rules
):
    with redis.Redis.from_url(redis_url) as client:
        client.execute_command("ACL", "SETUSER", "modest", "reset", "on", ">secret", *rules)
        try:
            found = plain(state={"url": redis_url.replace("//", "//modest:secret@")})
        finally:
            client.acl_deluser("modest")
    [(status, text)] = of("the shared state", found)
    assert (status, "docs/security.md, Redis" in text) == ("failed", True)
    found = plain(state={"url": f"redis://{LOOPBACK}:{free_port()}/0"})
    [(_, text)] = of("the shared state", found)
    assert "See [state] url" in text
    assert "redis-cli -u URL ping" in text


def test_an_archive_is_examined_and_not_made(plain, tmp_path):
    file = tmp_path / "missing" / "policies.sqlite"
    store = {"connection": f"sqlite:///{file}"}
    [(status, message)] = of("the archive of policies", plain(policy_store=store))
    assert (status, f"no directory {file.parent} yet" in message) == ("warning", True)
    assert not file.parent.exists()
    (tmp_path / "missing").write_text("a file")
    [(status, message)] = of("the archive of policies", plain(policy_store=store))
    assert (status, "Not a directory" in message) == ("failed", True)
    assert of("the archive of policies", plain()) == []


def test_an_archive_of_an_old_schema_is_found(plain, tmp_path, capsys):
    store = {"connection": f"sqlite:///{tmp_path / 'policies.sqlite'}"}
    file = write_config(tmp_path / "store.conf", policy_store=store)
    manage = ["--config-file", str(file), "db"]
    assert manage_main([*manage, "upgrade", "0001"]) == 0
    capsys.readouterr()
    [(status, message)] = of("the archive of policies", plain(policy_store=store))
    assert (status, "run: scheduler-worker-manage db upgrade" in message) == ("failed", True)


def test_files_of_the_api_that_are_missing_are_named(plain, tmp_path):
    certificate, users = tmp_path / "none.pem", tmp_path / "users.yaml"
    api = {"certificate_file": certificate, "users_file": users}
    found = of("the REST API", plain(api=api))
    assert [status for status, _ in found] == ["warning", "warning"]
    assert [str(certificate) in found[0][1], str(users) in found[1][1]] == [True, True]
    users.write_text("{}")
    found = of("the REST API", plain(api={"users_file": users}))
    assert [status for status, _ in found] == ["ok"]
