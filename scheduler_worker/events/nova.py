"""Claims in Placement, and hosts from Nova's databases."""

from typing import Final

from scheduler_worker import remedies
from scheduler_worker.events.kinds import Alert, Count, Curve, Duration, Gauge, Panel, Trouble
from scheduler_worker.events.promql import BOARD, ITS, increase, per_second, percentiles, rate

FEED_LAG_S: Final = 120.0
"""For so long may some hosts of a cell be unknown."""

_WAITING = Panel(
    "Claims in Placement",
    "Waiting for Placement",
    "From a decision to its claim, and one request to Placement.",
    "s",
)
_ANSWERS = Panel(
    "Claims in Placement",
    "Requests to Placement by answer",
    "Requests that write claims; full ones were decided again.",
    "ops",
)
_LAG = Panel(
    "Feed from Nova's databases",
    "Lag",
    "Since when not all hosts of a cell are known; some seconds are normal. Whether each cell can "
    "be read.",
    "s",
)
_ROWS = Panel(
    "Feed from Nova's databases",
    "Rows and reports",
    "Rows read by kind; reports stored because they differed; hosts of all cells.",
    "short",
)
_LOOKS = Panel(
    "Feed from Nova's databases",
    "Looks before refusals",
    "Requests that no host passed, after another look at Nova and Placement; and how long a look "
    "takes.",
    "short",
)
_READING = Panel(
    "Feed from Nova's databases",
    "Reading Placement",
    "Answers about resource providers, and questions that failed.",
    "short",
)

# Claims

CLAIMS: Final = Count(
    "claims_total",
    "instances whose hosts were `claimed` in Placement, or not: `full`, `gone` (a provider), "
    "or the class of the error, such as `PlacementConflict`: other writers were always faster",
    ("result",),
    curves=(
        per_second(
            Panel(
                "Claims in Placement",
                "Claims by result",
                "Instances whose hosts were claimed in Placement, and why others were not.",
                "ops",
            ),
            "{{result}}",
            "result",
        ),
    ),
)
CLAIM_WAIT: Final = Duration(
    "claim_wait_seconds",
    "from a decision to its claim, of all attempts of a request",
    curves=percentiles(_WAITING, "claim, median", "claim, 99 %"),
)
CLAIM_POSTS: Final = Count(
    "claim_posts_total",
    "requests to Placement that write claims: `written`, `taken back`, `kept` (a claim that "
    "somebody else uses now), `unavailable`, or why nothing was written: `full`, `gone`, "
    "`changed` (a consumer), `busy`",
    ("answer",),
    curves=(per_second(_ANSWERS, "{{answer}}", "answer"),),
)
CLAIM_CONSUMERS: Final = Count(
    "claim_consumers_total",
    "consumers in these requests; divided by the requests, how many were written together",
    ("answer",),
    curves=(
        Curve(
            Panel(
                "Claims in Placement",
                "Consumers of a request to Placement",
                "How many claims are written together, on average.",
                "short",
            ),
            f"{rate(BOARD, answer='written')} / {rate(BOARD, of=CLAIM_POSTS, answer='written')}",
            "consumers",
        ),
    ),
)
CLAIM_POST_TIME: Final = Duration(
    "claim_post_seconds",
    "one such request",
    curves=percentiles(_WAITING, "one request, 99 %"),
)
CANDIDATES: Final = Count(
    "candidates_total",
    "questions to Placement for allocation candidates: it had `some` or `none`, `refused` the "
    "query or the account, was `unavailable`, or the question `failed` in the worker",
    ("answer",),
    curves=(per_second(_ANSWERS, "candidates: {{answer}}", "answer"),),
)
CANDIDATES_TIME: Final = Duration(
    "candidates_seconds", "one such question", curves=percentiles(_WAITING, "candidates, 99 %")
)

# The feed

