"""Our own RPC methods: a cast reaches the use cases, and its answer is cast back."""

from contextlib import contextmanager
from typing import Any

import pytest
from msgspec import structs

from scheduler_worker.errors import (
    BusUnavailable,
    NobodyListens,
    NoValidHost,
    RequestError,
    Undeliverable,
    WorkerStops,
)
from scheduler_worker.model.providers import Owner
from scheduler_worker.rpc.dispatcher import Context
from scheduler_worker.rpc.nova import NovaEndpoint
from scheduler_worker.rpc.worker import WorkerEndpoint
from scheduler_worker.waiters import complete
from tests.support.balancers import NotingPublisher, Scenario, power_saving
from tests.support.services import World, host

SPEC = {"flavor": {"vcpus": 1, "memory_mb": 1024}, "num_instances": 1}
REQUEST: dict[str, Any] = {
    "spec_obj": SPEC,
    "instance_uuids": ["i1"],
    "reply_to": {"topic": "conductor"},
}


BALANCER: Any = None
"""Nothing is balanced here."""


class SchedulerSpy:
    """A scheduler that records the requests it gets."""

    def __init__(self, world: World) -> None:
        self._scheduler = world.scheduler
        self.requests: list[tuple] = []

    async def selecting(self, request, **options):
        self.requests.append((request, options))
        return await self._scheduler.selecting(request, **options)

    async def selecting_once(self, fingerprint, request, **options):
        self.requests.append((request, options))
        return await self._scheduler.selecting_once(fingerprint, request, **options)

    def __getattr__(self, name):
        return getattr(self._scheduler, name)


@pytest.fixture
def world() -> World:
    world = World()
    world.report(host("a"))
    return world


@pytest.fixture
def spy(world) -> SchedulerSpy:
    return SchedulerSpy(world)


@pytest.fixture
def publisher() -> NotingPublisher:
    return NotingPublisher()


@pytest.fixture
def endpoint(world, spy, publisher) -> WorkerEndpoint:
    return WorkerEndpoint(spy, world.inventory, BALANCER, publisher)


@contextmanager
def yielding():
    yield


def test_a_cast_is_answered_by_a_cast(endpoint, publisher, world):
    complete(endpoint.request_destinations(Context(request_id="r"), **REQUEST))
    [sent] = publisher.sent
    assert (sent["topic"], sent["method"]) == ("conductor", "destinations_selected")
    [[chosen]] = sent["arguments"]["selections"]
    assert chosen["nova_object.data"]["service_host"] == "a"
    assert sent["arguments"]["request_id"] == "r"
    assert world.scheduler.unanswered() == []


def test_what_is_asked_the_caller_and_the_slot_reach_the_scheduler(endpoint, spy):
    caller = Context(request_id="x", project_id="p", user_id="u", traceparent="t")
    context = structs.replace(caller, yield_slot=yielding)
    asked = {"request_id": "r", "priority": 7, "deadline_s": 3}
    complete(endpoint.request_destinations(context, **REQUEST, **asked))
    [(request, options)] = spy.requests
    assert (request.request_id, request.priority, request.traceparent) == ("r", 7, "t")
    assert request.owner == Owner("p", "u")
    assert options == {"remaining_s": 3.0, "yield_slot": yielding}


def test_timeout_and_slot_of_a_nova_call_reach_the_scheduler(world, spy):
    context = Context(request_id="r", remaining_s=4.0, yield_slot=yielding)
    nova = NovaEndpoint(spy, world.inventory)
    complete(nova.select_destinations(context, spec_obj=SPEC, instance_uuids=["i1"]))
    [(_, options)] = spy.requests
    assert options == {"remaining_s": 4.0, "yield_slot": yielding}


@pytest.mark.parametrize("bad", [101, -101, 1.5, "5", True])
def test_a_priority_out_of_bounds_is_refused(endpoint, publisher, world, bad):
    complete(endpoint.request_destinations(Context(request_id="r"), **REQUEST, priority=bad))
    [sent] = publisher.sent
    assert sent["arguments"]["error"]["type"] == "RequestError"
    assert "priority: expected an integer" in sent["arguments"]["error"]["message"]
    assert world.reserved() == {}


