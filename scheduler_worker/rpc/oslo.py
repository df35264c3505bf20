"""oslo.messaging, imported so that it uses threads: everybody here gets it from this file.

Importing oslo_messaging selects eventlet unless oslo.service was told otherwise before.
"""

from __future__ import annotations

import warnings

from amqp import AMQPError  # type: ignore[import-untyped]
from kombu.exceptions import OperationalError
from oslo_service import backend

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")  # we do not use it
    backend.init_backend(backend.BackendType.THREADING)  # first: oslo_messaging takes eventlet

import oslo_messaging

from scheduler_worker.errors import BusUnavailable

__all__ = ["AWAY", "oslo_messaging", "unavailable"]

AWAY = (
    oslo_messaging.MessageDeliveryFailure,
    oslo_messaging.ClientSendError,
    OperationalError,
    AMQPError,
    OSError,
)
"""What is raised, here and there, when the broker is away or refuses us."""


def unavailable(error: Exception) -> BusUnavailable:
    """Our word for it."""
    return BusUnavailable(f"The message bus cannot be reached: {error}")
