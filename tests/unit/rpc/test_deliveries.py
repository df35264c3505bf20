"""At-least-once delivery, rule by rule."""

from typing import Any

import pytest

from scheduler_worker.rpc.dispatcher import Message
from scheduler_worker.rpc.serving.deliveries import (
    MAX_ANSWERS,
    Ack,
    Begin,
    DeadLetter,
    Delivery,
    DeliveryTracker,
    Publish,
    Republish,
    Requeue,
    Work,
)
from scheduler_worker.rpc.serving.envelope import WireRequest


@pytest.fixture
def tracker() -> DeliveryTracker:
    return DeliveryTracker(max_deliveries=3)


def delivery(tag: int, name: str = "", *, call: bool = True, **fields: Any) -> Delivery:
    name = name or f"message {tag}"
    request = WireRequest(
        message=Message(method="do", id=name, is_call=call),
        call_id=f"call {name}" if call else None,
        reply_queue="caller" if call else "",
    )
    return Delivery(tag=tag, queue="topic", request=request, **fields)


def taken(tracker: DeliveryTracker, tag: int, name: str = "", **fields: Any) -> Work:
    assert not tracker.take(delivery(tag, name, **fields))
    [begin] = tracker.due()
    assert isinstance(begin, Begin)
    return begin.work


def ack(tag: int, *, multiple: bool = True) -> Ack:
    return Ack(tag, multiple)


def test_acknowledgements_are_combined_but_never_include_unfinished_messages(tracker):
    works = {tag: taken(tracker, tag, call=False) for tag in (1, 2, 3, 4, 5)}
    for tag in (2, 1, 5):
        tracker.finish(works[tag], None)
    assert tracker.due() == [ack(2), ack(5, multiple=False)]
    tracker.finish(works[4], None)
    assert tracker.due() == [ack(4, multiple=False)]
    tracker.finish(works[3], None)
    assert tracker.due() == [ack(3)]


def test_a_message_redelivered_while_in_flight_is_handled_once(tracker):
    work = taken(tracker, 1, "same")
    assert tracker.take(delivery(2, "same"))
    assert tracker.due() == []
    tracker.finish(work, b"answer")
    assert tracker.due() == [Publish("caller", b"answer"), ack(2)]


def test_a_message_redelivered_after_its_answer_gets_the_same_answer(tracker):
    tracker.finish(taken(tracker, 1, "same"), b"answer")
    tracker.due()
    tracker.connection_lost()
    assert tracker.take(delivery(1, "same", is_counted=False))
    assert tracker.due() == [Publish("caller", b"answer"), ack(1)]


def test_answers_are_remembered_within_bounds(tracker):
    for tag in range(1, MAX_ANSWERS + 3):
        tracker.finish(taken(tracker, tag), b"answer")
        tracker.due()
    tracker.take(delivery(9_999, "message 1"))
    assert isinstance(tracker.due()[0], Begin)
    tracker.take(delivery(10_000, "message 3"))
    assert isinstance(tracker.due()[0], Publish)


def test_large_answers_are_evicted_earlier(tracker):
    for tag in (1, 2, 3):
        tracker.finish(taken(tracker, tag), b"x" * 7 * 2**20)
        tracker.due()
    tracker.take(delivery(4, "message 1"))
    assert isinstance(tracker.due()[0], Begin)


def test_work_outlives_its_connection_and_is_answered(tracker):
    work = taken(tracker, 1)
    assert tracker.connection_lost() == [work]
    tracker.finish(work, b"answer")
    assert tracker.due() == [Publish("caller", b"answer")]


def test_work_answers_for_the_redelivery_on_the_next_connection(tracker):
    work = taken(tracker, 7, "same")
    tracker.connection_lost()
    tracker.take(delivery(1, "same", is_counted=False))
    assert tracker.due() == []
    tracker.finish(work, b"answer")
    assert tracker.due() == [Publish("caller", b"answer"), ack(1)]


def test_only_answers_are_kept_for_the_next_connection(tracker):
    tracker.finish(taken(tracker, 1), b"answer")
    tracker.refuse(2, "it is no JSON")
    tracker.take(delivery(3))
    tracker.connection_lost()
    assert tracker.due() == [Publish("caller", b"answer")]


def test_forgotten_work_is_begun_again_when_redelivered(tracker):
    work = taken(tracker, 1, "same")
    tracker.connection_lost()
    tracker.forget(work)
    assert taken(tracker, 1, "same") is not work


