"""Builds the parts of a worker that depend on the configuration: state, bus, units.

The only module, beside ``app``, that names concrete engines.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, NamedTuple

from scheduler_worker import __version__
from scheduler_worker.backends.attestation import HttpAttestation
from scheduler_worker.backends.cage.pool import Cages
from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.decision_log import MemoryDecisionLog
from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.backends.nova.settings import NovaDatabasesSettings
from scheduler_worker.backends.redis.decision_log import RedisDecisionLog
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.backends.settings import PolicyStoreSettings, StateSettings
from scheduler_worker.backends.tuning_policy_files import TuningPolicyFiles
from scheduler_worker.conf import Configuration, Settings
from scheduler_worker.decision_log import Bounds, DecisionLog
from scheduler_worker.errors import ConfigError
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.observer import Observer
from scheduler_worker.placement import NoReader, ProviderReader
from scheduler_worker.policy_store import PolicyStore, StoredPolicy
from scheduler_worker.ports import GLOBAL, Clock, ClusterLock, MigrationTarget, Publisher, State
from scheduler_worker.rpc import codec
from scheduler_worker.rpc.settings import RpcSettings
from scheduler_worker.rpc.transport import Bus
from scheduler_worker.scheduling.external.units import Plugins
from scheduler_worker.scheduling.filters.trusted import TrustSource
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.ovirt.policies import DEFAULT_POLICY, LOCKED_POLICIES
from scheduler_worker.scheduling.selectors import RankSelector
from scheduler_worker.service.balancing.administration import BalancingAdministration
from scheduler_worker.service.balancing.agent import AgentTarget, PowerAgent
from scheduler_worker.service.balancing.balancer import Balancer
from scheduler_worker.service.decisions.kept import KeptDecisions
from scheduler_worker.service.decisions.recorder import Recorder
from scheduler_worker.service.feed.feeder import Feeder
from scheduler_worker.service.feed.look import Looker
from scheduler_worker.service.feed.providers import ProviderFeed
from scheduler_worker.service.inventory.inventory import Inventory
from scheduler_worker.service.placement.asking import AskingPorts
from scheduler_worker.service.placement.claiming import PlacementPorts
from scheduler_worker.service.placement.freshness import Freshness
from scheduler_worker.service.policies.administration import PolicyAdministration
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies
from scheduler_worker.service.policies.external_units import with_external
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.policies.trust import Trust
from scheduler_worker.service.policies.units import Registered, load_units
from scheduler_worker.service.state.presence import WorkerFacts
from scheduler_worker.service.state.replica import Fleet
from scheduler_worker.service.tuning.cycle import TuningSettings

if TYPE_CHECKING:
    from scheduler_worker.backends.nova.compute_api import ComputeApi
    from scheduler_worker.backends.nova.source import NovaDatabases
    from scheduler_worker.backends.placement.session import PlacementSession
    from scheduler_worker.backends.sql.migrate import PolicySchema
    from scheduler_worker.monitoring import Traces

LOG = logging.getLogger(__name__)

_EXPORT_S = 10.0
"""For how long a batch of traces is tried to be sent."""
FILTERS, WEIGHERS = "scheduler_worker.filters", "scheduler_worker.weighers"
"""The groups of entry points under which packages register their units."""
POLICY_UNITS = (
    "scheduler_worker.policy_filters",
    "scheduler_worker.policy_weights",
    "scheduler_worker.policy_balances",
)
"""Those of units that only policies name: the options mean by "all" units the groups above."""
_REDIS = {"redis", "rediss", "unix"} | {
    f"{base}+{kind}" for base in ("redis", "rediss") for kind in ("sentinel", "cluster")
}


def open_state(settings: StateSettings, clock: Clock) -> State:
    """Open the engine that ``[state] url`` names. Raises ConfigError where there is none."""
    scheme = settings.url.partition(":")[0]
    if scheme == "memory":
        return MemoryState(
            clock, hold_timeout_s=settings.hold_timeout_s, offer_s=settings.offer_timeout_s
        )
    if scheme in _REDIS:
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
    """The records of decisions, connected to nothing yet; None: none are kept.

    A worker in a dry run makes none.
    """
    if settings.decisions is None:
        return None
    log = _open_decision_log(settings.state, settings.decisions.bounds, clock)
    recorder = Recorder(
        log,
        clock,
        worker=settings.host,
        clusters=fleet.names,
        pipeline_of=lambda cluster: pipelines().of_cluster(fleet, cluster),
        max_waiting=settings.decisions.max_waiting,
        observer=observer,
    )
    return Decisions(recorder, _kept_in(log, fleet))


def open_kept_decisions(settings: Settings, fleet: Fleet, clock: Clock) -> KeptDecisions | None:
    """The records that workers make, for reading; None: none are kept."""
    if settings.decisions is None:
        return None
    return _kept_in(_open_decision_log(settings.state, settings.decisions.bounds, clock), fleet)


def _kept_in(log: DecisionLog, fleet: Fleet) -> KeptDecisions:
    return KeptDecisions(log, lambda: [GLOBAL, *fleet.names()])


def _open_decision_log(settings: StateSettings, bounds: Bounds, clock: Clock) -> DecisionLog:
    """Where records of decisions are kept: in the same place as the state, connected apart."""
    if settings.url.startswith("memory:"):
        return MemoryDecisionLog(bounds, clock)
    return RedisDecisionLog(settings.url, prefix=settings.prefix, bounds=bounds)


def open_policy_schema(settings: PolicyStoreSettings) -> PolicySchema:
    """The tables of the policies' system of record, in whatever version. Raises ConfigError."""
    from scheduler_worker.backends.sql.migrate import PolicySchema

    return PolicySchema(settings)


