"""Judges what was found around a worker. Pure: facts in, findings out; times in seconds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from scheduler_worker.model.feed import ChangedRow, ServiceStates
from scheduler_worker.model.findings import Finding, failed, ok, warning
from scheduler_worker.model.providers import ProviderEntry
from scheduler_worker.model.worker_reports import WorkerFacts
from scheduler_worker.service.health import rules as health
from scheduler_worker.wording import listed

_CLOCKS_S = 2.0
"""By how much clocks that are kept by NTP may seem to differ, over a network."""
_NTP = "Synchronise the clocks of this host, Redis, databases and conductors, as with chrony"


class Moments(NamedTuple):
    """The clock of this host before and after the database was asked for its own."""

    before_s: float
    database_s: float
    after_s: float

    @property
    def ahead_s(self) -> float:
        """By how much the database's clock is ahead of this machine's at least; negative if
        behind.
        """
        if self.database_s > self.after_s:
            return self.database_s - self.after_s
        # A database's clock may be read in whole seconds.
        return min(0.0, self.database_s + 1.0 - self.before_s)


class Compute(NamedTuple):
    """A cell's compute nodes, which cell each host is mapped to, and the services."""

    part_id: str
    nodes: Sequence[ChangedRow]
    part_of: Mapping[str, str]
    services: ServiceStates


def database_account(check: str, writes: Sequence[str]) -> Finding:
    """Whether the account may do more than it needs."""
    if not writes:
        return ok(check, "the account may only read")
    return warning(
        check,
        f"the account may {listed(writes, 3)}; the worker only reads",
        "Give it an account with SELECT alone (docs/migrating-from-nova.md, Accounts)",
    )


def state_clock(check: str, here: Moments) -> Finding:
    """The clock of the shared state, which tells how old heartbeats and reservations are."""
    if abs(here.ahead_s) <= _CLOCKS_S:
        return ok(check, "agrees with this host's")
    side, seem = ("ahead of", "down too early") if here.ahead_s > 0 else ("behind", "up too long")
    return warning(
        check,
        f"it is {abs(here.ahead_s):.0f} s {side} this host's: computes that keep the time as this "
        f"host does seem {seem}",
        _NTP,
    )


def clocks(
    check: str, here: Moments, newest_beat_s: float | None, overlap_s: float
) -> Iterator[Finding]:
    """The clocks of this host, of the database, and of the conductors that write heartbeats."""
    findings = []
    if abs(here.ahead_s) > _CLOCKS_S:
        side = "ahead of" if here.ahead_s > 0 else "behind"
        message = f"the database's clock is {abs(here.ahead_s):.0f} s {side} this host's"
        findings.append(warning(check, message, _NTP))
    beat_ahead_s = 0.0 if newest_beat_s is None else newest_beat_s - here.database_s
    if beat_ahead_s > overlap_s:
        message = (
            f"a heartbeat is {beat_ahead_s:.0f} s ahead of the database's clock, more than "
            f"[nova_feed] overlap ({overlap_s:g} s): changes can be missed for a while"
        )
        findings.append(failed(check, message, _NTP))
    elif beat_ahead_s > _CLOCKS_S:
        message = f"a heartbeat is {beat_ahead_s:.0f} s ahead of the database's clock"
        findings.append(warning(check, message, _NTP))
    agreement = "this host's, the database's and the conductors' clocks agree"
    yield from findings or [ok(check, agreement)]


