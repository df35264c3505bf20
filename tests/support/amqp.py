"""A plain AMQP connection beside what is tested: what an operator sees and does at the broker."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import amqp
from amqp.exceptions import NotFound

from scheduler_worker import conf
from scheduler_worker.ports import Observer
from scheduler_worker.rpc.amqp.settings import DeliveryLimits
from scheduler_worker.rpc.contract import Endpoint
from scheduler_worker.rpc.server import Server
from scheduler_worker.rpc.transport import Bus, Client
from scheduler_worker.rpc.wire_errors import to_wire
from tests.support.handlers import SOON_S, eventually
from tests.support.proxy import Proxy
from tests.support.servers import RabbitServer
from tests.support.workers import write_config

Handler = Callable[..., Any]


class Operator:
    """Looks at queues, puts messages in and takes them out. For one thread."""

    def __init__(self, url: str) -> None:
        self._url = url
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
        """How many messages wait in a queue; what somebody has in hand is not among them."""
        return int(self._looked_at(queue).message_count)

    def consumers(self, queue: str) -> int:
        return int(self._looked_at(queue).consumer_count)

    def exists(self, queue: str) -> bool:
        try:
            self._looked_at(queue)
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
        **told: Any,
    ) -> None:
        """Publish to a queue, as no client of ours would."""
        message = amqp.Message(body, application_headers=dict(headers or {}), **told)
        self._channel.basic_publish(message, "", queue)
        self._looked_at(queue)  # answered after the message was taken: it is there

    def messages(self, queue: str) -> Iterator[Any]:
        """What is in a queue and what comes, each waited for; taken out for good.

        Raises TimeoutError when nothing comes.
        """
        inbox: deque[Any] = deque()
        try:
            tag = self._channel.basic_consume(queue, callback=inbox.append, no_ack=True)
        except amqp.InternalError:
            # RabbitMQ breaks over a quorum queue whose replicas have not all begun.
            self._connect()
            tag = self._channel.basic_consume(queue, callback=inbox.append, no_ack=True)
        try:
            while True:
                while not inbox:
                    self._connection.drain_events(timeout=SOON_S)
                yield inbox.popleft()
        finally:
            self._channel.basic_cancel(tag)

    def take(self, queue: str) -> Any:
        """The next message of a queue."""
        with contextlib.closing(self.messages(queue)) as found:
            return next(found)

    def close(self) -> None:
        with contextlib.suppress(amqp.AMQPError):  # the broker may have closed it
            self._connection.close()

    def _looked_at(self, queue: str) -> Any:
        return self._channel.queue_declare(queue, passive=True)


def message(method: str, *, reply_queue: str | None = None, **told: Any) -> tuple[str, str]:
    """A cast's body, or a call's, as oslo.messaging writes it; and its id."""
    unique_id = uuid.uuid4().hex
    inner: dict[str, Any] = {"method": method, "args": {}, "version": "1.0", **told}
    inner |= {"_unique_id": unique_id}
    if reply_queue is not None:
        inner |= {"_msg_id": unique_id, "_reply_q": reply_queue}
    return json.dumps({"oslo.version": "2.0", "oslo.message": json.dumps(inner)}), unique_id


def content(answer: Any) -> dict[str, Any]:
    """What an answer says."""
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
        """``options`` are of ``[oslo_messaging_rabbit]``."""
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
        **options: Any,
    ) -> Server:
        """Not yet started; stopped with the stage."""
        server = self.bus(url, **options).server(
            self.topic,
            name,
            [Endpoint(None, "1.0", methods)],
            translate=to_wire,
            slots=slots,
            limits=limits,
            observer=observer,
        )
        self._open.callback(server.stop, 1.0)
        return server

    def serve(self, methods: Mapping[str, Handler], **told: Any) -> Server:
        server = self.server(methods, **told)
        server.start()
        return server

    def client(self, *, url: str | None = None, options: Any = None, **told: Any) -> Client:
        told = {"timeout_s": SOON_S, **told}
        return self.bus(url, **(options or {})).client(self.topic, **told)

    def dead_letter(self) -> Any:
        """The next dead letter, waited for."""
        eventually(lambda: self.operator.exists(self.dead_letters))
        return self.operator.take(self.dead_letters)

    def close(self) -> None:
        self._open.close()
        self.operator.close()
        with contextlib.closing(Operator(self.rabbit.url)) as tidy:
            for queue in (self.topic, self.dead_letters):
                tidy.delete(queue)