def open_policy_store(settings: PolicyStoreSettings) -> PolicyStore:
    """Open the policies' system of record, whose schema must be the newest.

    A SQLite file is brought to it here, for it has one host; other databases by their operator.

    Raises:
        ConfigError: the connection cannot be used, or the schema is not the newest.
        PolicyStoreUnavailable: the database cannot be reached.
    """
    # SQL's libraries are loaded by programs that use them, not by every worker.
    from scheduler_worker.backends.sql import migrate
    from scheduler_worker.backends.sql.store import SqlPolicyStore

    store = SqlPolicyStore(settings)
    try:
        if store.database.dialect == "sqlite" and migrate.current(store.database) == migrate.BASE:
            migrate.upgrade(store.database)
        migrate.check(store.database)
    except BaseException:
        store.close()
        raise
    return store


def open_tracing(settings: Settings) -> Callable[[Callable[[str, int], None]], Traces] | None:
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


def build_trust(settings: Settings, fleet: Fleet, clock: Clock) -> Trust | None:
    """The trust levels for TrustedFilter, if an attestation service is configured; not started."""
    service = settings.attestation
    if service is None:
        return None
    return Trust(
        HttpAttestation(service), fleet, clock, lasts_s=service.lasts_s, report=LOG.warning
    )


def build_cages(settings: Settings, observer: Observer | None = None) -> Cages | None:
    """The processes of units from files; None: there are no such units. Close them in the end.

    Raises ConfigError for a user that they must not run as.
    """
    found = settings.external_units
    return None if found is None else Cages(found, observer)


def open_placement(
    conf: Configuration, settings: Settings, reader: ProviderReader | None = None
) -> PlacementPorts | None:
    """What claims need of Placement; None: nothing is claimed. Connects to nothing.

    ``reader`` is told where Placement contradicts what is known.

    Raises ConfigError where ``[placement]`` does not suffice.
    """
    if settings.claims is None:
        return None
    session = open_placement_session(conf, connections=settings.claims.workers)
    from scheduler_worker.backends.placement.claiming import PlacementAllocations

    return PlacementPorts(
        PlacementAllocations(session), reader or NoReader(), settings=settings.claims
    )


