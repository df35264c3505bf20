"""The server over a scripted connection: what it sends when, and how it reconnects."""

import json
import threading
from functools import partial
from typing import Any

import pytest

from scheduler_worker.errors import StateLost, StateUnavailable
from scheduler_worker.observer import Observer
from scheduler_worker.rpc.dispatcher import Dispatcher, Endpoint
from scheduler_worker.rpc.serving import handling
from scheduler_worker.rpc.serving import server as queue_server
from scheduler_worker.rpc.serving.connection import (
    ConnectionLostError,
    Loop,
    PublishOutcome,
)
from scheduler_worker.rpc.serving.deliveries import (
    Ack,
    Delivery,
    Publish,
    Republish,
)
from scheduler_worker.rpc.serving.handling import ExtraConsumers
from scheduler_worker.rpc.serving.server import QueueServer
from scheduler_worker.rpc.serving.settings import BusSettings, DeliveryLimits, QueueNames
from tests.support.handlers import Gate, Witness, echo
from tests.support.interrupted import raising
from tests.support.patience import NEVER_S, SOON_S, eventually
from tests.support.scripted import ScriptedConnection
from tests.support.threads import in_thread

SETTINGS = BusSettings(kind="scripted", retry_s=1.0, retry_backoff_s=2.0, longest_retry_s=8.0)


@pytest.fixture
def connections() -> list[ScriptedConnection]:
    ScriptedConnection.created.clear()
    return ScriptedConnection.created


def make(
    observer: Observer | None = None,
    in_order: Any = None,
    *,
    comes_first: bool = True,
    **methods: Any,
) -> QueueServer:
    opener: Any = ScriptedConnection
    return QueueServer(
        [opener],
        SETTINGS,
        QueueNames("nova", "topic", "one"),
        Dispatcher(
            [Endpoint(None, "1.0", methods, in_order=in_order or {})], observer or Observer()
        ),
        slots=2,
        limits=DeliveryLimits(),
        observer=observer or Observer(),
        comes_first=comes_first,
    )


def message(tag: int, method: str, deliveries: int = 0, **content: Any) -> Delivery:
    inner = {"method": method, "args": {}, "_unique_id": f"id-{tag}", **content}
    body = json.dumps({"oslo.version": "2.0", "oslo.message": json.dumps(inner)}).encode()
    return Delivery(tag=tag, queue="topic", body=body, deliveries=deliveries)


def await_rounds(server: QueueServer) -> None:
    """Until the loop has run twice, with everything that was due before."""
    for _ in range(2):
        went = threading.Event()
        server._loop.call_soon(went.set)
        assert went.wait(SOON_S)


def test_nothing_is_sent_to_a_blocked_broker(connections):
    witness = Witness()
    server = make(witness, echo=echo)
    server.start()
    [connection] = connections
    connection.is_blocked = True
    connection.deliver(message(1, "echo", args={"value": 7}, _msg_id="call", _reply_q="caller"))
    witness.wait_for("served echo")
    eventually(lambda: server.describe()["in_hand"] == 0)
    await_rounds(server)
    assert connection.performed == []
    connection.is_blocked = False
    await_rounds(server)
    answer, acknowledged = connection.performed
    assert isinstance(answer, Publish)
    assert acknowledged == Ack(1, multiple=True)
    server.stop(5)


def test_the_younger_server_has_the_lower_priority(monkeypatch):
    begun_s = 2**31 / 1000 * 900  # from here the count goes on for 24 days
    found = []
    for passed_s in (0.001, 0.002, 0.1, 60, 86_400, 24 * 86_400, 2**31 / 1000):
        monkeypatch.setattr("time.time", lambda passed_s=passed_s: begun_s + passed_s)
        found.append(queue_server.junior_priority())
    assert found == sorted({*found}, reverse=True)
    assert 0 < min(found) < max(found) < 2**31  # others have 0, and AMQP's integers have 31 bits


def test_a_server_that_stood_still_comes_after_the_others(connections, monkeypatch, lose):
    monkeypatch.setattr(queue_server, "junior_priority", iter((7, 5)).__next__)
    monkeypatch.setattr(queue_server, "TICK_S", 0.01)
    server = make()
    server.start()
    [connection] = connections
    assert connection.consumes_with == 7
    ticked_s = server._last_tick_s
    eventually(lambda: server._last_tick_s > ticked_s)
    assert connection.consumes_with == 7
    server._loop.call_soon(lambda: setattr(server, "_last_tick_s", ticked_s - 2))
    eventually(lambda: connection.consumes_with == 5)
    assert connection.consumes_shared
    assert lose(server).consumes_with == 5
    server.stop(5)


