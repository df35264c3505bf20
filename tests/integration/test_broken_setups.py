"""``scheduler-workerctl doctor`` finds what is wrong with a set-up, and says how to fix it."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import amqp
import pytest
import redis
from sqlalchemy import make_url

from scheduler_worker.cli.ctl import main
from tests.support.amqp import Account
from tests.support.workers import WorkerProcess, write_config

Groups = dict[str, dict[str, Any]]


class SetUp:
    """A set-up that is well, until a test breaks it."""

    def __init__(self, directory: Path, rabbit: Any, rabbit_url: str, redis_url: str) -> None:
        self.directory = directory
        self.rabbit, self.redis_url = rabbit, redis_url
        self.topic = f"scheduler-{uuid.uuid4().hex[:8]}"
        self.groups: Groups = {
            "DEFAULT": {"transport_url": rabbit_url, "host": "doctor"},
            "rpc": {"topic": self.topic},
            "state": {"url": redis_url, "prefix": self.topic},
        }
        self.files = ExitStack()

    def set(self, group: str, **options: Any) -> None:
        self.groups[group] = {**self.groups.get(group, {}), **options}

    def written(self, name: str = "doctor") -> Path:
        groups = {**self.groups, "DEFAULT": {**self.groups["DEFAULT"], "host": name}}
        return write_config(self.directory / f"{name}.conf", **groups)

    def channel(self) -> Any:
        """A channel of the virtual host, until the test ends."""
        url = self.groups["DEFAULT"]["transport_url"]
        link = amqp.Connection(
            f"127.0.0.1:{self.rabbit.port}", "guest", "guest", virtual_host=url.rpartition("/")[2]
        )
        return self.files.enter_context(link).channel()

    def redis_setting(self, name: str, value: str) -> None:
        """Change the shared Redis until the test ends."""
        client = self.files.enter_context(redis.Redis.from_url(self.redis_url))
        before = client.config_get(name)[name]
        self.files.callback(client.config_set, name, before)
        client.config_set(name, value)


@pytest.fixture
def set_up(tmp_path, rabbit_server, rabbit_vhost_url, redis_url) -> Iterator[SetUp]:
    found = SetUp(tmp_path, rabbit_server, rabbit_vhost_url, redis_url)
    with found.files:
        yield found


@pytest.fixture
def examined(set_up, capsys) -> Callable[[], tuple[int, list[dict[str, str]]]]:
    """The exit status, and what is found."""

    def examine():
        capsys.readouterr()
        code = main(["doctor", "--json", "--config-file", str(set_up.written())])
        return code, json.loads(capsys.readouterr().out)["findings"]

    return examine


def closed_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wrong_password(set_up: SetUp) -> None:
    url = set_up.groups["DEFAULT"]["transport_url"]
    set_up.set("DEFAULT", transport_url=url.replace("guest:guest", "guest:wrong"))


def account_that_may_not_declare(set_up: SetUp) -> None:
    url = set_up.groups["DEFAULT"]["transport_url"]
    account = Account(set_up.rabbit, set_up.topic, "nova")
    set_up.rabbit.control("add_user", account.name, "secret")
    vhost = url.rpartition("/")[2]
    set_up.rabbit.control("set_permissions", "-p", vhost, account.name, "^$", ".*", ".*")
    set_up.set("DEFAULT", transport_url=url.replace("guest:guest", f"{account.name}:secret"))


def queue_of_another_kind(set_up: SetUp) -> None:
    set_up.channel().queue_declare(set_up.topic, durable=True, auto_delete=False)


def redis_that_evicts(set_up: SetUp) -> None:
    set_up.redis_setting("maxmemory-policy", "allkeys-lru")


def redis_without_append_only_file(set_up: SetUp) -> None:
    set_up.redis_setting("appendonly", "no")


def misspelt_option(set_up: SetUp) -> None:
    set_up.set("cluster_lock", acquire_timout=30)


def placement_that_is_away(set_up: SetUp) -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    set_up.set("nova_claims", enabled=True)
    set_up.set("placement", auth_type="none", endpoint=url, endpoint_override=url)


def tuning_policy_with_a_mistake(set_up: SetUp) -> None:
    path = set_up.directory / "broken.yaml"
    path.write_text("version: 1\nrules: [")
    set_up.set("tuning", policy_files=path)


def another_consumer(set_up: SetUp) -> None:
    """As a nova-scheduler that was left running."""
    worker = WorkerProcess(set_up.written("w1"), name="w1")
    set_up.files.enter_context(worker.ready())
    set_up.channel().basic_consume(set_up.topic)


def drained_worker(set_up: SetUp) -> None:
    config = set_up.written("w1")
    set_up.files.enter_context(WorkerProcess(config, name="w1").ready())
    assert main(["worker", "drain", "w1", "--last", "--config-file", str(config)]) == 0


@pytest.mark.deep
@pytest.mark.parametrize(
    ("broken", "status", "check", "words"),
    [
        (wrong_password, "failed", "RabbitMQ at", "See [DEFAULT] transport_url"),
        (account_that_may_not_declare, "failed", "RabbitMQ at", "configure permission"),
        (queue_of_another_kind, "failed", "RabbitMQ at", "set amqp_durable_queues"),
        (redis_that_evicts, "warning", "the shared state", "set maxmemory-policy noeviction"),
        (redis_without_append_only_file, "warning", "the shared state", "set appendonly yes"),
        (misspelt_option, "warning", "the configuration", "acquire_timeout"),
        (placement_that_is_away, "failed", "Placement", "See [placement], and whether it answers"),
        (tuning_policy_with_a_mistake, "warning", "the configuration", "broken.yaml:2"),
        (another_consumer, "failed", "the queue", "Stop nova-scheduler on all nodes"),
        (drained_worker, "warning", "the workers", "scheduler-workerctl worker resume w1"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_it_is_found_with_the_way_to_mend_it(set_up, broken, status, check, words, examined):
    broken(set_up)
    code, found = examined()
    texts = [
        f"{each['message']} {each['fix']}"
        for each in found
        if each["status"] == status and each["check"].startswith(check)
    ]
    assert any(words in each for each in texts), json.dumps(found)
    assert code == (status == "failed")


def test_a_database_that_refuses_its_account_is_named(set_up, maria_cloud, examined):
    url = make_url(maria_cloud.api_url).set(username="nobody", password="wrong")
    set_up.set("nova_feed", enabled=True, placement=False)
    set_up.set("api_database", connection=url.render_as_string(hide_password=False))
    code, found = examined()
    fixes = [each["fix"] for each in found if each["status"] == "failed"]
    assert any("[api_database] connection" in each for each in fixes), found
    assert code == 1


def test_a_set_up_that_is_well_has_nothing_failed(examined):
    code, found = examined()
    assert (code, {each["status"] for each in found}) == (0, {"ok", "warning"})
    warned = [each["message"] for each in found if each["status"] == "warning"]
    assert len(warned) == 1  # hosts have to be reported
