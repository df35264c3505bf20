"""Repairs differences between the policy store and what is in force, at start and regularly.

A difference remains when a process dies, or the shared state is down, between the commit in the
store and the write into the state; and when the state has lost its data. Entries of the audit that
are too old are deleted on the way.
"""

from collections.abc import Callable

from scheduler_worker.components import Periodic
from scheduler_worker.errors import AdministrationError, BackendError, Conflict, RequestError
from scheduler_worker.service.policies.administration import PolicyAdministration
from scheduler_worker.service.policies.audit import SharedAudit

INTERVAL_S = 60.0

_UNITS = "@units"
"""Stands for the units among the names of clusters, none of which begins so."""


class Reconciler(Periodic):
    """Compares in a thread of its own. Several processes may do so at a time."""

    def __init__(
        self,
        administration: PolicyAdministration,
        *,
        report: Callable[[str], None],
        interval_s: float = INTERVAL_S,
        audit_retention_days: float = 0.0,
        shared_entries: SharedAudit | None = None,
    ) -> None:
        """``report`` gets a sentence for each repair, and for each problem when it appears.

        ``shared_entries`` are entries of the audit that workers have written.
        Entries of the audit are kept for so many days; 0: for ever.
        """
        super().__init__("policy-reconciler", self.run_due, interval_s, first_s=interval_s)
        self._administration = administration
        self._report = report
        self._retention_days = audit_retention_days
        self._shared_entries = shared_entries
        self._problems: dict[str, str] = {}
        """What could not be repaired last time, by cluster; the store's own problem under '', that
        of units under :data:`_UNITS`."""

    def reconcile(self) -> list[str]:
        """Put in force which units are enabled, and the policy of each cluster, as it is stored.

        A cluster whose policy cannot be put in force keeps its old one and does not stop the
        others. Returns the clusters that differed.
        """
        attachments = self._administration.attachments
        try:
            clusters = [attached.cluster for attached in attachments.all()]
        except BackendError as error:
            self._say({**self._problems, "": str(error)})
            return []
        repaired: list[str] = []
        problems: dict[str, str] = {}
        try:
            if self._administration.settle_units():
                self._report("The units that are enabled were put in force as they are stored")
        except (BackendError, Conflict) as error:
            problems[_UNITS] = f"Which units are enabled is not in force for RPC: {error}"
        for cluster in clusters:
            try:
                if attachments.put_in_force(cluster):
                    repaired.append(cluster)
            except (AdministrationError, BackendError, Conflict, RequestError) as error:
                problems[cluster] = f"The policy of cluster {cluster} is not in force: {error}"
        for cluster in repaired:
            self._report(f"The policy of cluster {cluster} was put in force as it is stored")
        self._say(problems)
        return repaired

    def _say(self, problems: dict[str, str]) -> None:
        for subject, problem in problems.items():
            if self._problems.get(subject) != problem:
                self._report(problem)
        self._problems = problems

    def collect(self) -> int:
        """Copy the entries of the audit that workers have written into the store; how many."""
        try:
            if self._shared_entries is not None:
                return self._shared_entries.move(self._administration.audit_log.record)
        except BackendError as error:
            self._report(f"Entries of the audit of changes over RPC are not stored yet: {error}")
        return 0

    def purge(self) -> int:
        """Delete a bounded number of the entries of the audit that are too old; how many."""
        try:
            if self._retention_days:
                return self._administration.audit_log.purge(self._retention_days)
        except BackendError as error:
            self._report(f"Old entries of the audit are not deleted yet: {error}")
        return 0

    def start(self) -> None:
        """Do all of it once, then again after each interval, in a thread."""
        self.run_due()
        super().start()

    def run_due(self) -> float:
        """Compare, collect and purge; returns the seconds until the next time."""
        self.reconcile()
        self.collect()
        self.purge()
        return self._interval_s