def test_an_uncounted_redelivery_is_republished_with_its_count(tracker):
    tracker.take(delivery(1, is_counted=False))
    [first] = tracker.due()
    assert first == Republish(1, 1)
    tracker.take(delivery(2, deliveries=1, is_counted=False))
    assert tracker.due() == [Republish(2, 2)]
    assert tracker.in_flight == []
    tracker.copied(first)
    assert tracker.due() == [ack(1)]


def test_a_copy_is_begun_when_its_originals_are_settled(tracker):
    tracker.take(delivery(1, "same", is_counted=False))
    tracker.take(delivery(2, "same", deliveries=1, is_counted=False))
    first, second = tracker.due()
    tracker.take(delivery(3, "same", deliveries=1))
    tracker.copied(first)
    assert tracker.due() == [ack(1)]
    tracker.not_copied(second, "406: too large")
    letter, begin = tracker.due()
    assert isinstance(letter, DeadLetter)
    assert begin == Begin(tracker.in_flight[0])


def test_a_copy_waits_for_nothing_on_the_next_connection(tracker):
    tracker.take(delivery(1, "same", is_counted=False))
    tracker.connection_lost()
    assert taken(tracker, 1, "same", deliveries=1)


def test_a_message_that_cannot_be_republished_is_dead_lettered_and_else_dropped(tracker):
    tracker.take(delivery(1, is_counted=False))
    [count] = tracker.due()
    tracker.not_copied(count, "406: too large")
    [letter] = tracker.due()
    assert isinstance(letter, DeadLetter)
    assert "406: too large" in letter.why
    tracker.not_copied(letter, "403: no")
    assert tracker.due() == [ack(1)]


def test_a_message_whose_copy_might_be_taken_later_is_requeued(tracker):
    tracker.take(delivery(1, "same", is_counted=False))
    [count] = tracker.due()
    tracker.take(delivery(2, "same", deliveries=1))
    tracker.not_copied(count, "nacked", may_pass=True)
    assert tracker.due() == [Requeue(1), Begin(tracker.in_flight[0])]


def test_the_brokers_count_needs_no_republishing(tracker):
    assert taken(tracker, 1, deliveries=3)


@pytest.mark.parametrize("counts", [{"deliveries": 4}, {"deliveries": 3, "is_counted": False}])
def test_a_message_delivered_too_often_is_dead_lettered(tracker, counts):
    tracker.take(delivery(1, **counts))
    [letter] = tracker.due()
    assert isinstance(letter, DeadLetter)
    assert "4 times" in letter.why
    assert tracker.in_flight == []
    tracker.copied(letter)
    assert tracker.due() == [ack(1)]


def test_work_that_can_never_be_done_is_dead_lettered_once(tracker):
    work = taken(tracker, 1, "same", call=False)
    tracker.take(delivery(2, "same", call=False))
    tracker.dead_letter(work, "RequestError")
    assert tracker.due() == [DeadLetter(1, "RequestError"), ack(2, multiple=False)]


def test_an_unreadable_message_is_dead_lettered(tracker):
    tracker.finish(taken(tracker, 1, call=False), None)
    tracker.refuse(2, "it is no JSON")
    assert tracker.due() == [DeadLetter(2, "it is no JSON"), ack(1)]


def test_a_message_given_back_stays_unacknowledged_until_its_copy_is_confirmed(tracker):
    first, second = taken(tracker, 1), taken(tracker, 2, deliveries=2)
    tracker.give_back(second)
    [back] = tracker.due()
    assert back == Republish(2, 2, is_given_back=True)
    tracker.finish(first, None)
    assert tracker.due() == [ack(1)]
    assert not tracker.is_settled
    tracker.copied(back)
    assert tracker.due() == [ack(2)]
    assert tracker.is_settled


def test_a_message_whose_copy_is_refused_is_requeued(tracker):
    tracker.give_back(taken(tracker, 1))
    [back] = tracker.due()
    tracker.not_copied(back, "refused")
    assert tracker.due() == [Requeue(1)]
    assert tracker.is_settled


def test_bytes_in_flight_are_those_of_unfinished_messages(tracker):
    first, second = taken(tracker, 1, size=10), taken(tracker, 2, size=5)
    assert tracker.bytes_in_flight == 15
    tracker.finish(first, None)
    tracker.give_back(second)
    assert tracker.bytes_in_flight == 0


def test_work_in_flight_can_be_retried(tracker):
    work = taken(tracker, 1, call=False)
    tracker.retry(work)
    assert tracker.due() == [Begin(work)]
    tracker.finish(work, None)
    tracker.due()
    tracker.retry(work)
    assert tracker.due() == []


def test_work_given_back_before_it_began_is_not_begun(tracker):
    tracker.take(delivery(1))
    tracker.give_back(tracker.in_flight[0])
    assert tracker.due() == [Republish(1, 0, is_given_back=True)]
