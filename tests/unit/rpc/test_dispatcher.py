"""From a message to a handler and back."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from scheduler_worker.errors import (
    BusUnavailable,
    ConfigError,
    Conflict,
    NoValidHost,
    RequestError,
    StateUnavailable,
    Undeliverable,
)
from scheduler_worker.ports import Observer
from scheduler_worker.rpc.contract import Context, Endpoint
from scheduler_worker.rpc.dispatcher import Dispatcher, Message, Served, _Method, supports
from scheduler_worker.rpc.wire_errors import to_wire


class Seen(Observer):
    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def request_served(self, method: str, result: str, duration_s: float) -> None:
        assert duration_s >= 0
        self.told.append((method, result))

    def message_dropped(self, why: str) -> None:
        self.told.append((why,))


def serving(handler: Any, observer: Observer | None = None) -> Dispatcher:
    return Dispatcher([Endpoint(None, "4.5", {"do": handler})], to_wire, observer)


def do(dispatcher: Dispatcher, **parts: Any) -> Served:
    patience_s = parts.pop("patience_s", 10.0)
    return dispatcher.serve(
        Message(**{"method": "do", "version": "4.5", **parts}), patience_s=patience_s
    )


def raising(error: Exception) -> Any:
    def handler(_context: Context) -> None:
        raise error

    return handler


def test_the_handlers_value_is_served_and_told() -> None:
    seen = Seen()
    served = do(serving(lambda _context, a: a + 1, seen), args={"a": 1})
    assert (served.value, served.failure) == (2, None)
    assert seen.told == [("do", "ok")]


def test_a_request_that_is_too_late_is_not_begun() -> None:
    seen, begun = Seen(), []
    served = do(serving(lambda _context: begun.append(1), seen), patience_s=0.0)
    assert served.dropped
    assert (begun, seen.told) == ([], [("expired",)])


def test_the_context_has_no_secrets_and_survives_odd_values() -> None:
    contexts: list[Context] = []
    aside = contextlib.nullcontext
    sent = {"request_id": 7, "user_id": ["u"], "is_admin": "yes", "auth_token": "SECRET"}
    serving(contexts.append).serve(
        Message(method="do", version="4.0", context=sent, id="id"), patience_s=3.0, step_aside=aside
    )
    assert contexts == [
        Context(request_id="", message_id="id", patience_s=3.0, step_aside=aside),
    ]


@pytest.mark.parametrize(
    ("error", "name", "again"),
    [
        (NoValidHost("none"), "NoValidHost", False),
        (RequestError("field", "is odd"), "RequestError", False),
        (KeyError("inner"), "InternalError", False),
        (ConfigError("wrong"), "InternalError", False),
        (StateUnavailable("away"), "StateUnavailable", True),
        (Conflict("overtaken"), "Conflict", True),
        (BusUnavailable("away"), "InternalError", True),
        (Undeliverable("nobody"), "InternalError", False),
    ],
)
def test_errors_are_translated_and_judged(error: Exception, name: str, again: bool) -> None:
    served = do(serving(raising(error)))
    assert served.failure is not None
    assert (served.failure.class_name, served.again) == (name, again)


def test_a_defect_is_logged_whole_and_a_failed_cast_in_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    do(serving(raising(KeyError("inner"))), context={"request_id": "req-1"})
    assert "KeyError" in caplog.text
    assert "req-1" in caplog.text
    caplog.clear()
    do(serving(raising(NoValidHost("none"))))
    assert "do was cast and failed" in caplog.text
    assert "Traceback" not in caplog.text
    caplog.clear()
    do(serving(raising(NoValidHost("none"))), is_call=True)
    assert caplog.text == ""


@pytest.mark.parametrize("method", ["nothing", "_do", None, ["do"], {}])
def test_a_method_that_is_not_served(method: object) -> None:
    served = do(serving(lambda _context: None), method=method)
    assert served.failure is not None
    assert served.failure.class_name == "NoSuchMethod"


# Arguments


def handler(context: Context, needed: int, optional: int = 0, *, named: int = 0) -> None: ...


@pytest.mark.parametrize(
    "arguments", [{"needed": 1}, {"needed": 1, "optional": 2}, {"needed": 1, "named": 3}]
)
def test_arguments_that_fit(arguments: dict[str, int]) -> None:
    assert _Method(handler).check(arguments) == arguments


@pytest.mark.parametrize(
    ("arguments", "field"),
    [({}, "needed"), ({"needed": 1, "context": 2}, "context"), (None, "args"), ([1], "args")],
)
def test_arguments_that_do_not_fit(arguments: object, field: str) -> None:
    with pytest.raises(RequestError) as raised:
        _Method(handler).check(arguments)
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("theirs", "served"),
    [("4.5", True), ("4.0", True), ("4.6", False), ("5.0", False)]
    + [(odd, False) for odd in ("4", "", "four", None, 4.5, ["4", "5"])],
)
def test_versions(theirs: object, served: bool) -> None:
    assert supports("4.5", theirs) is served
