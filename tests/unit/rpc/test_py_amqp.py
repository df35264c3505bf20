"""Internals of py-amqp that the connection to RabbitMQ relies on, and that change silently."""

import contextlib

import amqp
import amqp.connection
import pytest
from amqp import spec
from amqp.serialization import dumps
from amqp.transport import TCPTransport

from scheduler_worker.rpc.amqp.connection import BrokerConnection
from scheduler_worker.rpc.serving.connection import ConnectionLostError

HEARTBEAT_S = 10


@pytest.fixture
def connection(monkeypatch, clock) -> amqp.Connection:
    """One that is not open, whose clock a test moves."""
    monkeypatch.setattr(amqp.connection, "monotonic", clock.monotonic_s)
    connection = amqp.Connection("nowhere")
    connection.heartbeat = HEARTBEAT_S
    return connection


@pytest.mark.parametrize("writes", [True, False])
def test_a_changed_count_of_sent_bytes_replaces_a_heartbeat(connection, clock, writes):
    sent: list[float] = []
    connection.send_heartbeat = lambda: sent.append(clock.monotonic_s())
    for _ in range(5):
        connection.bytes_sent += writes
        connection.bytes_recv += 1
        connection.heartbeat_tick()
        clock.advance(HEARTBEAT_S / 2 + 1)
    assert len(sent) == (0 if writes else 4)


def test_a_changed_count_of_received_bytes_is_a_sign_of_life(connection, clock):
    connection.send_heartbeat = lambda: None
    for _ in range(5):
        connection.bytes_recv += 1
        connection.heartbeat_tick()
        clock.advance(2 * HEARTBEAT_S + 1)
    with pytest.raises(amqp.ConnectionForced, match="heartbeats missed"):
        connection.heartbeat_tick()


@pytest.mark.parametrize("reads", [True, False])
def test_a_broker_is_alive_as_long_as_nothing_is_read_of_it_on_purpose(connection, clock, reads):
    connection.send_heartbeat = lambda: None
    link = object.__new__(BrokerConnection)
    link._amqp = connection
    dies = pytest.raises(ConnectionLostError) if reads else contextlib.nullcontext()
    with dies:
        for _ in range(5):
            link.tick(reads=reads)
            clock.advance(2 * HEARTBEAT_S + 1)


def test_the_cancelling_of_a_consumer_is_told_by_its_tag_once(connection):
    channel = amqp.Channel(connection, 1)
    told: list[str] = []
    channel.cancel_callbacks["ours"] = told.append
    channel.dispatch_method(spec.Basic.Cancel, b"\0" * 4 + dumps("sb", ("ours", True)), None)
    assert told == ["ours"]
    assert "ours" not in channel.cancel_callbacks


def test_a_transport_writes_by_what_its_setup_has_set():
    transport = TCPTransport("nowhere", 1.0)
    written: list[bytes] = []
    transport._write = written.append
    transport.write(b"frame")
    assert written == [b"frame"]


def test_a_connection_that_is_not_open_has_no_transport_and_can_be_collected(connection):
    assert connection._transport is None
    connection.collect()
