"""Explains for each host why it would be chosen or not, which a decision does not compute."""

from collections.abc import Sequence

import numpy as np
from msgspec import structs

from scheduler_worker.model.decisions import (
    Diagnosis,
    HostVerdict,
    NearMiss,
    Rejection,
    WeightPart,
)
from scheduler_worker.model.host_records import known_as
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import Hosts, HostState, Rows
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling import sentence
from scheduler_worker.scheduling.evaluation import Evaluation
from scheduler_worker.scheduling.extra_specs import amount_set
from scheduler_worker.scheduling.filters.capacity import CPUS, DISK, MEMORY
from scheduler_worker.scheduling.pipeline import Pipeline, Request
from scheduler_worker.scheduling.plugin import Filter, Weigher, only
from scheduler_worker.scheduling.selectors import RandomSource

_AMOUNTS = {amount.resource_class: amount for amount in (CPUS, MEMORY, DISK)}


def nearest(filters: Sequence[Filter], hosts: HostTable, spec: RequestSpec) -> NearMiss | None:
    """The nearest host of a request that no host passes; None: there are no hosts.

    ``filters`` are the filters that the request concerns. Each is asked about every host, but for
    units of others that do not say what they read, since these may be slow: they count as passed. A
    shortage counts as a share of what the host would have to have beside what it has.
    """
    asked = [unit for unit in filters if unit.is_internal() or unit.declares_reads()]
    if not len(hosts) or not asked:
        return None
    failed, lacking = np.zeros(len(hosts)), np.zeros(len(hosts))
    for unit in asked:
        failed += ~unit.passes(hosts, spec)
        for name, amounts in unit.shortages(hosts, spec).items():
            lacking += amounts / max(1, _amount(spec, name))
    row = int(np.lexsort((lacking, failed))[0])  # by filters that fail, then by what it lacks
    host, alone = hosts.state(row), only(hosts.state(row))
    shortages: dict[str, int] = {}
    reasons: list[str] = []
    for unit in asked:
        if not unit.host_passes(host, spec):
            lacked = {name: int(amount[0]) for name, amount in unit.shortages(alone, spec).items()}
            lacked = {name: amount for name, amount in lacked.items() if amount > 0}
            shortages |= {name: max(n, shortages.get(name, 0)) for name, n in lacked.items()}
            if not lacked:
                reasons.append(unit.reason(host, spec))
    return NearMiss(host=host.host, shortages=shortages, reasons=tuple(dict.fromkeys(reasons)))


def _amount(spec: RequestSpec, resource_class: str) -> int:
    amount, override = _AMOUNTS.get(resource_class, CPUS), amount_set(spec.flavor, resource_class)
    return amount.own(spec.flavor) // amount.unit if override is None else override


def explain(
    pipeline: Pipeline,
    hosts: HostTable,
    request: Request,
    rng: RandomSource,
    *,
    only: Sequence[str] = (),
    limit: int = 100,
) -> Diagnosis:
    """Explains the decision for the first instance; nothing is consumed.

    ``only`` names the hosts to report (:func:`known_as`), each with every filter that rejects it.

    At most ``limit`` verdicts are returned: of the hosts that passed, best first, then the others.
    """
    uuid = request.instance_uuids[0] if request.instance_uuids else None
    spec = structs.replace(request.spec, instance_uuid=uuid)
    evaluation = pipeline.evaluator.evaluate_afresh(hosts, spec, in_order=True)
    results = evaluation.results
    order = list(pipeline.rank(hosts, evaluation, spec, rng)) if results.passed else []
    rejected = np.flatnonzero(~results.survivors).tolist()
    meant, records = set(only), hosts.records
    reported = [
        row for row in order + rejected if not (only and meant.isdisjoint(known_as(records[row])))
    ]
    rows = reported[:limit]
    verdicts = _weighings(pipeline, hosts, evaluation, spec, {*rows, *order[:2]})
    refused = [row for row in rows if row not in verdicts]
    others = _rejections(pipeline, hosts, spec, refused if only else [])
    for row in refused:
        verdict = _rejection(pipeline, hosts.state(row), evaluation, spec)
        also = (each for each in others.get(row, ()) if each.filter != verdict.rejected_by)
        verdicts[row] = structs.replace(verdict, also_rejected_by=tuple(also))
    return structs.replace(
        results.diagnosis(),
        verdicts=tuple(verdicts[row] for row in rows),
        left_out=len(reported) - len(rows),
        chosen=hosts.records[order[0]].host if order else None,
        sentence=_sentence(pipeline, hosts, spec, evaluation, [verdicts[at] for at in order[:2]]),
        notes=pipeline.notes(),
    )


