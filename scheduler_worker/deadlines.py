"""Reads from sockets that end at a deadline, however slowly a client sends."""

from __future__ import annotations

import math
import socket
import time
from typing import Any


class DeadlineReader(socket.SocketIO):
    """The raw reader of a socket; raises TimeoutError at ``until_s`` of the monotonic clock.

    A socket's own timeout begins again with each byte.
    """

    until_s = math.inf

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock, "rb")
        self._socket = sock

    def readinto(self, buffer: Any) -> int | None:
        left_s = self.until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        before_s = self._socket.gettimeout()
        if left_s < math.inf:
            self._socket.settimeout(left_s if before_s is None else min(left_s, before_s))
        try:
            return super().readinto(buffer)
        finally:
            self._socket.settimeout(before_s)
