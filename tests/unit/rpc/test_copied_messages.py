"""What a copy of a message has of its original."""

import time

from scheduler_worker.rpc.amqp import frames, properties
from scheduler_worker.rpc.amqp.connection import BrokerConnection, _Unacknowledged
from scheduler_worker.rpc.amqp.frames import Content
from scheduler_worker.rpc.amqp.properties import Properties


def test_a_copy_has_only_what_is_left_of_its_callers_time():
    link = object.__new__(BrokerConnection)
    waited_s, content = time.monotonic() - 1e6, Content(frames.BASIC_DELIVER, b"")
    sent = Properties({"expiration": str(2_000_000_000)}, {})
    left_ms, headers = link._expiry(_Unacknowledged("topic", content, sent, waited_s))
    assert left_ms in range(900_000_000, 1_000_000_001)
    assert headers.keys() == {properties.EXPIRES}
