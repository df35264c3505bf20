"""Messages on the bus, the shared state, and the workers themselves."""

from typing import Final

from scheduler_worker import remedies
from scheduler_worker.events.kinds import Alert, Count, Curve, Gauge, Panel, Trouble
from scheduler_worker.events.promql import ITS, per_second, rare, rate

_STATE_OUTAGE: Final = Alert(
    name="SchedulerStateOutage",
    expression=f"{rate('5m')} > 0",
    lasts="1m",
    severity="critical",
    summary="The shared state cannot be read or written",
    text="Requests fail with StateUnavailable: no decision is made without the state.",
)
_DISCARDED: Final = Alert(
    name="SchedulerMessagesDiscarded",
    expression=rare("15m", "instance", why="discarded"),
    severity="critical",
    summary="{{ $labels.instance }} lost messages",
    text="Messages could not be put into the dead letter queue.",
)
_DEAD_LETTERS: Final = Alert(
    name="SchedulerDeadLetters",
    expression=rare("15m", "instance", why="dead-lettered"),
    summary="{{ $labels.instance }} put messages into the dead letter queue",
    text="Messages that no worker could read or finish.",
)
OVERLOADED: Final = Alert(
    name="SchedulerOverloaded",
    expression=f"{rate('5m', why='expired')} > 0",
    lasts="5m",
    summary="Requests are dropped because their callers no longer wait",
    text="More requests arrive than the workers can decide.",
)
BUS_LOST: Final = Trouble("connections to the bus lost")

_CONNECTED = Panel(
    "Errors and outages",
    "Connected to the bus, drained",
    "1 while the worker is connected; 1 while it is drained and takes no requests.",
    "short",
)
_MESSAGES = Panel(
    "Errors and outages",
    "Messages lost, repeated, reconnects",
    "Dropped messages by reason, redeliveries and duplicates, connections that were made again.",
    "cps",
)

STATE_ERRORS: Final = Count(
    "redis_errors_total",
    "operations on the shared state that failed",
    troubles={"": Trouble("operations on the shared state failed", _STATE_OUTAGE, remedies.STATE)},
    alerts=(_STATE_OUTAGE,),
    curves=(
        per_second(
            Panel(
                "Errors and outages",
                "Shared state unreachable",
                "Requests that failed because Redis was unreachable or refused writes.",
                "cps",
            ),
            "{{instance}}",
            "instance",
        ),
    ),
)
BUS_CONNECTED: Final = Gauge(
    "bus_connected",
    "1 while the bus is connected",
    alerts=(
        Alert(
            name="SchedulerBusLost",
            expression=f"{ITS} == 0",
            lasts="1m",
            severity="critical",
            summary="{{ $labels.instance }} is not connected to RabbitMQ",
            text="The worker gets no requests; others serve them.",
        ),
    ),
    curves=(Curve(_CONNECTED, f"min by (instance) ({ITS})", "{{instance}}"),),
)
DRAINED: Final = Gauge(
    "drained",
    "1 while the worker is drained (`docs/scheduler-workerctl.md`): it finishes what it has and "
    "takes no more requests",
    curves=(Curve(_CONNECTED, f"max by (instance) ({ITS})", "{{instance}} drained"),),
)
DROPPED: Final = Count(
    "dropped_total",
    "messages that were not served: `expired` (the caller no longer waits, or would not when it is "
    "answered), `dead-lettered`, `discarded` (not even a dead letter); and answers that did not "
    "arrive: `unroutable`, `refused`",
    ("why",),
    troubles={
        "expired": Trouble(
            "messages expired",
            OVERLOADED,
            "More requests arrive than the workers can decide: start more",
        ),
        "dead-lettered": Trouble(
            "messages dead-lettered",
            _DEAD_LETTERS,
            "See the header x-scheduler-worker-reason of what is in scheduler_dead_letters",
        ),
        "discarded": Trouble(
            "messages discarded",
            _DISCARDED,
            "Give the account of the workers its permissions, and restart one",
            is_failure=True,
        ),
        "unroutable": Trouble("answers unroutable"),
        "refused": Trouble("answers refused"),
    },
    alerts=(_DISCARDED, _DEAD_LETTERS, OVERLOADED),
    curves=(per_second(_MESSAGES, "dropped: {{why}}", "why"),),
)
REDELIVERED: Final = Count(
    "redelivered_total",
    "messages that the bus redelivered",
    curves=(per_second(_MESSAGES, "redelivered"),),
)
DUPLICATES: Final = Count(
    "duplicates_total",
    "messages that were redelivered while this process was serving them, or had just answered",
    curves=(per_second(_MESSAGES, "duplicates"),),
)
RECONNECTS: Final = Count(
    "amqp_reconnects_total",
    "connections to the bus that were re-established",
    curves=(per_second(_MESSAGES, "reconnects"),),
)
BUILD: Final = Gauge(
    "build_info",
    "always 1",
    ("version", "python"),
    alerts=(
        Alert(
            name="SchedulerNoWorkers",
            expression=f"absent({ITS})",
            lasts="2m",
            severity="critical",
            summary="No scheduler worker is scraped",
            text="No VM can be placed, or Prometheus does not find the workers.",
        ),
        Alert(
            name="SchedulerMixedVersions",
            expression=f"count(count by (version) ({ITS})) > 1",
            lasts="1h",
            summary="Workers of several versions run",
            text="An upgrade was not finished.",
        ),
    ),
    curves=(
        Curve(
            Panel(
                "Workers",
                "Workers by version",
                "More than one version for long: an upgrade was not finished.",
                "short",
            ),
            f"count by (version, python) ({ITS})",
            "{{version}}, Python {{python}}",
        ),
        Curve(
            Panel("Workers", "Memory", "Resident memory of each worker.", "bytes"),
            f"process_resident_memory_bytes and on (instance, job) {ITS}",
            "{{instance}}",
        ),
    ),
)
WORKER_DOWN: Final = Alert(
    name="SchedulerWorkerDown",
    expression='up{job="scheduler_worker"} == 0',
    lasts="2m",
    severity="critical",
    summary="{{ $labels.instance }} does not answer",
    text="The worker is stopped, hangs, or its monitoring port cannot be reached.",
)
"""Of no event: Prometheus itself writes ``up``."""
