"""Telling systemd how the service is; does nothing where systemd does not ask."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time


def notify(*assignments: str) -> None:
    """Send assignments such as ``READY=1`` or ``STATUS=...`` to ``$NOTIFY_SOCKET``."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    told = "\n".join(" ".join(each.splitlines()) for each in assignments)
    with (
        contextlib.suppress(OSError),  # nobody there listens any more
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel,
    ):
        channel.connect(address)
        channel.sendall(told.encode())


def reloading() -> None:
    """Say that a reload begins; ``READY=1`` ends it."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")


class Watchdog:
    """Systemd's watchdog over this process, if there is one; it wants to be fed in time."""

    def __init__(self) -> None:
        ours = os.environ.get("WATCHDOG_PID") in {None, str(os.getpid())}
        bound_us = os.environ.get("WATCHDOG_USEC", "") if ours else ""
        self.interval_s = int(bound_us) / 1e6 / 3 if bound_us.isdecimal() else math.inf
        """How often it is fed: thrice in the time after which systemd would bite."""
        self._due_s = -math.inf

    def feed(self) -> None:
        """Say that we are alive; does nothing before it is due."""
        now_s = time.monotonic()
        if self.interval_s < math.inf and now_s >= self._due_s:
            self._due_s = now_s + self.interval_s
            notify("WATCHDOG=1")
