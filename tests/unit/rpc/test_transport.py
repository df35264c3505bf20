"""Parts of the bus by themselves; the whole of it is in ``tests/contract/test_transport.py``."""

from __future__ import annotations

import queue
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from oslo_config import cfg

from scheduler_worker.errors import BackendError, ConfigError, RequestError
from scheduler_worker.rpc import transport
from scheduler_worker.rpc.contract import Context
from scheduler_worker.rpc.transport import Bus, BusUnavailable, CallTimeout, RemoteFailure
from scheduler_worker.rpc.wire_errors import to_wire

SOON_S = 10.0


@pytest.fixture
def conf() -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    conf([])
    return conf


# Where the bus is


def test_options_get_our_defaults_and_may_be_registered_twice(conf: cfg.ConfigOpts) -> None:
    transport.register_opts(conf)
    transport.register_opts(conf)
    assert (conf.transport_url, conf.control_exchange) == ("local:/", "nova")


def test_the_configured_url_is_used(conf: cfg.ConfigOpts) -> None:
    transport.register_opts(conf)
    conf.set_override("transport_url", "local://configured/")
    assert Bus(conf, default_url="local://default/").url == "local://configured/"


def test_the_default_stands_in(conf: cfg.ConfigOpts) -> None:
    assert Bus(conf, default_url="local://default/").url == "local://default/"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("local:/", "local:///"),
        (
            "rabbit://me:SECRET@one:5672,me:SECRET@two:5673/vhost",
            "rabbit://one:5672,two:5673/vhost",
        ),
    ],
)
def test_a_bus_does_not_tell_its_credentials(conf: cfg.ConfigOpts, url: str, shown: str) -> None:
    bus = Bus(conf, url=url)
    assert bus.url == shown
    assert "SECRET" not in repr(vars(bus).values()) + repr(bus)


@pytest.mark.parametrize("url", ["nosuch://host/", "no-scheme", "rabbit://host:port/"])
def test_a_url_that_cannot_work_is_a_config_error(conf: cfg.ConfigOpts, url: str) -> None:
    with pytest.raises(ConfigError, match="transport_url"):
        Bus(conf, url=url)


def test_a_bus_closes_twice(conf: cfg.ConfigOpts) -> None:
    with Bus(conf) as bus:
        pass
    bus.close()


def test_the_errors_of_the_bus_are_the_worlds_fault() -> None:
    for kind in (RemoteFailure, CallTimeout, BusUnavailable):
        assert issubclass(kind, BackendError)


def test_oslos_ping_is_answered_where_it_is_enabled(conf: cfg.ConfigOpts) -> None:
    transport.register_opts(conf)
    conf.set_override("rpc_ping_enabled", True)
    with Bus(conf, url=f"local://{uuid.uuid4().hex}/") as bus:
        server = bus.server("t", "s", [], translate=to_wire)
        server.start()
        assert bus.client("t", timeout_s=SOON_S).call("oslo_rpc_server_ping", {}) == "pong"
        assert server.stop(SOON_S)


# Arguments


def handler(context: Context, needed: int, optional: int = 0, *, named: int = 0) -> None: ...


@pytest.mark.parametrize(
    "arguments", [{"needed": 1}, {"needed": 1, "optional": 2}, {"needed": 1, "named": 3}]
)
def test_arguments_that_fit(arguments: dict[str, int]) -> None:
    assert transport._Method(handler).check(arguments) == arguments


@pytest.mark.parametrize(
    ("arguments", "field"),
    [({}, "needed"), ({"needed": 1, "context": 2}, "context"), (None, "args"), ([1], "args")],
)
def test_arguments_that_do_not_fit(arguments: object, field: str) -> None:
    with pytest.raises(RequestError) as raised:
        transport._Method(handler).check(arguments)
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("theirs", "served"),
    [("4.5", True), ("4.0", True), ("4.6", False), ("5.0", False)]
    + [(odd, False) for odd in ("4", "", "four", None, 4.5, ["4", "5"])],
)
def test_versions(theirs: object, served: bool) -> None:
    assert transport._supports("4.5", theirs) is served


# The caller


def incoming(**context: object) -> Any:
    stopwatch = SimpleNamespace(elapsed=lambda: 1.5)
    return SimpleNamespace(
        ctxt=context, unique_id="id", message={}, expiration_ms=None, stopwatch=stopwatch
    )


def test_a_context_survives_odd_values() -> None:
    context = transport._context(incoming(request_id=7, user_id=["u"], is_admin="yes"))
    assert context == Context(request_id="", user_id=None, is_admin=False, message_id="id")


def test_a_cast_is_never_too_late() -> None:
    assert transport._patience_s(incoming()) == float("inf")


@pytest.mark.parametrize(("expiration", "left_s"), [("4000", 2.5), ("1000", -0.5)])
def test_patience_is_what_the_message_allows_less_what_has_passed(
    expiration: str, left_s: float
) -> None:
    message = incoming()
    message.message = type("Message", (dict,), {})()
    message.message._raw_message = SimpleNamespace(properties={"expiration": expiration})
    assert transport._patience_s(message) == pytest.approx(left_s)


# Signs of life


@pytest.fixture
def pulse() -> Any:
    pulse = transport._Pulse()
    pulse.start()
    yield pulse
    pulse.stop()


def monitored(tolerated_s: object, heartbeat: Callable[[], None]) -> Any:
    return SimpleNamespace(client_timeout=tolerated_s, heartbeat=heartbeat)


def test_calls_beat_until_they_are_answered(pulse: Any) -> None:
    beats: queue.SimpleQueue[str] = queue.SimpleQueue()
    slow = monitored(60, lambda: beats.put("slow"))
    quick = monitored(0.1, lambda: beats.put("quick"))
    pulse.add(slow)
    pulse.add(quick)
    assert [beats.get(timeout=SOON_S) for _ in range(3)] == ["quick"] * 3
    pulse.remove(quick)
    while not beats.empty():
        beats.get()
    with pytest.raises(queue.Empty):
        beats.get(timeout=0.3)


def test_a_caller_that_is_gone_does_not_stop_the_others(pulse: Any) -> None:
    beats: queue.SimpleQueue[str] = queue.SimpleQueue()

    def fail() -> None:
        beats.put("failed")
        raise ConnectionError("gone")

    pulse.add(monitored(0.1, fail))
    assert beats.get(timeout=SOON_S) == "failed"
    pulse.add(monitored(0.1, lambda: beats.put("alive")))
    assert [beats.get(timeout=SOON_S) for _ in range(2)] == ["alive"] * 2


@pytest.mark.parametrize("tolerated_s", [None, 0, -1, "soon"])
def test_calls_without_a_monitor_do_not_beat(pulse: Any, tolerated_s: object) -> None:
    pulse.add(monitored(tolerated_s, lambda: None))
    assert not pulse._calls