def _sentence(
    pipeline: Pipeline,
    hosts: HostTable,
    spec: RequestSpec,
    evaluation: Evaluation,
    first: Sequence[HostVerdict],
) -> str:
    """The explanation in one sentence; ``first`` are the verdicts on the first two hosts."""
    results = evaluation.results
    if first:
        totals = evaluation.totals(hosts, spec)
        best = hosts.records[int(evaluation.rows[totals.argmax()])].host
        gains = [{part.name: part.product or 0.0 for part in verdict.weights} for verdict in first]
        after = gains[1] if len(gains) > 1 else {}
        shares = [(name, gains[0][name], after[name]) for name in gains[0] if name in after]
        other = best if first[0].weight != totals.max() else None
        return sentence.placement(first[0].host, len(hosts), results.passed, shares, best=other)
    near = nearest(pipeline.evaluator.asked(spec), hosts, spec)
    steps = results.diagnosis().filters
    return sentence.refusal(len(hosts), steps, pipeline.demands(spec, steps), near)


def _rejection(
    pipeline: Pipeline, host: HostState, evaluation: Evaluation, spec: RequestSpec
) -> HostVerdict:
    name = evaluation.results.rejected_by(host.row)
    named = (unit for unit in pipeline.evaluator.filters if unit.name == name)
    why = next((unit.reason(host, spec) for unit in named), None)
    return HostVerdict(host=host.host, nodename=host.nodename, rejected_by=name, reason=why)


def _rejections(
    pipeline: Pipeline, hosts: HostTable, spec: RequestSpec, rows: Sequence[int]
) -> dict[int, list[Rejection]]:
    """Every filter that rejects each of these hosts, whatever the filters before it say."""
    found: dict[int, list[Rejection]] = {row: [] for row in rows}
    view = hosts.take(np.array(rows, dtype=np.intp))
    for unit in pipeline.evaluator.asked(spec) if rows else ():
        for row in np.array(rows)[~unit.passes(view, spec)].tolist():
            found[row].append(Rejection(unit.name, unit.reason(hosts.state(row), spec)))
    return found


def _weighings(
    pipeline: Pipeline,
    hosts: HostTable,
    evaluation: Evaluation,
    spec: RequestSpec,
    chosen: set[int],
) -> dict[int, HostVerdict]:
    rows = evaluation.rows
    places = np.flatnonzero(np.isin(rows, list(chosen)))
    view = hosts.take(rows)
    weighed = pipeline.weights if len(rows) > 1 else ()
    tables = [_parts(pipeline, unit, view, spec, places) for unit in weighed]
    totals = evaluation.totals(hosts, spec)[places].tolist()
    return {
        row: HostVerdict(
            host=hosts.records[row].host,
            nodename=hosts.records[row].nodename,
            weight=totals[number],
            weights=tuple(parts[number] for parts in tables),
        )
        for number, row in enumerate(rows[places].tolist())
    }


def _parts(
    pipeline: Pipeline, unit: Weigher, hosts: Hosts, spec: RequestSpec, places: Rows
) -> list[WeightPart]:
    """What a weight gives to the hosts at these places, among all that pass."""
    raw = scores = np.zeros(len(hosts))
    if unit.applies(spec):
        scale = pipeline.selector.scale(unit, spec, 1.0, unit.weigh(hosts, spec))
        raw, scores = scale.scores, scale.every_product()
    multipliers = np.broadcast_to(unit.multiplier(hosts), len(hosts))
    columns = (raw, scores, multipliers, multipliers * scores)
    chosen = (column[places].astype(float).tolist() for column in columns)
    return [WeightPart(unit.name, *values) for values in zip(*chosen, strict=True)]
