"""The alerts, each declared once; ``etc/prometheus/alerts.yaml`` is written from them."""

from pathlib import Path
from typing import Literal, NamedTuple

import yaml

from scheduler_worker import events
from scheduler_worker.events import Event
from scheduler_worker.service.health.rules import DOWN_SHARE, FEED_LAG_S, REFUSED_SHARE, SLOW_S

PATH = Path("etc/prometheus/alerts.yaml")
HEAD = """\
# Alerts of scheduler_worker, written by `make reference` from tools/reference/alerts.py;
# docs/runbook.md says what each means and how to fix it. Workers are scraped as job
# "scheduler_worker". A counter that is not there yet does not increase when it appears with its
# first event, so the alerts on rare events also ask whether the counter is new.
"""


class Alert(NamedTuple):
    """One alert; texts are templates of Prometheus."""

    name: str
    severity: Literal["critical", "warning"]
    expression: str
    lasts: str
    """For how long the expression has to hold; empty: no time."""
    summary: str
    description: str


def metric(event: Event) -> str:
    return f"scheduler_{event.name}"


def sum_by(labels: str, expression: str) -> str:
    return f"sum by ({labels}) ({expression})" if labels else f"sum({expression})"


def selected(event: Event, labels: dict[str, str], suffix: str = "") -> str:
    """Its series; a label's value may begin with ``!`` (another one) or ``~`` (a pattern)."""
    operators = {"!": "!=", "~": "=~"}
    terms = [
        f'{label}{operators.get(value[0], "=")}"{value.lstrip("!~")}"'
        for label, value in labels.items()
    ]
    return metric(event) + suffix + (f"{{{', '.join(terms)}}}" if terms else "")


def rare(event: Event, over: str, by: str, **labels: str) -> str:
    """It has happened at all in this time."""
    name = selected(event, labels)
    is_new = f"{name} unless {name} offset {over}"
    return f"{increase(event, over, by, **labels)} > 0\nor\n{sum_by(by, is_new)} > 0"


def rate(event: Event, over: str, by: str = "", **labels: str) -> str:
    return sum_by(by, f"rate({selected(event, labels)}[{over}])")


def increase(event: Event, over: str, by: str = "", **labels: str) -> str:
    return sum_by(by, f"increase({selected(event, labels)}[{over}])")


