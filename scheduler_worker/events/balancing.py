"""Balancing, and the hosts that it counts."""

from typing import Final

from scheduler_worker.events.kinds import (
    Alert,
    Count,
    Curve,
    Duration,
    Gauge,
    Level,
    Panel,
    Trouble,
)
from scheduler_worker.events.promql import (
    CLUSTERS,
    ITS,
    per_cluster,
    percentiles,
    rare,
    rate,
    series,
)

_CLUSTER = ("cluster",)

DOWN_SHARE: Final = 0.1
"""So large a share of a cluster's hosts that are neither disabled nor asleep may be down."""
_FAILS: Final = Alert(
    name="SchedulerBalancingFails",
    expression=rare("15m", "cluster"),
    summary="Balancing of cluster {{ $labels.cluster }} fails",
    text="A round of the cluster's balance ended in an unexpected error.",
)
_MIGRATIONS_FAIL: Final = Alert(
    name="SchedulerMigrationsFail",
    expression=f"{rate('1h', 'cluster', outcome='!done')}\n"
    f"> {rate('1h', 'cluster', outcome='done')}",
    lasts="15m",
    summary="Most migrations of cluster {{ $labels.cluster }} fail",
    text="The program that migrates VMs refuses, fails or does not answer.",
)
NO_HOST_UP: Final = Alert(
    name="SchedulerNoHostUp",
    expression=f"sum by (cluster) (max by (cluster, state) ({ITS})) > 0\n"
    f"unless max by (cluster) ({series(state='up')}) > 0",
    lasts="2m",
    severity="critical",
    summary="No host of cluster {{ $labels.cluster }} is up",
    text="All its hosts are down, disabled or asleep, so every request to it is refused.",
)
HOSTS_DOWN: Final = Alert(
    name="SchedulerHostsDown",
    expression=f"max by (cluster) ({series(state='down')})\n/ sum by (cluster) "
    f"(max by (cluster, state) ({series(state='~up|down')})) > {DOWN_SHARE:g}",
    lasts="10m",
    summary="Many hosts of cluster {{ $labels.cluster }} are down",
    text="More than a tenth of its hosts are silent or forced down.",
)

_ROUND = Panel(
    "Balancing",
    "Time of a round of balancing",
    "99th percentile, and rounds that failed.",
    "s",
)

PROPOSALS: Final = Count(
    "balancing_proposals_total",
    "proposed migrations: `asked` for, `shown` (in a dry run), `held` back (the VM is being "
    "moved or waits, or too many are under way)",
    (*_CLUSTER, "outcome"),
    curves=(
        per_cluster(
            Panel(
                "Balancing", "Proposed migrations", "What became of what balances proposed.", "cps"
            ),
            "{{outcome}}",
            "outcome",
        ),
    ),
)
MIGRATIONS: Final = Count(
    "balancing_migrations_total",
    "migrations that ended: `done`, `refused`, `failed`, `overdue` (nothing was heard in time)",
    (*_CLUSTER, "outcome"),
    alerts=(_MIGRATIONS_FAIL,),
    curves=(
        per_cluster(
            Panel(
                "Balancing",
                "Migrations that ended",
                "How migrations ended that balances asked for.",
                "cps",
            ),
            "{{outcome}}",
            "outcome",
        ),
    ),
)
BUSY: Final = Count(
    "balancing_busy_seconds_total",
    "for how long hosts had a load at `HighUtilization` or above, added up over hosts",
    _CLUSTER,
    curves=(
        per_cluster(
            Panel(
                "Balancing",
                "Hosts with too much load",
                "How many hosts had too much load at a time, on average.",
                "short",
            )
        ),
    ),
)
BALANCING_TIME: Final = Duration(
    "balancing_round_seconds",
    "rounds of a cluster's balance on this worker, from taking the turn to the end",
    _CLUSTER,
    curves=percentiles(_ROUND, "{{cluster}}", by="cluster", cluster=CLUSTERS),
)
BALANCING_FAILURES: Final = Count(
    "balancing_failures_total",
    "rounds that ended in an unexpected error; the log has the traceback",
    _CLUSTER,
    troubles={
        "": Trouble("rounds of balancing failed", _FAILS, "The worker's log has the traceback")
    },
    alerts=(_FAILS,),
    curves=(per_cluster(_ROUND, "{{cluster}} failed/s"),),
)
TARGET_FAILURES: Final = Count(
    "balancing_target_failures_total",
    "whoever migrates VMs could not be reached, or gave no answer that can be used; the log has "
    "the reason",
    _CLUSTER,
    troubles={
        "": Trouble(
            "whoever migrates VMs could not be asked",
            _MIGRATIONS_FAIL,
            "The worker's log has the reason",
        )
    },
    curves=(per_cluster(_ROUND, "{{cluster}} target failed/s"),),
)
POWER_ACTIONS: Final = Count(
    "balancing_power_actions_total",
    "hosts brought `up`, into `maintenance` or `down`: proposed (`asked`, `shown`, `held`) "
    "and ended (`done`, `refused`, `failed`, `overdue`)",
    (*_CLUSTER, "to", "outcome"),
    alerts=(
        Alert(
            name="SchedulerPowerActionsFail",
            expression=f"{rate('1h', 'cluster', outcome='~refused|failed|overdue')}\n"
            f"> {rate('1h', 'cluster', outcome='done')}",
            lasts="15m",
            summary="Most power actions of cluster {{ $labels.cluster }} fail",
            text="The program that switches hosts off and on refuses, fails or does not answer.",
        ),
    ),
    curves=(
        per_cluster(
            Panel(
                "Balancing",
                "Power actions",
                "Hosts brought up, into maintenance or down: proposed, and how it ended.",
                "cps",
            ),
            "{{to}} {{outcome}}",
            "to, outcome",
        ),
    ),
)
UNPROTECTED: Final = Level(
    "balancing_unprotected_hosts",
    "hosts whose highly available VMs would not find room on others; 0 on workers without the "
    "cluster's turn, so take the maximum",
    _CLUSTER,
    alerts=(
        Alert(
            name="SchedulerHostsUnprotected",
            expression=f"max by (cluster) ({ITS}) > 0",
            lasts="10m",
            summary="No room for highly available VMs in cluster {{ $labels.cluster }}",
            text="If one of some hosts failed, its highly available VMs would not all find room on "
            "the others.",
        ),
    ),
    curves=(
        Curve(
            Panel(
                "Balancing",
                "Hosts without protection",
                "Hosts whose highly available VMs would not find room on others.",
                "none",
            ),
            f"max by (cluster) ({series(cluster=CLUSTERS)})",
            "{{cluster}}",
        ),
    ),
)
HOSTS: Final = Gauge(
    "hosts",
    "hosts that are `up`, `disabled`, `asleep` (in maintenance or off) or `down` (silent for too "
    "long, or forced down), counted every `[balancing] interval` by the worker with the cluster's "
    "turn; absent on the others",
    (*_CLUSTER, "state"),
    alerts=(NO_HOST_UP, HOSTS_DOWN),
    curves=(
        Curve(
            Panel(
                "Balancing",
                "Hosts by state",
                "Hosts that are up, disabled, asleep or down.",
                "none",
            ),
            f"sum by (state) (max by (cluster, state) ({series(cluster=CLUSTERS)}))",
            "{{state}}",
        ),
    ),
)
