"""Copies of the messages of a topic, while somebody else serves it.

A queue of our own is bound to the exchange beside the topic's, so that the broker puts a copy of
each message into it. It belongs to our connection and ends with it, and is bounded: beyond that the
oldest copies are dropped. Nothing is declared, consumed or answered that others use.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import amqp

from scheduler_worker.errors import BusUnavailable, ConfigError, RequestError, SchedulerWorkerError
from scheduler_worker.observer import Observer
from scheduler_worker.rpc.amqp import contents, frames, properties
from scheduler_worker.rpc.amqp.contents import Content
from scheduler_worker.rpc.amqp.protocol import ProtocolConnection, lost_on_error, translated
from scheduler_worker.rpc.amqp.queues import needs
from scheduler_worker.rpc.amqp.settings import AmqpSettings, Broker
from scheduler_worker.rpc.dispatcher import Message
from scheduler_worker.rpc.serving import envelope
from scheduler_worker.rpc.serving.compression import DecompressionError, decompressed
from scheduler_worker.rpc.serving.connection import ConnectionLostError
from scheduler_worker.rpc.serving.loop import Loop
from scheduler_worker.rpc.serving.settings import QueueNames
from scheduler_worker.unique import unique_hex

LOG = logging.getLogger(__name__)

_PREFETCH = 32
_MAX_BYTES = 64 * 2**20
"""Of the queue."""
_TICK_S = 1.0

Take = Callable[[Message], None]


class Limits(NamedTuple):
    """Bounds of the queue and of one message."""

    messages: int
    max_message_bytes: int


class Copies:
    """Implements ``Server``: from ``start`` until ``stop`` gives each copy to ``take``."""

    def __init__(
        self,
        settings: AmqpSettings,
        names: QueueNames,
        take: Take,
        *,
        limits: Limits,
        observer: Observer,
    ) -> None:
        """``take`` is called by one thread; what it raises is logged."""
        self._settings = settings
        self._names = names
        self._take = take
        self._limits = limits
        self._observer = observer
        self._loop = Loop()
        self._stopping = threading.Event()
        self._begun = threading.Event()
        self._refused: SchedulerWorkerError | None = None
        self._problem: str | None = "has not started"
        self._last_tick_s = time.monotonic()
        self._taken = 0
        self._thread = threading.Thread(target=self._run, name="rpc-copies", daemon=True)

    # From other threads

    def start(self) -> None:
        """Begin to consume; waits for a broker that is away.

        Raises BusUnavailable where it refuses us, ConfigError.
        """
        if not (self._stopping.is_set() or self._thread.is_alive()):
            self._thread.start()
        self._begun.wait()
        if self._refused is not None:
            raise self._refused

    def stop(self, timeout_s: float) -> bool:
        self._stopping.set()
        self._begun.set()
        self._loop.call_soon(lambda: None)
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def take_requests(self, wanted: bool) -> None:
        """Raises RequestError: it takes no requests, only copies."""
        raise RequestError("worker", "in a dry run a worker takes no requests")

    def come_first(self) -> None:
        """Do nothing: it takes no requests."""

    def problem(self) -> str | None:
        return self._problem

    def failure(self) -> str | None:
        return str(self._refused) if self._refused is not None else None

    def tick_age_s(self) -> float:
        return time.monotonic() - self._last_tick_s

    def describe(self) -> dict[str, Any]:
        return {
            "server": "copies",
            "running": 0,
            "waiting": 0,
            "taken": self._taken,
            "problem": self._problem,
        }

    # The thread

    def _run(self) -> None:
        attempts = 0
        while not self._stopping.is_set():
            for broker in self._settings.brokers:
                try:
                    self._serve(broker)
                    attempts = 0
                except ConnectionLostError as error:
                    self._problem = f"cannot reach RabbitMQ: {error}"
                    if not self._stopping.is_set():
                        LOG.warning("No copies of requests arrive: %s", error)
                except (BusUnavailable, ConfigError) as error:
                    self._problem = str(error)
                    if not self._begun.is_set():
                        self._refused = error
                        self._begun.set()
                        return
                    LOG.error("RabbitMQ does not serve us: %s", error)  # noqa: TRY400
                except Exception:
                    LOG.exception("Copies of requests are taken up again in a moment")
            attempts += 1
            settings = self._settings
            wait_s = settings.retry_s + (attempts - 1) * settings.retry_backoff_s
            self._tick()
            self._stopping.wait(min(wait_s, settings.longest_retry_s))
        self._problem = "has stopped"

    def _serve(self, broker: Broker) -> None:
        """One connection, until it is lost or the server stops."""
        with contextlib.closing(_Connection(self._settings, broker, self._names)) as connection:
            queue = connection.consume(self._limits.messages)
            LOG.info("Copies of the messages of topic %s arrive in %s at %s",
                     self._names.topic, queue, broker.address)  # fmt: skip
            self._problem = None
            self._observer.bus_connected(again=self._begun.is_set())
            self._begun.set()
            while not self._stopping.is_set():
                self._tick()
                connection.tick()
                # One message at a time, so that slow decisions keep back no heartbeat.
                wait_s = 0.0 if connection.received else _TICK_S
                if connection.has_frame or self._loop.wait(connection, timeout_s=wait_s):
                    connection.pump()
                self._loop.run_due()
                if connection.received:
                    content = connection.received.popleft()
                    self._handle(content)
                    connection.acknowledge(content)

    def _tick(self) -> None:
        self._last_tick_s = time.monotonic()

    def _handle(self, content: Content) -> None:
        max_bytes = self._limits.max_message_bytes
        try:
            compression = properties.read(content.properties).compression
            body = decompressed(content.body, compression, max_bytes)
            request = envelope.read(body, None, max_bytes)
            if isinstance(request, envelope.MalformedError):
                raise request
            if request.refusal is not None:
                LOG.warning("A copy is left out: %s", request.refusal.message)
                return
            self._taken += 1
            self._take(request.message)
        except (DecompressionError, envelope.MalformedError) as error:
            LOG.warning("A copy is left out: %s", error)
        except Exception:
            LOG.exception("A copy is left out")


class _Connection:
    """A connection to one broker, with the queue of copies. Raises as :func:`translated` does."""

    def __init__(self, settings: AmqpSettings, broker: Broker, names: QueueNames) -> None:
        self._names = names
        self.received: deque[Content] = deque()
        self._amqp = ProtocolConnection(
            settings,
            broker,
            names,
            on_blocked=lambda _: None,
            on_content=self._deliver,
            on_method=lambda _channel, _signature, _arguments: False,
        )
        with translated(broker, names, self.close):
            self._amqp.connect()
            self._channel = self._amqp.channel()

    def _deliver(self, _channel: int, content: Content) -> None:
        if content.signature == frames.BASIC_DELIVER:
            self.received.append(content)

    def consume(self, messages: int) -> str:
        """Make, bind and consume the queue; returns its name."""
        names, channel = self._names, self._channel
        queue = f"{names.topic}_dry_run_{names.server}.{unique_hex()}"
        bounds = {
            "x-max-length": messages,
            "x-max-length-bytes": _MAX_BYTES,
            "x-overflow": "drop-head",
        }
        with translated(self._amqp.broker, names, self.close):
            with needs(f"the configure permission on queues {names.topic}_dry_run_*"):
                channel.queue_declare(
                    queue, durable=False, exclusive=True, auto_delete=True, arguments=bounds
                )
            try:
                with needs(f"write on {names.topic}_dry_run_*, and read on {names.exchange}"):
                    channel.queue_bind(queue, names.exchange, names.queue)
            except amqp.NotFound:
                self.close()
                raise ConnectionLostError(
                    f"there is no exchange {names.exchange} yet; nova-scheduler makes it"
                ) from None
            channel.basic_qos(0, _PREFETCH, False)
            with needs(f"the read permission on queues {names.topic}_dry_run_*"):
                channel.basic_consume(queue, on_cancel=self._cancelled)
        return queue

    def _cancelled(self, _tag: str) -> None:
        raise ConnectionLostError("the broker deleted the queue of copies")

    def acknowledge(self, content: Content) -> None:
        """The copy is done with."""
        with lost_on_error():
            self._channel.basic_ack(contents.delivered(content.arguments).tag)

    def fileno(self) -> int:
        return int(self._amqp.transport.sock.fileno())

    @property
    def has_frame(self) -> bool:
        """Whether a frame arrived while an answer of the broker was awaited."""
        return bool(self._amqp.transport.has_frame())

    def pump(self) -> None:
        """Read what has arrived. Raises ConnectionLostError."""
        with lost_on_error():
            transport = self._amqp.transport
            if not transport.has_frame():
                transport.fill()
            while (frame := transport.next_frame()) is not None:
                self._amqp.on_inbound_frame(frame)

    def tick(self) -> None:
        """Send a heartbeat when one is due, and notice when the broker's are missing."""
        with lost_on_error():
            self._amqp.heartbeat_tick()

    def close(self) -> None:
        """Close it; the queue ends with it."""
        with contextlib.suppress(amqp.AMQPError, OSError, ConnectionLostError):
            transport = self._amqp.transport_or_none()
            if transport is not None and transport.sock is not None:
                self._amqp.close()
        with contextlib.suppress(amqp.AMQPError, OSError):
            self._amqp.collect()
