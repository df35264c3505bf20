"""Decodes requests and reports, encodes answers: Nova's wire forms are known here alone.

Input is untrusted: its depth and size are bounded, and
:class:`~scheduler_worker.errors.RequestError` names the path of the field that is wrong. Output is
plain JSON in the versions that Nova 34 reads. No transport, no clock, no decision in here.
"""

from scheduler_worker.codec.inventory import (
    decode_aggregate,
    decode_aggregates,
    decode_host_reports,
    decode_instances,
)
from scheduler_worker.codec.primitives import plain
from scheduler_worker.codec.requests import (
    decode_as,
    decode_host_names,
    decode_instance_uuids,
    decode_legacy_request,
    decode_name,
    decode_names,
    decode_priority,
    decode_remaining,
    decode_request_spec,
    decode_selection,
    encode_destinations,
    encode_diagnosis,
    encode_selection,
    encode_selections,
)
from scheduler_worker.codec.typed import redacted

__all__ = [
    "decode_aggregate",
    "decode_aggregates",
    "decode_as",
    "decode_host_names",
    "decode_host_reports",
    "decode_instance_uuids",
    "decode_instances",
    "decode_legacy_request",
    "decode_name",
    "decode_names",
    "decode_remaining",
    "decode_priority",
    "decode_request_spec",
    "decode_selection",
    "encode_destinations",
    "encode_diagnosis",
    "encode_selection",
    "encode_selections",
    "plain",
    "redacted",
]
