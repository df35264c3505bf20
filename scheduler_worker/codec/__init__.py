"""Decodes requests and reports, encodes answers: Nova's wire forms are known here alone.

Input is untrusted: its depth and size are bounded, and
:class:`~scheduler_worker.errors.RequestError` names the path of the field that is wrong. Output is
plain JSON in the versions that Nova 34 reads. No transport, no clock, no decision in here.
"""

from scheduler_worker.codec.inventory import decode_aggregate as decode_aggregate
from scheduler_worker.codec.inventory import decode_aggregates as decode_aggregates
from scheduler_worker.codec.inventory import decode_host_reports as decode_host_reports
from scheduler_worker.codec.inventory import decode_instances as decode_instances
from scheduler_worker.codec.primitives import plain as plain
from scheduler_worker.codec.requests import decode_as as decode_as
from scheduler_worker.codec.requests import decode_host_names as decode_host_names
from scheduler_worker.codec.requests import decode_instance_uuids as decode_instance_uuids
from scheduler_worker.codec.requests import decode_legacy_request as decode_legacy_request
from scheduler_worker.codec.requests import decode_name as decode_name
from scheduler_worker.codec.requests import decode_names as decode_names
from scheduler_worker.codec.requests import decode_priority as decode_priority
from scheduler_worker.codec.requests import decode_remaining as decode_remaining
from scheduler_worker.codec.requests import decode_request_spec as decode_request_spec
from scheduler_worker.codec.requests import decode_selection as decode_selection
from scheduler_worker.codec.requests import encode_destinations as encode_destinations
from scheduler_worker.codec.requests import encode_diagnosis as encode_diagnosis
from scheduler_worker.codec.requests import encode_selection as encode_selection
from scheduler_worker.codec.requests import encode_selections as encode_selections
from scheduler_worker.codec.typed import redacted as redacted
