"""The ``local:`` driver; what it shares with RabbitMQ is tested in ``tests/contract``."""

import gc
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from oslo_config import cfg

from scheduler_worker.rpc import local, transport
from scheduler_worker.rpc.local import LocalDriver
from scheduler_worker.rpc.serving.connection import Listener, PublishOutcome
from scheduler_worker.rpc.serving.deliveries import Ack, DeadLetter, Delivery, Republish, Requeue
from scheduler_worker.rpc.serving.envelope import (
    WireRequest,
    decode,
    encode_answer,
    encode_heartbeat,
)
from scheduler_worker.rpc.serving.settings import QueueNames

# isort: split
import oslo_messaging

from tests.support.patience import NEVER_S, SOON_S, TooSoon, eventually, growing
from tests.support.threads import in_thread


@pytest.fixture
def name() -> str:
    return f"local://{uuid.uuid4().hex}/"


def transport_at(url: str) -> "oslo_messaging.RPCTransport":
    conf = cfg.ConfigOpts()
    conf([])
    transport.register_opts(conf)
    return oslo_messaging.get_rpc_transport(conf, url)


class Collector:
    """A server's connection on a topic, without its loop; messages are not acknowledged."""

    def __init__(self, url: str, server: str = "s", topic: str = "t") -> None:
        self.transport = transport_at(url)
        self.taken: list[Delivery] = []
        self.copied: list[tuple[PublishOutcome, str]] = []
        driver: LocalDriver = self.transport._driver
        listener = Listener(
            message=self.taken.append, copied=lambda _copy, *outcome: self.copied.append(outcome)
        )
        self.connection: Any = driver.opener(QueueNames("x", topic, server))(listener, False)

    def start(self, slots: int = 16) -> None:
        self.connection.consume(slots)

    @property
    def numbers(self) -> list[object]:
        """What was delivered until now, by the argument ``number``."""
        self.connection.pump()
        return [request(each).message.args["number"] for each in self.taken]

    def has_taken(self) -> bool:
        self.connection.pump()
        return bool(self.taken)

    def next(self) -> WireRequest:
        """The next call, waited for."""
        eventually(self.has_taken)
        return request(self.taken.pop(0))

    def answer(self, call: WireRequest, body: bytes) -> None:
        self.connection.answer(call.reply_queue, body)


def request(message: Delivery) -> WireRequest:
    return decode(message.body, message.expiration, 1_000_000)


@pytest.fixture
def collector(name) -> Iterator[Collector]:
    collector = Collector(name)
    yield collector
    collector.connection.close()


def client(url: str, **options: Any) -> Any:
    target = oslo_messaging.Target(exchange="x", topic="t")
    return oslo_messaging.get_rpc_client(transport_at(url), target, **options)


def test_a_full_queue_refuses_messages(name, collector, monkeypatch):
    monkeypatch.setattr(local, "QUEUE_LIMIT", 2)
    sender = client(name)
    sender.cast({}, "m")
    sender.cast({}, "m")
    with pytest.raises(oslo_messaging.MessageDeliveryFailure, match="queue t is full: 2 messages"):
        sender.cast({}, "m")


def test_what_was_not_acknowledged_goes_back_in_order_and_counts_if_it_was_taken(name, collector):
    first = Collector(name, "first")
    first.start(3)
    sender = client(name)
    for number in range(2):
        sender.cast({}, "m", number=number)
    assert first.numbers == [0, 1]
    for number in range(2, 5):
        sender.cast({}, "m", number=number)
    first.connection.perform(Ack(1, multiple=True))
    first.connection.close()
    collector.start()
    assert collector.numbers == [1, 2, 3, 4]
    assert [each.deliveries for each in collector.taken] == [1, 0, 0, 0]


def test_a_message_that_is_given_back_keeps_its_count(name, collector):
    collector.start(1)
    for number in range(2):
        client(name).cast({}, "m", number=number)
    assert collector.numbers == [0]
    collector.connection.perform(Republish(1, 3, is_given_back=True))
    collector.connection.perform(Ack(1, multiple=False))
    assert collector.numbers == [0, 1]
    collector.connection.perform(Requeue(2))
    assert collector.numbers == [0, 1, 1]
    collector.connection.perform(Ack(3, multiple=False))
    assert collector.numbers == [0, 1, 1, 0]
    assert (collector.taken[-1].deliveries, collector.copied) == (
        3,
        [(PublishOutcome.CONFIRMED, "")],
    )


