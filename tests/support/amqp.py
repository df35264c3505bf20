"""An operator's AMQP connection, raw messages, and servers and clients on a topic of their own."""

import contextlib
import json
import re
import struct
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import amqp
from amqp.exceptions import NotFound

from scheduler_worker import conf
from scheduler_worker.observer import Observer
from scheduler_worker.rpc.dispatcher import Endpoint
from scheduler_worker.rpc.serving.server import QueueServer
from scheduler_worker.rpc.serving.settings import DeliveryLimits
from scheduler_worker.rpc.transport import Bus, Client
from tests.support.patience import SOON_S, eventually
from tests.support.proxy import Proxy
from tests.support.servers import RabbitServer
from tests.support.workers import write_config

Handler = Callable[..., Any]


class Operator:
    """Inspects queues, publishes and takes messages. For one thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._kept: list[Any] = []
        self._connect()

    def _connect(self) -> None:
        parts = urlsplit(self._url)
        self._connection = amqp.Connection(
            f"{parts.hostname}:{parts.port}",
            parts.username,
            parts.password,
            virtual_host=parts.path.strip("/") or "/",
        )
        self._connection.connect()
        self._channel = self._connection.channel()

    def depth(self, queue: str) -> int:
        """How many messages wait in a queue, without unacknowledged ones."""
        return int(self._declared(queue).message_count)

    def exists(self, queue: str) -> bool:
        try:
            self._declared(queue)
        except NotFound:
            self._channel = self._connection.channel()
            return False
        return True

    def declare(self, queue: str, **options: Any) -> None:
        self._channel.queue_declare(queue, auto_delete=False, **options)

    def declare_exchange(self, name: str, kind: str, **options: Any) -> None:
        self._channel.exchange_declare(name, kind, auto_delete=False, **options)

    def delete(self, queue: str) -> None:
        self._channel.queue_delete(queue)

    def put(
        self,
        queue: str,
        body: str | bytes,
        *,
        headers: Mapping[str, Any] | None = None,
        **properties: Any,
    ) -> None:
        """Publish to a queue with any headers and properties."""
        message = amqp.Message(body, application_headers=dict(headers or {}), **properties)
        self._channel.basic_publish(message, "", queue)
        self._declared(queue)  # answered after the message was enqueued

    def put_raw(self, queue: str, messages: Sequence[amqp.Message]) -> None:
        """Publish raw messages; those that the broker refuses are left out."""
        for each in messages:
            try:
                self._channel.basic_publish(each, "", queue)
                self._declared(queue)
            except amqp.AMQPError:
                self.close()
                self._connect()

    def purge(self, queue: str) -> None:
        self._channel.queue_purge(queue)

    def take(self, queue: str) -> Any:
        """The next message of a queue. Raises TimeoutError when none arrives."""
        inbox: deque[Any] = deque()
        try:
            tag = self._channel.basic_consume(queue, callback=inbox.append, no_ack=True)
        except amqp.InternalError:
            # RabbitMQ fails while not all replicas of a quorum queue have started.
            self._connect()
            tag = self._channel.basic_consume(queue, callback=inbox.append, no_ack=True)
        try:
            while not inbox:
                self._connection.drain_events(timeout=SOON_S)
        finally:
            self._channel.basic_cancel(tag)
        return inbox.popleft()

    def consume_in_vain(self, queue: str) -> None:
        """Be another consumer of a queue, which keeps what it gets."""
        self._channel.basic_consume(queue, callback=self._kept.append)

    @property
    def taken(self) -> int:
        """How many messages that consumer has got."""
        with contextlib.suppress(TimeoutError):
            while True:
                self._connection.drain_events(timeout=0.05)
        return len(self._kept)

    def close(self) -> None:
        with contextlib.suppress(amqp.AMQPError):  # the broker may have closed it
            self._connection.close()

    def _declared(self, queue: str) -> Any:
        return self._channel.queue_declare(queue, passive=True)


def message(method: str, *, reply_queue: str | None = None, **fields: Any) -> tuple[str, str]:
    """The body of a cast, or of a call, as oslo.messaging encodes it; and its id."""
    unique_id = uuid.uuid4().hex
    inner: dict[str, Any] = {"method": method, "args": {}, "version": "1.0", **fields}
    inner |= {"_unique_id": unique_id}
    if reply_queue is not None:
        inner |= {"_msg_id": unique_id, "_reply_q": reply_queue}
    return json.dumps({"oslo.version": "2.0", "oslo.message": json.dumps(inner)}), unique_id


class _Raw(amqp.Message):
    """A message whose headers are arbitrary bytes."""

    table: bytes | None = None

    def _serialize_properties(self) -> bytes:
        if self.table is None:
            return bytes(super()._serialize_properties())
        return struct.pack(">HI", 0x2000, len(self.table)) + self.table


def raw_message(
    body: bytes,
    *,
    headers: Mapping[str, Any],
    properties: Mapping[str, Any],
    table: bytes | None = None,
) -> amqp.Message:
    """Any message; with ``table``, the bytes of its headers, it has no other properties."""
    made = _Raw(body, application_headers=dict(headers), **properties)
    made.table = table
    return made


class Account:
    """A user of RabbitMQ with the permissions that a worker on a topic needs."""

    def __init__(self, rabbit: RabbitServer, topic: str, exchange: str) -> None:
        self.name = f"user-{uuid.uuid4().hex[:8]}"
        self.url = rabbit.url.replace("guest:guest", f"{self.name}:secret")
        self._rabbit = rabbit
        self._topic = re.escape(topic)
        self._exchange = re.escape(exchange)

    def permit(self, *, without_dead_letters: bool = False, without_answers: bool = False) -> None:
        """Grant what ``docs/security.md`` says, except what is left out."""
        letters = "" if without_dead_letters else "|_dead_letters"
        known = rf"{self._exchange}|{self._topic}(\..*|_fanout.*{letters})?"
        write = f"^({known})$" if without_answers else rf"^(amq\.default|{known})$"
        self.set(f"^({known})$", write, f"^({known})$")

    def set(self, configure: str, write: str, read: str) -> None:
        self._rabbit.permit(self.name, configure, write, read)


def content(answer: Any) -> dict[str, Any]:
    """The fields of an answer."""
    return json.loads(json.loads(answer.body)["oslo.message"])


class Stage:
    """Servers and clients on a topic of their own, each with a connection of its own."""

    def __init__(self, server: RabbitServer, directory: Path) -> None:
        self.rabbit = server
        self.topic = f"topic-{uuid.uuid4().hex[:12]}"
        self.exchange = f"exchange-{self.topic}"
        self.operator = Operator(server.url)
        self._directory = directory
        self._open = contextlib.ExitStack()

    @property
    def dead_letters(self) -> str:
        return f"{self.topic}_dead_letters"

    def through(self, proxy: Proxy) -> str:
        """The broker's URL by way of a proxy."""
        return self.rabbit.url.replace(f":{self.rabbit.port}/", f":{proxy.port}/")

    def bus(self, url: str | None = None, **options: Any) -> Bus:
        """A bus; ``options`` are of ``[oslo_messaging_rabbit]``."""
        path = self._directory / f"{uuid.uuid4().hex}.conf"
        write_config(path, oslo_messaging_rabbit={"rabbit_retry_backoff": 0, **options})
        settings = conf.load(["--config-file", str(path)])
        bus = Bus(settings, url=url or self.rabbit.url, exchange=self.exchange)
        return self._open.enter_context(bus)

    def server(
        self,
        methods: Mapping[str, Handler],
        *,
        name: str = "one",
        slots: int = 4,
        url: str | None = None,
        limits: DeliveryLimits | None = None,
        observer: Observer | None = None,
        endpoints: Sequence[Endpoint] = (),
        comes_first: bool = True,
        **options: Any,
    ) -> QueueServer:
        """A server, not yet started; stopped with the stage. ``endpoints`` are served besides."""
        server = self.bus(url, **options).server(
            self.topic,
            name,
            [Endpoint(None, "1.0", methods), *endpoints],
            slots=slots,
            limits=limits,
            observer=observer,
            comes_first=comes_first,
        )
        self._open.callback(server.stop, 1.0)
        return server

    def serve(self, methods: Mapping[str, Handler], **options: Any) -> QueueServer:
        server = self.server(methods, **options)
        server.start()
        return server

    def client(self, *, url: str | None = None, options: Any = None, **arguments: Any) -> Client:
        arguments = {"timeout_s": SOON_S, **arguments}
        return self.bus(url, **(options or {})).client(self.topic, **arguments)

    @contextlib.contextmanager
    def account(self) -> Iterator[Account]:
        """A worker's account with the documented permissions."""
        account = Account(self.rabbit, self.topic, self.exchange)
        self.rabbit.add_user(account.name, "secret")
        account.permit()
        try:
            yield account
        finally:
            self.rabbit.delete_user(account.name)

    def dead_letter(self) -> Any:
        """The next dead letter, waited for."""
        eventually(lambda: self.operator.exists(self.dead_letters))
        return self.operator.take(self.dead_letters)

    def close(self) -> None:
        self._open.close()
        self.operator.close()
        with contextlib.closing(Operator(self.rabbit.url)) as tidy:
            for queue in (self.topic, self.dead_letters, f"{self.topic}_fanout"):
                tidy.delete(queue)
