"""py-amqp's connection over our :class:`Stream`, and what its errors mean."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import amqp

from scheduler_worker import __version__
from scheduler_worker.errors import BusUnavailable, ConfigError
from scheduler_worker.rpc.amqp.contents import Assembler, Content, Signature
from scheduler_worker.rpc.amqp.queues import explained
from scheduler_worker.rpc.amqp.settings import AmqpSettings, Broker
from scheduler_worker.rpc.amqp.stream import CONNECT_S, Stream
from scheduler_worker.rpc.serving.connection import ConnectionLostError
from scheduler_worker.rpc.serving.settings import QueueNames

_REFUSED = (amqp.AccessRefused, amqp.NotAllowed, ssl.SSLCertVerificationError)
_TRANSIENT_REFUSED = (
    "RabbitMQ does not permit transient queues: set rabbit_quorum_queue = true and "
    "rabbit_transient_quorum_queue = true in [oslo_messaging_rabbit], here and for the clients"
)
_TLS_HINT = "; is it a TLS port, and is [oslo_messaging_rabbit] ssl_cert_file what it asks for?"


@contextlib.contextmanager
def lost_on_error() -> Iterator[None]:
    """Raise ConnectionLostError for every error of py-amqp or of the socket."""
    try:
        yield
    except (amqp.AMQPError, OSError) as error:
        raise ConnectionLostError(str(error) or type(error).__name__) from None


@contextlib.contextmanager
def translated(broker: Broker, names: QueueNames, close: Callable[[], None]) -> Iterator[None]:
    """While connecting: close on every error, and say whether another try may succeed.

    Raises BusUnavailable, ConfigError: no; ConnectionLostError: perhaps.
    """
    try:
        yield
    except _REFUSED as error:
        close()
        raise BusUnavailable(f"RabbitMQ at {broker.address} refuses this worker: {error}") from None
    except amqp.PreconditionFailed as error:
        close()
        raise ConfigError(explained(error, names)) from None
    except BusUnavailable:
        close()
        raise
    except (amqp.AMQPError, OSError) as error:
        close()
        if "transient_nonexcl_queues" in str(error):
            raise ConfigError(_TRANSIENT_REFUSED) from None
        hint = _TLS_HINT if isinstance(error, ssl.SSLError) else ""
        raise ConnectionLostError(
            f"{broker.address}: {error or type(error).__name__}{hint}"
        ) from None


class ProtocolConnection(amqp.Connection):  # type: ignore[misc]
    """Handshake, channels and heartbeats; messages bypass py-amqp by ``on_content``."""

    def __init__(
        self,
        settings: AmqpSettings,
        broker: Broker,
        names: QueueNames,
        *,
        on_blocked: Callable[[bool], None],
        on_content: Callable[[int, Content], None],
        on_method: Callable[[int, Signature, bytes], bool],
    ) -> None:
        self.broker = broker
        self._tls = settings.tls
        super().__init__(
            broker.address if ":" not in broker.host else f"[{broker.host}]:{broker.port}",
            broker.user,
            broker.password,
            login_method=settings.login_method,
            virtual_host=settings.vhost,
            heartbeat=settings.heartbeat_s,
            connect_timeout=CONNECT_S,
            client_properties={
                "product": "scheduler_worker",
                "version": __version__,
                "connection_name": f"scheduler_worker {names.server} "
                f"(process {os.getpid()} at {socket.gethostname()})",
            },
            on_blocked=lambda _reason: on_blocked(True),
            on_unblocked=lambda: on_blocked(False),
            frame_handler=partial(Assembler, on_content=on_content, on_method=on_method),
        )

    def Transport(self, host: str, connect_timeout: float, *_: Any, **__: Any) -> Stream:
        """The hook by which py-amqp gets its transport."""
        return Stream(host, connect_timeout, self._tls)

    def transport_or_none(self) -> Stream | None:
        """Unlike ``transport``, which raises before the connection is open."""
        found: Stream | None = self._transport
        return found