FEED_LAG: Final = Gauge(
    "feed_lag_seconds",
    "since when not all of a cell's hosts are known, as every worker knows it; some seconds are "
    "normal. Absent until they are known for the first time",
    ("cell",),
    curves=(Curve(_LAG, f"max by (cell) ({ITS})", "{{cell}}"),),
)
FEED_LAGS: Final = Alert(
    name="SchedulerFeedLags",
    expression=f"max by (cell) ({FEED_LAG.metric}) > {FEED_LAG_S:g}\nor min by (cell) ({ITS}) == 0",
    lasts="2m",
    severity="critical",
    summary="The hosts of cell {{ $labels.cell }} are not up to date",
    text="Nova's databases cannot be read, or no worker reads them.",
)
CELL_UP: Final = Gauge(
    "feed_cell_up",
    "1 while a cell's database can be read",
    ("cell",),
    alerts=(FEED_LAGS,),
    curves=(Curve(_LAG, f"min by (cell) ({ITS})", "{{cell}} can be read"),),
)
FEED_ROWS: Final = Count(
    "feed_rows_total",
    "rows read here: `services`, `listing` (what exists), `changes`, `hosts` (read whole)",
    ("cell", "what"),
    curves=(per_second(_ROWS, "{{what}} read/s", "what"),),
)
FEED_REPORTS: Final = Count(
    "feed_reports_total",
    "reports that this worker stored because they differed from the host's record",
    ("cell",),
    curves=(per_second(_ROWS, "stored/s"),),
)
FEED_HOSTS: Final = Gauge(
    "feed_hosts",
    "hosts of a cell",
    ("cell",),
    curves=(Curve(_ROWS, f"sum(max by (cell) ({ITS}))", "hosts"),),
)
FEED_TIME: Final = Duration(
    "feed_round_seconds",
    "rounds of this worker that brought a cell up to date",
    ("cell",),
    curves=percentiles(
        Panel(
            "Feed from Nova's databases",
            "Time of a round",
            "Bringing a cell up to date, 99th percentile.",
            "s",
        ),
        "{{cell}}",
        by="cell",
    ),
)
FEED_FAILURES: Final = Count(
    "feed_failures_total",
    "rounds of this worker that could not read the cell, or store what they had read",
    ("cell",),
    troubles={"": Trouble("rounds of the feed failed", FEED_LAGS, remedies.NOVA_DATABASES)},
    curves=(
        per_second(
            Panel(
                "Feed from Nova's databases",
                "Failed rounds",
                "Rounds that could not read a cell, or store what they had read.",
                "cps",
            ),
            "{{cell}}",
            "cell",
        ),
    ),
)
SECOND_LOOKS: Final = Count(
    "second_looks_total",
    "requests that waited for another look at Nova and Placement: no host had passed, and then "
    "`placed` or `refused`, or `late`, as nobody looked in time; `alternates`: placed requests "
    "that waited for alternates",
    ("result",),
    curves=(per_second(_LOOKS, "{{result}} / s", "result"),),
)
WAITING_FOR_FEED: Final = Gauge(
    "waiting_for_feed",
    "requests that wait for another look at the hosts, or until all hosts are known",
    curves=(Curve(_LOOKS, f"sum({ITS})", "waiting"),),
)
LOOK_TIME: Final = Duration(
    "feed_look_seconds",
    "such looks of this worker",
    curves=percentiles(_LOOKS, "a look, p99, s"),
)
VERIFIED: Final = Count(
    "verified_decisions_total",
    "decisions whose hosts were compared with Nova's databases and Placement before the "
    "answer: as `known`, `changed` and decided anew, or `unread`: they could not be read in "
    "time",
    ("result",),
    curves=(per_second(_LOOKS, "verified: {{result}} / s", "result"),),
)
PROVIDER_READS: Final = Count(
    "providers_reads_total",
    "answers of Placement to this worker: `list` (of all providers, or of a tree's), `sums` "
    "(who has room), `facts` (inventories, traits, aggregates of a provider), `traits` (these "
    "and aggregates alone), `use` (its consumers)",
    ("what",),
    curves=(per_second(_READING, "{{what}} / s", "what"),),
)
_PROVIDERS_UNREAD: Final = Alert(
    name="SchedulerProvidersUnread",
    expression=f"{increase('10m')} > 0\nunless {increase('5m', of=PROVIDER_READS)} > 0",
    lasts="5m",
    severity="critical",
    summary="Placement's resource providers cannot be read",
    text="Workers use the last answers about capacity and use.",
)
PROVIDER_FAILURES: Final = Count(
    "providers_failures_total",
    "such questions without an answer that can be used",
    ("what",),
    troubles={
        "": Trouble(
            "questions to Placement about providers failed", _PROVIDERS_UNREAD, remedies.PLACEMENT
        )
    },
    alerts=(_PROVIDERS_UNREAD,),
    curves=(per_second(_READING, "failed: {{what}} / s", "what"),),
)
DRY_RUN: Final = Count(
    "dry_run_requests_total",
    'instances of copied requests, as they compare (`docs/nova-cloud.md`, "Dry run")',
    ("result",),
    curves=(
        per_second(
            Panel(
                "Feed from Nova's databases",
                "Dry run",
                "Instances of copied requests by how the worker's choice compares with Nova's.",
                "cps",
            ),
            "{{result}}",
            "result",
        ),
    ),
)
