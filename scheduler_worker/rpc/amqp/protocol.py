"""py-amqp's connection over a buffered transport, and what its errors mean.

py-amqp reads and writes a few bytes at a time, and each such call releases the interpreter to
another thread. Here everything that has arrived is read at once, and everything that was written
is sent at once, by :meth:`Stream.flush`.
"""

import contextlib
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import amqp
from amqp.transport import TCPTransport

from scheduler_worker import __version__
from scheduler_worker.errors import BusUnavailable, ConfigError
from scheduler_worker.rpc.amqp.frames import Assembler, Content, Signature
from scheduler_worker.rpc.amqp.settings import AmqpSettings, Broker
from scheduler_worker.rpc.serving.connection import ConnectionLostError
from scheduler_worker.rpc.serving.settings import QueueNames

_REFUSED = (amqp.AccessRefused, amqp.NotAllowed, ssl.SSLCertVerificationError)
_TRANSIENT_REFUSED = (
    "RabbitMQ does not permit transient queues: set rabbit_quorum_queue = true and "
    "rabbit_transient_quorum_queue = true in [oslo_messaging_rabbit], here and for the clients"
)
_TLS_HINT = "; is it a TLS port, and is [oslo_messaging_rabbit] ssl_cert_file what it asks for?"


BROKEN = (amqp.AMQPError, OSError)
"""The errors of py-amqp, or of the socket, after which a connection cannot be used any more."""


def lost(error: Exception) -> ConnectionLostError:
    """What is raised for one of them."""
    return ConnectionLostError(str(error) or type(error).__name__)


@contextlib.contextmanager
def translated(broker: Broker, names: QueueNames, close: Callable[[], None]) -> Iterator[None]:
    """While connecting: close on every error, and say whether another try may succeed.

    Raises BusUnavailable, ConfigError: no; ConnectionLostError: perhaps.
    """
    try:
        yield
    except BusUnavailable:
        close()
        raise
    except BROKEN as error:
        close()
        # Another try with the same account, or the same certificate, is refused as well.
        if isinstance(error, _REFUSED):
            raise BusUnavailable(
                f"RabbitMQ at {broker.address} refuses this worker: {error}"
            ) from None
        if isinstance(error, amqp.PreconditionFailed):
            raise ConfigError(
                f"A queue of topic {names.topic} exists in RabbitMQ and is of another kind than "
                f"[oslo_messaging_rabbit] says ({error}); set amqp_durable_queues, "
                "amqp_auto_delete and rabbit_quorum_queue as it was declared, or stop all its "
                "users and delete it"
            ) from None
        # RabbitMQ 4 may forbid such queues, and says so by closing the connection.
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
            # py-amqp sends heartbeats, and notices missing ones, only in ``BrokerConnection.tick``.
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

    def Transport(self, host: str, connect_timeout: float, *_: Any, **__: Any) -> "Stream":
        """The hook by which py-amqp gets its transport."""
        return Stream(host, connect_timeout, self._tls)


CONNECT_S = 5.0
STALLED_S = 10.0
"""A broker that accepts nothing, or does not answer, for so long is given up."""
_READ_BYTES = 2**18


class Stream(TCPTransport):  # type: ignore[misc]
    """A socket with an inbox and an outbox; TLS where there is a context for it."""

    sock: Any

    def __init__(self, host: str, connect_timeout: float, tls: ssl.SSLContext | None) -> None:
        super().__init__(host, connect_timeout)
        self._tls = tls
        self.inbox = bytearray()
        """What has arrived and was not taken."""
        self._outbox = bytearray()
        self._corked = False

    def _setup_transport(self) -> None:
        plain: socket.socket = self.sock
        # A TLS handshake must end, too, where the port speaks something else.
        plain.settimeout(CONNECT_S)
        tls = self._tls
        self.sock = tls.wrap_socket(plain, server_hostname=self.host) if tls else plain
        self._write = self.sock.sendall

    def _shutdown_transport(self) -> None:
        """Do not unwrap: TLS would wait for a peer that may be gone."""

    def cork(self) -> None:
        """Keep what is written for :meth:`flush` from now on."""
        self._corked = True
        self.sock.settimeout(STALLED_S)

    def uncork(self) -> None:
        """Send what is written at once from now on."""
        self.flush()
        self._corked = False

    def write(self, s: Any) -> None:
        if self._corked:
            self._outbox += s
        else:
            super().write(s)

    def flush(self) -> None:
        if self._outbox:
            outbox, self._outbox = self._outbox, bytearray()
            super().write(outbox)

    def fill(self) -> None:
        """Read everything that has arrived; blocks where nothing has."""
        while True:
            try:
                read = self.sock.recv(_READ_BYTES)
            except TimeoutError:
                return  # the rest of a TLS record has not arrived
            if not read:
                raise OSError("the broker closed the connection")
            self.inbox += read
            # Decrypted bytes wait in the TLS object, where no poll of the socket shows them.
            if self._tls is None or not self.sock.pending():
                return

    def _read(self, n: int, initial: bool = False) -> bytes:
        deadline_s = time.monotonic() + STALLED_S
        while len(self.inbox) < n:
            # What is asked may still lie in the outbox, and would never be answered.
            self.flush()
            if time.monotonic() > deadline_s:
                raise OSError("the broker does not answer")
            with contextlib.suppress(socket.timeout):
                self.fill()
        taken = bytes(self.inbox[:n])
        del self.inbox[:n]
        return taken
