"""From a message to a handler and back."""

import contextlib
from typing import Any

import pytest

from scheduler_worker import events
from scheduler_worker.errors import (
    BusUnavailable,
    ConfigError,
    Conflict,
    DeadlineExceeded,
    NobodyListens,
    NoValidHost,
    RequestError,
    StateUnavailable,
    Undeliverable,
)
from scheduler_worker.observer import Observer
from scheduler_worker.rpc.dispatcher import (
    Context,
    Dispatcher,
    Endpoint,
    Message,
    Result,
    _Method,
    supports,
)
from scheduler_worker.waiters import complete
from tests.support.observers import CountingObserver


def dispatcher_of(handler: Any, observer: Observer | None = None) -> Dispatcher:
    return Dispatcher([Endpoint(None, "4.5", {"do": handler})], observer)


def do(dispatcher: Dispatcher, **parts: Any) -> Result:
    remaining_s = parts.pop("remaining_s", 10.0)
    message = Message(**{"method": "do", "version": "4.5", **parts})
    return complete(dispatcher.serve(message, remaining_s=remaining_s))


def raising(error: Exception) -> Any:
    def handler(_context: Context) -> None:
        raise error

    return handler


def test_the_handlers_result_is_returned_and_observed():
    recorder = CountingObserver()
    result = do(dispatcher_of(lambda _context, a: a + 1, recorder), args={"a": 1})
    assert (result.value, result.failure) == (2, None)
    assert recorder.of(events.REQUESTS) == {("do", "ok"): 1}


def test_a_request_whose_caller_is_gone_is_dropped():
    recorder, begun = CountingObserver(), []
    result = do(dispatcher_of(lambda _context: begun.append(1), recorder), remaining_s=0.0)
    assert result.is_dropped
    assert (begun, recorder.of(events.DROPPED)) == ([], {"expired": 1})


def test_a_call_that_runs_out_of_time_is_dropped_and_a_cast_fails():
    late = raising(DeadlineExceeded("too late"))
    assert do(dispatcher_of(late), is_call=True).is_dropped
    cast = do(dispatcher_of(late))
    assert (cast.is_dropped, cast.failure.class_name) == (False, "DeadlineExceeded")


def test_the_context_has_no_secrets_and_survives_odd_values():
    contexts: list[Context] = []

    def yielding() -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    sent = {"request_id": 7, "user_id": ["u"], "is_admin": "yes", "auth_token": "SECRET"}
    message = Message(method="do", version="4.0", context=sent, id="id")
    dispatcher = dispatcher_of(contexts.append)
    complete(dispatcher.serve(message, remaining_s=3.0, yield_slot=yielding))
    assert contexts == [
        Context(request_id="", message_id="id", remaining_s=3.0, yield_slot=yielding),
    ]


@pytest.mark.parametrize(
    ("error", "name", "is_retryable"),
    [
        (NoValidHost("none"), "NoValidHost", False),
        (RequestError("field", "is odd"), "RequestError", False),
        (KeyError("inner"), "InternalError", False),
        (ConfigError("wrong"), "InternalError", False),
        (StateUnavailable("away"), "StateUnavailable", True),
        (Conflict("overtaken"), "Conflict", True),
        (BusUnavailable("away"), "InternalError", True),
        (Undeliverable("too large"), "InternalError", False),
        (NobodyListens("nobody"), "InternalError", True),
    ],
)
def test_errors_are_translated_and_classified_as_retryable(error, name, is_retryable):
    result = do(dispatcher_of(raising(error)))
    assert result.failure is not None
    assert (result.failure.class_name, result.is_retryable) == (name, is_retryable)


def test_defects_are_logged_with_traceback_and_failed_casts_in_one_line(caplog):
    do(dispatcher_of(raising(KeyError("inner"))), context={"request_id": "req-1"})
    assert "KeyError" in caplog.text
    assert "req-1" in caplog.text
    caplog.clear()
    do(dispatcher_of(raising(NoValidHost("none"))))
    assert "do was cast and failed" in caplog.text
    assert "Traceback" not in caplog.text
    caplog.clear()
    do(dispatcher_of(raising(StateUnavailable("away"))))
    assert caplog.text == "", "an outage is logged once, not for each cast"
    do(dispatcher_of(raising(NoValidHost("none"))), is_call=True)
    assert caplog.text == ""


@pytest.mark.parametrize("method", ["nothing", "_do", "__class__", None, ["do"], {}])
def test_a_method_that_is_not_served(method):
    failure = do(dispatcher_of(lambda _context: None), method=method).failure
    assert failure is not None
    assert (failure.module, failure.class_name) == ("oslo_messaging.rpc.dispatcher", "NoSuchMethod")
    assert failure.message == f"Endpoint does not support RPC method {method}"


@pytest.mark.parametrize(
    "target", [{"version": "4.6"}, {"version": "5.0"}, {"version": "3.9"}, {"namespace": "ours"}]
)
def test_a_version_or_namespace_that_is_not_served(target):
    failure = do(dispatcher_of(lambda _context: None), **target).failure
    assert failure is not None
    assert failure.class_name == "UnsupportedVersion"
    expected = f"Endpoint does not support RPC version {target.get('version', '4.5')}. "
    assert failure.message.startswith(f"{expected}Attempted method: do")


def test_an_endpoint_serves_its_namespace():
    endpoint = Endpoint("ours", "1.0", {"do": lambda _context, **arguments: arguments})
    found = do(Dispatcher([endpoint]), namespace="ours", version="1.0", args={"a": 1})
    assert found.value == {"a": 1}


# Arguments


def handler(context: Context, needed: int, optional: int = 0, *, named: int = 0) -> None: ...


@pytest.mark.parametrize(
    ("arguments", "field"),
    [({}, "needed"), ({"needed": 1, "context": 2}, "context"), (None, "args"), ([1], "args")],
)
def test_arguments_that_do_not_fit(arguments, field):
    with pytest.raises(RequestError) as raised:
        _Method(handler).check(arguments)
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("theirs", "is_served"),
    [("4.5", True), ("4.0", True), ("4.6", False), ("5.0", False)]
    + [(odd, False) for odd in ("4", "", "four", None, 4.5, ["4", "5"])],
)
def test_versions(theirs, is_served):
    assert supports("4.5", theirs) is is_served


@pytest.mark.parametrize("odd", [["a", "list"], {"a": "mapping"}, 7])
@pytest.mark.parametrize("name", ["method", "namespace"])
def test_a_name_that_is_no_text_is_no_non_blocking_method(name, odd):
    fields: dict[str, Any] = {"method": "ping", "namespace": None, name: odd}
    assert Dispatcher([]).is_non_blocking(Message(**fields)) is False