@pytest.mark.parametrize("field", ["topic", "exchange", "server"])
def test_an_answer_that_no_broker_carries_is_refused_before_the_decision(endpoint, world, field):
    reply_to = {**REQUEST["reply_to"], field: "ä" * 128}
    with pytest.raises(RequestError, match=r"reply_to: .* a name of 2\d\d bytes; AMQP carries 255"):
        complete(endpoint.request_destinations(Context(), **REQUEST | {"reply_to": reply_to}))
    assert world.reserved() == {}


@pytest.mark.parametrize(
    ("failure", "may_retry"),
    [(Undeliverable("too large"), True), (NobodyListens("no queue"), False)],
    ids=lambda each: type(each).__name__,
)
def test_an_answer_that_never_arrives_gives_its_reservations_back(
    endpoint, publisher, world, failure, may_retry
):
    publisher.failure = failure
    context = Context(request_id="r", may_retry=may_retry)
    with pytest.raises(Undeliverable):
        complete(endpoint.request_destinations(context, **REQUEST))
    assert world.reserved() == {}
    assert world.scheduler.unanswered() == []


@pytest.mark.parametrize(
    "failure",
    [BusUnavailable("away"), NobodyListens("no queue")],
    ids=lambda each: type(each).__name__,
)
def test_reservations_are_kept_while_the_answer_may_arrive(endpoint, publisher, world, failure):
    publisher.failure = failure
    with pytest.raises(BusUnavailable):
        complete(endpoint.request_destinations(Context(request_id="r", may_retry=True), **REQUEST))
    reserved = world.reserved()
    assert reserved != {}
    publisher.failure = None
    complete(endpoint.request_destinations(Context(request_id="r"), **REQUEST))
    assert world.reserved() == reserved


def test_a_waiting_request_is_left_to_another_worker_when_its_own_stops(publisher):
    world = World(wait_timeout_s=10.0)
    world.report(host("a"))
    endpoint = endpoint_of(world, publisher)
    world.place("other", vcpus=4)
    world.scheduler.stop_waiting()
    with pytest.raises(WorkerStops):
        complete(endpoint.request_destinations(Context(request_id="r"), **BIG))
    assert publisher.sent == []
    assert world.reserved() == {"a": ["other"]}


BIG = REQUEST | {"spec_obj": {"flavor": {"vcpus": 4, "memory_mb": 1024}, "num_instances": 1}}


def answered(publisher: NotingPublisher) -> list[str]:
    """The host, or the error, of each answer."""
    found = []
    for each in publisher.sent:
        answer = each["arguments"]
        if "error" in answer:
            found.append(answer["error"]["type"])
        else:
            found.append(answer["selections"][0][0]["nova_object.data"]["service_host"])
    return found


def endpoint_of(world: World, publisher: NotingPublisher) -> WorkerEndpoint:
    return WorkerEndpoint(world.scheduler, world.inventory, BALANCER, publisher)


def test_copies_of_a_request_get_the_same_refusal(world, publisher):
    first, second = world, world.beside()
    context = Context(request_id="r")
    world.place("other", vcpus=4)
    complete(endpoint_of(first, publisher).request_destinations(context, **BIG))
    world.inventory.release(["other"])
    complete(endpoint_of(second, publisher).request_destinations(context, **BIG))
    assert answered(publisher) == ["NoValidHost", "NoValidHost"]
    diagnosis = publisher.sent[0]["arguments"]["error"]["diagnosis"]
    assert diagnosis["filters"][-1]["hosts_out"] == 0
    assert world.reserved() == {}
    complete(
        endpoint_of(second, publisher).request_destinations(Context(request_id="another"), **BIG)
    )
    assert answered(publisher)[2:] == ["a"]


