"""Notifies systemd of the service's status; has no effect outside of systemd."""

import contextlib
import math
import os
import socket
import time

LONGEST_S = 1.0
"""For how long a message waits for room: systemd may not be there to read it."""


def notify(*assignments: str) -> None:
    """Send assignments such as ``READY=1`` or ``STATUS=...`` to ``$NOTIFY_SOCKET``."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    message = "\n".join(" ".join(assignment.splitlines()) for assignment in assignments)
    with (
        contextlib.suppress(OSError),  # the socket is closed already, or systemd stands still
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel,
    ):
        channel.settimeout(LONGEST_S)
        channel.connect(address)
        channel.sendall(message.encode())


class Watchdog:
    """Systemd's watchdog over this process, if there is one."""

    def __init__(self) -> None:
        ours = os.environ.get("WATCHDOG_PID") in {None, str(os.getpid())}
        bound_us = os.environ.get("WATCHDOG_USEC", "") if ours else ""
        self.interval_s = int(bound_us) / 1e6 / 3 if bound_us.isdecimal() else math.inf
        """Seconds between heartbeats: a third of the time after which systemd ends the service."""
        self._due_s = -math.inf

    def feed(self) -> None:
        """Send a heartbeat if one is due."""
        now_s = time.monotonic()
        if self.interval_s < math.inf and now_s >= self._due_s:
            self._due_s = now_s + self.interval_s
            notify("WATCHDOG=1")
