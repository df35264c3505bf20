"""One INFO line for each decision, in ``key=value`` text of a fixed order.

With oslo.log's ``use_json`` the same stand as fields under ``extra``.
"""

from __future__ import annotations

import json
import logging
import re

from scheduler_worker.ports import Outcome

LOG = logging.getLogger(__name__)

HOSTS_SHOWN = 5
FIELDS = (
    "request_id",
    "cluster",
    "result",
    "hosts",
    "instances",
    "repeated",
    "candidates",
    "passed",
    "rejections",
    "lock_wait_s",
    "hold_s",
    "pending_wait_s",
    "token",
    "attempts",
    "duration_s",
)
"""The fields of the line, in their order."""

_PLAIN = re.compile(r"[\w.,:+@/*-]+", re.ASCII)


def write(outcome: Outcome) -> None:
    """Log how a request for destinations ended."""
    if LOG.isEnabledFor(logging.INFO):
        told = fields(outcome)
        LOG.info(line(told), extra={"extra": told})


def fields(outcome: Outcome) -> dict[str, object]:
    """What is told of an outcome; the names are :data:`FIELDS`, times are seconds."""
    shown = outcome.hosts[:HOSTS_SHOWN]
    more = len(outcome.hosts) - len(shown)
    return {
        "request_id": outcome.request_id,
        "cluster": outcome.cluster,
        "result": outcome.result,
        "hosts": ",".join([*shown, f"+{more}"] if more else shown),
        "instances": outcome.instances,
        "repeated": outcome.repeated,
        "candidates": outcome.candidates,
        "passed": outcome.passed,
        "rejections": ",".join(f"{name}:{count}" for name, count in outcome.rejections if count),
        "lock_wait_s": round(outcome.lock_wait_s, 6),
        "hold_s": round(outcome.hold_s, 6),
        "pending_wait_s": round(outcome.waited_for_pending_s, 6),
        "token": outcome.token,
        "attempts": outcome.attempts,
        "duration_s": round(outcome.duration_s, 6),
    }


def line(told: dict[str, object]) -> str:
    """``key=value`` text; what is not a plain word is quoted as JSON does, nothing is ``-``."""
    return " ".join(f"{name}={_value(value)}" for name, value in told.items())


def _value(value: object) -> object:
    if value is None or value == "":
        return "-"
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        return json.dumps(value)
    return value
