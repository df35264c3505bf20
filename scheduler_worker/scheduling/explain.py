"""Why each host would be chosen or not: what a decision does not take the time to say."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from scheduler_worker.model.decisions import Diagnosis, HostVerdict, WeightPart
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import Hosts, HostState
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.pipeline import Pipeline, Request
from scheduler_worker.scheduling.plugin import Weigher
from scheduler_worker.scheduling.ranking import Dice
from scheduler_worker.scheduling.standing import Standing


def explain(
    pipeline: Pipeline,
    hosts: HostTable,
    request: Request,
    dice: Dice,
    *,
    only: Sequence[str] = (),
    limit: int = 100,
) -> Diagnosis:
    """Why each host would be chosen or not, for the first instance; nothing is consumed.

    ``only`` names the hosts to report; at most ``limit`` verdicts are given, hosts that passed
    first, best first.
    """
    uuid = request.instance_uuids[0] if request.instance_uuids else None
    spec = msgspec.structs.replace(request.spec, instance_uuid=uuid)
    standing = pipeline.judged_anew(hosts, spec, in_order=True)
    survey = standing.survey
    order = list(pipeline.rank(hosts, standing, spec, dice)) if survey.passed else []
    rejected = np.flatnonzero(~survey.survivors).tolist()
    wanted = set(np.flatnonzero(hosts.rows_of(only)).tolist()) if only else None
    rows = [row for row in order + rejected if wanted is None or row in wanted][:limit]
    verdicts = _weighings(pipeline, hosts, standing, spec, set(rows))
    for row in rows:
        if row not in verdicts:
            verdicts[row] = _rejection(pipeline, hosts.state(row), standing, spec)
    return msgspec.structs.replace(
        survey.diagnosis(),
        verdicts=tuple(verdicts[row] for row in rows),
        chosen=hosts.records[order[0]].host if order else None,
    )


def _rejection(
    pipeline: Pipeline, host: HostState, standing: Standing, spec: RequestSpec
) -> HostVerdict:
    name = standing.survey.rejected_by(host.row)
    filters = (*pipeline.prefilters, *pipeline.filters)
    reasons = [unit.reason(host, spec) for unit in filters if unit.name == name]
    return HostVerdict(
        host=host.host,
        nodename=host.nodename,
        rejected_by=name,
        reason=reasons[0] if reasons else "is not where the request asks to be",
    )


def _weighings(
    pipeline: Pipeline, hosts: HostTable, standing: Standing, spec: RequestSpec, wanted: set[int]
) -> dict[int, HostVerdict]:
    rows = standing.rows
    view = hosts.take(rows)
    weighed = pipeline.weighers if len(rows) > 1 else ()
    tables = [_parts(unit, view, spec) for unit in weighed]
    totals = standing.totals(hosts, spec)
    return {
        int(row): HostVerdict(
            host=hosts.records[row].host,
            nodename=hosts.records[row].nodename,
            weight=float(totals[at]),
            weights=tuple(parts[at] for parts in tables),
        )
        for at, row in enumerate(rows.tolist())
        if row in wanted
    }


def _parts(unit: Weigher, hosts: Hosts, spec: RequestSpec) -> list[WeightPart]:
    raw = unit.weigh(hosts, spec) if unit.applies(spec) else np.zeros(len(hosts))
    normalized = unit.normalized(raw) if unit.applies(spec) else np.zeros(len(hosts))
    multipliers = np.broadcast_to(unit.multiplier(hosts), len(hosts))
    columns = (raw, normalized, multipliers, multipliers * normalized)
    return [
        WeightPart(unit.name, *(float(value) for value in values))
        for values in zip(*columns, strict=True)
    ]
