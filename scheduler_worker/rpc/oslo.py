"""Imports oslo.messaging so that it uses threads; everything else imports it from here.

Importing oslo_messaging selects eventlet unless oslo.service was initialised for threads before.
"""

from __future__ import annotations

import warnings

from amqp import AMQPError
from kombu.exceptions import OperationalError
from oslo_service import backend

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")  # it is not used here
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
"""What oslo.messaging raises when the broker is away or refuses us."""


def unavailable(error: Exception) -> BusUnavailable:
    """Our error for one of :data:`AWAY`."""
    return BusUnavailable(f"The message bus cannot be reached: {error}")
