"""oslo.messaging's wire form, read and written without it."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.errors import NoValidHost
from scheduler_worker.rpc.amqp import envelope
from scheduler_worker.rpc.amqp.envelope import MalformedError, decode
from scheduler_worker.rpc.oslo import oslo_messaging  # noqa: F401 - settles threads first
from scheduler_worker.rpc.wire_errors import to_wire

WIRE = Path(__file__).parents[2] / "samples" / "nova" / "wire"
LIMIT = 2**20


def body(content: Any, version: str = "2.0") -> bytes:
    return json.dumps({"oslo.version": version, "oslo.message": json.dumps(content)}).encode()


@pytest.mark.parametrize("path", sorted(WIRE.glob("*.json")), ids=lambda path: path.stem)
def test_recorded_messages_are_read(path: Path) -> None:
    recorded = json.loads(path.read_text())
    sent = recorded["oslo.message"]
    request = decode(body(sent), recorded["properties"].get("expiration"), LIMIT)
    assert request.id == sent["_unique_id"]
    assert request.call_id == sent.get("_msg_id")
    assert request.reply_queue == sent.get("_reply_q", "")
    assert request.message.method == sent["method"]
    assert request.message.args == sent["args"]
    assert request.message.context["request_id"] == sent["_context_request_id"]
    assert request.message.is_call is ("_msg_id" in sent)
    assert request.monitor_s == sent.get("_timeout")


def test_patience_is_the_expiration() -> None:
    assert decode(body({}), "20000", LIMIT).patience_s == 20.0
    assert decode(body({}), None, LIMIT).patience_s == math.inf
    assert decode(body({}), "soon", LIMIT).patience_s == math.inf


@pytest.mark.parametrize("told", [0, -1, True, "soon", None])
def test_an_odd_monitor_is_none(told: object) -> None:
    sent = {"_msg_id": "1", "_reply_q": "q", "_timeout": told}
    assert decode(body(sent), None, LIMIT).monitor_s is None


def test_a_message_without_an_id_gets_one_of_its_own() -> None:
    first, second = decode(body({}), None, LIMIT), decode(body({}), None, LIMIT)
    assert first.id and second.id and first.id != second.id


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"oslo.version": "2.0"}',
        b'{"oslo.version": "3.0", "oslo.message": "{}"}',
        b'{"oslo.version": "2.0", "oslo.message": "[1]"}',
        b'{"oslo.version": "2.0", "oslo.message": "{"}',
        b'{"oslo.version": "2.0", "oslo.message": "' + b"[" * 100_000 + b'"}',
        gzip.compress(b"{}"),
    ],
)
def test_what_is_not_a_message_is_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        decode(raw, None, LIMIT)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_malformed(raw: bytes) -> None:
    with contextlib.suppress(MalformedError):
        decode(raw, None, LIMIT)


def test_numbers_that_json_does_not_know_are_read_as_oslo_reads_them() -> None:
    raw = b'{"oslo.version": "2.0", "oslo.message": "{\\"args\\": {\\"a\\": Infinity}}"}'
    assert decode(raw, None, LIMIT).message.args == {"a": math.inf}


def test_a_large_message_is_refused_with_an_answer() -> None:
    sent = {"_msg_id": "1", "_reply_q": "q", "_unique_id": "u", "args": {"a": "x" * 200}}
    request = decode(body(sent), None, 100)
    assert request.refusal is not None
    assert "max_message_bytes allows 100" in request.refusal.message
    assert (request.call_id, request.reply_queue, request.id) == ("1", "q", "u")
    assert request.message.args == {}


def theirs(raw: bytes) -> Any:
    from oslo_messaging._drivers import common

    return common.deserialize_msg(json.loads(raw))


@pytest.mark.parametrize("value", [None, [], {"a": [1, 2.5, "ü", None]}, (1, 2)])
def test_oslo_messaging_reads_our_answers(value: object) -> None:
    told = theirs(envelope.answer("call", value))
    assert told.pop("_unique_id")
    expected = json.loads(json.dumps(value))
    assert told == {"result": expected, "failure": None, "ending": True, "_msg_id": "call"}


def test_a_sign_of_life_does_not_end_the_call() -> None:
    told = theirs(envelope.sign_of_life("call"))
    assert (told["ending"], told["result"], told["failure"]) == (False, None, None)


def test_oslo_messaging_rebuilds_our_failures() -> None:
    from oslo_messaging._drivers import common

    raw = envelope.failure("call", to_wire(NoValidHost("There are not enough hosts available.")))
    error = common.deserialize_remote_exception(theirs(raw)["failure"], [])
    assert error.exc_type == "NoValidHost"
    assert error.value == "No valid host was found. There are not enough hosts available."
