"""Builds the parts of a worker that depend on the configuration: state, bus, units.

The only module, beside ``app``, that names concrete engines.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from scheduler_worker import __version__, codec
from scheduler_worker.backends.attestation import HttpAttestation
from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.decision_log import MemoryDecisionLog
from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.backends.sandbox.pool import Sandboxes
from scheduler_worker.backends.tuning_policy_files import TuningPolicyFiles
from scheduler_worker.errors import ConfigError
from scheduler_worker.extras import needing_extra
from scheduler_worker.model.worker_reports import WorkerFacts
from scheduler_worker.observer import Observer
from scheduler_worker.operations.services import OneWorker, UseCases
from scheduler_worker.policy_store import PolicyStore, StoredPolicy
from scheduler_worker.ports import GLOBAL, Clock, ClusterLock, MigrationTarget, Publisher, State
from scheduler_worker.scheduling.external.units import Plugins
from scheduler_worker.scheduling.filters.compute import TrustSource
from scheduler_worker.scheduling.ovirt.policies import DEFAULT_POLICY, LOCKED_POLICIES
from scheduler_worker.scheduling.selectors import RankSelector
from scheduler_worker.service.balancing.administration import BalancingAdministration
from scheduler_worker.service.balancing.agent import AgentTarget
from scheduler_worker.service.balancing.balancer import Balancer
from scheduler_worker.service.decisions.kept import KeptDecisions
from scheduler_worker.service.decisions.recorder import Recorder
from scheduler_worker.service.feed.feeder import Feeder
from scheduler_worker.service.feed.providers import ProviderFeed
from scheduler_worker.service.feed.refreshes import Looker, RefreshBarrier
from scheduler_worker.service.feed.services import LONGEST_S, ServiceCheck
from scheduler_worker.service.inventory.inventory import Inventory
from scheduler_worker.service.placement.allocation_candidates import CandidatesPorts
from scheduler_worker.service.placement.capacity import Capacity
from scheduler_worker.service.placement.claims import PlacementPorts
from scheduler_worker.service.placement.scheduler import Scheduler
from scheduler_worker.service.placement.verifying import VerifyingPorts
from scheduler_worker.service.policies import units
from scheduler_worker.service.policies.administration import PolicyAdministration
from scheduler_worker.service.policies.attachments import PolicyLibrary
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.policies.trust import Trust
from scheduler_worker.service.state.presence import ReportedWorkers
from scheduler_worker.service.state.replica import Fleet
from scheduler_worker.service.tuning.policies import TuningPolicies
from scheduler_worker.service.tuning.tuned_hosts import TunedHosts

if TYPE_CHECKING:
    from scheduler_worker.backends.nova.compute_api import ComputeApi
    from scheduler_worker.backends.nova.settings import NovaDatabasesSettings
    from scheduler_worker.backends.nova.source import NovaDatabases
    from scheduler_worker.backends.placement.session import PlacementSession
    from scheduler_worker.backends.settings import PolicyStoreSettings, StateSettings
    from scheduler_worker.backends.sql.migrate import PolicySchema
    from scheduler_worker.conf import Configuration, Settings
    from scheduler_worker.decision_log import Bounds, DecisionLog
    from scheduler_worker.monitoring.tracing import Tracing
    from scheduler_worker.scheduling.options import Options
    from scheduler_worker.service.tuning.cycle import TuningSettings

LOG = logging.getLogger(__name__)

# The shared state, and what is kept there: hosts, reservations, records of decisions


_REDIS = {"redis", "rediss", "unix"} | {
    f"{base}+{kind}" for base in ("redis", "rediss") for kind in ("sentinel", "cluster")
}


def open_state(settings: StateSettings, clock: Clock) -> State:
    """Open the engine that ``[state] url`` names. Raises ConfigError where there is none."""
    scheme = settings.url.partition(":")[0]
    if scheme == "memory":
        return MemoryState(clock, hold_timeout_s=settings.hold_timeout_s)
    if scheme in _REDIS:
        # Its client takes 20 MB; programs that keep their state in memory do without.
        from scheduler_worker.backends.redis.engine import RedisState

        return RedisState(
            settings.url,
            clock=clock,
            prefix=settings.prefix,
            hold_timeout_s=settings.hold_timeout_s,
            offer_s=settings.offer_timeout_s,
            wait_replicas=settings.wait_replicas,
        )
    raise ConfigError(
        f"[state] url: no engine serves {scheme!r}; use memory://, redis://, rediss://, "
        "redis+sentinel:// or redis+cluster://"
    )


class Decisions(NamedTuple):
    """The records of decisions: who makes them, and who reads them."""

    recorder: Recorder
    kept: KeptDecisions


def build_decisions(
    settings: Settings,
    fleet: Fleet,
    pipelines: Callable[[], Pipelines],
    clock: Clock,
    observer: Observer,
) -> Decisions | None:
    """The records of decisions, connected to nothing yet; None: none are kept, as in a dry run."""
    if settings.decisions is None:
        return None
    log = _open_decision_log(settings.state, settings.decisions.bounds, clock)
    recorder = Recorder(
        log,
        clock,
        worker=settings.host,
        clusters=lambda: fleet.globals.names,
        pipeline_of=lambda cluster: pipelines().of_cluster(fleet, cluster),
        max_waiting=settings.decisions.max_waiting,
        observer=observer,
    )
    return Decisions(recorder, _kept_in(log, fleet))


def open_decision_history(settings: Settings, fleet: Fleet, clock: Clock) -> KeptDecisions | None:
    """The records that workers make, for reading; None: none are kept."""
    if settings.decisions is None:
        return None
    return _kept_in(_open_decision_log(settings.state, settings.decisions.bounds, clock), fleet)


def _kept_in(log: DecisionLog, fleet: Fleet) -> KeptDecisions:
    return KeptDecisions(log, lambda: [GLOBAL, *fleet.globals.names])


def _open_decision_log(settings: StateSettings, bounds: Bounds, clock: Clock) -> DecisionLog:
    """The store of decision records: in the same place as the state, connected apart."""
    if settings.url.startswith("memory:"):
        return MemoryDecisionLog(bounds, clock)
    from scheduler_worker.backends.redis.decision_log import RedisDecisionLog

    return RedisDecisionLog(settings.url, prefix=settings.prefix, bounds=bounds)


def worker_facts(settings: Settings) -> WorkerFacts:
    """What a worker with these settings says of itself to others."""
    return WorkerFacts(
        name=settings.host,
        version=__version__,
        topic=settings.rpc.topic,
        is_claiming=settings.claims is not None,
        is_feeding=settings.nova_feed is not None,
        is_dry_run=settings.is_dry_run,
    )


def build_inventory(
    settings: Settings, fleet: Fleet, observer: Observer | None = None
) -> Inventory:
    """The use cases of hosts, instances and reservations."""
    inventory = settings.inventory
    return Inventory(
        fleet=fleet,
        ratios=inventory.ratios,
        reservation_ttl_s=settings.placement.reservation_ttl_s,
        remember_answers_s=settings.placement.remember_answers_s,
        clusters=inventory.clusters,
        observer=observer,
    )


# Units from packages and files, and the pipelines that are compiled of them


FILTERS, WEIGHERS = "scheduler_worker.filters", "scheduler_worker.weighers"
"""The groups of entry points under which packages register their units."""
POLICY_UNITS = (
    "scheduler_worker.policy_filters",
    "scheduler_worker.policy_weights",
    "scheduler_worker.policy_balances",
)
"""The groups of units that only policies name: the options mean by "all" units the groups above."""


def build_trust(settings: Settings, fleet: Fleet, clock: Clock) -> Trust | None:
    """The trust levels for TrustedFilter, if an attestation service is configured; not started."""
    if (service := settings.attestation) is None:
        return None
    return Trust(HttpAttestation(service), fleet, clock, lasts_s=service.lasts_s)


def build_sandboxes(
    settings: Settings, observer: Observer | None = None, units: Collection[str] | None = None
) -> Sandboxes | None:
    """The processes of units from files; None: there are no such units. Close them in the end.

    ``units`` limits which files are loaded, as in :class:`.Sandboxes`.

    Raises ConfigError for a user that they must not run as.
    """
    units_of_files = settings.external_units
    return None if units_of_files is None else Sandboxes(units_of_files, observer, units)


def compile_pipelines(
    options: Options, trust: Trust | None = None, sandboxes: Sandboxes | None = None
) -> Pipelines:
    """Compile the policy that the options describe, and keep its catalogue for other policies.

    Without ``trust`` no host is known as trusted, without ``sandboxes`` there are no units from
    files; their files are read again.

    Raises ConfigError, or ClusterPolicyError for the policy that the options describe.
    """
    groups = FILTERS, WEIGHERS, *POLICY_UNITS
    catalogue, nova = units.load_units(options, *map(registered, groups))
    collaborators: dict[type, Any] = {TrustSource: trust} if trust else {}
    if sandboxes is not None:
        catalogue = units.with_external(catalogue, sandboxes.refresh())
        collaborators[Plugins] = sandboxes
    return Pipelines(catalogue, nova, options, collaborators)


def registered(group: str, report: Callable[[str], None] = LOG.error) -> units.Registered:
    """Load the units that installed packages register; report broken ones and leave them out."""
    loaded = {}
    for entry in entry_points(group=group):
        try:
            loaded[entry.name] = entry.load()
        except (Exception, SystemExit) as error:  # whatever a package does when it is imported
            why = units.why_not_loaded(error)
            report(f"{group} {entry.name} = {entry.value} cannot be loaded: {why}")
    return loaded


# Policies: their system of record, and the use cases of administrators


def open_policy_schema(settings: PolicyStoreSettings) -> PolicySchema:
    """The tables of the policies' system of record, in whatever version. Raises ConfigError."""
    from scheduler_worker.backends.sql.database import Database
    from scheduler_worker.backends.sql.migrate import PolicySchema

    return PolicySchema(Database(settings))


