"""Nova and Placement: the feed of hosts, claims, questions for candidates, migrations."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from scheduler_worker import codec
from scheduler_worker.backends.nova.settings import NovaDatabasesSettings
from scheduler_worker.conf import Configuration, Settings
from scheduler_worker.extras import needing_extra
from scheduler_worker.observer import Observer
from scheduler_worker.placement import NoReader, ProviderReader
from scheduler_worker.ports import Clock, MigrationTarget
from scheduler_worker.service.feed.feeder import Feeder, Looker
from scheduler_worker.service.feed.providers import ProviderFeed
from scheduler_worker.service.feed.services import LONGEST_S, ServiceCheck
from scheduler_worker.service.inventory.inventory import Inventory
from scheduler_worker.service.placement.allocation_candidates import CandidatesPorts
from scheduler_worker.service.placement.claims import PlacementPorts
from scheduler_worker.service.placement.refresh import RefreshBarrier
from scheduler_worker.service.placement.verifying import VerifyingPorts
from scheduler_worker.service.state.replica import Fleet

if TYPE_CHECKING:
    from scheduler_worker.backends.nova.compute_api import ComputeApi
    from scheduler_worker.backends.nova.source import NovaDatabases
    from scheduler_worker.backends.placement.session import PlacementSession


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


def nova_target(nova: ComputeApi) -> MigrationTarget:
    """Nova as the target of VM migrations."""
    from scheduler_worker.backends.nova.target import NovaTarget

    return NovaTarget(nova)


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

        reader, verifying = (
            PlacementReader(session, concurrency=connections) for session in sessions
        )
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
    services = ServiceCheck(
        open_nova_databases(quick), fleet, inventory.update_hosts, clock, nova.feed
    )
    refresher = Looker(feeder, providers, fleet.store, clock, observer)
    barrier = RefreshBarrier(
        feeder,
        fleet.store,
        clock,
        ready_timeout_s=nova.feed.ready_timeout_s,
        look_timeout_s=nova.feed.look_timeout_s,
    )
    return FeedParts(feeder, providers, refresher, barrier, VerifyingPorts(services, providers))
