"""Units that installed packages register, and the pipelines that are compiled of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from scheduler_worker.scheduling.external.units import Plugins
from scheduler_worker.scheduling.filters.compute import TrustSource
from scheduler_worker.scheduling.options import Options
from scheduler_worker.service.policies import units
from scheduler_worker.service.policies.pipelines import Pipelines

if TYPE_CHECKING:
    from scheduler_worker.backends.sandbox.pool import Sandboxes

LOG = logging.getLogger(__name__)

FILTERS, WEIGHERS = "scheduler_worker.filters", "scheduler_worker.weighers"
"""The groups of entry points under which packages register their units."""
POLICY_UNITS = (
    "scheduler_worker.policy_filters",
    "scheduler_worker.policy_weights",
    "scheduler_worker.policy_balances",
)
"""The groups of units that only policies name: the options mean by "all" units the groups above."""


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


def compile_pipelines(
    options: Options, trust: TrustSource | None = None, sandboxes: Sandboxes | None = None
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
