"""The parts of the REST API: its operations, and the console."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from scheduler_worker.api.access import Access
from scheduler_worker.api.console.console import Console, LogIn
from scheduler_worker.api.console.sessions import ConsoleSessions
from scheduler_worker.api.rights import Rights
from scheduler_worker.api.sessions import Sessions
from scheduler_worker.api.settings import ApiSettings
from scheduler_worker.api.v1.audit import AuditOperations
from scheduler_worker.api.v1.balancing import BalancingOperations
from scheduler_worker.api.v1.capacity import CapacityOperations, CapacityRequest
from scheduler_worker.api.v1.decisions import DecisionOperations
from scheduler_worker.api.v1.dispatch import V1
from scheduler_worker.api.v1.explain import ExplainOperations, ExplainRequest
from scheduler_worker.api.v1.fleet import FleetOperations
from scheduler_worker.api.v1.health import HealthOperations, Problems
from scheduler_worker.api.v1.inventory import InventoryOperations
from scheduler_worker.api.v1.policies import PolicyOperations
from scheduler_worker.api.v1.rehearsals import RehearsalOperations, Rehearse
from scheduler_worker.api.v1.reservations import ReservationOperations
from scheduler_worker.api.v1.tuned_hosts import TunedHostOperations
from scheduler_worker.api.v1.tuning import TuningOperations
from scheduler_worker.ports import ApiTokens, Clock
from scheduler_worker.rpc import codec
from scheduler_worker.rpc.capacity import capacity_of
from scheduler_worker.rpc.contract import Context
from scheduler_worker.rpc.explanations import explanation
from scheduler_worker.service.balancing.administration import BalancingAdministration
from scheduler_worker.service.decisions.kept import KeptDecisions
from scheduler_worker.service.health.reported import ReportedWorkers
from scheduler_worker.service.inventory.inventory import Inventory
from scheduler_worker.service.placement.capacity import Capacity
from scheduler_worker.service.placement.scheduler import Scheduler
from scheduler_worker.service.policies.administration import PolicyAdministration
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.state.replica import Fleet
from scheduler_worker.service.tuning.policies import TuningPolicies
from scheduler_worker.service.tuning.tuned_hosts import TunedHosts


class UseCases(NamedTuple):
    """What the API does beside administration: those of the worker inside, or its own."""

    scheduler: Scheduler
    inventory: Inventory
    tuning: TuningPolicies
    balancing: BalancingAdministration
    decisions: KeptDecisions | None = None
    """None: no records of decisions are kept."""


def build_v1(
    fleet: Fleet,
    use_cases: UseCases,
    *,
    access: Access,
    administration: PolicyAdministration,
    rehearsals: Rehearse,
    clusters: Callable[[], Iterable[str]],
    pipelines: Callable[[], Pipelines],
    problems: Problems,
    down_after_s: float,
) -> V1:
    """Build our own API, ``/v1``."""

    def explain(request_id: str, asked: ExplainRequest) -> dict[str, Any]:
        return explanation(
            use_cases.scheduler,
            Context(request_id=request_id),
            asked.spec_obj,
            asked.instance_uuids,
            asked.hosts,
            asked.limit,
            asked.request,
        )

    audit = administration.audit_log
    capacity = Capacity(fleet, pipelines)

    def count(asked: CapacityRequest) -> list[dict[str, Any]]:
        return capacity_of(capacity, asked.flavors, asked.setting)

    inventory = InventoryOperations(
        access=access,
        fleet=fleet,
        clusters=clusters,
        nova_policy=lambda: pipelines().nova_policy,
        down_after_s=down_after_s,
    )
    return V1(
        [
            *inventory.operations(),
            *FleetOperations(access, fleet, down_after_s).operations(),
            *ReservationOperations(access, audit, fleet, use_cases.inventory).operations(),
            *ExplainOperations(access, explain).operations(),
            *DecisionOperations(
                access, use_cases.decisions, codec.encode_kept_decision
            ).operations(),
            *CapacityOperations(access, count).operations(),
            *RehearsalOperations(
                access, rehearsals, administration.check_trial, codec.decode_host_reports
            ).operations(),
            *TuningOperations(access, audit, use_cases.tuning).operations(),
            *TunedHostOperations(access, TunedHosts(fleet, use_cases.tuning)).operations(),
            *BalancingOperations(access, audit, use_cases.balancing).operations(),
            *PolicyOperations(access, administration, clusters).operations(),
            *AuditOperations(access, audit).operations(),
            *HealthOperations(access, ReportedWorkers(fleet.store), problems).operations(),
        ]
    )


def build_console(
    settings: ApiSettings, sessions: Sessions, tokens: ApiTokens, rights: Rights, clock: Clock
) -> Console | None:
    """Build the console; None where it is switched off."""
    if not settings.console:
        return None
    ways: dict[str, Sequence[LogIn]] = {
        "local": ["password"],
        "keystone": ["keystone"],
        "both": ["password", "keystone"],
    }
    return Console(
        sessions,
        ConsoleSessions(
            sessions,
            tokens,
            clock,
            idle_timeout_s=settings.console_idle_timeout_s,
            ttl_s=settings.console_session_ttl_s,
        ),
        rights,
        ways[settings.auth],
    )
