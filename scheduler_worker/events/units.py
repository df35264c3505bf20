"""Units from files."""

from typing import Final

from scheduler_worker.events.kinds import Alert, Count, Curve, Duration, Gauge, Panel, Trouble
from scheduler_worker.events.promql import ITS, increase, per_second, percentiles

_FAILS: Final = Alert(
    name="SchedulerExternalUnitFails",
    expression=f"{increase('15m', 'unit', result='!ok')} > 0",
    lasts="5m",
    summary="The external unit {{ $labels.unit }} fails",
    text="Decisions go on without it, or no host passes its filter.",
)
UNITS_LEFT_OUT: Final = Alert(
    name="SchedulerExternalUnitsLeftOut",
    expression=f"max by (instance) ({ITS}) > 0",
    lasts="5m",
    summary="{{ $labels.instance }} does not load files of external units",
    text="Policies with their units decide without them, or refuse requests after a restart.",
)
_FAILED = Trouble(
    "calls of external units failed",
    _FAILS,
    "Correct the unit's file, or disable it: scheduler-worker-manage unit disable",
)

_CALL = Panel(
    "External units",
    "Time of a call",
    "Percentiles of one call of a unit in a sandbox; files loaded into sandboxes.",
    "s",
)

UNIT_CALLS: Final = Count(
    "external_unit_calls_total",
    "calls of external units: `ok`; a filter that failed: all hosts `passed`, or it `refused` all; "
    "another unit that `failed`; the log says why",
    ("unit", "result"),
    troubles=dict.fromkeys(("passed", "refused", "failed"), _FAILED),
    alerts=(_FAILS,),
    curves=(
        per_second(
            Panel("External units", "Calls of external units", "By unit and result.", "cps"),
            "{{unit}} {{result}}",
            "unit, result",
        ),
    ),
)
UNIT_TIME: Final = Duration(
    "external_unit_call_seconds",
    "one call of an external unit, with waiting for a process of its file",
    curves=percentiles(_CALL, "50 %", "99 %"),
)
UNIT_FILES: Final = Count(
    "external_unit_files_total",
    "files of external units that were loaded; `isolation` is what the kernel grants their "
    "sandbox: `files+ipc+landlock+network+processes+seccomp` is everything, `limits` is nothing "
    "but resource limits",
    ("file", "isolation"),
    curves=(Curve(_CALL, f"sum by (file, isolation) ({ITS})", "{{file}} {{isolation}}"),),
)
UNIT_ALARMS: Final = Gauge(
    "external_unit_alarms",
    "files of external units that are not loaded; 0 is good, the log and Health say why",
    alerts=(UNITS_LEFT_OUT,),
    curves=(Curve(_CALL, f"max by (instance) ({ITS})", "{{instance}}: files left out"),),
)
