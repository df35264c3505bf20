"""Requests by cast on a real RabbitMQ and Redis."""

from scheduler_worker import conf
from scheduler_worker.client import SchedulerClient
from scheduler_worker.compose.worker import build_worker
from scheduler_worker.rpc.serving import handling
from tests.support.agents import conductor
from tests.support.patience import SOON_S, eventually
from tests.support.services import host

SPEC = {"flavor": {"vcpus": 1, "memory_mb": 512}, "num_instances": 1}
REPLY_TO = {"topic": "conductor"}


def test_a_waiting_cast_is_answered_by_another_worker_when_its_own_stops(configure):
    def build(name: str):
        config = configure(name, pending={"wait_timeout": int(SOON_S)})
        return build_worker(conf.load(["--config-file", str(config)]))

    stopping = build("one")
    stopping.start()
    with build("two").running() as other, conductor(other.bus) as received:
        client = SchedulerClient(other.bus)
        client.update_hosts([host("h", vcpus=1, cpu_allocation_ratio=1.0)])
        client.select_destinations(SPEC, ["first"])
        asked = client.request_destinations(SPEC, ["second"], reply_to=REPLY_TO)
        eventually(lambda: stopping.scheduler.waiting == 1)  # it has run longer
        assert stopping.stop(SOON_S)
        eventually(lambda: other.scheduler.waiting == 1)
        assert received.empty()
        client.release(["first"])
        answer = received.get(timeout=SOON_S)
        assert (answer["request_id"], len(answer["selections"])) == (asked, 1)


def test_a_cast_is_answered_when_somebody_listens_again(configure, monkeypatch):
    monkeypatch.setattr(handling, "_RETRY_S", 0.05)
    config = configure("one")
    with build_worker(conf.load(["--config-file", str(config)])).running() as worker:
        client = SchedulerClient(worker.bus)
        client.update_hosts([host("h", vcpus=1, cpu_allocation_ratio=1.0)])
        asked = client.request_destinations(SPEC, ["i"], reply_to=REPLY_TO)
        eventually(lambda: worker._server.describe()["parked"])
        with conductor(worker.bus) as received:
            answer = received.get(timeout=SOON_S)
    assert (answer["request_id"], len(answer["selections"])) == (asked, 1)
