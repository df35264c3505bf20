"""What the weighers said of hosts that passed, and the order that came of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from conformance import nova
from scheduler_worker.errors import ComputeHostMetricNotFound
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.rpc import codec
from scheduler_worker.scheduling.normalize import clamp
from scheduler_worker.scheduling.pipeline import Pipeline
from scheduler_worker.scheduling.plugin import Weigher
from scheduler_worker.scheduling.standing import Standing, Survey

EXACT = 1e-9


class Figures(msgspec.Struct, frozen=True):
    """What one weigher said of each host; or, without figures, what it raised."""

    raw: list[float] = []
    norm: list[float] = []
    mult: list[float] = []
    raises: str | None = None


class Case(msgspec.Struct, frozen=True):
    """Hosts, the figures of each weigher, and the order of the hosts by their total weight."""

    config: nova.NovaConfig
    hosts: list[nova.Host]
    request_spec: dict[str, Any]
    weigher_order: list[str]
    per_weigher: dict[str, Figures]
    expect: dict[str, Any]


def recognise(document: Any) -> bool:
    return isinstance(document, dict) and {"per_weigher", "request_spec"} <= document.keys()


def run(document: Any) -> Iterator[str]:
    case = msgspec.convert(document, Case)
    names = [name.rpartition(".")[2] for name in case.weigher_order]
    if missing := nova.unknown("weigher", names, nova.WEIGHERS):
        yield from missing
        return
    pipeline = nova.pipeline(case.config, filters=[], weighers=names)
    hosts, spec = nova.table(case.hosts), codec.decode_request_spec(case.request_spec)
    if "raises" in case.expect:
        yield from _refusal(case, pipeline, hosts, spec)
        return
    for unit in pipeline.weighers:
        said = case.per_weigher.get(unit.name)
        if said is not None and said.raises is None:
            yield from _figures(unit, hosts, spec, said)
    yield from _order(pipeline, hosts, spec, case.expect["order"])


def _refusal(case: Case, pipeline: Pipeline, hosts: HostTable, spec: RequestSpec) -> Iterator[str]:
    try:
        _totals(pipeline, hosts, spec)
    except ComputeHostMetricNotFound:
        return
    yield f"is weighed, where Nova raises {case.expect['raises']}"


def _figures(unit: Weigher, hosts: HostTable, spec: RequestSpec, said: Figures) -> Iterator[str]:
    raw = unit.weigh(hosts, spec) if unit.applies(spec) else np.zeros(len(hosts))
    by_row = [unit.weigh_host(host, spec) if unit.applies(spec) else 0.0 for host in hosts.states()]
    multipliers = np.broadcast_to(unit.multiplier(hosts), len(hosts)).tolist()
    yield from _compared(
        f"{unit.name} raw", clamp(raw, unit.minval, unit.maxval).tolist(), said.raw
    )
    yield from _compared(f"{unit.name} by row", by_row, raw.tolist())
    yield from _compared(f"{unit.name} norm", unit.normalized(raw).tolist(), said.norm)
    yield from _compared(f"{unit.name} mult", multipliers, said.mult)


def _order(
    pipeline: Pipeline, hosts: HostTable, spec: RequestSpec, order: Sequence[Sequence[Any]]
) -> Iterator[str]:
    """Hosts of equal weight may come in any order."""
    expected = {(host, node): weight for host, node, weight in order}
    totals = _totals(pipeline, hosts, spec)
    names = [(record.host, record.nodename) for record in hosts.records]
    yield from _compared("weights", totals, [expected[each] for each in names])


def _totals(pipeline: Pipeline, hosts: HostTable, spec: RequestSpec) -> list[float]:
    """The weight of every host; they passed the filters already."""
    everybody = Survey(hosts, spec, (), first=("recorded", np.ones(len(hosts), bool)))
    asked = [unit for unit in pipeline.weighers if unit.applies(spec)]
    totals: list[float] = Standing(hosts, everybody, asked).totals(hosts, spec).tolist()
    return totals


def _compared(what: str, found: list[float], said: Sequence[float]) -> Iterator[str]:
    if len(found) != len(said) or not all(
        math.isclose(mine, its, rel_tol=EXACT, abs_tol=EXACT)
        for mine, its in zip(found, said, strict=True)
    ):
        yield f"{what} are {found}; recorded are {list(said)}"
