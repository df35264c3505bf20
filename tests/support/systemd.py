"""A service manager's end of the notification socket."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from tests.support.patience import PROCESS_S


class NotifySocket:
    """Receives the notifications to ``$NOTIFY_SOCKET``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))

    def close(self) -> None:
        self._socket.close()

    def next(self, timeout_s: float = PROCESS_S) -> str | None:
        """The next notification; None when none arrives in time."""
        self._socket.settimeout(timeout_s)
        try:
            return self._socket.recv(4096).decode()
        except TimeoutError:
            return None

    def until(self, text: str, timeout_s: float = PROCESS_S) -> str:
        """The first notification that contains the text; earlier ones are skipped."""
        ends_s = time.monotonic() + timeout_s
        while (left_s := ends_s - time.monotonic()) > 0:
            message = self.next(left_s)
            if message is not None and text in message:
                return message
        raise AssertionError(f"there was no notification {text!r}")
