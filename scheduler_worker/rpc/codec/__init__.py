"""Decodes requests and reports, encodes answers: Nova's wire forms are known here alone.

Input is untrusted: its depth and size are bounded, and
:class:`~scheduler_worker.errors.RequestError` names the path of the field that is wrong. Output is
plain JSON in the versions that Nova 34 reads. No transport, no clock, no decision in here.
"""

from scheduler_worker.rpc.codec.answers import (
    decode_selection,
    encode_destinations,
    encode_diagnosis,
    encode_host,
    encode_kept_decision,
    encode_reservation,
    encode_selection,
    encode_selections,
)
from scheduler_worker.rpc.codec.arguments import (
    decode_as,
    decode_host_names,
    decode_instance_uuids,
    decode_limit,
    decode_name,
    decode_names,
    decode_patience,
    decode_priority,
)
from scheduler_worker.rpc.codec.by_hand import (
    decode_flavors_by_hand,
    decode_request_by_hand,
    naming,
)
from scheduler_worker.rpc.codec.inventory import (
    decode_aggregate,
    decode_aggregates,
    decode_host_reports,
    decode_instances,
)
from scheduler_worker.rpc.codec.primitives import plain
from scheduler_worker.rpc.codec.requests import (
    decode_legacy_request,
    decode_request_spec,
    request_spec_primitive,
)
from scheduler_worker.rpc.codec.typed import redacted

__all__ = [
    "decode_aggregate",
    "decode_aggregates",
    "decode_as",
    "decode_flavors_by_hand",
    "decode_host_names",
    "decode_host_reports",
    "decode_instance_uuids",
    "decode_instances",
    "decode_legacy_request",
    "decode_limit",
    "decode_name",
    "decode_names",
    "decode_patience",
    "decode_priority",
    "decode_request_by_hand",
    "decode_request_spec",
    "decode_selection",
    "encode_destinations",
    "encode_diagnosis",
    "encode_host",
    "encode_kept_decision",
    "encode_reservation",
    "encode_selection",
    "encode_selections",
    "naming",
    "plain",
    "redacted",
    "request_spec_primitive",
]
