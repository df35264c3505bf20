"""Units from packages and files, and the pipelines that are compiled of them."""

import logging
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from scheduler_worker.backends.attestation import HttpAttestation
from scheduler_worker.backends.sandbox.pool import Sandboxes
from scheduler_worker.conf import Settings
from scheduler_worker.observer import Observer
from scheduler_worker.ports import Clock
from scheduler_worker.scheduling.external.units import Plugins
from scheduler_worker.scheduling.filters.compute import TrustSource
from scheduler_worker.scheduling.options import Options
from scheduler_worker.service.policies import units
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.policies.trust import Trust
from scheduler_worker.service.state.replica import Fleet

LOG = logging.getLogger(__name__)

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
    return Trust(
        HttpAttestation(service), fleet, clock, lasts_s=service.lasts_s, report=LOG.warning
    )


def build_sandboxes(settings: Settings, observer: Observer | None = None) -> Sandboxes | None:
    """The processes of units from files; None: there are no such units. Close them in the end.

    Raises ConfigError for a user that they must not run as.
    """
    units_of_files = settings.external_units
    return None if units_of_files is None else Sandboxes(units_of_files, observer)


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
