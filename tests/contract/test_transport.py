"""The contract of a bus, tested with ``local:`` and with a real RabbitMQ."""

import json
import queue
import threading
from typing import Any
from unittest.mock import Mock

import pytest

from scheduler_worker import conf
from scheduler_worker.errors import (
    BusUnavailable,
    CallTimeout,
    DeadlineExceeded,
    NobodyListens,
    NoValidHost,
    RemoteFailure,
    Undeliverable,
)
from scheduler_worker.rpc.dispatcher import Context, Endpoint
from scheduler_worker.rpc.transport import Bus, Client
from tests.support.foreign import ForeignServer
from tests.support.handlers import echo
from tests.support.patience import NEVER_S, SOON_S, eventually, growing
from tests.support.threads import in_thread

# Values


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        ({"a": [1, 2.5, None, True]}, {"a": [1, 2.5, None, True]}),
        ((1, (2, 3)), [1, [2, 3]]),
        ("Grüße, 世界 \U0001f600 \u2028", "Grüße, 世界 \U0001f600 \u2028"),
        ({1: "a"}, {"1": "a"}),
        (None, None),
        ("x" * 1_000_000, "x" * 1_000_000),
    ],
    ids=["plain", "tuples", "unicode", "keys", "none", "large"],
)
def test_values_are_encoded_as_json(serve, client, sent, received):
    serve({"echo": echo})
    assert client.call("echo", {}, value=sent) == received


def test_the_context_arrives_without_its_secrets(serve, client):
    contexts: list[Context] = []
    serve({"look": contexts.append})
    sent = {
        "request_id": "req-1",
        "global_request_id": "req-2",
        "user_id": "u",
        "project_id": "p",
        "is_admin": True,
    }
    secrets = {"auth_token": "SECRET", "service_catalog": [{"name": "SECRET"}]}
    client.call("look", sent | secrets)
    [context] = contexts
    assert {name: getattr(context, name) for name in sent} == sent
    assert context.message_id
    assert "SECRET" not in repr(context)


# Routing


def test_a_cast_to_another_exchange(bus, url, topic):
    got: queue.SimpleQueue[int] = queue.SimpleQueue()
    with Bus(conf.load(), url=url, exchange="other") as elsewhere:
        endpoint = Endpoint("ours", "1.3", {"note": lambda _context, number: got.put(number)})
        server = elsewhere.server(topic, "one", [endpoint])
        server.start()
        bus.cast(
            topic=topic,
            method="note",
            arguments={"number": 7},
            exchange="other",
            namespace="ours",
            version="1.2",
        )
        assert got.get(timeout=SOON_S) == 7
        assert server.stop(SOON_S)


def test_a_fanout_reaches_every_server_with_one_message_id(serve, bus, topic):
    got: queue.SimpleQueue[tuple[str, str | None]] = queue.SimpleQueue()
    for name in ("one", "two"):
        serve({"note": lambda context, name=name: got.put((name, context.message_id))}, name=name)
    bus.client(topic, fanout=True).cast("note", {})
    first, second = got.get(timeout=SOON_S), got.get(timeout=SOON_S)
    assert {first[0], second[0]} == {"one", "two"}
    assert first[1] == second[1] is not None


def test_a_call_goes_to_the_server_that_has_run_longest_and_has_a_slot(serve, bus, topic, gate):
    one, two, _ = (
        serve({"who": lambda _context, name=name: name, "wait": gate}, name=name, slots=4)
        for name in ("one", "two", "three")
    )
    client = bus.client(topic, timeout_s=SOON_S)
    assert [client.call("who", {}) for _ in range(10)] == 10 * ["one"]
    held = [in_thread(client.call, "wait", {}) for _ in range(4)]
    gate.wait_for(4)
    assert {client.call("who", {}) for _ in range(10)} == {"two"}
    gate.opened.set()
    assert {each.result(SOON_S) for each in held} == {"passed"}
    eventually(lambda: client.call("who", {}) == "one")
    one.take_requests(False)
    eventually(lambda: client.call("who", {}) == "two")
    two.stop(SOON_S)
    assert {client.call("who", {}) for _ in range(10)} == {"three"}


def test_a_server_can_be_addressed(serve, bus, topic):
    for name in ("one", "two"):
        serve({"name": lambda _context, name=name: name}, name=name)
    for name in ("one", "two"):
        addressed = bus.client(topic, server=name, timeout_s=SOON_S)
        assert [addressed.call("name", {}) for _ in range(3)] == [name] * 3


def test_a_message_without_a_server_is_refused(client):
    for send in (client.call, client.cast):
        with pytest.raises(NobodyListens):
            send("echo", {}, value=1)


# Errors


def failure_of(client: Client, method: str, **arguments: object) -> RemoteFailure:
    with pytest.raises(RemoteFailure) as raised:
        client.call(method, {}, **arguments)
    return raised.value


# Timeouts and heartbeats


def test_a_slow_call_gets_heartbeats(serve, bus, topic):
    never = threading.Event()
    serve({"slow": lambda _context, seconds: never.wait(seconds)})

    def call(monitor_s: float) -> Any:
        client = bus.client(topic, timeout_s=SOON_S, call_monitor_timeout_s=monitor_s)
        return client.call("slow", {}, seconds=2.5 * monitor_s)

    assert growing(call, CallTimeout) is False


