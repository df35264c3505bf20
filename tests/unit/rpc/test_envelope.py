"""oslo.messaging's wire form, decoded and encoded without it."""

import gzip
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.errors import NoValidHost
from scheduler_worker.rpc.oslo import oslo_messaging  # noqa: F401 - settles threads first
from scheduler_worker.rpc.serving import envelope
from scheduler_worker.rpc.serving.envelope import MalformedError, decode
from scheduler_worker.rpc.wire_errors import to_wire
from tests.support.samples import SAMPLES

LIMIT = 2**20


def body(content: Any, version: str = "2.0") -> bytes:
    return json.dumps({"oslo.version": version, "oslo.message": json.dumps(content)}).encode()


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("wire/*.json")), ids=lambda path: path.stem)
def test_recorded_messages_are_read(path):
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
    assert request.call_monitor_s == sent.get("_timeout")


@pytest.mark.parametrize(
    ("expiration", "remaining_s"),
    [("20000", 20.0)]
    + [(odd, math.inf) for odd in (None, "soon", "nan", "inf", "1e9", "-5", "", "٣")],
)
def test_the_callers_patience_is_an_expiration_that_a_broker_accepts(expiration, remaining_s):
    assert decode(body({}), expiration, LIMIT).remaining_s == remaining_s


@pytest.mark.parametrize(
    ("value", "timeout_s"),
    [(odd, None) for odd in (0, -1, True, "soon", None)]
    + [(much, 1e9) for much in (10**400, float("inf"), 1e300)],
)
def test_a_call_monitor_timeout_is_a_number_within_bounds(value, timeout_s):
    sent = {"_msg_id": "1", "_reply_q": "q", "_timeout": value}
    assert decode(body(sent), None, LIMIT).call_monitor_s == timeout_s


def test_a_message_without_an_id_gets_one_of_its_own():
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
def test_what_is_not_a_message_is_malformed(raw):
    with pytest.raises(MalformedError):
        decode(raw, None, LIMIT)


def test_a_large_message_is_refused_with_an_answer():
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
def test_oslo_messaging_reads_our_answers(value):
    answer = theirs(envelope.encode_answer("call", value))
    assert answer.pop("_unique_id")
    expected = json.loads(json.dumps(value))
    assert answer == {"result": expected, "failure": None, "ending": True, "_msg_id": "call"}


def test_a_heartbeat_does_not_end_the_call():
    heartbeat = theirs(envelope.encode_heartbeat("call"))
    assert (heartbeat["ending"], heartbeat["result"], heartbeat["failure"]) == (False, None, None)


def test_oslo_messaging_rebuilds_our_failures():
    from oslo_messaging._drivers import common

    raw = envelope.encode_failure(
        "call", to_wire(NoValidHost("There are not enough hosts available."))
    )
    error = common.deserialize_remote_exception(theirs(raw)["failure"], [])
    assert error.exc_type == "NoValidHost"
    assert error.value == "No valid host was found. There are not enough hosts available."


# Hostile input

UNANSWERABLE = ["\ud800", "n" * 256, "ä" * 128]


@pytest.mark.parametrize("name", ["_msg_id", "_reply_q"])
@pytest.mark.parametrize("value", UNANSWERABLE, ids=["lone surrogate", "long", "long in bytes"])
def test_an_unusable_reply_address_is_malformed(name, value):
    sent = {"_msg_id": "1", "_reply_q": "q", name: value}
    found = envelope.read(body(sent), None, LIMIT)
    assert isinstance(found, MalformedError)
    assert f"its {name} is not" in str(found)


def test_a_call_with_half_a_surrogate_pair_in_it_is_refused():
    sent = {"_msg_id": "1", "_reply_q": "q", "method": "say", "args": {"name": "\ud800"}}
    request = decode(body(sent), None, LIMIT)
    assert request.refusal is not None
    assert "no Unicode" in request.refusal.message
    assert request.call_id == "1"


@given(st.binary(max_size=200) | st.text(max_size=50).map(lambda inner: body(inner)))
def test_any_bytes_give_a_request_or_a_reason(raw):
    assert isinstance(envelope.read(raw, None, LIMIT), envelope.WireRequest | MalformedError)
    assert isinstance(envelope.peek_id(raw), str)


def test_the_id_is_found_without_decoding_the_rest():
    assert envelope.peek_id(body({"_unique_id": "u", "args": {"x": [1]}})) == "u"
    assert envelope.peek_id(b"{") == ""


@pytest.mark.parametrize("value", [object(), "\ud800", {"x": "\ud800"}])
def test_an_answer_that_cannot_be_encoded_becomes_a_failure(value):
    request = decode(body({"_msg_id": "1", "_reply_q": "q"}), None, LIMIT)
    answer = envelope.encode_result(request, envelope.Result(value))  # type: ignore[attr-defined]
    assert answer is not None
    assert b"InternalError" in answer
    not_encodable = envelope.Result(failure=envelope.internal_error("\ud800"))  # type: ignore[attr-defined]
    assert b"InternalError" in (envelope.encode_result(request, not_encodable) or b"")


def test_an_answer_too_large_for_the_broker_is_replaced_by_a_failure():
    large = envelope.encode_answer("call", "x" * 100)
    instead = envelope.failure_instead_of(large, "406: message size 100 is larger")
    assert instead is not None
    assert b"406: message size" in instead
    assert envelope.failure_instead_of(instead, "406") is None
