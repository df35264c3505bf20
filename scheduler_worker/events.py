"""Everything that is counted or timed, each declared once: its metric, and what is wrong with it.

The metrics, the recent figures in the workers' reports, what Health and ``doctor`` say of these,
and the table of ``docs/monitoring.md`` follow from it. Texts are Markdown.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from scheduler_worker import remedies

OTHER = "other"
"""The label of everything beyond the limit of labels."""
MAX_CLUSTERS = 200
_LIMITS = (1, MAX_CLUSTERS, 400, 1000)
_SERVICE_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LOCK_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_CLUSTER = ("cluster",)
_TRACEBACK = "The worker's log has the traceback"


class Trouble(msgspec.Struct, frozen=True):
    """What is wrong when an event happens: how reports call it, and how it is fixed."""

    text: str
    alert: str | None = None
    """The alert of ``etc/prometheus/alerts.yaml`` about it, which the runbook explains."""
    fix: str = ""
    """Empty: it is reported, and nothing is said of it."""
    is_failure: bool = False
    """Whether nothing works meanwhile; else it is a warning."""


class Event(msgspec.Struct, frozen=True, eq=False):
    """Something that happens, with its metric ``scheduler_<name>``."""

    name: str
    text: str
    labels: tuple[str, ...] = ()
    troubles: Mapping[str, Trouble] = {}
    """By the last label, or by ``""`` for every other one; nothing is wrong with the rest."""

    @property
    def limit(self) -> int:
        """How many combinations of labels are told apart."""
        return _LIMITS[len(self.labels)]

    def trouble(self, labels: tuple[str, ...]) -> Trouble | None:
        """What is wrong when it happens with these labels."""
        trouble = self.troubles.get(labels[-1]) if labels else None
        return trouble or self.troubles.get("")


class Count(Event, frozen=True, eq=False):
    """A counter, whose name ends in ``_total``."""


class Duration(Event, frozen=True, eq=False):
    """A histogram of seconds, whose name ends in ``_seconds``."""

    bounds_s: tuple[float, ...] = _SERVICE_S


class Level(Event, frozen=True, eq=False):
    """A gauge that is set where its value changes."""


class Gauge(Event, frozen=True, eq=False):
    """A gauge that is read at each scrape."""


def _per_cluster(
    name: str, text: str, alert: str | None = None, fix: str = "", *, what: str = ""
) -> Count:
    """A counter for each cluster; ``what`` is how reports call it, if it is trouble."""
    return Count(name, text, _CLUSTER, {"": Trouble(what, alert, fix)} if what else {})


_NOVA_READ = Trouble("rounds of the feed failed", "SchedulerFeedLags", remedies.NOVA_DATABASES)
_PROVIDERS_UNREAD = Trouble(
    "questions to Placement about providers failed", "SchedulerProvidersUnread", remedies.PLACEMENT
)
_UNIT_FAILED = Trouble(
    "calls of external units failed",
    "SchedulerExternalUnitFails",
    "Correct the unit's file, or disable it: scheduler-worker-manage unit disable",
)

# Requests

REQUESTS: Final = Count(
    "requests_total",
    "requests served, casts included; `result` is `ok` or the class of the error",
    ("method", "result"),
)
REQUEST_TIME: Final = Duration("request_duration_seconds", "from getting a slot to the answer")
QUEUE_WAIT: Final = Duration("queue_wait_seconds", "from receipt off the bus to getting a slot")
PENDING_WAIT: Final = Duration(
    "pending_wait_seconds",
    "how long requests waited for pending resources; those that did not wait are not included",
)
LOCK_WAIT: Final = Duration(
    "lock_wait_seconds",
    "from asking for a cluster's lock to its grant, once for each lease",
    _CLUSTER,
    bounds_s=_LOCK_S,
)
LOCK_HOLD: Final = Duration(
    "lock_hold_seconds", "from the grant to commit or release", _CLUSTER, bounds_s=_LOCK_S
)
LOCK_TIMEOUTS: Final = _per_cluster(
    "lock_timeouts_total",
    "requests that were not served within `acquire_timeout`",
    "SchedulerLockTimeouts",
    "Restart a worker that hangs with the lock; if none does, the cluster gets more requests than "
    "it can decide",
    what="requests timed out in a cluster's queue",
)
LEASES_EXPIRED: Final = _per_cluster(
    "hold_expired_total",
    "leases of this worker that lasted longer than `hold_timeout`",
    "SchedulerLeasesExpire",
    "Give the worker a whole core and no swap",
    what="leases of a cluster's lock expired",
)
COMMITS_FENCED: Final = _per_cluster(
    "fenced_commits_total",
    "commits that were refused because the lease had ended",
    what="commits refused after their lease",
)
COMMIT_CONFLICTS: Final = _per_cluster(
    "commit_conflicts_total", "claims that were refused because their host had changed"
)
RESERVATIONS_EXPIRED: Final = Count(
    "reservations_expired_total",
    "reservations that expired, neither reported nor confirmed nor released; every worker that "
    "reads the scope counts them",
)
RESERVATIONS_ENDED: Final = Count(
    "reservations_ended_total",
    "how else reservations ended: `absorbed` (their use is reported), `released`, `removed` (with "
    "their host); `confirmed` ones continue until they are absorbed, `moved` ones in another "
    "cluster with their host",
    ("how",),
)
REJECTIONS: Final = Count("filter_rejections_total", "hosts that a filter rejected", ("filter",))
NO_VALID_HOST: Final = Count(
    "no_valid_host_total",
    "requests that no host could take: the filter that left none, `no hosts`, `not enough hosts`, "
    "or `other`",
    ("reason",),
)

# The bus and the state

REDELIVERED: Final = Count("redelivered_total", "messages that the bus redelivered")
DUPLICATES: Final = Count(
    "duplicates_total",
    "messages that were redelivered while this process was serving them, or had just answered",
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
            "SchedulerOverloaded",
            "More requests arrive than the workers can decide: start more",
        ),
        "dead-lettered": Trouble(
            "messages dead-lettered",
            "SchedulerDeadLetters",
            "See the header x-scheduler-worker-reason of what is in scheduler_dead_letters",
        ),
        "discarded": Trouble(
            "messages discarded",
            "SchedulerMessagesDiscarded",
            "Give the account of the workers its permissions, and restart one",
            is_failure=True,
        ),
        "unroutable": Trouble("answers unroutable"),
        "refused": Trouble("answers refused"),
    },
)
RECONNECTS: Final = Count(
    "amqp_reconnects_total", "connections to the bus that were re-established"
)
BUS_LOST: Final = Trouble("connections to the bus lost")
STATE_ERRORS: Final = Count(
    "redis_errors_total",
    "operations on the shared state that failed",
    troubles={
        "": Trouble("operations on the shared state failed", "SchedulerStateOutage", remedies.STATE)
    },
)

# Units from files

UNIT_CALLS: Final = Count(
    "external_unit_calls_total",
    "calls of external units: `ok`; a filter that failed: all hosts `passed`, or it `refused` all; "
    "another unit that `failed`; the log says why",
    ("unit", "result"),
    dict.fromkeys(("passed", "refused", "failed"), _UNIT_FAILED),
)
UNIT_TIME: Final = Duration(
    "external_unit_call_seconds",
    "one call of an external unit, with waiting for a process of its file",
)
UNIT_FILES: Final = Count(
    "external_unit_files_total",
    "files of external units that were loaded; `isolation` is what the kernel grants their "
    "sandbox: `files+ipc+landlock+network+processes+seccomp` is everything, `limits` is nothing "
    "but resource limits",
    ("file", "isolation"),
)

UNIT_ALARMS: Final = Gauge(
    "external_unit_alarms",
    "files of external units that are not loaded; 0 is good, the log and Health say why",
)

# Tuning and balancing

TUNING_TIME: Final = Duration(
    "tuning_cycle_seconds", "tuning turns of this worker, from taking a turn to its end", _CLUSTER
)
TUNING_CASTS: Final = Count(
    "tuning_casts_total",
    "hosts whose agent had to be notified: `ok`, `Undeliverable` (no agent listens), "
    "`BusUnavailable`, `late` (no time was left)",
    ("result",),
)
TUNING_FAULTS: Final = Count(
    "tuning_faults_total",
    "rules that were skipped for a host, VM or disk, or reported an anomaly; `kind` is the "
    "language's",
    ("policy", "kind"),
)
TUNING_FAILURES: Final = _per_cluster(
    "tuning_failures_total",
    "tuning turns that ended in an unexpected error; the log has the traceback",
    "SchedulerTuningFails",
    _TRACEBACK,
    what="rounds of tuning failed",
)
BALANCING_TIME: Final = Duration(
    "balancing_round_seconds",
    "rounds of a cluster's balance on this worker, from taking the turn to the end",
    _CLUSTER,
)
BALANCING_FAILURES: Final = _per_cluster(
    "balancing_failures_total",
    "rounds that ended in an unexpected error; the log has the traceback",
    "SchedulerBalancingFails",
    _TRACEBACK,
    what="rounds of balancing failed",
)
TARGET_FAILURES: Final = _per_cluster(
    "balancing_target_failures_total",
    "whoever migrates VMs could not be reached, or gave no answer that can be used; the log has "
    "the reason",
    "SchedulerMigrationsFail",
    "The worker's log has the reason",
    what="whoever migrates VMs could not be asked",
)
BUSY: Final = _per_cluster(
    "balancing_busy_seconds_total",
    "for how long hosts had a load at `HighUtilization` or above, added up over hosts",
)
PROPOSALS: Final = Count(
    "balancing_proposals_total",
    "proposed migrations: `asked` for, `shown` (in a dry run), `held` back (the VM is being "
    "moved or waits, or too many are under way)",
    (*_CLUSTER, "outcome"),
)
MIGRATIONS: Final = Count(
    "balancing_migrations_total",
    "migrations that ended: `done`, `refused`, `failed`, `overdue` (nothing was heard in time)",
    (*_CLUSTER, "outcome"),
)
POWER_ACTIONS: Final = Count(
    "balancing_power_actions_total",
    "hosts brought `up`, into `maintenance` or `down`: proposed (`asked`, `shown`, `held`) "
    "and ended (`done`, `refused`, `failed`, `overdue`)",
    (*_CLUSTER, "to", "outcome"),
)
UNPROTECTED: Final = Level(
    "balancing_unprotected_hosts",
    "hosts whose highly available VMs would not find room on others; 0 on workers without the "
    "cluster's turn, so take the maximum",
    _CLUSTER,
)

# Placement, and hosts from Nova's databases

CLAIMS: Final = Count(
    "claims_total",
    "instances whose hosts were `claimed` in Placement, or not: `full`, `gone` (a provider), "
    "or the class of the error, such as `PlacementConflict`: other writers were always faster",
    ("result",),
)
CLAIM_WAIT: Final = Duration(
    "claim_wait_seconds", "from a decision to its claim, of all attempts of a request"
)
CLAIM_POSTS: Final = Count(
    "claim_posts_total",
    "requests to Placement that write claims: `written`, `taken back`, `kept` (a claim that "
    "somebody else uses now), `unavailable`, or why nothing was written: `full`, `gone`, "
    "`changed` (a consumer), `busy`",
    ("answer",),
)
CLAIM_CONSUMERS: Final = Count(
    "claim_consumers_total",
    "consumers in these requests; divided by the requests, how many were written together",
    ("answer",),
)
CLAIM_POST_TIME: Final = Duration("claim_post_seconds", "one such request")
CANDIDATES: Final = Count(
    "candidates_total",
    "questions to Placement for allocation candidates: it had `some` or `none`, `refused` the "
    "query or the account, was `unavailable`, or the question `failed` in the worker",
    ("answer",),
)
CANDIDATES_TIME: Final = Duration("candidates_seconds", "one such question")
DRY_RUN: Final = Count(
    "dry_run_requests_total",
    'instances of copied requests, as they compare (`docs/nova-cloud.md`, "Dry run")',
    ("result",),
)
FEED_TIME: Final = Duration(
    "feed_round_seconds", "rounds of this worker that brought a cell up to date", ("cell",)
)
FEED_ROWS: Final = Count(
    "feed_rows_total",
    "rows read here: `services`, `listing` (what exists), `changes`, `hosts` (read whole)",
    ("cell", "what"),
)
FEED_REPORTS: Final = Count(
    "feed_reports_total",
    "reports that this worker stored because they differed from the host's record",
    ("cell",),
)
FEED_FAILURES: Final = Count(
    "feed_failures_total",
    "rounds of this worker that could not read the cell, or store what they had read",
    ("cell",),
    troubles={"": _NOVA_READ},
)
LOOK_TIME: Final = Duration(
    "feed_look_seconds",
    "looks of this worker at Nova and Placement for requests that no host passed",
)
SECOND_LOOKS: Final = Count(
    "second_looks_total",
    "requests that waited for such a look: no host had passed, and then `placed` or "
    "`refused`, or `late`, as nobody looked in time; `alternates`: placed requests that "
    "waited for alternates",
    ("result",),
)
VERIFIED: Final = Count(
    "verified_decisions_total",
    "decisions whose hosts were compared with Nova's databases and Placement before the "
    "answer: as `known`, `changed` and decided anew, or `unread`: they could not be read in "
    "time",
    ("result",),
)
PROVIDER_READS: Final = Count(
    "providers_reads_total",
    "answers of Placement to this worker: `list` (of all providers, or of a tree's), `sums` "
    "(who has room), `facts` (inventories, traits, aggregates of a provider), `traits` (these "
    "and aggregates alone), `use` (its consumers)",
    ("what",),
)
PROVIDER_FAILURES: Final = Count(
    "providers_failures_total",
    "such questions without an answer that can be used",
    ("what",),
    troubles={"": _PROVIDERS_UNREAD},
)

# Records and traces

DECISION_RECORDS: Final = Count(
    "decision_records_total",
    "records of decisions that were `written`, or `dropped` because too many waited (`[decisions] "
    "max_waiting`)",
    ("result",),
    troubles={
        "dropped": Trouble(
            "records of decisions dropped",
            "SchedulerRecordsDropped",
            "Give Redis memory, or keep fewer records: [decisions] max_per_cluster, max_age",
        )
    },
)
TRACES: Final = Count(
    "traces_total",
    "requests whose traces were `exported`, or `dropped` because the collector did not take "
    "them, or too many waited",
    ("result",),
)

# Read at each scrape

INFLIGHT: Final = Gauge(
    "inflight", "requests being served, those that wait for pending resources included"
)
BACKLOG: Final = Gauge(
    "backlog",
    "requests that this process has received and not begun; with our own server the real backlog "
    "is the queue in RabbitMQ",
)
WAITING: Final = Gauge(
    "waiting_requests", "requests that wait for pending resources to be given back"
)
DRAINED: Final = Gauge(
    "drained",
    "1 while the worker is drained (`docs/scheduler-workerctl.md`): it finishes what it has and "
    "takes no more requests",
)
WAITING_FOR_FEED: Final = Gauge(
    "waiting_for_feed",
    "requests that wait for another look at the hosts, or until all hosts are known",
)
UNWRITTEN: Final = Gauge(
    "unwritten_decisions", "records that wait to be written; up to some hundreds are normal"
)
TUNING_ALARMS: Final = Gauge(
    "tuning_alarms",
    "problems with tuning policies, because of which older ones stay in force; 0 is good",
)
BUS_CONNECTED: Final = Gauge("bus_connected", "1 while the bus is connected")
RESERVATIONS: Final = Gauge(
    "pending_reservations",
    "live reservations, as far as this process has read; the same reservations in every worker",
    _CLUSTER,
)
HOSTS: Final = Gauge(
    "hosts",
    "hosts that are `up`, `disabled`, `asleep` (in maintenance or off) or `down` (silent for too "
    "long, or forced down), counted every `[balancing] interval` by the worker with the cluster's "
    "turn; absent on the others",
    (*_CLUSTER, "state"),
)
FEED_LAG: Final = Gauge(
    "feed_lag_seconds",
    "since when not all of a cell's hosts are known, as every worker knows it; some seconds are "
    "normal. Absent until they are known for the first time",
    ("cell",),
)
CELL_UP: Final = Gauge("feed_cell_up", "1 while a cell's database can be read", ("cell",))
FEED_HOSTS: Final = Gauge("feed_hosts", "hosts of a cell", ("cell",))
BUILD: Final = Gauge("build_info", "always 1", ("version", "python"))

# The REST API

API_REQUESTS: Final = Count(
    "api_requests_total",
    "requests to the REST API. `route` is the path with names for its arguments; `other` is a "
    "path that does not exist, or a request refused before its path was looked at: without a "
    "valid log-in, or above the rates",
    ("route", "method", "status"),
)
API_TIME: Final = Duration(
    "api_request_duration_seconds",
    "from a request's headers to its answer",
    ("route",),
    bounds_s=_SERVICE_S[:-1],
)
API_LIMITED: Final = Count(
    "api_rate_limited_total",
    "requests refused by `[api] requests_per_second`, by `user` or `address`",
    ("by",),
)
HTTP_ENDED: Final = Count(
    "http_connections_ended_total",
    "connections to the HTTP server that it ended itself: `idle` ones that sent nothing for "
    "`[api] read_timeout`, `slow` ones that sent a part of a request, `refused` ones with a "
    "malformed request, and `crowded` ones above `[api] connections`",
    ("reason",),
)
API_DEPENDENCY: Final = Gauge(
    "api_dependency_up",
    "1 while the shared `state` accepts writes, and the `policy store` answers; asked at each "
    "scrape",
    ("dependency",),
)

EVENTS: Final = tuple(event for event in globals().values() if isinstance(event, Event))
"""All of them, in the order of this module."""
OF_API: Final = (API_REQUESTS, API_TIME, API_LIMITED, HTTP_ENDED)
"""Events of a process with the REST API and without a worker."""
OF_WORKER: Final = tuple(
    event for event in EVENTS if event not in OF_API[:-1] and not isinstance(event, Gauge)
)
"""Events of a worker."""
INTERNAL: Final = Trouble(
    "InternalError",
    "SchedulerInternalErrors",
    "A defect of the worker or of a plugin: the log has the traceback",
    is_failure=True,
)
TROUBLES: Final = {trouble.text: trouble for event in EVENTS for trouble in event.troubles.values()}
"""By the text in reports."""