def open_asking(
    conf: Configuration, settings: Settings, providers: ProviderFeed | None
) -> AskingPorts | None:
    """What asking for allocation candidates needs; None: Placement is not read.

    Connects to nothing. Raises ConfigError where ``[placement]`` does not suffice.
    """
    if providers is None:
        return None
    session = open_placement_session(conf, connections=settings.asking.workers)
    from scheduler_worker.backends.placement.candidates import AllocationCandidatesSource
    from scheduler_worker.backends.placement.claiming import PlacementAllocations

    return AskingPorts(
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
    found = settings.inventory
    return Inventory(
        fleet=fleet,
        ratios=found.ratios,
        reservation_ttl_s=found.reservation_ttl_s,
        remember_answers_s=found.remember_answers_s,
        clusters=found.clusters,
        observer=observer,
    )


def build_administration(
    store: PolicyStore,
    pipelines: Callable[[], Pipelines],
    in_force: ClusterPolicies,
    clock: Clock,
) -> PolicyAdministration:
    """The use cases of administrators on a store; ``pipelines`` are those of this moment."""
    return PolicyAdministration(
        store,
        catalogue=lambda: pipelines().catalogue,
        built_in=lambda: built_in_policies(pipelines().nova_policy),
        in_force=in_force,
        clock=clock,
        compile_on_trial=lambda document: pipelines().compile(document),
        default_selector=RankSelector.__name__,
    )


@contextlib.contextmanager
def needing_extra(name: str, why: str) -> Iterator[None]:
    """For importing what an extra installs.

    Raises ConfigError, which names the extra, where it is missing.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"{why} needs {error.name} ({error}); run: pip install 'scheduler_worker[{name}]'"
        ) from None


def open_nova(conf: Configuration, settings: Settings) -> ComputeApi | None:
    """The client of Nova's API, not connected; None where nothing asks Nova.

    Raises ConfigError where its library or options are missing.
    """
    if settings.balancing.target != "nova":
        return None
    with needing_extra("nova", "[balancing] target = nova"):
        from scheduler_worker.backends.nova.compute_api import ComputeApi
    return ComputeApi(conf)


def nova_target(nova: ComputeApi) -> MigrationTarget:
    """Nova as the one that migrates VMs."""
    from scheduler_worker.backends.nova.target import NovaTarget

    return NovaTarget(nova)


def build_balancing(
    settings: Settings,
    fleet: Fleet,
    pipelines: Callable[[], Pipelines],
    observer: Observer | None = None,
) -> BalancingAdministration:
    """The use cases of administrators about balancing."""
    return BalancingAdministration(
        fleet,
        lambda: pipelines().nova_policy,
        default_mode=settings.balancing.mode,
        observer=observer,
    )


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
    found = settings.balancing
    return Balancer(
        fleet,
        pipelines,
        AgentTarget(publisher, found.agent_topic) if nova is None else nova_target(nova),
        clock,
        lock=lock,
        power_target=PowerAgent(publisher, found.agent_topic),
        settings=found,
        observer=observer,
        name=settings.host,
    )


def open_nova_databases(settings: NovaDatabasesSettings) -> NovaDatabases:
    """Nova's databases, as a source of hosts; connects to nothing. Raises ConfigError."""
    # SQL's libraries are loaded by workers that use them.
    from scheduler_worker.backends.nova.source import NovaDatabases

    return NovaDatabases(settings, codec.decode_host_reports)


class Feed(NamedTuple):
    """What brings hosts out of Nova, not started."""

    feeder: Feeder | None
    """None: hosts report themselves."""
    providers: ProviderFeed | None
    """None: Placement is not read."""
    looker: Looker | None
    """Looks again for requests that no host passes."""
    freshness: Freshness | None
    """What decisions ask of the feed."""

    def start(self) -> None:
        """Start the threads."""
        for each in (self.feeder, self.providers, self.looker):
            if each is not None:
                each.task.start()

    def stop(self) -> None:
        """End them, and the connections; the turn goes to another worker."""
        if self.looker is not None:
            self.looker.task.stop()
        if self.feeder is not None:
            self.feeder.stop()
        if self.providers is not None:
            self.providers.stop()


def build_feed(
    conf: Configuration,
    settings: Settings,
    inventory: Inventory,
    fleet: Fleet,
    clock: Clock,
    observer: Observer,
) -> Feed:
    """The feed, connected to nothing yet. Raises ConfigError."""
    if settings.nova_feed is None:
        return Feed(None, None, None, None)
    nova = settings.nova_feed
    providers = None
    if nova.providers is not None:
        connections = nova.providers.connections
        session = open_placement_session(conf, connections=connections)
        from scheduler_worker.backends.placement.reading import PlacementReader

        providers = ProviderFeed(
            PlacementReader(session, concurrency=connections),
            fleet,
            inventory.update_hosts,
            clock,
            settings=nova.providers,
            has_turn=lambda: feeder.has_turn(),  # noqa: PLW0108 - there is none yet
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
    looker = Looker(feeder, providers, fleet.store, clock, observer)
    freshness = Freshness(
        feeder,
        fleet.store,
        clock,
        ready_timeout_s=nova.feed.ready_timeout_s,
        look_timeout_s=nova.feed.look_timeout_s,
    )
    return Feed(feeder, providers, looker, freshness)


@contextlib.contextmanager
def policy_administration(settings: Settings) -> Iterator[PolicyAdministration]:
    """The use cases of administrators in a program of their own, on the configured store and state.

    Raises ConfigError, PolicyStoreUnavailable.
    """
    clock = SystemClock()
    cages = build_cages(settings)
    compiled = compile_pipelines(
        settings.options, registered(FILTERS), registered(WEIGHERS), cages=cages
    )
    with (
        contextlib.closing(cages) if cages else contextlib.nullcontext(),
        contextlib.closing(open_policy_store(settings.policy_store)) as store,
        contextlib.closing(open_state(settings.state, clock)) as state,
    ):
        fleet = Fleet(state, default_cluster=settings.default_cluster)
        in_force = ClusterPolicies(fleet, lambda: compiled)
        administration = build_administration(store, lambda: compiled, in_force, clock)
        administration.register_units()
        yield administration


def built_in_policies(nova: ClusterPolicy) -> list[StoredPolicy]:
    """The locked policies: ``nova`` and oVirt's, one of which is oVirt's default."""
    return [
        StoredPolicy(document=each, is_locked=True, is_default=each.name == DEFAULT_POLICY)
        for each in (nova, *LOCKED_POLICIES)
    ]


def open_bus(conf: Configuration, settings: RpcSettings) -> Bus:
    """Open the bus of ``transport_url``, or the one inside this process where none is set."""
    return Bus(conf, exchange=settings.exchange)


def policy_files(settings: TuningSettings) -> TuningPolicyFiles:
    """The reader of the operator's tuning policies."""
    return TuningPolicyFiles(settings.policy_files, settings.clusters_file)


def compile_pipelines(
    options: Options,
    filters: Registered,
    weighers: Registered,
    trust: Trust | None = None,
    cages: Cages | None = None,
) -> Pipelines:
    """Compile the policy that the options describe, and keep its catalogue for other policies.

    Without ``trust`` no host is known as trusted, without ``cages`` there are no units from files;
    their files are read again.

    Raises ConfigError, or ClusterPolicyError for the policy that the options describe.
    """
    catalogue, nova = load_units(options, filters, weighers, *map(registered, POLICY_UNITS))
    collaborators: dict[type, Any] = {TrustSource: trust} if trust else {}
    if cages is not None:
        catalogue = with_external(catalogue, cages.refresh())
        collaborators[Plugins] = cages
    return Pipelines(catalogue, nova, options, collaborators)


def _log_broken(name: str, error: Exception) -> None:
    LOG.error("%s cannot be loaded and is left out", name, exc_info=error)


def registered(
    group: str, report_broken: Callable[[str, Exception], None] = _log_broken
) -> Registered:
    """Load the units that installed packages register; report broken ones and leave them out."""
    found = {}
    for entry in entry_points(group=group):
        try:
            found[entry.name] = entry.load()
        except Exception as error:  # whatever a package raises when it is imported
            report_broken(f"{group} {entry.name}", error)
    return found
