"""A service manager's end of the notification socket."""

from __future__ import annotations

import socket
import time
from pathlib import Path


class NotifySocket:
    """What services say to ``$NOTIFY_SOCKET``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))

    def close(self) -> None:
        self._socket.close()

    def next(self, timeout_s: float = 30.0) -> str | None:
        """The next thing that is said; None when nobody says anything for so long."""
        self._socket.settimeout(timeout_s)
        try:
            return self._socket.recv(4096).decode()
        except TimeoutError:
            return None

    def until(self, said: str, timeout_s: float = 30.0) -> str:
        """The first thing that contains these words; what comes before it is passed over."""
        ends_s = time.monotonic() + timeout_s
        while (left_s := ends_s - time.monotonic()) > 0:
            message = self.next(left_s)
            if message is not None and said in message:
                return message
        raise AssertionError(f"nobody said {said!r}")
