"""Pings to the topic's queue, on a real RabbitMQ."""

import pytest

from scheduler_worker.rpc.nova import baseapi
from scheduler_worker.rpc.serving.queue_delay import QueueDelay, Throughput
from tests.support.amqp import Stage
from tests.support.foreign import ForeignServer
from tests.support.patience import SOON_S, eventually
from tests.support.threads import in_thread


@pytest.fixture
def delays(monkeypatch):
    """The measurement of each server."""
    made = []
    begin = QueueDelay.__init__

    def begun(self):
        begin(self)
        made.append(self)

    monkeypatch.setattr(QueueDelay, "__init__", begun)
    return made


def serve(stage: Stage, methods, **options):
    return stage.serve(methods, endpoints=[baseapi()], **options)


def waiting(stage: Stage, gate) -> None:
    """Occupy a slot with a call."""
    client = stage.client()
    in_thread(client.call, "wait", {})
    gate.wait_for(1)


def ping(stage: Stage):
    client = stage.bus().client(stage.topic, namespace="baseapi", version="1.0", timeout_s=SOON_S)
    return client.call("ping", {}, arg="there?")


def test_a_ping_is_answered_without_a_free_slot(stage, gate, monkeypatch):
    finished = []
    monkeypatch.setattr(Throughput, "finished", lambda _throughput, now_s: finished.append(now_s))
    serve(stage, {"wait": gate}, slots=2)
    own = stage.client(server="one")
    for _ in range(2):
        own.cast("wait", {})
    gate.wait_for(2)
    assert ping(stage) == {"service": "scheduler", "arg": "there?"}
    assert finished == [], "pings do not count as throughput"
    gate.opened.set()
    eventually(lambda: len(finished) == 2)


def test_a_busy_server_measures_the_delay_of_its_queue(stage, gate, delays):
    serve(stage, {"wait": gate}, slots=1)
    waiting(stage, gate)
    [pings] = [delay._in_transit for delay in delays]
    eventually(lambda: len(pings) >= 3)
    eventually(lambda: stage.operator.depth(stage.topic) >= 3)  # its pings wait like other messages
    serve(stage, {"wait": gate}, name="two", slots=1)
    answer = in_thread(ping, stage)
    assert answer.result(SOON_S)["service"] == "scheduler"
    eventually(lambda: len(pings) <= 1)
    gate.opened.set()
    eventually(lambda: len(pings) == 0 and stage.operator.depth(stage.topic) == 0)


def test_a_server_without_permission_for_the_ping_queue_serves_without_it(stage, gate, caplog):
    methods = {"wait": gate, "echo": lambda _context, value: value}
    with stage.account() as account:
        account.set(rf"^(?!.*\.pings-).*{stage.topic}.*$", ".*", ".*")
        serve(stage, methods, slots=1, url=account.url)
        waiting(stage, gate)
        gate.opened.set()
        assert stage.client().call("echo", {}, value=1) == 1
    assert "does not permit a queue for answers to pings" in caplog.text


def test_oslo_messagings_own_server_answers_pings_too(stage, gate, delays):
    """For nova-scheduler on the same queue."""
    serve(stage, {"wait": gate}, slots=1)
    waiting(stage, gate)
    [pings] = [delay._in_transit for delay in delays]
    eventually(lambda: len(pings) >= 3)
    other = ForeignServer(stage.bus(), stage.topic, "two", [baseapi()])
    other.start()
    try:
        eventually(lambda: len(pings) <= 1)
    finally:
        other.stop()
