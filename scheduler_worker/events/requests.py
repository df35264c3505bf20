"""Requests, the locks that they wait for, and the reservations that they leave."""

from typing import Final

from scheduler_worker.events.kinds import (
    Alert,
    Count,
    Curve,
    Duration,
    Gauge,
    Panel,
    Trouble,
)
from scheduler_worker.events.promql import (
    BOARD,
    CLUSTERS,
    ITS,
    per_cluster,
    per_second,
    percentiles,
    quantile,
    rare,
    rate,
    series,
)

_CLUSTER = ("cluster",)
_LOCK_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

# Alerts, and their bounds

SLOW_S: Final = 30.0
"""So long may one request of a hundred take."""
REFUSED_SHARE: Final = 0.2
"""So large a share of the requests may find no host."""
INTERNAL_ERRORS: Final = Alert(
    name="SchedulerInternalErrors",
    expression=rare("10m", "method", result="InternalError"),
    severity="critical",
    summary="{{ $labels.method }} fails by a defect",
    text="An unexpected exception, of the worker or of a plugin.",
)
SLOW: Final = Alert(
    name="SchedulerSlow",
    expression=f"{quantile(0.99, '10m')} > {SLOW_S:g}",
    lasts="10m",
    summary=f"One request of a hundred takes longer than {SLOW_S:g} s",
    text="Callers give up after their RPC timeout, 60 s by default.",
)
REFUSED_OFTEN: Final = Alert(
    name="SchedulerNoValidHost",
    expression=rate("15m", method="select_destinations", result="NoValidHost")
    + f"\n/\n{rate('15m', method='select_destinations')}\n> {REFUSED_SHARE:g}",
    lasts="15m",
    summary="{{ $value | humanizePercentage }} of the requests find no host",
    text="The fleet is full, or a filter rejects more than it should.",
)
_LOCK_TIMEOUTS: Final = Alert(
    name="SchedulerLockTimeouts",
    expression=rare("10m", "cluster"),
    lasts="2m",
    summary="Requests of cluster {{ $labels.cluster }} wait too long for its lock",
    text="A cluster gets more requests than it can decide, or its leaseholder hangs.",
)
_LEASES_EXPIRE: Final = Alert(
    name="SchedulerLeasesExpire",
    expression=f"{rate('5m', 'instance, cluster')} > 0",
    lasts="15m",
    summary="{{ $labels.instance }} holds the lock of {{ $labels.cluster }} too long",
    text="The worker pauses for longer than [cluster_lock] hold_timeout.",
)
INTERNAL: Final = Trouble(
    "InternalError",
    INTERNAL_ERRORS,
    "A defect of the worker or of a plugin: the log has the traceback",
    is_failure=True,
)

# Panels of several events

_IN_HAND = Panel(
    "Queues",
    "Requests in hand",
    "Being served, received and not begun, and waiting for pending resources, in all workers.",
    "short",
)
_AGAIN = Panel(
    "Locks of clusters",
    "Decided again",
    "Commits that were refused: the lease had ended, the host had changed; and leases that lasted "
    "too long.",
    "cps",
)
_ENDS = Panel(
    "Reservations",
    "How reservations end",
    "expired: neither reported nor released, so capacity lay idle. Each worker that reads a "
    "cluster counts expired ones; the largest count is shown.",
    "cps",
)

# Events

