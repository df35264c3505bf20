"""The ``local:`` driver; what it shares with RabbitMQ is tested in ``tests/contract``."""

from __future__ import annotations

import contextlib
import gc
import queue
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from oslo_config import cfg

from scheduler_worker.rpc import local, transport

# isort: split
import oslo_messaging

from tests.support.handlers import in_thread
from tests.support.patience import NEVER_S, SOON_S, TooSoon, eventually, growing


@pytest.fixture
def name() -> str:
    return f"local://{uuid.uuid4().hex}/"


def transport_at(url: str) -> oslo_messaging.RPCTransport:
    conf = cfg.ConfigOpts()
    conf([])
    transport.register_opts(conf)
    return oslo_messaging.get_rpc_transport(conf, url)


class Collector:
    """A listener of topic ``t`` whose messages come out of a queue, unanswered."""

    def __init__(self, url: str, server: str = "s") -> None:
        target = oslo_messaging.Target(exchange="x", topic="t", server=server)
        self.transport = transport_at(url)
        self.taken: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.listener = self.transport._listen(target, 1, None)

    def start(self) -> None:
        self.listener.start(lambda incoming: self.taken.put(incoming[0]))

    def next(self) -> Any:
        return self.taken.get(timeout=SOON_S)


@pytest.fixture
def collector(name: str) -> Iterator[Collector]:
    collector = Collector(name)
    yield collector
    collector.listener.stop()
    collector.listener.cleanup()


def client(url: str, **options: Any) -> Any:
    target = oslo_messaging.Target(exchange="x", topic="t")
    return oslo_messaging.get_rpc_client(transport_at(url), target, **options)


def test_a_full_queue_refuses_messages(
    name: str, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "QUEUE_LIMIT", 2)
    sender = client(name)
    sender.cast({}, "m")
    sender.cast({}, "m")
    with pytest.raises(oslo_messaging.MessageDeliveryFailure, match="queue t is full: 2 messages"):
        sender.cast({}, "m")


def test_a_server_takes_a_bounded_number_of_messages(
    name: str, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "IN_FLIGHT_LIMIT", 2)
    collector.start()
    sender = client(name)
    for number in range(3):
        sender.cast({}, "m", number=number)
    first, _second = collector.next(), collector.next()
    other = Collector(name, "other")
    other.start()
    third = other.next()
    assert third.message["args"] == {"number": 2}
    other.listener.stop()
    first.reply()
    sender.cast({}, "m", number=3)
    assert collector.next().message["args"] == {"number": 3}


def test_an_incoming_request_looks_as_from_rabbitmq(name: str, collector: Collector) -> None:
    collector.start()
    client(name).cast({"request_id": "req-1"}, "m", a=(1,))
    incoming = collector.next()
    assert incoming.message == {"method": "m", "args": {"a": [1]}}
    assert incoming.ctxt["request_id"] == "req-1"
    assert incoming.orig_msg_id is None
    assert incoming.client_timeout is None
    assert len(incoming.unique_id) == 32


def test_a_heartbeat_extends_the_wait(name: str, collector: Collector) -> None:
    collector.start()

    def attempt(call_monitor_s: float) -> None:
        sender = client(name, timeout=SOON_S, call_monitor_timeout=call_monitor_s)
        answers = in_thread(lambda: sender.call({}, "m"))
        incoming = collector.next()
        assert incoming.client_timeout == call_monitor_s
        for _ in range(3):
            with contextlib.suppress(queue.Empty):
                raise answers.get(timeout=0.6 * call_monitor_s)
            incoming.heartbeat()
        incoming.reply("late")
        answer = answers.get(timeout=SOON_S)
        if isinstance(answer, Exception):
            raise answer
        assert answer == "late"

    growing(attempt, oslo_messaging.MessagingTimeout)


def test_silence_ends_a_monitored_call(name: str, collector: Collector) -> None:
    collector.start()
    with pytest.raises(oslo_messaging.MessagingTimeout):
        client(name, timeout=SOON_S, call_monitor_timeout=0.1).call({}, "m")


def test_a_heartbeat_does_not_extend_the_total_timeout(name: str, collector: Collector) -> None:
    collector.start()

    def attempt(timeout_s: float) -> None:
        sender = client(name, timeout=timeout_s, call_monitor_timeout=NEVER_S)
        answers = in_thread(lambda: sender.call({}, "m"))
        eventually(lambda: not (collector.taken.empty() and answers.empty()))
        if collector.taken.empty():
            raise TooSoon
        collector.next().heartbeat()
        assert isinstance(answers.get(timeout=SOON_S), oslo_messaging.MessagingTimeout)

    growing(attempt, TooSoon)


def test_a_call_expires_in_its_queue(name: str, collector: Collector) -> None:
    sender = client(name, timeout=0.1)
    with pytest.raises(oslo_messaging.MessagingTimeout):
        sender.call({}, "expired")
    sender.cast({}, "kept")
    collector.start()
    assert collector.next().message["method"] == "kept"


def test_a_call_without_a_server_times_out(name: str) -> None:
    with pytest.raises(oslo_messaging.MessagingTimeout):
        client(name, timeout=0.1).call({}, "m")


def test_a_call_without_a_server_is_refused_with_at_least_once(name: str) -> None:
    options = oslo_messaging.TransportOptions(at_least_once=True)
    with pytest.raises(oslo_messaging.MessageUndeliverable) as raised:
        client(name, transport_options=options).call({}, "m")
    assert (raised.value.exchange, raised.value.routing_key) == ("x", "t")


def test_a_late_answer_is_ignored(name: str, collector: Collector) -> None:
    collector.start()

    def attempt(timeout_s: float) -> None:
        with pytest.raises(oslo_messaging.MessagingTimeout):
            client(name, timeout=timeout_s).call({}, "m")
        if collector.taken.empty():
            raise TooSoon
        incoming = collector.next()
        incoming.heartbeat()
        incoming.reply("late")

    growing(attempt, TooSoon)


def test_buses_of_different_names_are_separate(name: str, collector: Collector) -> None:
    options = oslo_messaging.TransportOptions(at_least_once=True)
    with pytest.raises(oslo_messaging.MessageUndeliverable):
        client("local://elsewhere/", transport_options=options).cast({}, "m")


def test_a_bus_ends_with_its_last_transport(name: str) -> None:
    collector = Collector(name)
    client(name).cast({}, "m")
    collector.listener.cleanup()
    del collector
    gc.collect()
    options = oslo_messaging.TransportOptions(at_least_once=True)
    with pytest.raises(oslo_messaging.MessageUndeliverable):
        client(name, transport_options=options).cast({}, "m")


def test_a_listener_that_never_started_can_be_stopped(collector: Collector) -> None:
    collector.listener.stop()
    assert collector.taken.empty()


def test_notifications_are_not_supported(name: str) -> None:
    notifications = transport_at(name)
    target = oslo_messaging.Target(topic="t")
    with pytest.raises(NotImplementedError):
        notifications._send_notification(target, {}, {}, 2.0)
    with pytest.raises(NotImplementedError):
        notifications._listen_for_notifications([(target, "info")], None, 1, None)
