"""At-least-once delivery, rule by rule."""

from __future__ import annotations

import pytest

from scheduler_worker.rpc.amqp.envelope import Request
from scheduler_worker.rpc.amqp.ledger import (
    REMEMBERED,
    Ack,
    Begin,
    Bury,
    Delivery,
    Ledger,
    Publish,
    Recount,
    Requeue,
    Work,
)
from scheduler_worker.rpc.dispatcher import Message


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(max_deliveries=3)


def delivery(tag: int, name: str = "", *, call: bool = True, **told: object) -> Delivery:
    name = name or f"message {tag}"
    request = Request(
        message=Message(method="do", id=name, is_call=call),
        call_id=f"call {name}" if call else None,
        reply_queue="caller" if call else "",
    )
    return Delivery(tag=tag, queue="topic", request=request, **told)


def taken(ledger: Ledger, tag: int, name: str = "", **told: object) -> Work:
    ledger.take(delivery(tag, name, **told))
    [begin] = ledger.due()
    assert isinstance(begin, Begin)
    return begin.work


def ack(tag: int, *, multiple: bool = True) -> Ack:
    return Ack(tag, multiple)


def test_nothing_is_acknowledged_before_it_is_done(ledger):
    work = taken(ledger, 1)
    assert ledger.due() == []
    ledger.finish(work, b"answer")
    assert ledger.due() == [Publish("caller", b"answer"), ack(1)]
    assert (ledger.due(), ledger.in_hand) == ([], [])


def test_a_cast_is_acknowledged_without_an_answer(ledger):
    ledger.finish(taken(ledger, 1, call=False), None)
    assert ledger.due() == [ack(1)]


def test_acknowledgements_go_together_but_never_over_what_is_not_done(ledger):
    works = {tag: taken(ledger, tag, call=False) for tag in (1, 2, 3, 4, 5)}
    for tag in (2, 1, 5):
        ledger.finish(works[tag], None)
    assert ledger.due() == [ack(2), ack(5, multiple=False)]
    ledger.finish(works[4], None)
    assert ledger.due() == [ack(4, multiple=False)]
    ledger.finish(works[3], None)
    assert ledger.due() == [ack(3)]


def test_a_message_that_comes_again_while_in_hand_is_worked_on_once(ledger):
    work = taken(ledger, 1, "same")
    ledger.take(delivery(2, "same"))
    assert ledger.due() == []
    assert ledger.repeated == 1
    ledger.finish(work, b"answer")
    assert ledger.due() == [Publish("caller", b"answer"), ack(2)]


def test_a_message_that_comes_again_after_its_answer_gets_the_same(ledger):
    ledger.finish(taken(ledger, 1, "same"), b"answer")
    ledger.due()
    ledger.lost()
    ledger.take(delivery(1, "same", is_counted=False))
    assert ledger.due() == [Publish("caller", b"answer"), ack(1)]
    assert ledger.repeated == 1


def test_answers_are_remembered_within_bounds(ledger):
    for tag in range(1, REMEMBERED + 3):
        ledger.finish(taken(ledger, tag), b"answer")
        ledger.due()
    ledger.take(delivery(9_999, "message 1"))
    assert isinstance(ledger.due()[0], Begin)
    ledger.take(delivery(10_000, "message 3"))
    assert isinstance(ledger.due()[0], Publish)


def test_large_answers_are_forgotten_earlier(ledger):
    for tag in (1, 2, 3):
        ledger.finish(taken(ledger, tag), b"x" * 7 * 2**20)
        ledger.due()
    ledger.take(delivery(4, "message 1"))
    assert isinstance(ledger.due()[0], Begin)


def test_work_whose_message_went_elsewhere_answers_nobody(ledger):
    work = taken(ledger, 1)
    assert ledger.lost() == [work]
    ledger.finish(work, b"answer")
    assert ledger.due() == []


def test_work_that_was_begun_answers_for_the_delivery_on_the_next_connection(ledger):
    work = taken(ledger, 7, "same")
    ledger.lost()
    ledger.take(delivery(1, "same", is_counted=False))
    assert ledger.due() == []
    ledger.finish(work, b"answer")
    assert ledger.due() == [Publish("caller", b"answer"), ack(1)]


def test_what_was_owed_to_a_lost_connection_is_not_owed_to_the_next(ledger):
    ledger.finish(taken(ledger, 1), b"answer")
    ledger.lost()
    assert ledger.due() == []


def test_what_was_not_begun_is_forgotten_and_taken_anew(ledger):
    work = taken(ledger, 1, "same")
    ledger.lost()
    ledger.forget(work)
    assert taken(ledger, 1, "same") is not work


def test_a_second_delivery_is_counted_in_the_message_itself(ledger):
    ledger.take(delivery(1, is_counted=False))
    assert ledger.due() == [Recount(1, "topic", 1), ack(1)]
    ledger.take(delivery(2, deliveries=1, is_counted=False))
    assert ledger.due() == [Recount(2, "topic", 2), ack(2)]
    assert ledger.in_hand == []


def test_the_brokers_count_is_taken_as_it_is(ledger):
    assert taken(ledger, 1, deliveries=3)


@pytest.mark.parametrize("told", [{"deliveries": 4}, {"deliveries": 3, "is_counted": False}])
def test_what_is_delivered_too_often_goes_to_the_dead_letters(ledger, told):
    ledger.take(delivery(1, **told))
    buried, acknowledged = ledger.due()
    assert isinstance(buried, Bury)
    assert "4 times" in buried.why
    assert acknowledged == ack(1)
    assert ledger.in_hand == []


def test_work_that_can_never_be_done_is_buried_once(ledger):
    work = taken(ledger, 1, "same", call=False)
    ledger.take(delivery(2, "same", call=False))
    ledger.bury(work, "RequestError")
    assert ledger.due() == [Bury(1, "topic", "RequestError"), ack(2)]


def test_a_message_nobody_can_read_is_buried(ledger):
    ledger.refuse(1, "topic", "it is no JSON")
    assert ledger.due() == [Bury(1, "topic", "it is no JSON"), ack(1)]


def test_what_is_given_back_is_not_acknowledged(ledger):
    first, second = taken(ledger, 1), taken(ledger, 2)
    ledger.give_back(second)
    assert ledger.due() == [Requeue(2)]
    ledger.finish(first, None)
    assert ledger.due() == [ack(1)]


def test_work_may_be_begun_again_while_it_is_in_hand(ledger):
    work = taken(ledger, 1, call=False)
    ledger.retry(work)
    assert ledger.due() == [Begin(work)]
    ledger.finish(work, None)
    ledger.due()
    ledger.retry(work)
    assert ledger.due() == []


def test_what_is_given_back_before_it_was_begun_is_not_begun(ledger):
    ledger.take(delivery(1))
    ledger.give_back(ledger.in_hand[0])
    assert ledger.due() == [Requeue(1)]
