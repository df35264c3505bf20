"""Recorded results of one filter for one host."""

from collections.abc import Iterator
from typing import Any

import msgspec

from conformance import nova, placement
from scheduler_worker import codec
from scheduler_worker.errors import NoValidHost, RequestError
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.pipeline import Pipeline, Request

SANE_ALTHOUGH_IT_RAISES = {
    "ImagePropertiesFilter": "the host's cpu_info is readable here",
    "NUMATopologyFilter": "a request without an image has no image properties",
}
"""Filters that may pass a host although Nova's raises, and why."""


class Case(msgspec.Struct, frozen=True):
    """A filter, a host, a request, and whether the host passes."""

    filter: str
    config: nova.NovaConfig
    host: nova.Host
    request_spec: dict[str, Any]
    expect: dict[str, Any]


def recognise(document: Any) -> bool:
    return isinstance(document, dict) and {"filter", "request_spec"} <= document.keys()


def run(document: Any) -> Iterator[str]:
    case = msgspec.convert(document, Case)
    if missing := nova.unknown("filter", [case.filter], nova.FILTERS):
        yield from missing
        return
    try:
        limits = limits_of(case)
    except RequestError as error:
        if "raises" not in case.expect:
            yield f"{case.filter} refuses the request: {error}"
        return
    result = "rejects the host" if limits is None else "passes the host"
    if "raises" in case.expect:
        if limits is not None and case.filter not in SANE_ALTHOUGH_IT_RAISES:
            yield f"{case.filter} {result}, where Nova raises {case.expect['raises']}"
    elif (limits is not None) != case.expect["passes"]:
        yield f"{case.filter} {result}; recorded is passes: {case.expect['passes']}"
    elif (found := limits or {}) != (expected := plain(case.expect.get("limits", {}))):
        yield f"{case.filter} leaves the limits {found}; recorded are {expected}"


def limits_of(case: Case) -> dict[str, Any] | None:
    """The limits that go with the host when some candidate passes; None when it is rejected."""
    pipeline = nova.pipeline(case.config, filters=[case.filter], weighers=[])
    spec = codec.decode_request_spec(case.request_spec)
    for each in placement.offered(spec, pipeline.filters[0], case.host):
        limits = _decided(pipeline, each, case.host)
        if limits is not None:
            return limits
    return None


def _decided(pipeline: Pipeline, spec: RequestSpec, host: nova.Host) -> dict[str, Any] | None:
    """The limits of a selection of the host, if it is selected."""
    request = Request(spec=spec, instance_uuids=(spec.instance_uuid or "",))
    try:
        decision = pipeline.decide(nova.table([host]), request, nova.LowRandomSource())
    except NoValidHost:
        return None
    [[selection]] = decision.selections
    limits: dict[str, Any] = plain(msgspec.to_builtins(selection.limits))
    return limits


def plain(value: Any) -> Any:
    """A primitive without object wrappers and unset fields; sets are sorted."""
    if isinstance(value, dict):
        data = value.get("nova_object.data", value)
        return {key: plain(each) for key, each in data.items() if each is not None}
    return sorted(value) if isinstance(value, (list, tuple)) else value