def test_a_server_that_comes_last_stays_last_when_it_stood_still(connections, monkeypatch):
    monkeypatch.setattr(queue_server, "TICK_S", 0.01)
    server = make(comes_first=False)
    server.start()
    [connection] = connections
    late_s = server._last_tick_s - 2
    server._loop.call_soon(lambda: setattr(server, "_last_tick_s", late_s))
    await_rounds(server)
    eventually(lambda: server._last_tick_s > late_s)
    assert connection.consumes_with == server.describe()["priority"] == -1
    server.come_first()
    eventually(lambda: connection.consumes_with > 0)
    server.stop(5)


@pytest.mark.parametrize("left", ["a message", "an answer"])
def test_a_stop_waits_for_what_is_left_to_do_and_to_be_confirmed(connections, gate, left):
    server = make(hold=lambda context: gate(context))
    server.start()
    [connection] = connections
    if left == "a message":
        connection.deliver(message(1, "hold"))
        gate.wait_for(1)
    else:
        connection.unconfirmed.append("not confirmed")
    stopping = in_thread(partial(server.stop, NEVER_S))
    eventually(lambda: server.problem() == "is stopping")
    await_rounds(server)
    assert (server.problem(), connection.consumes) == ("is stopping", False)
    gate.opened.set()
    connection.unconfirmed.clear()
    assert stopping.result(SOON_S) is True
    assert server.problem() == "has stopped"
    assert connection.performed == ([Ack(1, multiple=True)] if left == "a message" else [])


def test_a_stop_does_not_wait_longer_than_it_may(connections, gate):
    server = make(hold=lambda context: gate(context))
    server.start()
    [connection] = connections
    connection.deliver(message(1, "hold"))
    gate.wait_for(1)
    assert server.stop(0.0) is False
    assert (server.problem(), connection.performed) == ("has stopped", [])


def test_a_server_that_breaks_down_reports_the_error(connections):
    server = make(echo=echo)
    server.start()
    assert server.failure() is None
    connections[0].on_message = lambda _: 1 // 0
    connections[0].deliver(message(1, "echo"))
    eventually(lambda: server.failure() is not None)
    assert "ZeroDivisionError" in (server.failure() or "")
    assert server.problem() == server.failure()


def test_a_server_without_the_state_leaves_requests_to_others_until_it_has_it_again(
    connections, monkeypatch
):
    monkeypatch.setattr(queue_server, "_REACH_S", 0.01)
    is_away = threading.Event()
    is_away.set()

    def reach(_context: object = None) -> None:
        if is_away.is_set():
            raise StateLost("no server answers")

    server = make(do=reach)
    server._reach = reach
    server.start()
    [connection] = connections
    connection.deliver(message(1, "do", _msg_id="call", _reply_q="caller"))
    eventually(lambda: connection.performed)
    assert connection.performed == [Republish(1, 0, is_given_back=True)]
    assert not connection.consumes_shared
    is_away.clear()
    eventually(lambda: connection.consumes_shared)
    server.stop(0)


def test_a_server_without_the_state_takes_no_requests_on_its_next_connection(connections, lose):
    server = make(do=raising(StateLost("no server answers")))
    server._reach = raising(StateLost("no server answers"))
    server.start()
    connections[0].deliver(message(1, "do"))
    eventually(lambda: not connections[0].consumes_shared)
    assert not lose(server).consumes_shared
    server.stop(0)


def test_a_server_without_the_state_answers_what_only_it_can_get(connections):
    server = make(do=raising(StateLost("no server answers")))
    server.start()
    own = message(1, "do", _msg_id="call", _reply_q="caller")
    own.queue = "topic.one"
    connections[0].deliver(own)
    eventually(lambda: Ack(1, multiple=True) in connections[0].performed)
    assert [each.queue for each in connections[0].performed[:-1]] == ["caller"]
    server.stop(5)


@pytest.fixture
def lose(connections, monkeypatch) -> Any:
    """Loses a server's connection, perhaps with queues, and waits for the next one."""
    monkeypatch.setattr(QueueServer, "_back_off", lambda _: None)

    def lost(_: Any) -> None:
        raise ConnectionLostError("gone")

    def lose(server: QueueServer, *vanished: str) -> ScriptedConnection:
        monkeypatch.setattr(ScriptedConnection, "vanished", frozenset(vanished))
        before = len(connections)
        connections[-1].on_message = lost
        connections[-1].deliver(message(99, "echo"))
        eventually(lambda: len(connections) > before and server.problem() is None)
        return connections[-1]

    return lose