def test_a_dead_letter_waits_for_whoever_reads_it(name, collector):
    collector.start(1)
    client(name).cast({}, "m", number=7)
    assert collector.numbers == [7]
    collector.connection.perform(DeadLetter(1, "nobody serves it"))
    assert collector.copied == [(PublishOutcome.CONFIRMED, "")]
    reader = Collector(name, topic="t_dead_letters")
    reader.start()
    assert reader.numbers == [7]
    reader.connection.close()


def test_a_full_queue_takes_no_copy(name, collector, monkeypatch):
    monkeypatch.setattr(local, "QUEUE_LIMIT", 1)
    collector.start(1)
    for number in range(2):
        client(name).cast({}, "m", number=number)
    assert collector.numbers == [0]
    collector.connection.perform(Republish(1, 0, is_given_back=True))
    [(outcome, why)] = collector.copied
    assert outcome is PublishOutcome.REFUSED
    assert "queue t is full" in why


def test_a_request_looks_as_from_rabbitmq(name, collector):
    collector.start()
    client(name).cast({"request_id": "req-1"}, "m", a=(1,))
    taken = collector.next()
    assert (taken.message.method, taken.message.args) == ("m", {"a": [1]})
    assert taken.message.context["request_id"] == "req-1"
    assert (taken.call_id, taken.call_monitor_s, taken.remaining_s) == (None, None, float("inf"))
    assert len(taken.id) == 32


def test_a_heartbeat_does_not_extend_the_total_timeout(name, collector):
    collector.start()

    def attempt(timeout_s: float) -> None:
        sender = client(name, timeout=timeout_s, call_monitor_timeout=NEVER_S)
        answers = in_thread(sender.call, {}, "m")
        eventually(lambda: collector.has_taken() or answers.done())
        if not collector.taken:
            raise TooSoon
        call = collector.next()
        collector.answer(call, encode_heartbeat(call.call_id or ""))
        assert isinstance(answers.exception(SOON_S), oslo_messaging.MessagingTimeout)

    growing(attempt, TooSoon)


def test_a_call_expires_in_its_queue(name, collector):
    sender = client(name, timeout=0.1)
    with pytest.raises(oslo_messaging.MessagingTimeout):
        sender.call({}, "expired")
    sender.cast({}, "kept")
    collector.start()
    assert collector.next().message.method == "kept"


def test_a_call_without_a_server_times_out(name):
    with pytest.raises(oslo_messaging.MessagingTimeout):
        client(name, timeout=0.1).call({}, "m")


def test_a_call_without_a_server_is_refused_with_at_least_once(name):
    options = oslo_messaging.TransportOptions(at_least_once=True)
    with pytest.raises(oslo_messaging.MessageUndeliverable) as raised:
        client(name, transport_options=options).call({}, "m")
    assert (raised.value.exchange, raised.value.routing_key) == ("x", "t")


def test_a_late_answer_is_ignored(name, collector):
    collector.start()
    with pytest.raises(oslo_messaging.MessagingTimeout):
        client(name, timeout=0.1).call({}, "m")
    call = collector.next()
    collector.answer(call, encode_answer(call.call_id or "", "late"))


def test_buses_of_different_names_are_separate(name, collector):
    options = oslo_messaging.TransportOptions(at_least_once=True)
    with pytest.raises(oslo_messaging.MessageUndeliverable):
        client("local://elsewhere/", transport_options=options).cast({}, "m")


def test_a_bus_ends_with_its_last_transport(name):
    collector = Collector(name)
    client(name).cast({}, "m")
    collector.connection.close()
    del collector
    gc.collect()
    options = oslo_messaging.TransportOptions(at_least_once=True)
    with pytest.raises(oslo_messaging.MessageUndeliverable):
        client(name, transport_options=options).cast({}, "m")


def test_notifications_and_other_servers_are_not_supported(name):
    notifications = transport_at(name)
    target = oslo_messaging.Target(topic="t", server="s")
    with pytest.raises(NotImplementedError):
        notifications._send_notification(target, {}, {}, 2.0)
    with pytest.raises(NotImplementedError):
        notifications._listen_for_notifications([(target, "info")], None, 1, None)
    with pytest.raises(NotImplementedError):
        notifications._listen(target, 1, None)
