"""The parts of a process: a worker, a process of the REST API, a command, a rehearsal.

All of them are made here, each when it is first asked for, so that an operation answers alike
wherever it is served. Nothing is connected to, and nothing starts, by being made.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from msgspec import structs

from scheduler_worker import __version__
from scheduler_worker.compose import engines, packages
from scheduler_worker.errors import ConfigError
from scheduler_worker.model.documents import StoredPolicy
from scheduler_worker.model.worker_reports import WorkerFacts
from scheduler_worker.observer import Observer
from scheduler_worker.operations.services import UseCases
from scheduler_worker.ports import GLOBAL
from scheduler_worker.rpc.transport import Bus
from scheduler_worker.scheduling.ovirt.policies import DEFAULT_POLICY, LOCKED_POLICIES
from scheduler_worker.scheduling.selectors import RankSelector
from scheduler_worker.service.balancing.administration import BalancingAdministration
from scheduler_worker.service.balancing.agent import AgentTarget
from scheduler_worker.service.balancing.balancer import Balancer
from scheduler_worker.service.decisions.kept import KeptDecisions
from scheduler_worker.service.decisions.recorder import Recorder
from scheduler_worker.service.documents import founding
from scheduler_worker.service.documents.administration import PolicyAdministration
from scheduler_worker.service.documents.audit import Actor, Audit
from scheduler_worker.service.documents.book import Book, Revision
from scheduler_worker.service.documents.copies import Copies
from scheduler_worker.service.documents.in_force import PolicyPublisher
from scheduler_worker.service.documents.library import Libraries
from scheduler_worker.service.documents.upkeep import Upkeep
from scheduler_worker.service.feed.feeder import Feeder
from scheduler_worker.service.feed.providers import ProviderFeed, counted
from scheduler_worker.service.feed.readiness import FeedReadiness
from scheduler_worker.service.feed.refreshes import Looker, RefreshBarrier
from scheduler_worker.service.feed.services import LONGEST_S, ServiceCheck
from scheduler_worker.service.feed.trees import SharingProviders
from scheduler_worker.service.inventory.inventory import Inventory
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies
from scheduler_worker.service.policies.trust import Trust
from scheduler_worker.service.requests.allocation_candidates import CandidatesPorts
from scheduler_worker.service.requests.capacity import Capacity
from scheduler_worker.service.requests.claims import PlacementPorts
from scheduler_worker.service.requests.scheduler import Scheduler
from scheduler_worker.service.requests.verifier import VerifierPorts
from scheduler_worker.service.state.presence import ReportedWorkers
from scheduler_worker.service.state.replica import Fleet
from scheduler_worker.service.tuning.policies import TuningPolicies
from scheduler_worker.service.tuning.tuned_hosts import TunedHosts
from scheduler_worker.service.tuning.tuner import Tuner

if TYPE_CHECKING:
    from scheduler_worker.archive import Archive
    from scheduler_worker.backends.sandbox.pool import Sandboxes
    from scheduler_worker.backends.watched import WatchedState
    from scheduler_worker.conf import Configuration, NovaFeed, Settings
    from scheduler_worker.decision_log import DecisionLog
    from scheduler_worker.operations.services import OneWorker
    from scheduler_worker.placement import Providers
    from scheduler_worker.ports import Clock, MigrationTarget, Publisher
    from scheduler_worker.scheduling.options import Options
    from scheduler_worker.service.policies.pipelines import Pipelines
    from scheduler_worker.service.requests.scheduler import Keep


LOG = logging.getLogger(__name__)


class Closable(Protocol):
    """What has an end."""

    def close(self) -> object: ...


Part = TypeVar("Part", bound=Closable)

PLACEMENT: Final = "placement"
"""What is not asked where its library, or an option, is missing."""


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


class Parts:
    """What a process is made of.

    A part is made without a lock: touch all that threads will use before the first one starts.
    Making one raises ConfigError where its options cannot be used, or its library is missing.
    """

    def __init__(
        self,
        settings: Settings,
        conf: Configuration | None = None,
        *,
        clock: Clock | None = None,
        observer: Observer | None = None,
        only_reads: bool = False,
        units: Collection[str] | None = None,
    ) -> None:
        """Libraries read their options of ``conf``; None: nothing beside the state is opened.

        A process that ``only_reads`` answers questions, and names what it cannot ask: a library or
        an option is missing. ``units`` are the names or ids of the units of files that it needs;
        None: all.
        """
        self._conf = conf
        self._only_reads = only_reads
        self._units = units
        self._closing = ExitStack()
        self._in_force: Pipelines | None = None
        self.compiling = threading.Lock()
        """Held while pipelines are compiled and put in force."""
        self.settings = settings
        self.clock: Clock = clock or engines.system_clock()
        self.observer = observer or Observer()
        self.worker: OneWorker | None = None
        """Who serves operations on one worker; set before :attr:`services` is asked for."""
        self.not_asked: list[str] = []
        """What answers of this process leave out, known once :attr:`sharing` was asked for."""

    @property
    def conf(self) -> Configuration:
        assert self._conf is not None, "these parts talk to nobody"  # noqa: S101
        return self._conf

    def close(self) -> None:
        """Close every part that was made and must be, the last one first. Idempotent."""
        self._closing.close()

    def _closed(self, part: Part) -> Part:
        self._closing.callback(part.close)
        return part

    # The state, the bus, and what is compiled

    @cached_property
    def state(self) -> WatchedState:
        state = self._closed(engines.open_state(self.settings.state, self.clock))
        state.observer = self.observer
        return state

    @cached_property
    def bus(self) -> Bus:
        return self._closed(Bus(self.conf, exchange=self.settings.rpc.exchange))

    @cached_property
    def fleet(self) -> Fleet:
        cluster = self.settings.default_cluster
        return Fleet(self.state, default_cluster=cluster, observer=self.observer)

    @cached_property
    def trust(self) -> Trust | None:
        """The trust levels for TrustedFilter; None: no attestation service is configured."""
        if (service := self.settings.attestation) is None:
            return None
        attestation = engines.open_attestation(service)
        return Trust(attestation, self.fleet, self.clock, lasts_s=service.lasts_s)

    @cached_property
    def sandboxes(self) -> Sandboxes | None:
        """The processes of units from files; None: there are no such units."""
        if (units := self.settings.external_units) is None:
            return None
        return self._closed(engines.open_sandboxes(units, self.observer, self._units))

    def pipelines(self) -> Pipelines:
        """Those in force; asked again for each decision. The first call compiles."""
        if self._in_force is None:
            self._in_force = self.compiled(self.settings.options)
        return self._in_force

    def compiled(self, options: Options) -> Pipelines:
        """Raises ConfigError, or ClusterPolicyError for the policy that the options describe."""
        return packages.compile_pipelines(options, self.trust, self.sandboxes)

    def put_in_force(self, pipelines: Pipelines) -> None:
        """From the next decision on. Called with :attr:`compiling` held."""
        self._in_force = pipelines

    def refresh_units(self) -> None:
        """Compile again where files of units have changed. Raises as :meth:`compiled` does."""
        if self.sandboxes is not None and self.sandboxes.has_changed():
            with self.compiling:
                self.put_in_force(self.compiled(self.settings.options))

    # Hosts, and where they come from

    @cached_property
    def inventory(self) -> Inventory:
        """The use cases of hosts, instances and reservations."""
        inventory, limits = self.settings.inventory, self.settings.placement
        return Inventory(
            fleet=self.fleet,
            ratios=inventory.ratios,
            reservation_ttl_s=limits.reservation_ttl_s,
            remember_answers_s=limits.remember_answers_s,
            clusters=inventory.clusters,
            observer=self.observer,
        )

    @cached_property
    def readiness(self) -> FeedReadiness | None:
        """What is known of the feed; None: hosts report themselves."""
        if (nova := self.settings.nova_feed) is None:
            return None
        return FeedReadiness(self.state, self.clock, silent_after_s=nova.feed.silent_after_s)

    @cached_property
    def barrier(self) -> RefreshBarrier | None:
        """What decisions ask of the feed; None: hosts report themselves."""
        if (nova := self.settings.nova_feed) is None or self.readiness is None:
            return None
        return RefreshBarrier(self.readiness, self.clock, nova.feed)

    @cached_property
    def sharing(self) -> SharingProviders | None:
        """What providers share; None: Placement is not read, or cannot be here."""
        nova = self.settings.nova_feed
        if nova is None or nova.providers is None:
            return None
        try:
            reader = self._reader(connections=1)
        except ConfigError as error:
            if not self._only_reads:
                raise
            LOG.warning("Answers leave out what providers share: %s", error)
            self.not_asked.append(PLACEMENT)
            return None
        settings = nova.providers
        return SharingProviders(
            reader, self.clock, interval_s=settings.list_interval_s, retry_s=settings.interval_s
        )

    def _reader(self, *, connections: int) -> Providers:
        reader = engines.open_placement_reader(self.conf, connections=connections)
        return counted(reader, self.observer)

    @cached_property
    def providers(self) -> ProviderFeed | None:
        """Reads all providers; None: Placement is not read."""
        nova = self.settings.nova_feed
        if nova is None or nova.providers is None:
            return None
        reader, verifying = (self._reader(connections=nova.providers.connections) for _ in "12")
        return ProviderFeed(
            reader,
            self.fleet,
            self.inventory.update_hosts,
            self.clock,
            settings=nova.providers,
            is_leader=lambda: self.feeder is not None and self.feeder.is_leader(),
            verifying=verifying,
        )

    @cached_property
    def feeder(self) -> Feeder | None:
        """Brings hosts out of Nova; None: hosts report themselves."""
        if (nova := self.settings.nova_feed) is None or self.readiness is None:
            return None
        return Feeder(
            engines.open_nova_databases(nova.databases),
            self.inventory,
            self.fleet,
            self.clock,
            readiness=self.readiness,
            settings=nova.feed,
            providers=self.providers,
            observer=self.observer,
            name=self.settings.host,
        )

    @cached_property
    def refresher(self) -> Looker | None:
        """Refreshes hosts for requests that no host passes; None: hosts report themselves."""
        if self.feeder is None:
            return None
        look = self.providers.look if self.providers else None
        return Looker(self.feeder, look, self.state, self.clock, self.observer)

    # Decisions

    @cached_property
    def scheduler(self) -> Scheduler:
        return Scheduler(
            fleet=self.fleet,
            lock=self.state,
            pipelines=self.pipelines,
            clock=self.clock,
            observer=self.observer,
            limits=self.settings.placement,
            placement=self._claims(),
            asking=self._candidates(),
            barrier=self.barrier,
            verifying=self._verifying(),
            keep=self.keep,
        )

    def _claims(self) -> PlacementPorts | None:
        """None: nothing is claimed in Placement."""
        if (claims := self.settings.claims) is None or self._only_reads:
            return None
        session = engines.open_placement_session(self.conf, connections=claims.workers)
        allocations = engines.open_allocations(session)
        if self.providers is None:
            return PlacementPorts(allocations, settings=claims)
        return PlacementPorts(allocations, self.providers.read_again, claims)

    def _candidates(self) -> CandidatesPorts | None:
        """None: Placement is not asked for candidates."""
        if self.sharing is None:
            return None
        asking = self.settings.asking
        session = engines.open_placement_session(self.conf, connections=asking.workers)
        return CandidatesPorts(
            engines.open_candidates(session),
            self.sharing,
            engines.open_allocations(session) if self.settings.claims is not None else None,
            settings=asking,
        )

    def _verifying(self) -> VerifierPorts | None:
        """None: chosen hosts are not compared with where they are from."""
        if (nova := self.settings.nova_feed) is None or self._only_reads:
            return None
        return VerifierPorts(self._service_check(nova), self.providers)

    def _service_check(self, nova: NovaFeed) -> ServiceCheck:
        quick = structs.replace(
            nova.databases,
            one_statement=True,
            connect_timeout_s=LONGEST_S,
            statement_timeout_s=LONGEST_S,
        )
        databases = engines.open_nova_databases(quick)
        return ServiceCheck(
            databases, self.fleet, self.inventory.update_hosts, self.clock, nova.feed
        )

    @cached_property
    def _decision_log(self) -> DecisionLog | None:
        if (settings := self.settings.decisions) is None:
            return None
        return self._closed(
            engines.open_decision_log(self.settings.state, settings.bounds, self.clock)
        )

    @cached_property
    def recorder(self) -> Recorder | None:
        """Makes the records of decisions; None: none are kept, or none are made here."""
        log, settings = self._decision_log, self.settings.decisions
        if log is None or settings is None or self._only_reads:
            return None
        return Recorder(
            log,
            self.clock,
            worker=self.settings.host,
            clusters=lambda: self.fleet.globals.names,
            pipeline_of=lambda cluster: self.pipelines().of_cluster(self.fleet, cluster),
            max_waiting=settings.max_waiting,
            observer=self.observer,
        )

    @cached_property
    def keep(self) -> Keep | None:
        """Hears of each decision."""
        return self.recorder.keep if self.recorder else None

    @cached_property
    def decisions(self) -> KeptDecisions | None:
        """Reads the records of decisions; None: none are kept."""
        if self._decision_log is None:
            return None
        return KeptDecisions(self._decision_log, lambda: [GLOBAL, *self.fleet.read_names()])

    @cached_property
    def capacity(self) -> Capacity:
        return Capacity(
            self.fleet,
            self.pipelines,
            self.sharing,
            self.clock.monotonic_s,
            self.settings.placement.ask_s,
        )

    # Tuning and balancing

    @cached_property
    def tuning(self) -> TuningPolicies:
        return TuningPolicies(self.state, engines.policy_files(self.settings.tuning))

    @cached_property
    def tuner(self) -> Tuner:
        return Tuner(
            self.fleet,
            self.tuning,
            self.publisher,
            self.clock,
            settings=self.settings.tuning,
            observer=self.observer,
            name=self.settings.host,
        )

    @property
    def publisher(self) -> Publisher:
        """Who brings commands to agents."""
        return self.bus

    @cached_property
    def balancing(self) -> BalancingAdministration:
        """The use cases of administrators about balancing."""
        mode = self.settings.balancing.mode
        return BalancingAdministration(
            self.fleet, lambda: self.pipelines().nova_policy, default_mode=mode
        )

    @cached_property
    def balancer(self) -> Balancer:
        settings = self.settings.balancing
        agents = AgentTarget(self.publisher, settings.agent_topic)
        target: MigrationTarget = agents
        if settings.target == "nova":
            target = engines.nova_target(engines.open_nova(self.conf))
        return Balancer(
            self.fleet,
            self.pipelines,
            target,
            self.clock,
            lock=self.state,
            power_target=agents,
            settings=settings,
            observer=self.observer,
            name=self.settings.host,
        )

    # Policies: the book, what of it is in force, its archive, and the use cases of administrators

    @cached_property
    def book(self) -> Book:
        book = Book(self.state)
        book.found = self._found_book
        return book

    def _found_book(self) -> None:
        self.copies.found()

    @cached_property
    def audit(self) -> Audit:
        return Audit(self.book, self.clock)

    @cached_property
    def policies(self) -> ClusterPolicies:
        """The policies in force."""
        return ClusterPolicies(self.fleet, self.pipelines)

    @cached_property
    def _libraries(self) -> Libraries:
        return Libraries(
            catalogue=lambda: self.pipelines().catalogue,
            built_in=self._built_in,
            compile_on_trial=lambda document: self.pipelines().compile(document),
        )

    @cached_property
    def policy_publisher(self) -> PolicyPublisher:
        return PolicyPublisher(self.book, self._libraries.of, self.policies)

    @cached_property
    def copies(self) -> Copies:
        """What keeps the archive a copy of the book, and reads the audit."""
        settings = self.settings.policy_store
        return Copies(
            self.book,
            self.audit,
            self._open_archive if settings.connection else None,
            by=Actor("scheduler_worker", self.settings.host),
            report=LOG.warning,
            before=partial(founding.read, self.fleet, self._libraries),
        )

    def _open_archive(self) -> Archive:
        return self._closed(engines.open_archive(self.settings.policy_store))

    @cached_property
    def administration(self) -> PolicyAdministration:
        return PolicyAdministration(
            self.book,
            self._libraries,
            self.audit,
            clusters=self.fleet.read_names,
            edited=self._edited,
            default_selector=RankSelector.__name__,
        )

    def _edited(self, revision: Revision, clusters: Collection[str]) -> None:
        """Have an edit in force and in the archive before it is answered."""
        try:
            self.policy_publisher.publish(revision, *clusters)
        finally:
            self.copies.copy_edit()

    @cached_property
    def upkeep(self) -> Upkeep:
        return Upkeep(
            self.state,
            self.administration,
            self.policy_publisher,
            self.copies,
            name=self.settings.host,
            audit_retention_days=self.settings.policy_store.audit_retention_days,
        )

    def _built_in(self) -> list[StoredPolicy]:
        """``nova`` and oVirt's, one of which is oVirt's default."""
        return [
            StoredPolicy(document=policy, is_locked=True, is_default=policy.name == DEFAULT_POLICY)
            for policy in (self.pipelines().nova_policy, *LOCKED_POLICIES)
        ]

    # What operations are served with

    @cached_property
    def services(self) -> UseCases:
        """The same in every process with these settings, but for what one process has alone."""
        return UseCases(
            fleet=self.fleet,
            scheduler=self.scheduler,
            inventory=self.inventory,
            capacity=self.capacity,
            tuning=self.tuning,
            tuned_hosts=TunedHosts(self.fleet, self.tuning),
            balancing=self.balancing,
            policies=self.policies,
            administration=self.administration,
            history=self.copies,
            workers=ReportedWorkers(self.state),
            decisions=self.decisions,
            clusters=self._all_clusters,
            down_after_s=self.settings.tuning.silent_after_s,
            not_asked=self.not_asked,
            worker=self.worker,
        )

    def _all_clusters(self) -> list[str]:
        """All clusters, and the one for hosts that name none, which need not have hosts yet."""
        return sorted({*self.administration.clusters(), self.fleet.default_cluster})


@contextmanager
def local_parts(settings: Settings, units: Collection[str] | None = None) -> Iterator[Parts]:
    """The parts of a program of its own, on the configured state.

    ``units`` are as in :class:`Parts`; no host is known as trusted, and neither Nova nor Placement
    is asked. Raises ConfigError, ArchiveUnavailable.
    """
    settings = structs.replace(settings, attestation=None, claims=None, nova_feed=None)
    with closing(Parts(settings, units=units)) as parts:
        parts.copies.open()
        yield parts