@pytest.mark.parametrize("again", [False, True], ids=["lost once", "lost twice"])
def test_a_call_that_no_other_worker_gets_is_answered_though_the_state_is_away(
    connections, lose, again
):
    gate = Gate()

    def away(context: Any) -> None:
        gate(context)
        raise StateLost("no server answers")

    server = make(wait=away)
    server.start()
    connections[0].deliver(message(1, "wait", _msg_id="call", _reply_q="caller"))
    gate.wait_for(1)
    connection = lose(server, "topic")
    if again:
        connection = lose(server)
    gate.opened.set()
    eventually(lambda: server.describe()["in_hand"] == 0)
    await_rounds(server)
    assert [each.queue for each in connection.performed] == ["caller"]
    server.stop(5)


def test_a_message_that_waited_and_is_redelivered_before_anything_else_is_served(
    connections, lose, monkeypatch
):
    gate, consume = Gate(), ScriptedConnection.consume

    def consume_and_get(self, slots, **options):
        consume(self, slots, **options)
        if len(connections) > 1:
            self.on_message(message(1, "echo", deliveries=1, args={"value": 1}))

    monkeypatch.setattr(ScriptedConnection, "consume", consume_and_get)
    server = make(wait=gate, echo=echo)
    server.start()
    for tag in (2, 3):
        connections[0].deliver(message(tag, "wait"))
    gate.wait_for(2)
    connections[0].deliver(message(1, "echo", args={"value": 1}))
    eventually(lambda: server.describe()["in_hand"] == 3)
    connection = lose(server)
    gate.opened.set()
    eventually(lambda: Ack(1, multiple=True) in connection.performed)
    server.stop(5)


def test_what_is_redelivered_without_a_count_is_known_by_its_id(connections, lose):
    gate = Gate()
    server = make(wait=gate)
    server.start()
    connections[0].deliver(message(1, "wait"))
    gate.wait_for(1)
    connection, again = lose(server), message(1, "wait")
    again.is_counted = False
    connection.deliver(again)
    [work] = server._messages.deliveries.in_flight
    eventually(lambda: bool(work.tags or connection.performed))
    gate.opened.set()
    eventually(lambda: connection.performed)
    assert connection.performed == [Ack(1, multiple=True)]
    server.stop(5)


def test_a_full_server_reads_on_where_nothing_runs_that_would_make_room(connections):
    server = make(fail=raising(StateUnavailable("away")), echo=echo)
    server._max_bytes_in_flight = 1
    server.start()
    connections[0].deliver(message(1, "fail"))
    eventually(lambda: server.describe()["parked"] == 1)
    connections[0].deliver(message(2, "echo", args={"value": 1}))
    eventually(lambda: Ack(2, multiple=False) in connections[0].performed)
    server.stop(0)


def test_a_redelivered_call_gets_a_heartbeat_at_once(connections):
    """Its caller may not have heard of it since the worker that had it was killed."""
    gate = Gate()
    server = make(wait=gate)
    server.start()
    [connection] = connections
    call: dict[str, Any] = {"_msg_id": "call", "_timeout": NEVER_S}
    connection.deliver(message(1, "wait", _reply_q="new", **call))
    connection.deliver(message(2, "wait", deliveries=1, _reply_q="redelivered", **call))
    gate.wait_for(2)
    await_rounds(server)
    assert connection.heartbeats == ["redelivered"]
    gate.opened.set()
    server.stop(5)


# In order

IN_ORDER = {"note": lambda arguments: arguments["key"]}


def test_messages_of_one_key_are_handled_as_they_arrive_also_while_one_fails(
    connections, monkeypatch
):
    monkeypatch.setattr(handling, "_RETRY_S", 0.001)
    done: list[int] = []

    def note(_context: Any, key: str, value: int) -> None:
        if value == 1 and 3 not in done:
            raise StateUnavailable("away")
        done.append(value)

    server = make(in_order=IN_ORDER, note=note)
    server.start()
    for value, key in ((1, "a"), (2, "a"), (3, "b"), (4, "a")):
        connections[0].deliver(message(value, "note", args={"key": key, "value": value}))
    eventually(lambda: connections[0].performed[-1:] == [Ack(4, multiple=True)])
    assert done == [3, 1, 2, 4]
    assert server.describe()["parked"] == 0
    server.stop(5)