def open_policy_store(settings: PolicyStoreSettings) -> PolicyStore:
    """Open the policies' system of record, whose schema must be the newest.

    A SQLite file has one host and is upgraded here; other databases by their operator.

    Raises:
        ConfigError: the connection cannot be used, or the schema is not the newest.
        PolicyStoreUnavailable: the database cannot be reached.
    """
    # SQL's libraries are loaded by programs that use them, not by every worker.
    from scheduler_worker.backends.sql.migrate import PolicySchema
    from scheduler_worker.backends.sql.store import SqlPolicyStore

    store = SqlPolicyStore(settings)
    schema = PolicySchema(store.database)
    try:
        if schema.makes_itself():
            schema.upgrade()
        schema.check()
    except BaseException:
        store.close()
        raise
    return store


def check_policy_store(settings: PolicyStoreSettings) -> str | None:
    """What :func:`open_policy_store` would make, checked without making it. Raises as it does."""
    from scheduler_worker.backends.sql.database import file_to_make

    if (path := file_to_make(settings)) is not None:
        return f"file {path}" if path.parent.exists() else f"directory {path.parent}"
    with contextlib.closing(open_policy_schema(settings)) as schema:
        if schema.makes_itself():
            return f"table in {schema.name}"
        schema.check()
    return None


