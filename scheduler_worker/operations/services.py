"""What operations are served with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from scheduler_worker.model.host_reports import HostReport
    from scheduler_worker.model.policies import ClusterPolicy
    from scheduler_worker.model.rehearsals import RehearsalQuery, RehearsalRecord
    from scheduler_worker.model.worker_reports import WorkerFacts
    from scheduler_worker.service.balancing.administration import BalancingAdministration
    from scheduler_worker.service.decisions.kept import KeptDecisions
    from scheduler_worker.service.documents.administration import PolicyAdministration
    from scheduler_worker.service.documents.copies import Copies
    from scheduler_worker.service.inventory.inventory import Inventory
    from scheduler_worker.service.policies.cluster_policies import ClusterPolicies
    from scheduler_worker.service.rehearsal.records import RehearsalRecords
    from scheduler_worker.service.requests.capacity import Capacity
    from scheduler_worker.service.requests.scheduler import Scheduler
    from scheduler_worker.service.state.presence import ReportedWorkers
    from scheduler_worker.service.state.replica import Fleet
    from scheduler_worker.service.tuning.policies import TuningPolicies
    from scheduler_worker.service.tuning.tuned_hosts import TunedHosts
    from scheduler_worker.service.tuning.tuner import Tuner


class OneWorker(Protocol):
    """The worker that serves; nothing here may take a lock that requests may hold."""

    @property
    def facts(self) -> WorkerFacts: ...

    @property
    def tuner(self) -> Tuner: ...

    def status(self) -> Mapping[str, Any]:
        """Its uptime, problems, load, and what it holds, in plain values and without secrets."""

    def drain(self, *, last: bool) -> None:
        """Take no more requests off the topic's queue; asks the state unless it may be the last.

        Raises RequestError where it cannot, StateUnavailable.
        """

    def resume(self) -> None:
        """Undo :meth:`drain`."""


class RehearsalRunner(Protocol):
    """Starts rehearsals and ends them; see :mod:`scheduler_worker.compose.rehearsals`."""

    @property
    def records(self) -> RehearsalRecords: ...

    def begin(
        self,
        asked: RehearsalQuery,
        policy: ClusterPolicy | None,
        added: Sequence[HostReport],
        user: str,
    ) -> RehearsalRecord: ...

    def end(self, id: str, user: str) -> None: ...


class ApiUseCases(NamedTuple):
    """The services of an API process alone."""

    rehearsals: RehearsalRunner
    problems: Callable[[], Mapping[str, Sequence[str]]]
    """Why each of what this process needs cannot be used, if so; takes two seconds at most."""


class UseCases(NamedTuple):
    """The use cases of a process, which share a fleet."""

    fleet: Fleet
    scheduler: Scheduler
    inventory: Inventory
    capacity: Capacity
    tuning: TuningPolicies
    tuned_hosts: TunedHosts
    balancing: BalancingAdministration
    policies: ClusterPolicies
    administration: PolicyAdministration
    history: Copies
    """Who reads the audit."""
    workers: ReportedWorkers
    decisions: KeptDecisions | None
    """None: no records of decisions are kept."""
    clusters: Callable[[], Collection[str]]
    """The names of all clusters, also of those without hosts."""
    down_after_s: float
    """A host without a heartbeat for so long counts as down."""
    not_asked: Sequence[str] = ()
    """What answers of this process leave out, since it could not be asked; the log says why."""
    api: ApiUseCases | None = None
    worker: OneWorker | None = None
