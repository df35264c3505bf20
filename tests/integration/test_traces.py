"""Traces of a real worker behind RabbitMQ, as a receiver of OTLP over HTTP gets them."""

import gzip
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from scheduler_worker.client import SchedulerClient
from scheduler_worker.compose.worker import Worker, build_worker
from scheduler_worker.rpc import versions
from tests.support.json_server import Answer, Asked, serving
from tests.support.patience import eventually
from tests.support.services import host
from tests.support.workers import load_config

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SMALL = {"flavor": {"vcpus": 1, "memory_mb": 512}}


class Receiver:
    """Takes what exporters send."""

    def __init__(self, address: str) -> None:
        self.url = f"{address}/v1/traces"
        self.spans: list[tuple[dict[str, str], Any]] = []
        """Resource and span."""

    def answer(self, asked: Asked) -> Answer:
        is_zipped = asked.headers.get("Content-Encoding") == "gzip"
        body = gzip.decompress(asked.body) if is_zipped else asked.body
        for sent in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = {one.key: one.value.string_value for one in sent.resource.attributes}
            for scope in sent.scope_spans:
                self.spans += [(resource, span) for span in scope.spans]
        return Answer(200)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with serving(Receiver) as listening:
        yield listening


@pytest.fixture
def worker(tmp_path, rabbit_vhost_url, receiver) -> Iterator[Worker]:
    config = load_config(
        tmp_path / "traced.conf",
        DEFAULT={"transport_url": rabbit_vhost_url, "host": "w1"},
        tracing={"enabled": True, "endpoint": receiver.url},
        balancing={"interval": 0},
    )
    with build_worker(config).running() as running:
        yield running


def test_a_request_is_followed_from_its_wait_to_its_answer_in_its_callers_trace(worker, receiver):
    client = SchedulerClient(worker.bus)
    client.update_hosts([host("a"), host("b")])
    context = {"request_id": "req-traced", "traceparent": f"00-{TRACE}-{SPAN}-01"}
    caller = worker.bus.client("scheduler", namespace=None, version=versions.NOVA)
    caller.call("select_destinations", context, spec_obj=SMALL, instance_uuids=["one"])
    eventually(lambda: any(span.name == "answer" for _, span in receiver.spans))
    resource, root = next(e for e in receiver.spans if e[1].name == "select_destinations")
    assert resource["service.name"] == "scheduler_worker"
    assert resource["service.instance.id"] == "w1"
    assert (root.trace_id.hex(), root.parent_span_id.hex()) == (TRACE, SPAN)
    inside = [span for _, span in receiver.spans if span.parent_span_id == root.span_id]
    assert {"wait", "lock", "decide", "commit", "answer"} <= {each.name for each in inside}
    attributes = {each.key: each.value for each in root.attributes}
    assert attributes["openstack.request_id"].string_value == "req-traced"
