"""Outcomes of publishing: confirmed, returned or refused, and over which message."""

from struct import pack

import pytest

from scheduler_worker.rpc.amqp import frames
from scheduler_worker.rpc.amqp.publisher import ConfirmingPublisher, Publication
from scheduler_worker.rpc.serving.connection import PublishOutcome

CHANNEL = 2
REFUSAL = pack(">HB", 406, 9) + b"too large" + pack(">HH", *frames.BASIC_PUBLISH)
NOT_FOUND = pack(">HB", 404, 4) + b"gone" + pack(">HH", 50, 10)


class Broker:
    """Reads what was written, and refuses the bodies in ``bad``."""

    def __init__(self, bad: set[bytes]) -> None:
        self.bad = bad
        self.outcomes: dict[bytes, tuple[PublishOutcome, str]] = {}
        self.published: list[bytes] = []
        self.reopened = 0
        self._open: list[bytes] = []
        self.publisher = ConfirmingPublisher(CHANNEL, 4096, self._write)

    def put(self, *bodies: bytes, queue: str = "caller") -> None:
        for each in bodies:
            self.publisher.publish(
                Publication(
                    queue,
                    frames.ANSWER,
                    each,
                    lambda _, *outcome, each=each: self._done(each, outcome),
                )
            )

    def _done(self, body: bytes, outcome: tuple[PublishOutcome, str]) -> None:
        assert body not in self.outcomes, "reported twice"
        self.outcomes[body] = outcome

    def _write(self, written: bytes) -> None:
        inbox = bytearray(written)
        for kind, channel, payload in frames.taken_from(inbox):
            assert channel == CHANNEL
            if kind == frames.BODY:
                self.published.append(payload)
                self._open.append(payload)
            elif kind == frames.METHOD and payload[:4] == pack(">HH", *frames.CHANNEL_CLOSE_OK):
                self.reopened += 1
                self._open = []

    def confirm(self, number: int, *, multiple: bool = False, is_ack: bool = True) -> None:
        method = frames.BASIC_ACK if is_ack else frames.BASIC_NACK
        assert self.publisher.received(method, pack(">QB", number, multiple))

    def work(self) -> None:
        """Confirm or refuse in order, until nothing is published any more."""
        while self._open:
            for number, body in enumerate(self._open, 1):
                if body in self.bad:
                    self.publisher.received(frames.CHANNEL_CLOSE, REFUSAL)
                    break
                if body not in self.outcomes:
                    self.confirm(number)
            else:
                return


def test_a_nack_says_that_the_broker_may_take_it_later():
    broker = Broker(set())
    broker.put(b"1", b"2", b"3")
    broker.confirm(2, multiple=True)
    assert set(broker.outcomes) == {b"1", b"2"}
    assert [each.body for each in broker.publisher.pending] == [b"3"]
    broker.confirm(3, is_ack=False)
    assert broker.outcomes[b"3"][0] is PublishOutcome.NACKED


def test_a_message_returned_before_its_confirmation_is_unroutable():
    broker = Broker(set())
    broker.put(b"same", queue="one")
    broker.put(b"other", queue="two")
    broker.publisher.returned("two", b"other")
    broker.confirm(2, multiple=True)
    assert broker.outcomes[b"same"][0] is PublishOutcome.CONFIRMED
    assert broker.outcomes[b"other"][0] is PublishOutcome.UNROUTABLE


@pytest.mark.parametrize("bad", [{b"3"}, {b"1", b"2"}, {b"1", b"4", b"5"}, set()])
def test_the_message_that_closes_the_channel_is_found_and_the_others_arrive(bad):
    broker = Broker(bad)
    broker.put(b"1", b"2", b"3", b"4", b"5")
    broker.work()
    assert {
        body for body, (outcome, _) in broker.outcomes.items() if outcome is PublishOutcome.REFUSED
    } == bad
    assert all(why == "406: too large" for outcome, why in broker.outcomes.values() if why)
    assert len(broker.outcomes) == 5
    assert broker.publisher.pending == []
    assert broker.reopened >= len(bad)


def test_messages_published_during_the_search_wait():
    broker = Broker({b"bad"})
    broker.put(b"1", b"bad")
    broker.publisher.received(frames.CHANNEL_CLOSE, REFUSAL)
    broker.put(b"late")
    assert broker.published[-1] == b"1", "alone"
    broker.work()
    assert broker.outcomes[b"late"][0] is PublishOutcome.CONFIRMED
    assert broker.outcomes[b"bad"][0] is PublishOutcome.REFUSED


def test_a_channel_closed_for_another_reason_loses_no_message():
    broker = Broker(set())
    broker.put(b"1")
    broker.publisher.received(frames.CHANNEL_CLOSE, NOT_FOUND)
    broker.work()
    assert broker.outcomes[b"1"][0] is PublishOutcome.CONFIRMED


def test_a_name_that_amqp_cannot_carry_is_refused_at_once():
    broker = Broker(set())
    broker.put(b"1", queue="n" * 300)
    assert broker.outcomes[b"1"][0] is PublishOutcome.REFUSED
    assert broker.published == []