def test_a_copy_that_is_refused_answers_with_the_hosts_of_another_copy(
    world, publisher, monkeypatch
):
    first, second = world, world.beside()
    context, select = Context(request_id="r"), first.scheduler._queues.decide

    async def refused_and_overtaken(*arguments, **options):
        monkeypatch.setattr(first.scheduler._queues, "decide", select)
        world.place("other", vcpus=4)
        with pytest.raises(NoValidHost) as refused:
            await select(*arguments, **options)
        world.inventory.release(["other"])
        await endpoint_of(second, publisher).request_destinations(context, **BIG)
        raise refused.value

    monkeypatch.setattr(first.scheduler._queues, "decide", refused_and_overtaken)
    complete(endpoint_of(first, publisher).request_destinations(context, **BIG))
    assert answered(publisher) == ["a", "a"]
    assert world.reserved() == {"a": ["i1"]}


def test_a_refusal_is_remembered_for_a_limited_time(world, publisher):
    world.place("other", vcpus=4)
    for _ in range(2):
        complete(endpoint_of(world, publisher).request_destinations(Context(request_id="r"), **BIG))
        world.inventory.release(["other"])
        world.clock.advance(world.limits.remember_answers_s + 1)
        world.report({"host": "a"})
    assert answered(publisher) == ["NoValidHost", "a"]


# What agents report of migrations and power actions


@pytest.fixture
def scenario() -> Scenario:
    return Scenario()


@pytest.fixture
def reporting(scenario) -> WorkerEndpoint:
    """Nothing is published by it."""
    world = scenario.world
    publisher: Any = None
    return WorkerEndpoint(world.scheduler, world.inventory, scenario.balancer, publisher)


def test_an_agent_reports_how_far_a_migration_is(scenario, reporting):
    scenario.round()
    [asked] = scenario.target.asked
    names = {"cluster": "default", "migration": asked.id}
    assert reporting.report_migration(Context(), **names, state="started", destination="b") is True
    [under_way] = scenario.balancing.status("default").under_way
    assert (under_way.id, under_way.destination) == (asked.id, "b")
    assert reporting.report_migration(Context(), **names, state="failed", reason="x" * 5000) is True
    assert reporting.report_migration(Context(), **names, state="done") is False
    assert len(scenario.balancing.status("default").waiting["v2"].why) == 1000


@pytest.mark.parametrize(
    ("method", "arguments", "complaint"),
    [
        ("report_migration", {"migration": "m", "state": "lost"},
         "state: expected one of started, done, refused, failed, got 'lost'"),
        ("report_migration", {"state": "done"}, "migration"),
        ("report_migration", {"migration": "m", "state": ["done"]}, "state"),
        ("report_migration", {"migration": "m", "state": "failed", "reason": 1},
         "reason: expected a text, got int"),
        ("report_migration", {"migration": "m", "state": "started", "destination": []},
         "destination"),
        ("report_power", {"state": "done"}, "action"),
        ("report_power", {"cluster": "x", "action": "p", "state": "done"}, "no cluster 'x'"),
        ("report_power", {"action": "p", "state": "up"},
         "state: expected one of started, done, refused, failed, got 'up'"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(reporting, method, arguments, complaint):
    with pytest.raises(RequestError, match=complaint):
        getattr(reporting, method)(Context(), **{"cluster": "default"} | arguments)


def test_an_agent_reports_how_far_a_power_action_is(scenario, reporting):
    scenario.attach(power_saving())
    for name in ("c", "d"):
        scenario.put(name)
        scenario.hosts[name]["power"] = {"is_managed": True}
    scenario.round()
    [asked] = scenario.power.asked
    names = {"cluster": "default", "action": asked.id}
    assert reporting.report_power(Context(), **names, state="started") is True
    assert scenario.balancing.status("default").power_under_way.begun_at_s is not None
    assert reporting.report_power(Context(), **names, state="failed", reason="stuck") is True
    assert reporting.report_power(Context(), **names, state="done") is False
    assert scenario.balancing.status("default").power_waiting[asked.host].why == "stuck"
