"""Cases recorded from Nova as our words: ``tests/cases/nova/README.md`` gives their form."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from scheduler_worker.model.host_records import fields_of, merged, seconds
from scheduler_worker.model.hosts import HostTable
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.rpc import codec
from scheduler_worker.scheduling.options import Options

CASES = Path(__file__).resolve().parents[1] / "cases" / "nova"
NOW_S = seconds("2026-01-02T03:05:00Z")

_RENAMED = {
    "metrics.weight_setting": "metrics_weight_setting",
    "metrics.weight_multiplier": "metrics_weight_multiplier",
    "metrics.required": "metrics_required",
    "metrics.weight_of_unavailable": "metrics_weight_of_unavailable",
    "service_down_time": "service_down_time_s",
}


def cases(name: str) -> Iterator[dict[str, Any]]:
    """One case a line, or a list of them."""
    text = gzip.decompress((CASES / f"{name}.gz").read_bytes()).decode()
    yield from json.loads(text) if name.endswith(".json") else map(json.loads, text.splitlines())


def options(config: dict[str, Any], **more: Any) -> Options:
    """Nova's option overrides as ours."""
    known = set(Options.__struct_fields__)
    found = dict(more)
    for key, value in config.items():
        name = _RENAMED.get(key, _RENAMED.get(key.rpartition(".")[2], key.rpartition(".")[2]))
        if name in known:
            found[name] = tuple(value) if isinstance(value, list) else value
    return msgspec.convert(found, Options, strict=False)


def table(hosts: list[dict[str, Any]]) -> HostTable:
    """Recorded hosts, in their order."""
    found = HostTable()
    found.now_s = NOW_S
    aggregates = {}
    for version, each in enumerate(hosts, 1):
        plain = codec.plain(each["compute_node"], "compute_node")
        plain |= {"service": each["service"] or {}, "cell_uuid": each["cell_uuid"]}
        [report] = codec.decode_host_reports([plain])
        said = fields_of(report)
        stamp = {"nodename": said["hypervisor_hostname"], "cluster": "c", "reported_at_s": NOW_S}
        record = merged(None, said, **stamp)
        found.put(record, version)
        found.set_instances(record.host, {uuid: {"uuid": uuid} for uuid in each["instances"]})
        aggregates[record.host] = tuple(codec.decode_aggregates(each["aggregates"]))
    found.set_aggregates(aggregates)
    return found


def spec(case: dict[str, Any]) -> RequestSpec:
    return codec.decode_request_spec(case["request_spec"])