def test_a_call_that_waits_in_the_queue_gets_no_heartbeats(serve, bus, topic, gate):
    """Any server may take it from there."""
    serve({"wait": gate, "echo": echo}, slots=1)
    bus.client(topic).cast("wait", {})
    gate.wait_for(1)
    client = bus.client(topic, timeout_s=NEVER_S, call_monitor_timeout_s=0.3)
    with pytest.raises(CallTimeout):
        client.call("echo", {}, value="served")


def test_a_call_whose_caller_timed_out_is_not_begun(serve, bus, client, topic, gate):
    begun: list[str] = []
    serve({"wait": gate, "begin": lambda _context, name: begun.append(name)}, slots=1)
    client.cast("wait", {})
    gate.wait_for(1)
    for name, timeout_s in (("late", 0.2), ("later", 0.5)):
        with pytest.raises(CallTimeout):
            bus.client(topic, timeout_s=timeout_s).call("begin", {}, name=name)
    gate.opened.set()
    client.call("begin", {}, name="in time")
    assert begun[-1] == "in time"
    assert "late" not in begun


def test_a_call_that_a_handler_finds_too_late_gets_no_answer(serve, bus, topic):
    def late(_context: object) -> None:
        raise DeadlineExceeded("the caller has gone")

    serve({"late": late})
    with pytest.raises(CallTimeout):
        bus.client(topic, timeout_s=0.5).call("late", {})


# Stopping


def test_a_stop_finishes_what_was_taken(serve, client, gate):
    server = serve({"wait": gate})
    answer = in_thread(client.call, "wait", {})
    gate.wait_for(1)
    stopped = in_thread(server.stop, SOON_S)
    gate.opened.set()
    assert answer.result(SOON_S) == "passed"
    assert stopped.result(SOON_S) is True


def test_an_idle_server_stops_at_once(serve, client):
    server = serve({"echo": echo})
    client.call("echo", {}, value=1)
    assert server.stop(NEVER_S) is True
    assert server.stop(NEVER_S) is True


def test_messages_wait_for_the_next_server(serve, client):
    serve({"echo": echo}, name="one").stop(SOON_S)
    answer = in_thread(client.call, "echo", {}, value="kept")
    serve({"echo": echo}, name="two")
    assert answer.result(SOON_S) == "kept"


def test_a_server_can_be_stopped_before_it_starts(bus, topic):
    server = bus.server(topic, "one", [])
    assert server.stop(SOON_S) is True
    server.start()
    assert server.problem() == "has not started"


# Wire forms


def test_a_failure_has_the_form_that_novas_client_rebuilds(serve, client, monkeypatch):
    from oslo_messaging._drivers import common

    read = Mock(wraps=common.deserialize_remote_exception)
    monkeypatch.setattr(common, "deserialize_remote_exception", read)

    def refuse(_context: Context) -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise NoValidHost("There are not enough hosts available.") from error

    serve({"refuse": refuse})
    failure_of(client, "refuse")
    message = "No valid host was found. There are not enough hosts available."
    assert json.loads(read.call_args.args[0]) == {
        "class": "NoValidHost",
        "module": "nova.exception",
        "message": message,
        "tb": [f"nova.exception.NoValidHost: {message}\n"],
        "args": [message],
        "kwargs": {"reason": "There are not enough hosts available.", "code": 500},
    }


def test_builtin_errors_of_other_servers_are_remote_failures(rabbit_url, topic):
    def fail(_context: object) -> None:
        raise ValueError("plain")

    with Bus(conf.load(), url=rabbit_url) as bus:
        theirs = ForeignServer(bus, topic, "theirs", [Endpoint(None, "1.0", {"fail": fail})])
        theirs.start()
        failure = failure_of(bus.client(topic, timeout_s=SOON_S), "fail")
        theirs.stop()
    assert (failure.module, failure.class_name) == ("builtins", "ValueError")
    assert failure.message == "plain"


def test_an_oslo_messaging_client_is_served(bus, serve, topic):
    import oslo_messaging

    serve({"echo": echo}, version="4.5")
    target = oslo_messaging.Target(exchange="nova", topic=topic, version="4.5")
    theirs = oslo_messaging.get_rpc_client(bus._transport, target, timeout=SOON_S)
    assert theirs.call({"auth_token": "SECRET"}, "echo", value=[1]) == [1]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ({"topic": "t", "exchange": "amq.nobody"}, "NOT_FOUND"),
        ({"topic": "t", "server": "ä" * 127}, "a name of 256 bytes; AMQP carries 255"),
        ({"topic": "t", "exchange": "x" * 256}, "exchange: a name of 256 bytes"),
        ({"topic": "t\udfff"}, "not Unicode text"),
    ],
)
def test_a_cast_that_can_never_succeed_is_told_from_a_broker_that_is_away(rabbit_url, target, why):
    with Bus(conf.load(), url=rabbit_url) as bus, pytest.raises(Undeliverable, match=why):
        bus.cast(method="m", arguments={}, **target)


def test_a_broker_that_refuses_us_is_reported(rabbit_url):
    with Bus(conf.load(), url=rabbit_url.replace("guest:guest", "guest:wrong")) as bus:
        with pytest.raises(BusUnavailable, match="ACCESS_REFUSED"):
            bus.client("t").call("m", {})
        server = bus.server("t", "one", [])
        with pytest.raises(BusUnavailable, match="ACCESS_REFUSED"):
            server.start()
        assert server.stop(SOON_S)
