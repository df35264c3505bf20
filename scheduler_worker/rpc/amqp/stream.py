"""A buffered transport for py-amqp.

py-amqp reads and writes a few bytes at a time, and each such call releases the interpreter to
another thread. Here everything that has arrived is read at once, and everything that was written
is sent at once, by :meth:`Stream.flush`.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from typing import Any

from amqp.transport import TCPTransport

from scheduler_worker.rpc.amqp import frames

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
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._corked = False

    def _setup_transport(self) -> None:
        plain: socket.socket = self.sock
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
            self._inbox += read
            if self._tls is None or not self.sock.pending():
                return

    def has_frame(self) -> bool:
        """Whether a complete frame can be read without waiting."""
        inbox = self._inbox
        return len(inbox) >= 8 and len(inbox) >= 8 + int.from_bytes(inbox[3:7], "big")

    def next_frame(self) -> tuple[int, int, bytes] | None:
        """Kind, channel and payload of the next frame, if it has arrived completely."""
        frame = frames.first_frame(self._inbox)
        if frame is not None:
            del self._inbox[: frames.OVERHEAD + len(frame[2])]
        return frame

    def _read(self, n: int, initial: bool = False) -> bytes:
        deadline_s = time.monotonic() + STALLED_S
        while len(self._inbox) < n:
            self.flush()
            if time.monotonic() > deadline_s:
                raise OSError("the broker does not answer")
            with contextlib.suppress(socket.timeout):
                self.fill()
        taken = bytes(self._inbox[:n])
        del self._inbox[:n]
        return taken
