"""Imports oslo.messaging so that it uses threads; everything else imports it from here.

Importing oslo_messaging selects eventlet unless oslo.service was initialised for threads before.
Its libraries import eventlet wherever it is installed, a fifth of a worker's start, and 9 MB; they
find none here.
"""

import sys

from amqp import AMQPError, IrrecoverableChannelError
from kombu.exceptions import OperationalError

from scheduler_worker.errors import BusUnavailable, Undeliverable

_is_hidden = "eventlet" not in sys.modules
if _is_hidden:
    sys.modules["eventlet"] = None  # type: ignore[assignment]
from oslo_service import backend  # noqa: E402

backend.init_backend(backend.BackendType.THREADING)  # first: oslo_messaging takes eventlet
import oslo_messaging  # noqa: E402

if _is_hidden:
    del sys.modules["eventlet"]

__all__ = ["AWAY", "oslo_messaging", "failed"]

AWAY = (
    oslo_messaging.MessageDeliveryFailure,
    oslo_messaging.ClientSendError,
    OperationalError,
    AMQPError,
    OSError,
)
"""What oslo.messaging raises when the broker is away or refuses us."""


_PUBLISHING = {(40, 10), (60, 40)}
"""The methods of AMQP that a publication consists of: exchange.declare, basic.publish."""


def failed(error: Exception) -> BusUnavailable:
    """Our error for one of :data:`AWAY`; Undeliverable where a retry would be refused, too.

    oslo.messaging retries whatever failed and then says that it could not connect. What the broker
    said is in the exceptions behind that: no such exchange, no permission, too large a message.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, IrrecoverableChannelError) and cause.method_sig in _PUBLISHING:
            return Undeliverable(f"The broker refuses the message: {cause}")
        cause = cause.__cause__ or cause.__context__
    return BusUnavailable(f"The message bus cannot be reached: {error}")
