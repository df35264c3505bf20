"""Records of decisions of several workers over RabbitMQ and Redis."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path

import msgspec
import pytest
import redis

from scheduler_worker.errors import NoValidHost
from scheduler_worker.operations.decisions import DecisionsQuery, list_decisions
from tests.support.services import host
from tests.support.workers import WorkerProcess, connected, write_config

SPEC = {"flavor": {"vcpus": 1, "memory_mb": 64, "name": "small"}, "project_id": "p"}


@pytest.fixture
def configured(tmp_path, rabbit_vhost_url):
    def make(name: str, state_url: str) -> Path:
        return write_config(
            tmp_path / f"{name}.conf",
            DEFAULT={"transport_url": rabbit_vhost_url, "host": name, "service_down_time": 600},
            state={"url": state_url},
            pending={"wait_timeout": 0},
        )

    return make


@pytest.mark.deep
def test_every_decision_of_two_workers_is_found_once_by_a_third(
    configured, rabbit_vhost_url, redis_url
):
    asked = [str(uuid.uuid4()) for _ in range(60)]
    with WorkerProcess(configured("one", redis_url), name="one") as one:
        with WorkerProcess(configured("two", redis_url), name="two") as two:
            one.ready(), two.ready()
            with connected(rabbit_vhost_url) as client:
                client.update_hosts([host("a", vcpus=40), host("b", vcpus=30)])
                for instance in asked:
                    client.select_destinations(SPEC, [instance])
                with pytest.raises(NoValidHost):
                    client.select_destinations({"flavor": {"vcpus": 99, "memory_mb": 1}}, ["big"])
            assert (one.stop(), two.stop()) == (0, 0)
    with WorkerProcess(configured("three", redis_url), name="three") as three:
        three.ready()
        with connected(rabbit_vhost_url) as client:
            query = DecisionsQuery(limit=7)
            found = [msgspec.to_builtins(each) for each in client.every(list_decisions, query)]
            placed = client.list_decisions(project="p", result="placed", limit=1000)["decisions"]
            [refused] = client.list_decisions(instance="big")["decisions"]
            whole = client.get_decision(placed[0]["id"])
        assert three.stop() == 0
    assert Counter(each["instances"][0] for each in found) == Counter([*asked, "big"])
    assert {each["worker"] for each in found} <= {"one", "two"}
    assert {each["instances"][0] for each in placed} == set(asked)
    assert refused["reason"].startswith("No host: of 2 hosts none has ")
    assert whole["spec"]["flavor"]["name"] == "small"
    assert [each["host"] for each in whole["ranked"]]


@pytest.mark.deep
def test_requests_are_served_where_records_cannot_be_written(
    configured, rabbit_vhost_url, redis_url
):
    with redis.Redis.from_url(redis_url) as server:
        server.acl_setuser(
            "modest", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-xadd"]
        )
    url = redis_url.replace("//", "//modest:any@")
    with WorkerProcess(configured("one", url), name="one") as one:
        one.ready()
        with connected(rabbit_vhost_url) as client:
            client.update_hosts([host("a")])
            [[chosen]] = client.select_destinations(SPEC, ["i1"])
            assert chosen.service_host == "a"
            one.await_log("Records of decisions wait until they can be written")
            assert client.list_decisions()["decisions"] == []
        assert one.stop() == 0
        assert "The user executing the script can't run this command" in one.log
        assert "could not be written before the end: 1" in one.log
