"""Makes a worker's report of what the worker says of itself; bounds its size."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from scheduler_worker.model.worker_reports import (
    ClusterReport,
    Holds,
    Lately,
    LockTimes,
    RequestsInHand,
    WorkerReport,
)
from scheduler_worker.monitoring.health import Load
from scheduler_worker.redaction import redacted
from scheduler_worker.wording import cut

MAX_CLUSTERS = 50
_MAX_ERRORS = 30
_MAX_PARTS = 50
_MAX_TEXTS = 5
_TEXT = 500


def report_of(
    status: Mapping[str, Any],
    load: Load,
    *,
    tuning_alarms: Sequence[str],
    unit_alarms: Sequence[str],
    contests: Sequence[str],
    known_clusters: int | None,
    lately: Lately,
    lock_times: Mapping[str, LockTimes],
) -> WorkerReport:
    """The report of a worker with this ``status()`` and ``load()``."""
    bus, holds = status["bus"], status["holds"]
    errors = sorted(lately.errors.items(), key=lambda error: -error[1])[:_MAX_ERRORS]
    in_hand = {name: getattr(load, name) for name in RequestsInHand.__struct_fields__}
    in_hand["feed"] = dict(sorted(load.feed.items())[:_MAX_PARTS])
    return WorkerReport(
        **in_hand,
        uptime_s=status["uptime_s"],
        missing=_texts(status["missing"]),
        is_consuming=bus.get("consuming", bus.get("problem") is None),
        slots=bus.get("slots"),
        lag_s=bus.get("queue_delay_s"),
        tuning_alarms=_texts(tuning_alarms),
        unit_alarms=_texts(unit_alarms),
        contests=_texts(contests),
        holds=Holds(
            leases=tuple(holds["leases"][:MAX_CLUSTERS]),
            feed=holds["feed"],
            tuning=tuple(holds["tuning"][:MAX_CLUSTERS]),
            balancing=tuple(holds["balancing"][:MAX_CLUSTERS]),
        ),
        clusters=_busiest(
            [_cluster(name, cluster, lock_times) for name, cluster in status["clusters"].items()]
        ),
        hosts=None if load.hosts is None else load.most_down(MAX_CLUSTERS),
        known_clusters=known_clusters,
        lately=msgspec.structs.replace(lately, errors=dict(errors)),
    )


def _cluster(
    name: str, cluster: Mapping[str, Any], lock_times: Mapping[str, LockTimes]
) -> ClusterReport:
    return ClusterReport(
        name=name,
        in_line=cluster["in_line"],
        oldest_s=cluster["oldest_s"],
        waiting_for_pending=cluster["waiting_for_pending"],
        reservations=cluster["promises"],
        held_s=cluster["held_s"],
        times=lock_times.get(name, LockTimes()),
    )


def _busiest(clusters: Sequence[ClusterReport]) -> tuple[ClusterReport, ...]:
    """First those with requests, then those whose lock was used most."""

    def business(cluster: ClusterReport) -> tuple[int, bool, int, int]:
        in_hand = cluster.in_line + cluster.waiting_for_pending
        return in_hand, cluster.held_s is not None, cluster.times.wait.total, cluster.reservations

    return tuple(sorted(clusters, key=business, reverse=True)[:MAX_CLUSTERS])


def _texts(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(cut(redacted(text), _TEXT) for text in texts[:_MAX_TEXTS])
