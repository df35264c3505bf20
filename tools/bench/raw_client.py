"""A light RPC client: oslo.messaging's wire form over one connection of py-amqp, without threads.

It uses little CPU itself, and all servers are called by it, so differences are the servers'.
"""

import json
import math
import time
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import amqp
from amqp import spec

EXCHANGE = "nova"
PATIENCE_S = 60
_CALL_ID, _INSTANCE = "@call@", "@instance@"


class CallError(Exception):
    """Raised for a reply that is a failure, or unexpected."""


class Window:
    """The calls of some seconds: their times, and their instances."""

    def __init__(self) -> None:
        self.times_s: list[float] = []
        self.instances: list[str] = []


class RawClient:
    """Calls to any topic; one connection, one reply queue, no thread."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = amqp.Connection(
            f"{parts.hostname}:{parts.port}", parts.username, parts.password
        )
        self._connection.connect()
        self._queue = f"reply_{uuid.uuid4().hex}"
        self._waiting: dict[str, Callable[[Any], None]] = {}
        self._open_channel()

    def listeners(self, topic: str) -> int:
        """The number of consumers of the topic's queue."""
        try:
            return int(self._channel.queue_declare(topic, passive=True).consumer_count)
        except amqp.NotFound:
            self._open_channel()
            return 0

    def call(self, topic: str, method: str, *, own: bool = False, **arguments: Any) -> Any:
        """Make one call and return the result; ``own`` for the worker's own interface."""
        answers: list[Any] = []
        body = self._body(method, arguments, *(("scheduler_worker", "1.0") if own else ()))
        self._send(topic, body.replace(_CALL_ID, self._expect(answers.append)))
        while not answers:
            self._connection.drain_events(timeout=PATIENCE_S)
        return answers[0]

    def select(
        self,
        topic: str,
        specs: list[dict],
        *,
        outstanding: int,
        seconds: float = math.inf,
        warm_up_s: float = 0.0,
        calls: float = math.inf,
        check: Callable[[Any], bool],
    ) -> Window:
        """Keep ``outstanding`` calls in flight, each for a new instance (a closed loop).

        For some seconds, or some ``calls``.
        """
        window, number = Window(), 0
        bodies = [self._selection(each) for each in specs]
        begins_s = time.perf_counter() + warm_up_s
        ends_s = begins_s + seconds

        def send() -> None:
            nonlocal number
            number += 1
            instance, sent_s = str(uuid.uuid4()), time.perf_counter()

            def answered(result: Any) -> None:
                now_s = time.perf_counter()
                if not check(result):
                    raise CallError(f"{topic} answered {result!s:.200}")
                window.instances.append(instance)
                if begins_s <= now_s < ends_s:
                    window.times_s.append(now_s - sent_s)
                if now_s < ends_s and number < calls:
                    send()

            body = bodies[number % len(bodies)].replace(_CALL_ID, self._expect(answered))
            self._send(topic, body.replace(_INSTANCE, instance))

        for _ in range(outstanding):
            send()
        while self._waiting:
            self._connection.drain_events(timeout=PATIENCE_S)
        return window

    def close(self) -> None:
        self._connection.close()

    def _open_channel(self) -> None:
        self._channel = self._connection.channel()
        self._channel.queue_declare(self._queue, exclusive=True)
        self._channel.basic_consume(self._queue, callback=self._answered, no_ack=True)

    def _selection(self, spec_obj: dict) -> str:
        arguments = {
            "spec_obj": spec_obj,
            "instance_uuids": [_INSTANCE],
            "return_objects": True,
            "return_alternates": True,
        }
        return self._body("select_destinations", arguments)

    def _body(
        self, method: str, arguments: dict, namespace: str | None = None, version: str = "4.5"
    ) -> str:
        """A message with placeholders for the ids."""
        message = {
            "method": method,
            "args": arguments,
            "version": version,
            "_msg_id": _CALL_ID,
            "_unique_id": _CALL_ID,
            "_reply_q": self._queue,
            "_timeout": None,
            "_context_request_id": f"req-{_CALL_ID}",
        }
        if namespace:
            message["namespace"] = namespace
        return json.dumps({"oslo.version": "2.0", "oslo.message": json.dumps(message)})

    def _expect(self, then: Callable[[Any], None]) -> str:
        call_id = uuid.uuid4().hex
        self._waiting[call_id] = then
        return call_id

    def _send(self, topic: str, body: str) -> None:
        message = amqp.Message(
            body,
            content_type="application/json",
            content_encoding="utf-8",
            delivery_mode=2,
            expiration=str(1000 * PATIENCE_S),
        )
        # py-amqp's own basic_publish looks for input before each message.
        self._channel.send_method(
            spec.Basic.Publish, "Bssbb", (0, EXCHANGE, topic, False, False), message
        )

    def _answered(self, message: Any) -> None:
        answer = json.loads(json.loads(message.body)["oslo.message"])
        if answer["failure"]:
            raise CallError(f"a call failed: {answer['failure']!s:.300}")
        if answer["ending"]:
            self._waiting.pop(answer["_msg_id"])(answer["result"])