@pytest.mark.parametrize("stops", [False, True], ids=["serves on", "stops"])
def test_messages_of_a_queue_that_is_gone_stay_in_order_and_none_is_left_out(
    connections, lose, stops
):
    gate, done = Gate(), []

    def note(_context: Any, key: str, value: int) -> None:
        gate(_context)
        done.append(value)

    server = make(in_order=IN_ORDER, note=note)
    server.start()
    for value in (1, 2, 3):
        connections[0].deliver(message(value, "note", args={"key": "a", "value": value}))
    eventually(lambda: server.describe()["in_hand"] == 3)
    gate.wait_for(1)
    lose(server, "topic")
    await_rounds(server)
    assert gate.is_untouched
    if stops:
        stopping = in_thread(partial(server.stop, NEVER_S))
        eventually(lambda: server.problem() == "is stopping")
    gate.opened.set()
    eventually(lambda: server.describe()["in_hand"] == 0)
    assert done == [1, 2, 3]
    assert stopping.result(SOON_S) if stops else server.stop(5)


# Taking no more requests


def test_a_server_that_takes_no_requests_takes_none_on_its_next_connection(lose):
    server = make(echo=echo)
    server.start()
    server.take_requests(False)
    await_rounds(server)
    assert not lose(server).consumes_shared
    server.stop(5)


def test_a_retry_that_is_left_to_another_worker_takes_its_extra_consumer_along(connections, lose):
    def fails(_: Any) -> None:
        raise StateUnavailable("away")

    server = make(fails=fails)
    server.start()
    connections[0].deliver(message(1, "fails"))
    eventually(lambda: connections[0].extra_consumers == {0})
    assert not lose(server).extra_consumers
    assert server.describe()["extra_consumers"] == 0
    server.stop(5)


class Consumers:
    """Counts the extra consumers of a connection."""

    def __init__(self) -> None:
        self.open: set[int] = set()

    def open_extra_consumer(self, number: int) -> None:
        assert number not in self.open  # the broker would close the connection
        self.open.add(number)

    def close_extra_consumer(self, number: int) -> None:
        self.open.remove(number)


def test_extra_consumers_leave_the_shared_queue_and_come_back_once():
    extra, connection = ExtraConsumers(), Consumers()
    link: Any = connection
    extra.use(link)
    extra.open()
    extra.open()
    assert connection.open == {0, 1}
    extra.leave()
    assert connection.open == set()
    extra.close()
    extra.use(link)
    extra.use(link)
    assert connection.open == {0}


# Backoff between connections


class Clock:
    """Time passes only in ``wait``."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    time = monotonic

    def wait(self, _source: Any = None, *, timeout_s: float = 60.0) -> bool:
        self.now_s += max(timeout_s, 0.001)
        return False


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(queue_server, "time", clock)
    monkeypatch.setattr(Loop, "wait", lambda _self, *args, **options: clock.wait(*args, **options))
    monkeypatch.setattr(queue_server.random, "uniform", lambda _low, high: high)  # type: ignore[attr-defined]
    return clock


def test_the_backoff_grows_with_every_connection_that_did_not_last(connections, clock, monkeypatch):
    server = make(echo=echo)
    connected_s: list[float] = []
    lifetimes = [0.0, 0.0, 0.0, 0.0, 0.0, 11.0, 0.0]

    def flush(_link: ScriptedConnection) -> None:
        connected_s.append(clock.now_s)
        if len(connected_s) > len(lifetimes):
            server._stopping.set()
        else:
            clock.now_s += lifetimes[len(connected_s) - 1]
        raise ConnectionLostError("refused after all")

    monkeypatch.setattr(ScriptedConnection, "flush", flush)
    server.start()
    assert server._ended.wait(SOON_S)
    intervals = [
        round(after - before - lasted, 1)
        for before, after, lasted in zip(connected_s, connected_s[1:], lifetimes, strict=False)
    ]
    assert intervals == [1.0, 3.0, 5.0, 7.0, 8.0, 0.0, 1.0]


# Answers that do not arrive


def test_a_stop_does_not_wait_for_reply_queues_that_are_gone(connections):
    server = make()
    server._messages._undelivered.not_taken(Publish("gone", b""), PublishOutcome.UNROUTABLE)
    assert server._messages.is_done


def test_nothing_is_sent_again_while_the_broker_is_away_or_blocked(connections):
    server = make()
    send = server._messages._send_again
    assert not send(Publish("caller", b"body"))
    server.start()
    connections[0].is_blocked = True
    assert not send(Publish("caller", b"body"))
    server.stop(5)
