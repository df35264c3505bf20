"""Our own door: what a cast asks for reaches the use cases, and its answer is cast back."""

from contextlib import contextmanager

import pytest

from scheduler_worker.errors import BusUnavailable, Undeliverable
from scheduler_worker.pauses import complete
from scheduler_worker.ports import Publisher
from scheduler_worker.rpc.contract import Context
from scheduler_worker.rpc.nova import NovaDoor
from scheduler_worker.rpc.worker import WorkerDoor
from tests.support.services import World, host

SPEC = {"flavor": {"vcpus": 1, "memory_mb": 1024}, "num_instances": 1}
ASKED = {"spec_obj": SPEC, "instance_uuids": ["i1"], "reply_to": {"topic": "conductor"}}


class Casts(Publisher):
    """Keeps what is published."""

    def __init__(self) -> None:
        self.sent: list[dict] = []
        self.broken: Exception | None = None

    def cast(self, **sent) -> None:
        if self.broken:
            raise self.broken
        self.sent.append(sent)


class Spy:
    """A scheduler that remembers how it was asked."""

    def __init__(self, world: World) -> None:
        self._scheduler = world.scheduler
        self.asked: list[tuple] = []

    async def selecting(self, request, **how):
        self.asked.append((request, how))
        return await self._scheduler.selecting(request, **how)

    def __getattr__(self, name):
        return getattr(self._scheduler, name)


@pytest.fixture
def world() -> World:
    world = World()
    world.report(host("a"))
    return world


@pytest.fixture
def spy(world) -> Spy:
    return Spy(world)


@pytest.fixture
def casts() -> Casts:
    return Casts()


@pytest.fixture
def door(world, spy, casts) -> WorkerDoor:
    return WorkerDoor(spy, world.inventory, world.listing, casts)


@contextmanager
def aside():
    yield


def test_a_cast_is_answered_by_a_cast(door, casts):
    complete(door.request_destinations(Context(request_id="r"), **ASKED))
    [sent] = casts.sent
    assert (sent["topic"], sent["method"]) == ("conductor", "destinations_selected")
    [[chosen]] = sent["arguments"]["selections"]
    assert chosen["nova_object.data"]["service_host"] == "a"


def test_priority_deadline_and_stepping_aside_reach_the_scheduler(door, spy):
    context = Context(request_id="r", step_aside=aside)
    complete(door.request_destinations(context, **ASKED, priority=7, deadline_s=3))
    [(request, how)] = spy.asked
    assert request.priority == 7
    assert how == {"patience_s": 3.0, "step_aside": aside}


def test_a_nova_call_steps_aside_too(world, spy):
    context = Context(request_id="r", patience_s=4.0, step_aside=aside)
    nova = NovaDoor(spy, world.inventory)
    complete(nova.select_destinations(context, spec_obj=SPEC, instance_uuids=["i1"]))
    [(_, how)] = spy.asked
    assert how == {"patience_s": 4.0, "step_aside": aside}


@pytest.mark.parametrize("bad", [101, -101, 1.5, "5", True])
def test_a_priority_out_of_bounds_is_refused(door, casts, world, bad):
    complete(door.request_destinations(Context(request_id="r"), **ASKED, priority=bad))
    [sent] = casts.sent
    assert sent["arguments"]["error"]["type"] == "RequestError"
    assert "priority: expected an integer" in sent["arguments"]["error"]["message"]
    assert world.promised() == {}


def test_what_nobody_listens_to_is_given_back(door, casts, world):
    casts.broken = Undeliverable("nobody listens")
    with pytest.raises(Undeliverable):
        complete(door.request_destinations(Context(request_id="r"), **ASKED))
    assert world.promised() == {}
    assert world.scheduler.unanswered() == []


def test_what_may_have_been_answered_is_kept_for_the_next_try(door, casts, world):
    casts.broken = BusUnavailable("away")
    with pytest.raises(BusUnavailable):
        complete(door.request_destinations(Context(request_id="r"), **ASKED))
    promised = world.promised()
    assert promised != {}
    casts.broken = None
    complete(door.request_destinations(Context(request_id="r"), **ASKED))
    assert world.promised() == promised
