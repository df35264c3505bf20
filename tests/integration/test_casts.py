"""Requests by cast: the answer, or the refusal, is cast to whom the request names."""

import queue
import threading
import uuid

import pytest

from scheduler_worker import app, conf
from scheduler_worker.client import SchedulerClient
from scheduler_worker.rpc.contract import Endpoint
from scheduler_worker.rpc.wire_errors import to_wire
from tests.support.services import host
from tests.support.workers import write_config

SPEC = {"flavor": {"vcpus": 1, "memory_mb": 512}, "num_instances": 1}


@pytest.fixture(params=["local", pytest.param("rabbit", marks=pytest.mark.servers)])
def worker(request, tmp_path):
    url = f"local://{uuid.uuid4().hex}/"
    if request.param == "rabbit":
        url = request.getfixturevalue("rabbit_vhost_url")
    config = write_config(tmp_path / "w.conf", DEFAULT={"transport_url": url})
    with app.build(conf.load(["--config-file", str(config)])).running() as running:
        yield running


@pytest.fixture
def answers(worker):
    """What arrives at the caller's own topic."""
    received: queue.Queue = queue.Queue()

    def answered(context, **arguments):
        received.put(arguments)

    endpoint = Endpoint(None, "1.0", {"destinations_selected": answered})
    server = worker.bus.server("conductor", "c1", [endpoint], translate=to_wire)
    server.start()
    yield received
    server.stop(5)


def test_answers_and_refusals_are_cast(worker, answers):
    client = SchedulerClient(worker.bus)
    client.update_hosts([host("h", vcpus=1, cpu_allocation_ratio=1.0)])
    reply_to = {"topic": "conductor"}
    first = client.request_destinations(SPEC, ["i1"], reply_to=reply_to)
    answer = answers.get(timeout=20)
    assert answer["request_id"] == first
    assert answer["selections"][0][0]["nova_object.data"]["service_host"] == "h"
    client.request_destinations(SPEC, ["i2"], reply_to=reply_to)
    refusal = answers.get(timeout=20)["error"]
    assert refusal["type"] == "NoValidHost"
    assert refusal["diagnosis"]["filters"][-1]["hosts_out"] == 0
    client.request_destinations({}, ["i3"], reply_to=reply_to)
    assert "spec_obj.flavor" in answers.get(timeout=20)["error"]["message"]
    assert worker.scheduler.unanswered() == []


def test_a_promise_that_nobody_can_hear_of_is_given_back(worker, answers):
    client = SchedulerClient(worker.bus)
    client.update_hosts([host("h")])
    client.request_destinations(SPEC, ["lost"], reply_to={"topic": "nobody"})
    client.request_destinations(SPEC, ["heard"], reply_to={"topic": "conductor"})
    assert answers.get(timeout=20)["selections"]
    while worker.scheduler.unanswered():
        threading.Event().wait(0.01)
    if worker.bus.url.startswith("rabbit"):
        promised = {each["instance_uuid"] for each in client.every_reservation()}
        assert promised == {"heard"}


def test_the_same_cast_twice_promises_once(worker, answers):
    client = SchedulerClient(worker.bus)
    client.update_hosts([host("h")])
    for _ in range(2):
        client.request_destinations(SPEC, reply_to={"topic": "conductor"}, request_id="req-1")
        assert answers.get(timeout=20)["selections"]
    assert len(list(client.every_reservation())) == 1