def build_administration(
    store: PolicyStore, pipelines: Callable[[], Pipelines], in_force: ClusterPolicies, clock: Clock
) -> PolicyAdministration:
    """The use cases of administrators on a store; ``pipelines`` are the present ones."""
    library = PolicyLibrary(
        store,
        catalogue=lambda: pipelines().catalogue,
        built_in=lambda: [  # ``nova`` and oVirt's, one of which is oVirt's default
            StoredPolicy(document=policy, is_locked=True, is_default=policy.name == DEFAULT_POLICY)
            for policy in (pipelines().nova_policy, *LOCKED_POLICIES)
        ],
        compile_on_trial=lambda document: pipelines().compile(document),
    )
    selector = RankSelector.__name__
    return PolicyAdministration(
        store, library, in_force=in_force, clock=clock, default_selector=selector
    )


@contextlib.contextmanager
def policy_administration(
    settings: Settings, units: Collection[str] | None = None
) -> Iterator[PolicyAdministration]:
    """The use cases of administrators in a program of their own, on the configured store and state.

    ``units`` are the names or ids of the units of files that it needs; None: all.

    Raises ConfigError, PolicyStoreUnavailable.
    """
    clock = SystemClock()
    sandboxes = build_sandboxes(settings, units=units)
    compiled = compile_pipelines(settings.options, sandboxes=sandboxes)
    with (
        contextlib.closing(sandboxes) if sandboxes else contextlib.nullcontext(),
        contextlib.closing(open_policy_store(settings.policy_store)) as store,
        contextlib.closing(open_state(settings.state, clock)) as state,
    ):
        fleet = Fleet(state, default_cluster=settings.default_cluster)
        in_force = ClusterPolicies(fleet, lambda: compiled)
        administration = build_administration(store, lambda: compiled, in_force, clock)
        administration.register_units()
        yield administration


