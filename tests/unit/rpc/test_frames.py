"""Our frames are identical to those that py-amqp writes."""

from types import SimpleNamespace
from typing import Any

import amqp
import pytest
from amqp import spec
from amqp.method_framing import frame_writer
from amqp.serialization import dumps

from scheduler_worker.rpc.amqp import frames

FRAME_MAX = 4096


def theirs(method: Any, signature: str, arguments: tuple[Any, ...], content: Any = None) -> bytes:
    written = bytearray()
    transport = SimpleNamespace(write=lambda some: written.extend(bytes(some)))
    connection = SimpleNamespace(frame_max=FRAME_MAX, bytes_sent=0)
    write = frame_writer(connection, transport)
    write(1, 7, method, dumps(signature, arguments), content)
    return bytes(written)


@pytest.mark.parametrize("size", [1, 100, FRAME_MAX - 8, FRAME_MAX - 7, 3 * FRAME_MAX])
def test_publishing_an_answer(size):
    body = b"x" * size
    message = amqp.Message(
        body,
        content_type="application/json",
        content_encoding="utf-8",
        delivery_mode=2,
        priority=0,
    )
    arguments = (0, "", "reply_q", True, False)
    expected = theirs(spec.Basic.Publish, "Bssbb", arguments, message)
    assert frames.publish(7, "reply_q", frames.ANSWER, body, FRAME_MAX) == expected


@pytest.mark.parametrize("multiple", [True, False])
def test_an_acknowledgement(multiple):
    expected = theirs(spec.Basic.Ack, "Lb", (2**40, multiple))
    assert frames.ack(7, 2**40, multiple=multiple) == expected


def test_complete_frames_are_taken_from_what_arrived():
    first, second = frames.ack(7, 99, multiple=True), frames.ack(1, 2**40, multiple=False)
    whole = len(first)
    for end in range(whole, whole + len(second)):
        inbox = bytearray((first + second)[:end])
        assert list(frames.taken_from(inbox)) == [(frames.METHOD, 7, first[7 : whole - 1])]
        assert inbox == second[: end - whole]
    heartbeat = b"\x08\0\0\0\0\0\0\xce"
    all_three = bytearray(first + second + heartbeat)
    assert [channel for _, channel, _ in frames.taken_from(all_three)] == [7, 1, 0]
    assert not all_three


def test_bytes_that_are_no_frame_are_an_error():
    inbox = bytearray(frames.ack(7, 99, multiple=True))
    inbox[-1] = 0
    with pytest.raises(OSError, match="no frame"):
        list(frames.taken_from(inbox))


@pytest.mark.parametrize("name", ["n" * 256, "ä" * 128, "\ud800"])
def test_names_that_amqp_cannot_carry_are_refused(name):
    with pytest.raises(ValueError):
        frames.publish(7, name, frames.ANSWER, b"", FRAME_MAX)
