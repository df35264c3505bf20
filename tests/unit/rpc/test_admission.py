"""Which calls are admitted, and when the delay of the queue is measured."""

import pytest

from scheduler_worker.rpc.dispatcher import Message
from scheduler_worker.rpc.serving import admission
from scheduler_worker.rpc.serving.admission import Admission
from scheduler_worker.rpc.serving.envelope import WireRequest
from tests.support.clock import ManualLoop

LIMIT = 3


class Stage(ManualLoop):
    """A loop, a connection and a clock, all driven by the test."""

    is_blocked = False

    def __init__(self) -> None:
        super().__init__()
        self.in_flight = 0
        self.pings: list[str] = []

    def ping(self, name: str) -> bool:
        self.pings.append(name)
        return True


@pytest.fixture
def stage(monkeypatch) -> Stage:
    stage = Stage()
    monkeypatch.setattr(admission, "time", stage)
    return stage


@pytest.fixture
def admitting(stage) -> Admission:
    made = Admission(stage, "topic", in_flight=lambda: stage.in_flight, limit=LIMIT)
    made.use(stage)
    return made


def call(remaining_s: float = 10.0, name: str = "call") -> WireRequest:
    return WireRequest(message=Message(method="do", id=name, is_call=True), remaining_s=remaining_s)


def fill(stage: Stage, admitting: Admission) -> None:
    for _ in range(LIMIT):
        assert admitting.admits(admitting.received(call(), "topic"))
        stage.in_flight += 1


def test_nothing_is_measured_while_slots_are_free(stage, admitting):
    for _ in range(LIMIT - 1):
        assert admitting.admits(call())
        stage.in_flight += 1
    stage.pass_s(10.0)
    assert stage.pings == []


def test_nothing_is_measured_without_calls_that_time_out(stage, admitting):
    stage.in_flight = LIMIT - 1
    assert admitting.admits(admitting.received(call(float("inf")), "topic"))
    stage.in_flight = LIMIT
    stage.pass_s(10.0)
    assert stage.pings == []


def test_the_delay_is_measured_while_no_slot_is_free(stage, admitting):
    fill(stage, admitting)
    stage.pass_s(0.5)
    pinged = len(stage.pings)
    assert pinged >= 4
    admitting.finished(dropped=False)
    stage.in_flight -= 1
    stage.pass_s(10.0)
    assert len(stage.pings) <= pinged + 2


def test_the_queue_delay_is_subtracted_from_the_callers_patience(stage, admitting):
    fill(stage, admitting)
    admitting.ping_confirmed(stage.pings[0])
    stage.pass_s(3.0)
    assert admitting.received(call(10.0), "topic").remaining_s == pytest.approx(10 - 0.5 - 3)
    assert admitting.received(call(1.0), "topic").remaining_s == pytest.approx(1 - 0.1 - 3)
    assert admitting.received(call(10.0), "topic.me").remaining_s == 10.0
    assert admitting.received(call(float("inf")), "topic").remaining_s == float("inf")


def test_a_new_connection_starts_a_new_measurement(stage, admitting):
    fill(stage, admitting)
    admitting.ping_confirmed(stage.pings[0])
    admitting.use(None)
    stage.pass_s(3.0)
    assert len(stage.pings) == 1
    admitting.use(stage)
    assert admitting.received(call(10.0), "topic").remaining_s == pytest.approx(9.5)
    stage.pass_s(0.2)
    assert len(stage.pings) > 1


def test_a_call_that_cannot_be_finished_in_time_is_dropped_and_starts_the_measurement(
    stage, admitting
):
    assert admitting.admits(admitting.received(call(), "topic"))
    stage.in_flight = 1
    for _ in range(4):
        stage.pass_s(2.0)
        admitting.finished(dropped=False)
    assert not admitting.admits(call(3.9))
    assert stage.pings, "more such calls may wait in the queue"
    assert admitting.admits(call(4.1))
    assert admitting.admits(WireRequest(message=Message(method="do", id="cast")))
    stage.in_flight = 0
    assert admitting.admits(call(0.1)), "an idle worker may as well try"
    assert not admitting.admits(call(0.0))