def policy_files(settings: TuningSettings) -> TuningPolicyFiles:
    """The reader of the operator's tuning policies."""
    return TuningPolicyFiles(settings.policy_files, settings.clusters_file)


# What operations are served with, in workers and in processes of the REST API


def build_services(
    fleet: Fleet,
    pipelines: Callable[[], Pipelines],
    *,
    down_after_s: float,
    scheduler: Scheduler,
    inventory: Inventory,
    tuning: TuningPolicies,
    balancing: BalancingAdministration,
    capacity: Capacity | None = None,
    decisions: KeptDecisions | None = None,
    worker: OneWorker | None = None,
) -> UseCases:
    """The services of one process; a worker's services have the ``worker``."""
    return UseCases(
        fleet=fleet,
        scheduler=scheduler,
        inventory=inventory,
        capacity=capacity or Capacity(fleet, pipelines, now_s=time.monotonic),
        tuning=tuning,
        tuned_hosts=TunedHosts(fleet, tuning),
        balancing=balancing,
        policies=ClusterPolicies(fleet, pipelines),
        workers=ReportedWorkers(fleet.store),
        decisions=decisions,
        clusters=fleet.read_names,
        down_after_s=down_after_s,
        worker=worker,
    )


# The balancer and what it asks, traces


_EXPORT_S = 10.0
"""For how long a batch of traces is tried to be sent."""


def build_balancing(
    settings: Settings, fleet: Fleet, pipelines: Callable[[], Pipelines]
) -> BalancingAdministration:
    """The use cases of administrators about balancing."""
    mode = settings.balancing.mode
    return BalancingAdministration(fleet, lambda: pipelines().nova_policy, default_mode=mode)


def build_balancer(
    settings: Settings,
    fleet: Fleet,
    lock: ClusterLock,
    pipelines: Callable[[], Pipelines],
    publisher: Publisher,
    clock: Clock,
    observer: Observer,
    nova: ComputeApi | None = None,
) -> Balancer:
    """The balancer with its targets, ``nova`` for migrations if that is given; not started."""
    agents = AgentTarget(publisher, settings.balancing.agent_topic)
    target: MigrationTarget = agents
    if nova is not None:
        from scheduler_worker.backends.nova.target import NovaTarget

        target = NovaTarget(nova)
    return Balancer(
        fleet,
        pipelines,
        target,
        clock,
        lock=lock,
        power_target=agents,
        settings=settings.balancing,
        observer=observer,
        name=settings.host,
    )


