"""What the broker did not take is sent again, for a while and within bounds."""

import itertools
from typing import Any

import pytest

from scheduler_worker.observer import Observer
from scheduler_worker.rpc.serving import undelivered
from scheduler_worker.rpc.serving.connection import PublishOutcome
from scheduler_worker.rpc.serving.deliveries import Copy, DeadLetter, Publish, Republish
from scheduler_worker.rpc.serving.undelivered import MAX_BYTES, Undelivered
from tests.support.clock import ManualLoop


class Sender:
    def __init__(self) -> None:
        self.sent: list[Publish | Copy] = []
        self.is_away = False

        self.extra = 0
        self.given_up: list[tuple[Copy, PublishOutcome]] = []

    def send(self, message: Publish | Copy) -> bool:
        if not self.is_away:
            self.sent.append(message)
        return not self.is_away

    def take_more(self, number: int) -> None:
        self.extra += number

    def give_up(self, *copy: Any) -> None:
        self.given_up.append(copy)


@pytest.fixture
def timers(monkeypatch) -> ManualLoop:
    loop = ManualLoop()
    monkeypatch.setattr(undelivered, "time", loop)
    return loop


def undelivered_messages(timers: Any, sender: Sender) -> Undelivered:
    return Undelivered(
        timers,
        sender.send,
        sender.give_up,
        sender.take_more,
        remaining_s=60.0,
        observer=Observer(),
    )


@pytest.mark.parametrize(
    ("message", "outcome"),
    [
        (Publish("gone", b"body"), PublishOutcome.UNROUTABLE),
        (Publish("hangs", b"body"), PublishOutcome.NACKED),
        (Republish(1, 2), PublishOutcome.NACKED),
        (DeadLetter(1, "bad"), PublishOutcome.UNROUTABLE),
    ],
    ids=str,
)
def test_what_is_not_taken_is_sent_at_growing_intervals_and_given_up_in_the_end(
    timers, message, outcome
):
    sender = Sender()
    messages = undelivered_messages(timers, sender)
    messages.not_taken(message, outcome)
    assert sender.extra == (not isinstance(message, Publish))
    seconds: list[int] = []
    for second in range(100):
        timers.pass_s(1.0)
        if len(sender.sent) > len(seconds):
            seconds.append(second)
            messages.not_taken(message, outcome)
        if not messages._kept:
            break
    intervals = [after - before for before, after in itertools.pairwise(seconds)]
    assert intervals == sorted(intervals)
    assert 4 <= len(seconds) <= 10
    assert second in range(60, 64)
    assert sender.given_up == ([] if isinstance(message, Publish) else [(message, outcome)])
    assert sender.extra == 0


def test_kept_answers_are_bounded_by_bytes_and_the_oldest_are_dropped_first(timers):
    sender = Sender()
    messages = undelivered_messages(timers, sender)
    size = 900_000
    for number in range(1_500):
        answer = Publish("gone", number.to_bytes(4, "big") * (size // 4))
        messages.not_taken(answer, PublishOutcome.UNROUTABLE)
    assert MAX_BYTES - size < messages.size <= MAX_BYTES
    timers.pass_s(1.0)
    assert sender.sent[-1] == answer


def test_a_delivered_answer_is_not_kept(timers):
    messages = undelivered_messages(timers, Sender())
    messages.not_taken(Publish("hangs", b"body"), PublishOutcome.NACKED)
    assert messages.has_nacked
    messages.settled(Publish("hangs", b"body"))
    assert (messages._kept, messages.size, messages.has_nacked) == ({}, 0, False)


def test_unconfirmed_answers_are_sent_on_the_next_connection_and_copies_are_not(timers):
    sender = Sender()
    sender.is_away = True
    messages = undelivered_messages(timers, sender)
    messages.not_taken(Republish(1, 2), PublishOutcome.NACKED)
    messages.connection_lost([Publish("caller", b"body")])
    timers.pass_s(5.0)
    assert (sender.sent, sender.extra) == ([], 0)
    sender.is_away = False
    timers.pass_s(5.0)
    assert sender.sent == [Publish("caller", b"body")]