def computes(check: str, compute: Compute, silent_after_s: float) -> Iterator[Finding]:
    """Hosts without a mapping, and compute services that are not up."""
    hosts = sorted({node.host for node in compute.nodes if node.host is not None})
    mapped = [host for host in hosts if compute.part_of.get(host) == compute.part_id]
    if unmapped := sorted(set(hosts) - set(mapped)):
        yield warning(
            check,
            f"{len(unmapped)} hosts have no mapping to this cell and get no instances: "
            f"{listed(unmapped)}",
            "Run nova-manage cell_v2 discover_hosts, regularly",
        )
    states = {host: compute.services.by_host.get(host) for host in mapped}
    now_s = compute.services.now_s
    down = [
        host
        for host, state in states.items()
        if state is None or state.forced_down or not state.facts(now_s, silent_after_s)["up"]
    ]
    disabled = [host for host, state in states.items() if state is not None and state.disabled]
    if down:
        judge = failed if len(down) == len(mapped) else warning
        yield judge(
            check,
            f"{len(down)} of {len(mapped)} compute services are down: {listed(down)}",
            "Start nova-compute there; openstack compute service list shows the last heartbeats",
        )
    elif mapped:
        note = f", {len(disabled)} disabled" if disabled else ""
        yield ok(check, f"{len(mapped)} compute services are up{note}")
    else:
        yield failed(
            check, "it has no host with a mapping", "Run nova-manage cell_v2 discover_hosts"
        )


def providers(
    check: str, nodes: Mapping[str, str], known: Sequence[ProviderEntry]
) -> Iterator[Finding]:
    """The resource providers of compute nodes; ``nodes`` is uuid -> host."""
    generations = {provider.uuid: provider.generation for provider in known}
    missing = sorted(host for uuid, host in nodes.items() if uuid not in generations)
    if missing:
        yield failed(
            check,
            f"{len(missing)} of {len(nodes)} compute nodes have no resource provider, so that "
            f"nothing can be claimed there: {listed(missing)}",
            "nova-compute makes it: see its log there, and whether a provider of the same name "
            "with another uuid is in its way (openstack resource provider list)",
        )
    untouched = sorted(host for uuid, host in nodes.items() if generations.get(uuid) == 0)
    if untouched:
        yield warning(
            check,
            f"{len(untouched)} resource providers are of generation 0, without an inventory: "
            f"{listed(untouched)}",
            "nova-compute reports it every minute: see its log there",
        )
    if not missing and not untouched:
        yield ok(check, f"{len(nodes)} compute nodes have their resource providers")


def workers(check: str, us: WorkerFacts, facts: Sequence[WorkerFacts]) -> Iterator[Finding]:
    """Whether the workers that share the state agree with this configuration."""
    here = structs.replace(us, name="this configuration")
    ours = [worker for worker in facts if worker.topic == us.topic]
    problems = [
        *health.configuration(check, [here, *ours]),
        *health.versions(check, [us, *facts]),
        *health.drained(check, [our for our in ours if not our.is_dry_run]),
    ]
    yield from problems
    if not problems:
        names = listed(sorted(worker.name for worker in facts)) or "none"
        yield ok(check, f"{len(facts)} workers share the state: {names}")


def consumers(
    check: str, us: WorkerFacts, facts: Sequence[WorkerFacts], count: int, waiting: int
) -> Finding:
    """Who consumes the topic's queue; ``waiting`` are its messages."""
    here = (worker for worker in facts if worker.topic == us.topic)
    ours = [worker.name for worker in here if not (worker.is_dry_run or worker.is_drained)]
    surplus = count - len(ours)
    text = f"{count} consumers, {len(ours)} of them workers that this state knows"
    if not surplus or us.is_dry_run:
        return ok(check, f"{text}; {waiting} messages wait")
    if surplus < 0:
        return warning(
            check,
            f"{text}: a worker does not consume",
            "See its log, and /readyz; one that was killed is forgotten after half a minute",
        )
    if not ours:
        return warning(
            check,
            f"{text}; the others are nova-schedulers, or workers of another shared state",
            "Start the workers first, and then stop nova-scheduler on all nodes",
        )
    return failed(
        check,
        f"{text}, for ten seconds: another program gets a part of the requests",
        "Stop nova-scheduler on all nodes; workers need the same [state] url and prefix. "
        "`rabbitmqctl list_connections peer_host client_properties` names programs. That of a node "
        "that died is listed until its heartbeats were missed, for two minutes at most",
    )