REQUESTS: Final = Count(
    "requests_total",
    "requests served, casts included; `result` is `ok` or the class of the error",
    ("method", "result"),
    alerts=(INTERNAL_ERRORS, REFUSED_OFTEN),
    curves=(
        per_second(
            Panel(
                "Decisions",
                "Decisions by result",
                "Requests for destinations of all workers; every result but ok is an error that "
                "the caller got.",
                "reqps",
            ),
            "{{result}}",
            "result",
            method="select_destinations",
        ),
        per_second(
            Panel("Errors and outages", "Errors by result", "All methods.", "reqps"),
            "{{method}} {{result}}",
            "method, result",
            result="!ok",
        ),
    ),
)
REQUEST_TIME: Final = Duration(
    "request_duration_seconds",
    "from getting a slot to the answer",
    alerts=(SLOW,),
    curves=percentiles(
        Panel(
            "Decisions",
            "Time to the answer",
            "From getting a slot to the answer, all methods.",
            "s",
        ),
        "p50",
        "p99",
    ),
)
INFLIGHT: Final = Gauge(
    "inflight",
    "requests being served, those that wait for pending resources included",
    curves=(Curve(_IN_HAND, f"sum({ITS})", "being served"),),
)
BACKLOG: Final = Gauge(
    "backlog",
    "requests that this process has received and not begun; with our own server the real backlog "
    "is the queue in RabbitMQ",
    curves=(
        Curve(_IN_HAND, f"sum({ITS})", "not begun"),
        Curve(
            Panel(
                "Queues",
                "Queue in RabbitMQ",
                "The real backlog. Needs a scrape of RabbitMQ's "
                "/metrics/detailed?family=queue_coarse_metrics.",
                "short",
            ),
            "max by (queue) "
            '(rabbitmq_detailed_queue_messages_ready{queue=~"$topic|${topic}_dead_letters"})',
            "{{queue}}",
        ),
    ),
)
WAITING: Final = Gauge(
    "waiting_requests",
    "requests that wait for pending resources to be given back",
    curves=(Curve(_IN_HAND, f"sum({ITS})", "waiting for pending resources"),),
)
QUEUE_WAIT: Final = Duration(
    "queue_wait_seconds",
    "from receipt off the bus to getting a slot",
    curves=percentiles(
        Panel("Queues", "Waiting for a slot", "From receipt off the bus to getting a slot.", "s"),
        "p50",
        "p99",
    ),
)
PENDING_WAIT: Final = Duration(
    "pending_wait_seconds",
    "how long requests waited for pending resources; those that did not wait are not included",
    curves=percentiles(
        Panel("Queues", "Waiting for pending resources", "Only requests that did wait.", "s"),
        "p50",
        "p99",
    ),
)
LOCK_WAIT: Final = Duration(
    "lock_wait_seconds",
    "from asking for a cluster's lock to its grant, once for each lease",
    _CLUSTER,
    curves=percentiles(
        Panel(
            "Locks of clusters",
            "Waiting for the lock",
            "From asking for a cluster's lock to its grant.",
            "s",
        ),
        "{{cluster}} p50",
        "{{cluster}} p99",
        by="cluster",
        cluster=CLUSTERS,
    ),
    bounds_s=_LOCK_S,
)
LOCK_HOLD: Final = Duration(
    "lock_hold_seconds",
    "from the grant to commit or release",
    _CLUSTER,
    curves=percentiles(
        Panel(
            "Locks of clusters",
            "Holding the lock",
            "From the grant to commit or release. Near [cluster_lock] hold_timeout leases end by "
            "force.",
            "s",
        ),
        "{{cluster}} p50",
        "{{cluster}} p99",
        by="cluster",
        cluster=CLUSTERS,
    ),
    bounds_s=_LOCK_S,
)
LOCK_TIMEOUTS: Final = Count(
    "lock_timeouts_total",
    "requests that were not served within `acquire_timeout`",
    _CLUSTER,
    troubles={
        "": Trouble(
            "requests timed out in a cluster's queue",
            _LOCK_TIMEOUTS,
            "Restart a worker that hangs with the lock; if none does, the cluster gets more "
            "requests than it can decide",
        )
    },
    alerts=(_LOCK_TIMEOUTS,),
    curves=(
        per_cluster(
            Panel(
                "Locks of clusters",
                "Requests without their turn",
                "Requests that were not served within [cluster_lock] acquire_timeout.",
                "cps",
            )
        ),
    ),
)
COMMITS_FENCED: Final = Count(
    "fenced_commits_total",
    "commits that were refused because the lease had ended",
    _CLUSTER,
    troubles={"": Trouble("commits refused after their lease")},
    curves=(per_cluster(_AGAIN, "{{cluster}} lease ended"),),
)
COMMIT_CONFLICTS: Final = Count(
    "commit_conflicts_total",
    "claims that were refused because their host had changed",
    _CLUSTER,
    curves=(per_cluster(_AGAIN, "{{cluster}} host changed"),),
)
LEASES_EXPIRED: Final = Count(
    "hold_expired_total",
    "leases of this worker that lasted longer than `hold_timeout`",
    _CLUSTER,
    troubles={
        "": Trouble(
            "leases of a cluster's lock expired",
            _LEASES_EXPIRE,
            "Give the worker a whole core and no swap",
        )
    },
    alerts=(_LEASES_EXPIRE,),
    curves=(per_cluster(_AGAIN, "{{cluster}} held too long"),),
)
RESERVATIONS: Final = Gauge(
    "pending_reservations",
    "live reservations, as far as this process has read; the same reservations in every worker",
    _CLUSTER,
    curves=(
        Curve(
            Panel(
                "Reservations",
                "Live reservations",
                "As far as the workers have read; all see the same ones.",
                "short",
            ),
            f"max by (cluster) ({series(cluster=CLUSTERS)})",
            "{{cluster}}",
        ),
    ),
)
RESERVATIONS_ENDED: Final = Count(
    "reservations_ended_total",
    "how else reservations ended: `absorbed` (their use is reported), `released`, `removed` (with "
    "their host); `confirmed` ones continue until they are absorbed, `moved` ones in another "
    "cluster with their host",
    ("how",),
    curves=(per_second(_ENDS, "{{how}}", "how"),),
)
RESERVATIONS_EXPIRED: Final = Count(
    "reservations_expired_total",
    "reservations that expired, neither reported nor confirmed nor released; every worker that "
    "reads the scope counts them",
    alerts=(
        Alert(
            name="SchedulerReservationsExpire",
            expression=f"max(increase({ITS}[1h])) > 0",
            lasts="30m",
            summary="Reservations expire",
            text="Hosts do not report what was placed, or callers do not release what failed; "
            "capacity lies idle.",
        ),
    ),
    curves=(Curve(_ENDS, f"max(rate({ITS}[{BOARD}]))", "expired"),),
)
NO_VALID_HOST: Final = Count(
    "no_valid_host_total",
    "requests that no host could take: the filter that left none, `no hosts`, `not enough hosts`, "
    "or `other`",
    ("reason",),
    curves=(
        per_second(
            Panel(
                "Decisions",
                "Why no host was found",
                "The filter that left no host, or another reason; troubleshooting.md says what to "
                "do.",
                "reqps",
            ),
            "{{reason}}",
            "reason",
        ),
    ),
)
REJECTIONS: Final = Count(
    "filter_rejections_total",
    "hosts that a filter rejected",
    ("filter",),
    curves=(
        per_second(
            Panel(
                "Decisions", "Hosts rejected by filter", "Hosts that each filter removed.", "cps"
            ),
            "{{filter}}",
            "filter",
        ),
    ),
)
