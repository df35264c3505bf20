"""The state of one worker, and its drain."""

from typing import Any

import pytest

from scheduler_worker.errors import Forbidden, RequestError
from scheduler_worker.model.worker_reports import WorkerFacts
from scheduler_worker.operations import OPERATIONS
from scheduler_worker.operations.callers import Caller, Grant
from scheduler_worker.operations.workers import drain_worker, get_worker, resume_worker
from tests.support.services import World


class Drainable:
    """A worker without a server."""

    facts = WorkerFacts(name="w1", version="1", topic="scheduler")
    tuner: Any = None

    def __init__(self) -> None:
        self.calls: list[str] = []

    def status(self):
        return {
            "uptime_s": 1.0, "missing": [], "holds": {"leases": ["east"]},
            "bus": {"running": 0, "waiting": 0}, "clusters": {}, "feed_lag_s": {},
        }  # fmt: skip

    def drain(self) -> None:
        self.calls.append("drain")

    def resume(self) -> None:
        self.calls.append("resume")


@pytest.mark.parametrize(
    ("operation", "calls"),
    [(get_worker, []), (drain_worker, ["drain"]), (resume_worker, ["resume"])],
)
def test_a_worker_answers_with_its_state_and_only_when_it_is_named(operation, calls):
    world, worker = World(), Drainable()
    services = world.services._replace(worker=worker)
    for name, said in ("w2", "this is w1; send it to scheduler.w2"), (3, "worker"):
        with pytest.raises(RequestError, match=said):
            world.call(operation, worker=name, services=services)
    assert worker.calls == []
    found = world.call(operation, worker="w1", services=services)
    assert (found.name, found.state, found.holds.leases) == ("w1", "serving", ("east",))
    assert worker.calls == calls


def test_who_may_only_read_drains_nobody():
    world, worker = World(), Drainable()
    services = world.services._replace(worker=worker)
    reader = Caller("bert", (Grant("reader"),), "RPC")
    with pytest.raises(Forbidden, match="no right to worker:drain"):
        world.call(drain_worker, worker="w1", services=services, caller=reader)
    assert worker.calls == []
    [entry] = world.audited()
    assert (entry.user, entry.result, entry.action) == ("bert", "refused", "worker:drain")


def test_every_operation_of_one_worker_names_it():
    of_one = [each for each in OPERATIONS if each.home == "worker"]
    assert of_one
    assert all([field.name for field in each.fields] == ["worker"] for each in of_one)
