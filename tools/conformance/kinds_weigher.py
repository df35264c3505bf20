"""The weights of hosts that passed, and the resulting order."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from conformance import nova
from scheduler_worker import codec
from scheduler_worker.errors import ComputeHostMetricNotFound
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.evaluation import Evaluation
from scheduler_worker.scheduling.filter_results import FilterResults
from scheduler_worker.scheduling.pipeline import Pipeline
from scheduler_worker.scheduling.plugin import Weigher
from scheduler_worker.scheduling.scales import NormalizedScale, clamp

EXACT = 1e-9


class Figures(msgspec.Struct, frozen=True):
    """The figures of one weigher for each host; or the exception that it raised."""

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
    for unit in pipeline.weights:
        recorded = case.per_weigher.get(unit.name)
        if recorded is None:
            continue
        if recorded.raises is None:
            yield from _figures(unit, hosts, spec, recorded)
        else:
            yield from _refusal(unit.name, recorded.raises, partial(unit.weigh, hosts, spec))
    if "raises" in case.expect:
        raised = case.expect["raises"]
        yield from _refusal("the order", raised, lambda: totals(pipeline, hosts, spec))
    else:
        yield from _order(pipeline, hosts, spec, case.expect["order"])


def _refusal(what: str, raised: str, weigh: Callable[[], object]) -> Iterator[str]:
    try:
        weigh()
    except ComputeHostMetricNotFound:
        return
    yield f"{what} is weighed, where Nova raises {raised}"


def _figures(
    unit: Weigher, hosts: HostTable, spec: RequestSpec, recorded: Figures
) -> Iterator[str]:
    raw = unit.weigh(hosts, spec) if unit.applies(spec) else np.zeros(len(hosts))
    by_row = [unit.weigh_host(host, spec) if unit.applies(spec) else 0.0 for host in hosts.states()]
    multipliers = np.broadcast_to(unit.multiplier(hosts), len(hosts)).tolist()
    yield from _compared(
        f"{unit.name} raw", clamp(raw, unit.minval, unit.maxval).tolist(), recorded.raw
    )
    normalized = NormalizedScale(unit, spec, 1.0, raw)
    yield from _compared(f"{unit.name} by row", by_row, raw.tolist())
    yield from _compared(f"{unit.name} norm", normalized.every_product().tolist(), recorded.norm)
    yield from _compared(f"{unit.name} mult", multipliers, recorded.mult)


def _order(
    pipeline: Pipeline, hosts: HostTable, spec: RequestSpec, order: Sequence[Sequence[Any]]
) -> Iterator[str]:
    """Hosts of equal weight may come in any order."""
    expected = {(host, node): weight for host, node, weight in order}
    found = totals(pipeline, hosts, spec)
    names = [(record.host, record.nodename) for record in hosts.records]
    yield from _compared("weights", found, [expected[name] for name in names])


def totals(pipeline: Pipeline, hosts: HostTable, spec: RequestSpec) -> list[float]:
    """The weight of every host; they passed the filters already."""
    all_hosts = FilterResults(hosts, spec, ())
    asked = [unit for unit in pipeline.weights if unit.applies(spec)]
    evaluation = Evaluation(hosts, all_hosts, asked, pipeline.selector.scale)
    found: list[float] = evaluation.totals(hosts, spec).tolist()
    return found


def _compared(what: str, found: list[float], recorded: Sequence[float]) -> Iterator[str]:
    if len(found) != len(recorded) or not all(
        math.isclose(mine, its, rel_tol=EXACT, abs_tol=EXACT)
        for mine, its in zip(found, recorded, strict=True)
    ):
        yield f"{what} are {found}; recorded are {list(recorded)}"