ALERTS = (
    Alert(
        "SchedulerWorkerDown", "critical", 'up{job="scheduler_worker"} == 0', "2m",
        "{{ $labels.instance }} does not answer",
        "The worker is stopped, hangs, or its monitoring port cannot be reached.",
    ),
    Alert(
        "SchedulerNoWorkers", "critical", f"absent({metric(events.BUILD)})", "2m",
        "No scheduler worker is scraped",
        "No VM can be placed, or Prometheus does not find the workers.",
    ),
    Alert(
        "SchedulerBusLost", "critical", f"{metric(events.BUS_CONNECTED)} == 0", "1m",
        "{{ $labels.instance }} is not connected to RabbitMQ",
        "The worker gets no requests; others serve them.",
    ),
    Alert(
        "SchedulerStateOutage", "critical", f"{rate(events.STATE_ERRORS, '5m')} > 0", "1m",
        "The shared state cannot be read or written",
        "Requests fail with StateUnavailable: no decision is made without the state.",
    ),
    Alert(
        "SchedulerInternalErrors", "critical",
        rare(events.REQUESTS, "10m", "method", result='InternalError'), "",
        "{{ $labels.method }} fails by a defect",
        "An unexpected exception, of the worker or of a plugin.",
    ),
    Alert(
        "SchedulerMessagesDiscarded", "critical",
        rare(events.DROPPED, "15m", "instance", why='discarded'), "",
        "{{ $labels.instance }} lost messages",
        "Messages could not be put into the dead letter queue.",
    ),
    Alert(
        "SchedulerDeadLetters", "warning",
        rare(events.DROPPED, "15m", "instance", why='dead-lettered'), "",
        "{{ $labels.instance }} put messages into the dead letter queue",
        "Messages that no worker could read or finish.",
    ),
    Alert(
        "SchedulerOverloaded", "warning",
        f"{rate(events.DROPPED, '5m', why='expired')} > 0", "5m",
        "Requests are dropped because their callers no longer wait",
        "More requests arrive than the workers can decide.",
    ),
    Alert(
        "SchedulerSlow", "warning",
        "histogram_quantile(0.99, "
        f"sum by (le) (rate({metric(events.REQUEST_TIME)}_bucket[10m]))) > {SLOW_S:g}", "10m",
        "One request of a hundred takes longer than 30 s",
        "Callers give up after their RPC timeout, 60 s by default.",
    ),
    Alert(
        "SchedulerLockTimeouts", "warning", rare(events.LOCK_TIMEOUTS, "10m", "cluster"), "2m",
        "Requests of cluster {{ $labels.cluster }} wait too long for its lock",
        "A cluster gets more requests than it can decide, or its leaseholder hangs.",
    ),
    Alert(
        "SchedulerLeasesExpire", "warning",
        f"{rate(events.LEASES_EXPIRED, '5m', 'instance, cluster')} > 0", "15m",
        "{{ $labels.instance }} holds the lock of {{ $labels.cluster }} too long",
        "The worker pauses for longer than [cluster_lock] hold_timeout.",
    ),
    Alert(
        "SchedulerNoValidHost", "warning",
        rate(
            events.REQUESTS, "15m", method='select_destinations', result='NoValidHost'
        )
        + f"\n/\n{rate(events.REQUESTS, '15m', method='select_destinations')}\n> {REFUSED_SHARE:g}",
        "15m",
        "{{ $value | humanizePercentage }} of the requests find no host",
        "The fleet is full, or a filter rejects more than it should.",
    ),
    Alert(
        "SchedulerReservationsExpire", "warning",
        f"max(increase({metric(events.RESERVATIONS_EXPIRED)}[1h])) > 0", "30m",
        "Reservations expire",
        "Hosts do not report what was placed, or callers do not release what failed; capacity "
        "lies idle.",
    ),
    Alert(
        "SchedulerTuningAlarms", "warning", f"{metric(events.TUNING_ALARMS)} > 0", "5m",
        "{{ $labels.instance }} cannot load a tuning policy",
        "Older policies stay in force.",
    ),
    Alert(
        "SchedulerTuningFails", "warning", rare(events.TUNING_FAILURES, "15m", "cluster"), "",
        "Tuning of cluster {{ $labels.cluster }} fails",
        "A tuning cycle ended in an unexpected error.",
    ),
    Alert(
        "SchedulerTuningStopped", "warning",
        f"sum by (cluster) (increase({metric(events.TUNING_TIME)}_count[10m])) == 0", "5m",
        "No worker tunes cluster {{ $labels.cluster }}",
        "It was tuned before, and no worker has tuned it for ten minutes.",
    ),
    Alert(
        "SchedulerBalancingFails", "warning",
        rare(events.BALANCING_FAILURES, "15m", "cluster"), "",
        "Balancing of cluster {{ $labels.cluster }} fails",
        "A round of the cluster's balance ended in an unexpected error.",
    ),
    Alert(
        "SchedulerMigrationsFail", "warning",
        rate(events.MIGRATIONS, "1h", "cluster", outcome='!done')
        + f"\n> {rate(events.MIGRATIONS, '1h', 'cluster', outcome='done')}", "15m",
        "Most migrations of cluster {{ $labels.cluster }} fail",
        "The program that migrates VMs refuses, fails or does not answer.",
    ),
    Alert(
        "SchedulerPowerActionsFail", "warning",
        rate(
            events.POWER_ACTIONS, "1h", "cluster", outcome='~refused|failed|overdue'
        )
        + f"\n> {rate(events.POWER_ACTIONS, '1h', 'cluster', outcome='done')}", "15m",
        "Most power actions of cluster {{ $labels.cluster }} fail",
        "The program that switches hosts off and on refuses, fails or does not answer.",
    ),
    Alert(
        "SchedulerHostsUnprotected", "warning",
        f"max by (cluster) ({metric(events.UNPROTECTED)}) > 0", "10m",
        "No room for highly available VMs in cluster {{ $labels.cluster }}",
        "If one of some hosts failed, its highly available VMs would not all find room on the "
        "others.",
    ),
    Alert(
        "SchedulerNoHostUp", "critical",
        f"sum by (cluster) (max by (cluster, state) ({metric(events.HOSTS)})) > 0\n"
        f"unless max by (cluster) ({selected(events.HOSTS, {'state': 'up'})}) > 0", "2m",
        "No host of cluster {{ $labels.cluster }} is up",
        "All its hosts are down, disabled or asleep, so every request to it is refused.",
    ),
    Alert(
        "SchedulerHostsDown", "warning",
        f"max by (cluster) ({selected(events.HOSTS, {'state': 'down'})})\n/ sum by (cluster) "
        f"(max by (cluster, state) ({selected(events.HOSTS, {'state': '~up|down'})})) "
        f"> {DOWN_SHARE:g}", "10m",
        "Many hosts of cluster {{ $labels.cluster }} are down",
        "More than a tenth of its hosts are silent or forced down.",
    ),
    Alert(
        "SchedulerFeedLags", "critical",
        f"max by (cell) ({metric(events.FEED_LAG)}) > {FEED_LAG_S:g}\n"
        f"or min by (cell) ({metric(events.CELL_UP)}) == 0", "2m",
        "The hosts of cell {{ $labels.cell }} are not up to date",
        "Nova's databases cannot be read, or no worker reads them.",
    ),
    Alert(
        "SchedulerProvidersUnread", "critical",
        f"{increase(events.PROVIDER_FAILURES, '10m')} > 0\n"
        f"unless {increase(events.PROVIDER_READS, '5m')} > 0", "5m",
        "Placement's resource providers cannot be read",
        "Workers use the last answers about capacity and use.",
    ),
    Alert(
        "SchedulerRecordsDropped", "warning",
        f"{increase(events.DECISION_RECORDS, '15m', result='dropped')} > 0", "5m",
        "Records of decisions are dropped",
        "Requests are served; why they got their hosts cannot be asked later.",
    ),
    Alert(
        "SchedulerExternalUnitFails", "warning",
        f"{increase(events.UNIT_CALLS, '15m', 'unit', result='!ok')} > 0", "5m",
        "The external unit {{ $labels.unit }} fails",
        "Decisions go on without it, or no host passes its filter.",
    ),
    Alert(
        "SchedulerExternalUnitsLeftOut", "warning",
        f"max by (instance) ({metric(events.UNIT_ALARMS)}) > 0", "5m",
        "{{ $labels.instance }} does not load files of external units",
        "Policies with their units decide without them, or refuse requests after a restart.",
    ),
    Alert(
        "SchedulerApiCannotServe", "critical",
        f"min by (instance, dependency) ({metric(events.API_DEPENDENCY)}) < 1", "2m",
        "The API at {{ $labels.instance }} cannot use its {{ $labels.dependency }}",
        "It answers most requests with 503.",
    ),
    Alert(
        "SchedulerMixedVersions", "warning",
        f"count(count by (version) ({metric(events.BUILD)})) > 1", "1h",
        "Workers of several versions run",
        "An upgrade was not finished.",
    ),
)  # fmt: skip


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Writes expressions of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else '"' if "{{" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def rules() -> dict[Path, str]:
    """The file of alerts."""
    found = [
        {
            "alert": alert.name,
            "expr": alert.expression,
            **({"for": alert.lasts} if alert.lasts else {}),
            "labels": {"severity": alert.severity},
            "annotations": {
                "summary": alert.summary,
                "description": alert.description,
                "runbook": f"docs/runbook.md#{alert.name.lower()}",
            },
        }
        for alert in ALERTS
    ]
    document = {"groups": [{"name": "scheduler_worker", "rules": found}]}
    return {PATH: HEAD + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1000)}
