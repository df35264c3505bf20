"""Requests by cast: the answer, or the refusal, is cast to the topic that the request names."""

import uuid

import pytest

from scheduler_worker import app, conf
from scheduler_worker.client import SchedulerClient
from tests.support.agents import conductor
from tests.support.patience import SOON_S, eventually
from tests.support.services import host
from tests.support.workers import load_config

SPEC = {"flavor": {"vcpus": 1, "memory_mb": 512}, "num_instances": 1}


@pytest.fixture(params=["local", "rabbit"])
def worker(request, tmp_path):
    url = f"local://{uuid.uuid4().hex}/"
    if request.param == "rabbit":
        url = request.getfixturevalue("rabbit_vhost_url")
    config = load_config(tmp_path / "w.conf", DEFAULT={"transport_url": url})
    with app.build(config).running() as running:
        yield running


@pytest.fixture
def answers(worker):
    """The answers that arrive at the caller's topic."""
    with conductor(worker.bus) as received:
        yield received


def test_answers_and_refusals_are_cast(worker, answers):
    client = SchedulerClient(worker.bus)
    client.update_hosts([host("h", vcpus=1, cpu_allocation_ratio=1.0)])
    reply_to = {"topic": "conductor"}
    first = client.request_destinations(SPEC, ["i1"], reply_to=reply_to)
    answer = answers.get(timeout=SOON_S)
    assert answer["request_id"] == first
    assert answer["selections"][0][0]["nova_object.data"]["service_host"] == "h"
    client.request_destinations(SPEC, ["i2"], reply_to=reply_to)
    refusal = answers.get(timeout=SOON_S)["error"]
    assert refusal["type"] == "NoValidHost"
    assert refusal["diagnosis"]["filters"][-1]["hosts_out"] == 0
    client.request_destinations({}, ["i3"], reply_to=reply_to)
    assert "spec_obj.flavor" in answers.get(timeout=SOON_S)["error"]["message"]
    eventually(lambda: worker.scheduler.unanswered() == [])


def test_a_waiting_cast_is_answered_by_another_worker_when_its_own_stops(configure):
    def build(name: str):
        config = configure(name, pending={"wait_timeout": int(SOON_S)})
        return app.build(conf.load(["--config-file", str(config)]))

    stopping = build("one")
    stopping.start()
    with build("two").running() as other, conductor(other.bus) as received:
        client = SchedulerClient(other.bus)
        client.update_hosts([host("h", vcpus=1, cpu_allocation_ratio=1.0)])
        client.select_destinations(SPEC, ["first"])
        waiting = 0
        while not stopping.scheduler.waiting:  # until the worker that stops has one of them
            client.request_destinations(SPEC, [f"i{waiting}"], reply_to={"topic": "conductor"})
            waiting += 1
            eventually(
                lambda count=waiting: stopping.scheduler.waiting + other.scheduler.waiting == count
            )
        assert stopping.stop(SOON_S)
        eventually(lambda: other.scheduler.waiting == waiting)
        assert received.empty()
        client.release(["first"])
        assert "selections" in received.get(timeout=SOON_S)
