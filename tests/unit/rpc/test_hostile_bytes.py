"""Hostile input: properties, frames and compressed bodies that cannot be decoded."""

import bz2
import gzip
import lzma
import zlib
from struct import pack
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.rpc.amqp import frames, properties
from scheduler_worker.rpc.amqp.properties import DELIVERIES, NOTHING, Properties
from scheduler_worker.rpc.serving.envelope import DecompressionError, decompressed

FRAME_MAX = 4096


# Properties


@given(st.binary(max_size=200))
def test_properties_of_any_bytes_can_be_copied(raw):
    read = properties.read(raw)
    copy = properties.read(properties.of_copy(read, {DELIVERIES: 1}, 500, FRAME_MAX))
    assert copy.headers[DELIVERIES] == 1
    assert copy.expiration == "500"


@pytest.mark.parametrize(
    ("headers", "broker_counts", "expected"),
    [
        ({}, False, (0, False)),
        ({DELIVERIES: 3}, False, (3, False)),
        ({DELIVERIES: 3, "x-delivery-count": 7}, False, (3, False)),
        ({DELIVERIES: 3, "x-delivery-count": 7}, True, (10, True)),
        ({DELIVERIES: -5, "x-delivery-count": -5}, True, (0, True)),
        ({DELIVERIES: "3", "x-delivery-count": None}, True, (0, False)),
        ({DELIVERIES: True, "x-delivery-count": 2.5}, True, (0, False)),
    ],
)
def test_delivery_counts_are_believed_only_where_the_broker_counts(
    headers, broker_counts, expected
):
    assert Properties({}, headers).deliveries(broker_counts=broker_counts) == expected


def test_a_copy_omits_headers_that_the_broker_would_act_on():
    headers = {"CC": ["elsewhere"], "BCC": ["elsewhere"], "x-delivery-count": 3, "mine": "kept"}
    values = {"user_id": "sender", "expiration": "60000", "correlation_id": "kept"}
    copy = properties.read(properties.of_copy(Properties(values, headers), {}, None, FRAME_MAX))
    assert copy == Properties({"correlation_id": "kept"}, {"mine": "kept"})


def test_a_copy_omits_headers_that_do_not_fit_into_a_frame():
    large = Properties({"correlation_id": "kept"}, {"large": "x" * FRAME_MAX})
    copy = properties.read(properties.of_copy(large, {DELIVERIES: 1}, None, FRAME_MAX))
    assert copy == Properties({"correlation_id": "kept"}, {DELIVERIES: 1})


def test_properties_that_cannot_be_decoded_count_as_none():
    content_type = pack(">HB", 0x8000, 1) + b"\xff"
    a_time_that_no_calendar_has = pack(">HI", 0x2000, 11) + b"\x01tT" + pack(">Q", 2**62)
    assert properties.read(content_type) == properties.read(a_time_that_no_calendar_has) == NOTHING


# Frames


def assembler(received: list[Any], fallback: Any = None) -> frames.Assembler:
    return frames.Assembler(
        SimpleNamespace(bytes_recv=0),
        fallback or (lambda *_: None),
        on_content=lambda _channel, content: received.append(content),
        on_method=lambda *_: False,
    )


def deliver(tag: int, exchange: bytes, key: bytes) -> bytes:
    method = pack(">HH", *frames.BASIC_DELIVER) + b"\x03one" + pack(">QB", tag, 1)
    return method + pack(">B", len(exchange)) + exchange + pack(">B", len(key)) + key


def test_a_message_is_assembled_whatever_its_names_and_properties_are():
    received: list[frames.Content] = []
    take = assembler(received)
    assert not take((frames.METHOD, 1, deliver(7, b"\xff", b"\xfe\xfd")))
    assert not take((frames.HEADER, 1, pack(">HHQ", 60, 0, 4) + b"\x80\x00\x01\xff"))
    assert not take((frames.HEARTBEAT, 0, b""))
    assert not take((frames.BODY, 1, b"abc"))
    assert take((frames.BODY, 1, b"d"))
    [content] = received
    assert frames.delivered(content.arguments) == ("one", 7, True)
    assert (content.body, content.properties) == (b"abcd", b"\x80\x00\x01\xff")


def test_a_message_without_a_body_is_complete_with_its_header():
    received: list[frames.Content] = []
    take = assembler(received)
    take((frames.METHOD, 1, deliver(1, b"", b"q")))
    assert take((frames.HEADER, 1, pack(">HHQ", 60, 0, 0) + b"\x00\x00"))
    assert received[0].body == b""


def test_input_that_breaks_py_amqp_is_an_error_of_the_connection():
    def fallback(*_: Any) -> None:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "cut in the middle")

    with pytest.raises(OSError, match="cannot be decoded"):
        assembler([], fallback)((frames.METHOD, 1, pack(">HH", 20, 40)))
    with pytest.raises(OSError, match="part of no message"):
        assembler([])((frames.BODY, 1, b"x"))


def test_a_reason_cut_within_a_character_is_decoded():
    arguments = pack(">HB", 406, 3) + "aé".encode()[:2] + b"!" + pack(">HH", 60, 40)
    assert frames.channel_closed(arguments) == (406, "a\ufffd!", frames.BASIC_PUBLISH)


# Compressed bodies

PLAIN = b"x" * 10_000


@pytest.mark.parametrize(
    ("name", "compress"),
    [
        ("gzip", zlib.compress),
        ("application/x-gzip", zlib.compress),
        ("bzip2", bz2.compress),
        ("application/x-lzma", lzma.compress),
    ],
)
def test_bodies_are_decompressed_up_to_a_bound(name, compress):
    assert decompressed(compress(PLAIN), name, len(PLAIN)) == PLAIN
    with pytest.raises(DecompressionError, match="more than 9999 bytes"):
        decompressed(compress(PLAIN), name, len(PLAIN) - 1)
    with pytest.raises(DecompressionError, match="its end is missing"):
        decompressed(compress(PLAIN)[:-5], name, len(PLAIN))


@pytest.mark.parametrize("compression", ["zstd", 5, ["gzip"], {"a": 1}, b"gzip", True])
def test_an_unknown_compression_is_named(compression):
    with pytest.raises(DecompressionError, match="header compression"):
        decompressed(PLAIN, compression, 10)


@given(st.binary(max_size=100), st.sampled_from(["gzip", "bzip2", "lzma"]))
def test_a_body_that_is_not_compressed_is_an_error(body, name):
    with pytest.raises(DecompressionError):
        decompressed(body, name, 10)


def test_a_body_without_a_compression_header_is_left_as_it_is():
    assert decompressed(gzip.compress(b"x"), None, 5) == gzip.compress(b"x")
