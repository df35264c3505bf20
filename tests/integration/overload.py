"""Sends more calls than workers can decide, each with a timeout."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import amqp
import msgspec
import numpy as np

from scheduler_worker.scheduling.plugin import Filter
from tests.support.amqp import content, message
from tests.support.patience import SOON_S

TOPIC = "scheduler"
SLOW_S = 0.1


class CountingFilter(Filter):
    """Passes all hosts, slowly; appends a byte for each request to the file named in its hint.

    Decisions of a cluster are serial, so this bounds the throughput of all its workers.
    """

    def passes(self, hosts, spec):
        time.sleep(SLOW_S)
        with Path(spec.hint("count")).open("ab", buffering=0) as file:
            file.write(b".")
        return np.ones(len(hosts), bool)


class Call(msgspec.Struct):
    """A call that was sent; times of the monotonic clock."""

    instance: str
    sent_s: float
    answered_s: float | None = None
    is_placed: bool = False


class Callers:
    """Send calls at a steady rate, answered or not, and record when they are answered."""

    def __init__(self, url: str, *, remaining_s: float, hints: Mapping[str, Any]) -> None:
        self._url = url
        self._remaining_s = remaining_s
        self._spec = {
            "flavor": {"vcpus": 1, "memory_mb": 64, "root_gb": 0},
            "num_instances": 1,
            "scheduler_hints": {name: [value] for name, value in hints.items()},
        }
        self._queue = f"callers-{uuid.uuid4().hex}"
        self.calls: dict[str, Call] = {}
        self._over = threading.Event()

    def send(self, rate_hz: float, duration_s: float) -> None:
        """Send for ``duration_s``; returns when the last call has timed out."""
        listening = threading.Event()
        listener = threading.Thread(target=self._listen, args=(listening,), daemon=True)
        listener.start()
        assert listening.wait(SOON_S)
        connection = _connection(self._url)
        channel = connection.channel()
        begun_s = time.monotonic()
        for number in range(int(rate_hz * duration_s)):
            pause_s = begun_s + number / rate_hz - time.monotonic()
            if pause_s > 0:
                self._over.wait(pause_s)
            self._send(channel)
        self._over.wait(self._remaining_s + 1.0)
        self._over.set()
        listener.join(SOON_S)
        connection.close()

    def _send(self, channel: Any) -> None:
        instance = str(uuid.uuid4())
        body, call_id = message(
            "select_destinations",
            reply_queue=self._queue,
            version="4.5",
            args={
                "spec_obj": self._spec,
                "instance_uuids": [instance],
                "return_objects": True,
                "return_alternates": False,
            },
            _context_request_id=f"req-{uuid.uuid4()}",
        )
        self.calls[call_id] = Call(instance, time.monotonic())
        expiration = str(int(self._remaining_s * 1000))
        channel.basic_publish(amqp.Message(body, expiration=expiration), "nova", TOPIC)

    def _listen(self, listening: threading.Event) -> None:
        connection = _connection(self._url)
        channel = connection.channel()
        channel.queue_declare(self._queue, exclusive=True)
        channel.basic_consume(self._queue, callback=self._take, no_ack=True)
        listening.set()
        while not self._over.is_set():
            try:
                connection.drain_events(timeout=0.2)
            except TimeoutError:
                continue
        connection.close()

    def _take(self, answer: Any) -> None:
        now_s, reply = time.monotonic(), content(answer)
        call = self.calls[reply["_msg_id"]]
        if reply["ending"]:
            call.answered_s = now_s
            call.is_placed = reply["failure"] is None

    # Results

    @property
    def answered(self) -> list[Call]:
        """Calls that were answered at all."""
        return [each for each in self.calls.values() if each.answered_s is not None]

    @property
    def in_time(self) -> list[Call]:
        """Calls that were placed while their caller waited."""
        return [
            each
            for each in self.answered
            if each.is_placed and each.answered_s - each.sent_s <= self._remaining_s  # type: ignore[operator]
        ]


def decided(count: Path) -> int:
    """How many requests the workers' filters have seen."""
    return count.stat().st_size if count.exists() else 0


def _connection(url: str) -> Any:
    parts = urlsplit(url)
    connection = amqp.Connection(
        f"{parts.hostname}:{parts.port}",
        parts.username,
        parts.password,
        virtual_host=parts.path.strip("/") or "/",
    )
    connection.connect()
    return connection
