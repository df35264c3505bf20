"""Records of decisions, and traces of requests."""

from typing import Final

from scheduler_worker.events.kinds import Alert, Count, Curve, Gauge, Panel, Trouble
from scheduler_worker.events.promql import ITS, increase, per_second

_DROPPED: Final = Alert(
    name="SchedulerRecordsDropped",
    expression=f"{increase('15m', result='dropped')} > 0",
    lasts="5m",
    summary="Records of decisions are dropped",
    text="Requests are served; why they got their hosts cannot be asked later.",
)

DECISION_RECORDS: Final = Count(
    "decision_records_total",
    "records of decisions that were `written`, or `dropped` because too many waited (`[decisions] "
    "max_waiting`)",
    ("result",),
    troubles={
        "dropped": Trouble(
            "records of decisions dropped",
            _DROPPED,
            "Give Redis memory, or keep fewer records: [decisions] max_per_cluster, max_age",
        )
    },
    alerts=(_DROPPED,),
    curves=(
        per_second(
            Panel(
                "Records of decisions",
                "Records of decisions by result",
                "Records that were written, or dropped because too many waited for the shared "
                "state.",
                "cps",
            ),
            "{{result}}",
            "result",
        ),
    ),
)
UNWRITTEN: Final = Gauge(
    "unwritten_decisions",
    "records that wait to be written; up to some hundreds are normal",
    curves=(
        Curve(
            Panel(
                "Records of decisions",
                "Records that wait",
                "Records of decisions that are not written yet; they grow while the shared state "
                "is away.",
                "short",
            ),
            f"sum({ITS})",
            "waiting",
        ),
    ),
)
TRACES: Final = Count(
    "traces_total",
    "requests whose traces were `exported`, or `dropped` because the collector did not take "
    "them, or too many waited",
    ("result",),
    curves=(
        per_second(
            Panel(
                "Records of decisions",
                "Traces by result",
                "Requests whose traces were exported, or dropped because the collector did not "
                "take them.",
                "cps",
            ),
            "{{result}}",
            "result",
        ),
    ),
)
