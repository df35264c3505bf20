"""Declares exchanges, queues and bindings, and names the permission that is missing.

They are declared as oslo.messaging's clients and servers declare them.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import amqp

from scheduler_worker.errors import BusUnavailable
from scheduler_worker.rpc.amqp.settings import DEAD_LETTERS, AmqpSettings
from scheduler_worker.rpc.serving.settings import QueueNames

LOG = logging.getLogger(__name__)


class QueueDeclarations:
    """Declares a server's exchanges and queues; it leaves ``channel`` open."""

    def __init__(
        self, open_channel: Callable[[], Any], settings: AmqpSettings, names: QueueNames
    ) -> None:
        self._open_channel = open_channel
        self._settings = settings
        self._names = names
        self.channel = open_channel()

    def missing(self) -> frozenset[str]:
        """The server's queues that do not exist.

        If the server's own queue does not exist, the shared one counts as missing too: both were
        lost, and another worker has declared it again before us.
        """
        names, missing = self._names, set()
        for queue in (names.queue, names.own_queue, names.fanout_queue):
            try:
                self.channel.queue_declare(queue, passive=True)
            # RabbitMQ closes a channel over every refusal, so each is followed by a new one.
            except amqp.NotFound:
                self.channel = self._open_channel()
                missing.add(queue)
        return frozenset(missing | {names.queue} if names.own_queue in missing else missing)

    def declare(self) -> None:
        """Declare them all.

        Raises BusUnavailable where a permission is missing, and py-amqp's PreconditionFailed where
        a queue exists and is of another kind.
        """
        settings, names = self._settings, self._names
        durable, auto_delete = settings.durable, settings.auto_delete
        self._declare_exchange(names.exchange, "topic", durable, auto_delete)
        self._declare_queue(names.queue, durable, auto_delete, settings.queue_arguments)
        self._declare_own_queue()
        self._bind(names.queue, names.exchange, names.queue)
        self._bind(names.own_queue, names.exchange, names.own_queue)
        self._declare_exchange(names.fanout_exchange, "fanout", settings.fanout_durable, True)
        self._declare_queue(
            names.fanout_queue, settings.fanout_durable, False, settings.fanout_arguments
        )
        # Casts to all are published under the topic's name; a fanout exchange ignores it.
        self._bind(names.fanout_queue, names.fanout_exchange, names.topic)
        self.has_dead_letters = self._declare_dead_letters()

    def _declare_exchange(self, name: str, kind: str, durable: bool, auto_delete: bool) -> None:
        """An exchange that exists will do, however it was declared."""
        with needs(f"the configure permission on the exchange {name}"):
            try:
                self.channel.exchange_declare(name, kind, durable=durable, auto_delete=auto_delete)
            except amqp.PreconditionFailed:
                self.channel = self._open_channel()
                self.channel.exchange_declare(name, kind, passive=True)

    def _declare_queue(
        self, name: str, durable: bool, auto_delete: bool, arguments: Mapping[str, Any]
    ) -> None:
        with needs(f"the configure permission on the queue {name}"):
            self.channel.queue_declare(
                name, durable=durable, auto_delete=auto_delete, arguments=dict(arguments)
            )

    def _declare_own_queue(self) -> None:
        """Declare it with an expiry, unless it exists without one."""
        settings, name = self._settings, self._names.own_queue
        # A worker that never returns would leave its queue behind, with all that is sent to it.
        expiry = {"x-expires": settings.expires_ms} if settings.expires_ms else {}
        arguments = {**settings.queue_arguments, **expiry}
        try:
            self._declare_queue(name, settings.durable, settings.auto_delete, arguments)
        except amqp.PreconditionFailed:
            self.channel = self._open_channel()
            self._declare_queue(
                name, settings.durable, settings.auto_delete, settings.queue_arguments
            )
            if expiry:
                LOG.info(
                    "The queue %s was declared without an expiry; delete it once to have it expire",
                    name,
                )

    def _declare_dead_letters(self) -> bool:
        """Whether there is such a queue, however it was declared, as far as this account can know.

        Most can be served without one.
        """
        name = self._names.dead_letters
        # The other arguments are limits that are not meant for messages that nobody consumes.
        kind = {k: v for k, v in self._settings.queue_arguments.items() if k == "x-queue-type"}
        arguments = {"x-max-length": DEAD_LETTERS, **kind}
        try:
            self.channel.queue_declare(name, durable=True, auto_delete=False, arguments=arguments)
        except amqp.PreconditionFailed:
            self.channel = self._open_channel()
        except amqp.ChannelError as error:
            self.channel = self._open_channel()
            LOG.warning(
                "The queue %s cannot be declared; unless it exists, messages that cannot be served "
                "are dropped. This worker's account needs the configure permission on it (%s)",
                name,
                error,
            )
            return False
        return True

    def _bind(self, queue: str, exchange: str, key: str) -> None:
        needed = f"the write permission on the queue {queue} and read on the exchange {exchange}"
        with needs(needed):
            self.channel.queue_bind(queue, exchange, key)


@contextlib.contextmanager
def needs(permission: str) -> Iterator[None]:
    """Raises BusUnavailable, which names the permission, where the broker refuses access."""
    try:
        yield
    except amqp.AccessRefused as error:
        raise BusUnavailable(
            f"RabbitMQ refuses this worker's account: it needs {permission} ({error})"
        ) from None
