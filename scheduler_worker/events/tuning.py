"""Tuning."""

from typing import Final

from scheduler_worker.events.kinds import Alert, Count, Curve, Duration, Gauge, Panel, Trouble
from scheduler_worker.events.promql import (
    BOARD,
    CLUSTERS,
    ITS,
    per_cluster,
    per_second,
    percentiles,
    rare,
    series,
)

_CLUSTER = ("cluster",)
_FAILS: Final = Alert(
    name="SchedulerTuningFails",
    expression=rare("15m", "cluster"),
    summary="Tuning of cluster {{ $labels.cluster }} fails",
    text="A tuning cycle ended in an unexpected error.",
)

_RULES = Panel(
    "Tuning",
    "Rules that fail",
    "Skipped rules, failed turns, and problems that keep older policies in force (alarms).",
    "cps",
)

TUNING_TIME: Final = Duration(
    "tuning_cycle_seconds",
    "tuning turns of this worker, from taking a turn to its end",
    _CLUSTER,
    alerts=(
        Alert(
            name="SchedulerTuningStopped",
            expression=f"sum by (cluster) (increase({ITS}_count[10m])) == 0",
            lasts="5m",
            summary="No worker tunes cluster {{ $labels.cluster }}",
            text="It was tuned before, and no worker has tuned it for ten minutes.",
        ),
    ),
    curves=(
        Curve(
            Panel(
                "Tuning",
                "Tuning turns",
                "Turns of all workers; 0 means that no worker tunes the cluster.",
                "ops",
            ),
            f"sum by (cluster) (rate({series(suffix='_count', cluster=CLUSTERS)}[{BOARD}]))",
            "{{cluster}}",
        ),
        *percentiles(
            Panel("Tuning", "Time of a turn", "From taking a turn to its end.", "s"),
            "{{cluster}} p50",
            "{{cluster}} p99",
            by="cluster",
            cluster=CLUSTERS,
        ),
    ),
)
TUNING_CASTS: Final = Count(
    "tuning_casts_total",
    "hosts whose agent had to be notified: `ok`, `Undeliverable` (no agent listens), "
    "`BusUnavailable`, `late` (no time was left)",
    ("result",),
    curves=(
        per_second(
            Panel(
                "Tuning", "Casts to agents", "ok, or why a host's agent was not notified.", "cps"
            ),
            "{{result}}",
            "result",
        ),
    ),
)
TUNING_FAULTS: Final = Count(
    "tuning_faults_total",
    "rules that were skipped for a host, VM or disk, or reported an anomaly; `kind` is the "
    "language's",
    ("policy", "kind"),
    curves=(per_second(_RULES, "{{policy}} {{kind}}", "policy, kind"),),
)
TUNING_FAILURES: Final = Count(
    "tuning_failures_total",
    "tuning turns that ended in an unexpected error; the log has the traceback",
    _CLUSTER,
    troubles={"": Trouble("rounds of tuning failed", _FAILS, "The worker's log has the traceback")},
    alerts=(_FAILS,),
    curves=(per_cluster(_RULES, "{{cluster}} turn failed"),),
)
TUNING_ALARMS: Final = Gauge(
    "tuning_alarms",
    "problems with tuning policies, because of which older ones stay in force; 0 is good",
    alerts=(
        Alert(
            name="SchedulerTuningAlarms",
            expression=f"{ITS} > 0",
            lasts="5m",
            summary="{{ $labels.instance }} cannot load a tuning policy",
            text="Older policies stay in force.",
        ),
    ),
    curves=(Curve(_RULES, f"max({ITS})", "alarms"),),
)