def open_tracing(settings: Settings) -> Callable[[Callable[[str, int], None]], Tracing] | None:
    """What makes the traces of requests, given what counts them; None: there are none.

    Raises ConfigError where OpenTelemetry is not installed.
    """
    if settings.tracing is None:
        return None
    with needing_extra("tracing", "[tracing] enabled"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        from scheduler_worker.monitoring.tracing import Tracing
    exporter = OTLPSpanExporter(endpoint=settings.tracing.endpoint, timeout=_EXPORT_S)
    return partial(Tracing, exporter, worker=settings.host, ratio=settings.tracing.ratio)


# Nova and Placement: the feed of hosts, claims, questions for candidates


def open_placement(
    conf: Configuration, settings: Settings, providers: ProviderFeed | None = None
) -> PlacementPorts | None:
    """What claims need of Placement; None: nothing is claimed. Connects to nothing.

    ``providers`` hears where Placement contradicts what is known.

    Raises ConfigError where ``[placement]`` does not suffice.
    """
    if settings.claims is None:
        return None
    session = open_placement_session(conf, connections=settings.claims.workers)
    from scheduler_worker.backends.placement.claiming import PlacementAllocations

    allocations = PlacementAllocations(session)
    if providers is None:
        return PlacementPorts(allocations, settings=settings.claims)
    return PlacementPorts(allocations, providers.read_again, settings.claims)


def open_asking(
    conf: Configuration, settings: Settings, providers: ProviderFeed | None
) -> CandidatesPorts | None:
    """What asking for allocation candidates needs; None: Placement is not read.

    Connects to nothing. Raises ConfigError where ``[placement]`` does not suffice.
    """
    if providers is None:
        return None
    session = open_placement_session(conf, connections=settings.asking.workers)
    from scheduler_worker.backends.placement.claiming import (
        AllocationCandidatesSource,
        PlacementAllocations,
    )

    return CandidatesPorts(
        AllocationCandidatesSource(session),
        providers.sharing,
        PlacementAllocations(session) if settings.claims is not None else None,
        settings=settings.asking,
    )


def open_placement_session(conf: Configuration, *, connections: int) -> PlacementSession:
    """A client of ``[placement]``, with so many connections; connects to nothing yet.

    Raises ConfigError where the options do not suffice, or keystoneauth is not installed.
    """
    with needing_extra("nova", "[placement]"):
        from scheduler_worker.backends.placement.session import open_session
    return open_session(conf, connections=connections)


def open_nova(conf: Configuration, settings: Settings) -> ComputeApi | None:
    """The client of Nova's API, not connected; None where nothing asks Nova.

    Raises ConfigError where its library or options are missing.
    """
    if settings.balancing.target != "nova":
        return None
    with needing_extra("nova", "[balancing] target = nova"):
        from scheduler_worker.backends.nova.compute_api import ComputeApi
    return ComputeApi(conf)


def open_nova_databases(settings: NovaDatabasesSettings) -> NovaDatabases:
    """Nova's databases, as a source of hosts; connects to nothing. Raises ConfigError."""
    # SQL's libraries are loaded by workers that use them.
    from scheduler_worker.backends.nova.source import NovaDatabases

    return NovaDatabases(settings, codec.decode_host_reports)


class FeedParts(NamedTuple):
    """What brings hosts out of Nova, not started."""

    feeder: Feeder | None
    """None: hosts report themselves."""
    providers: ProviderFeed | None
    """None: Placement is not read."""
    refresher: Looker | None
    """Refreshes hosts for requests that no host passes."""
    barrier: RefreshBarrier | None
    """What decisions ask of the feed."""
    verifying: VerifyingPorts | None
    """What compares chosen hosts with where they are from."""


def build_feed(
    conf: Configuration,
    settings: Settings,
    inventory: Inventory,
    fleet: Fleet,
    clock: Clock,
    observer: Observer,
) -> FeedParts:
    """The feed, connected to nothing yet. Raises ConfigError."""
    if (nova := settings.nova_feed) is None:
        return FeedParts(None, None, None, None, None)
    providers = None
    if nova.providers is not None:
        connections = nova.providers.connections
        sessions = [open_placement_session(conf, connections=connections) for _ in range(2)]
        from scheduler_worker.backends.placement.reading import PlacementReader  # in that extra

        reader, verifying = (PlacementReader(each, concurrency=connections) for each in sessions)
        providers = ProviderFeed(
            reader,
            fleet,
            inventory.update_hosts,
            clock,
            settings=nova.providers,
            is_leader=lambda: feeder.is_leader(),  # noqa: PLW0108 - there is none yet
            verifying=verifying,
            observer=observer,
        )
    feeder = Feeder(
        open_nova_databases(nova.databases),
        inventory,
        fleet,
        clock,
        settings=nova.feed,
        providers=providers,
        observer=observer,
        name=settings.host,
    )
    quick = msgspec.structs.replace(
        nova.databases,
        one_statement=True,
        connect_timeout_s=LONGEST_S,
        statement_timeout_s=LONGEST_S,
    )
    databases = open_nova_databases(quick)
    services = ServiceCheck(databases, fleet, inventory.update_hosts, clock, nova.feed)
    look = providers.look if providers else None
    refresher = Looker(feeder, look, fleet.store, clock, observer)
    barrier = RefreshBarrier(feeder, fleet.store, clock, nova.feed)
    return FeedParts(feeder, providers, refresher, barrier, VerifyingPorts(services, providers))
