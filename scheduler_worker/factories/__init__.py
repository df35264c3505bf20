"""Builds the parts of a worker that depend on the configuration: state, bus, units.

The only package, beside ``app``, that names concrete engines.
"""

from scheduler_worker.factories.bus import build_balancer, build_balancing, open_bus, open_tracing
from scheduler_worker.factories.nova import (
    FeedParts,
    build_feed,
    nova_target,
    open_asking,
    open_nova,
    open_nova_databases,
    open_placement,
    open_placement_session,
)
from scheduler_worker.factories.policies import (
    build_administration,
    built_in_policies,
    check_policy_store,
    open_policy_schema,
    open_policy_store,
    policy_administration,
    policy_files,
)
from scheduler_worker.factories.services import build_services
from scheduler_worker.factories.state import (
    Decisions,
    build_decisions,
    build_inventory,
    open_decision_history,
    open_state,
    worker_facts,
)
from scheduler_worker.factories.units import (
    FILTERS,
    POLICY_UNITS,
    WEIGHERS,
    build_sandboxes,
    build_trust,
    compile_pipelines,
    registered,
)

__all__ = [
    "Decisions",
    "FILTERS",
    "FeedParts",
    "POLICY_UNITS",
    "WEIGHERS",
    "build_administration",
    "build_balancer",
    "build_balancing",
    "build_sandboxes",
    "build_decisions",
    "build_feed",
    "build_inventory",
    "build_services",
    "build_trust",
    "built_in_policies",
    "check_policy_store",
    "compile_pipelines",
    "nova_target",
    "open_asking",
    "open_bus",
    "open_decision_history",
    "open_nova",
    "open_nova_databases",
    "open_placement",
    "open_placement_session",
    "open_policy_schema",
    "open_policy_store",
    "open_state",
    "open_tracing",
    "policy_administration",
    "policy_files",
    "registered",
    "worker_facts",
]
