"""Telling systemd how the service is; does nothing where systemd does not ask."""

from __future__ import annotations

import os
import socket


def notify(state: str) -> None:
    """Send a state such as ``READY=1`` or ``STOPPING=1`` to ``$NOTIFY_SOCKET``."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.connect(address)
        channel.sendall(state.encode())
