"""The RPC methods about the workers themselves."""

import pytest

from scheduler_worker.errors import RequestError
from scheduler_worker.rpc.contract import Context
from scheduler_worker.rpc.workers import WorkersEndpoint
from scheduler_worker.service.state.presence import WorkerFacts

CONTEXT = Context()


class Drainable:
    """A worker without a server."""

    facts = WorkerFacts(name="w1", version="1", topic="scheduler")

    def __init__(self) -> None:
        self.calls: list[str] = []

    def status(self):
        return {"uptime_s": 1.0, "bus": {"running": 0}}

    def drain(self) -> None:
        self.calls.append("drain")

    def resume(self) -> None:
        self.calls.append("resume")


@pytest.fixture
def worker() -> Drainable:
    return Drainable()


def endpoint(worker, *others) -> WorkersEndpoint:
    return WorkersEndpoint(lambda: [worker.facts, *others], worker)


def test_the_workers_of_the_topic_are_listed(worker):
    elsewhere = WorkerFacts(name="w2", version="1", topic="elsewhere")
    listed = endpoint(worker, elsewhere).list_workers(CONTEXT)["workers"]
    assert [(each["name"], each["is_drained"]) for each in listed] == [("w1", False)]


@pytest.mark.parametrize(
    ("method", "calls"),
    [("get_worker", []), ("drain_worker", ["drain"]), ("resume_worker", ["resume"])],
)
def test_a_worker_answers_with_its_state_and_only_when_it_is_named(worker, method, calls):
    ask = getattr(endpoint(worker), method)
    for name, said in (
        ("w2", "this is w1; send it to scheduler.w2"),
        (None, "worker"),
        (3, "worker"),
    ):
        with pytest.raises(RequestError, match=said):
            ask(CONTEXT, name)
    assert worker.calls == []
    assert ask(CONTEXT, "w1") | {"name": "w1", "uptime_s": 1.0} == ask(CONTEXT, "w1")
    assert worker.calls == calls * 2


def test_a_busy_worker_answers_and_is_drained_without_a_slot(worker):
    methods = endpoint(worker).endpoint()
    assert methods.non_blocking == methods.methods.keys() - {"list_workers"}
