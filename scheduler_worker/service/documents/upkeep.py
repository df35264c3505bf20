"""Repairs, at start and regularly, what a process that died or an outage has left.

The book may be missing in the shared state, its documents may not be in force yet, and the archive
may lack some. One process does it at a time.
"""

import logging
from collections.abc import Callable, Mapping

from scheduler_worker.components import Periodic
from scheduler_worker.errors import BackendError, ConfigError
from scheduler_worker.ports import Store
from scheduler_worker.service.documents.administration import PolicyAdministration
from scheduler_worker.service.documents.copies import Copies
from scheduler_worker.service.documents.in_force import UNITS, PolicyPublisher
from scheduler_worker.service.state.leadership import Leadership, LeadershipRecords
from scheduler_worker.unique import unique_hex

LOG = logging.getLogger(__name__)

INTERVAL_S = 60.0
_SCOPE = "@upkeep"


class Upkeep(Periodic):
    """Repairs in a thread of its own, unless another process does."""

    def __init__(
        self,
        store: Store,
        administration: PolicyAdministration,
        publisher: PolicyPublisher,
        copies: Copies,
        *,
        name: str,
        report: Callable[[str], None] = LOG.warning,
        interval_s: float = INTERVAL_S,
        audit_retention_days: float = 0.0,
    ) -> None:
        """``report`` gets a sentence for each repair, and for each problem when it appears.

        Entries of the audit are kept in the archive for so many days; 0: for ever.
        """
        super().__init__("policy-upkeep", self.run_due, interval_s, first_s=interval_s)
        self._store = store
        self._administration = administration
        self._publisher = publisher
        self._copies = copies
        self._report = report
        self._retention_days = audit_retention_days
        self._leaders = LeadershipRecords(_SCOPE, Leadership)
        self._name = f"{name}/{unique_hex()}"
        self._problems: Mapping[str, str] = {}
        """What was not in force after the last time, by cluster."""
        self._uncopied = ""
        """Why the archive was no copy the last time."""

    def start(self) -> None:
        """Do all of it once, then again after each interval, in a thread."""
        self._guarded(self._administration.register_units)
        self._guarded(self.keep_up)
        super().start()

    def run_due(self) -> float:
        """Do all of it if it is this process's to do; returns the seconds until the next time."""
        self._guarded(self._administration.register_units)
        self._guarded(self._run_led)
        return self._interval_s

    def _run_led(self) -> None:
        if self._leads("documents"):
            self._publish()
        # The process that puts documents in force need not have the archive.
        if self._copies.is_configured and self._leads("archive"):
            self._copy()

    def _leads(self, work: str) -> bool:
        lead, _ = self._leaders.take_lead(self._store, work, self._name, self._interval_s)
        return lead is not None

    def keep_up(self) -> None:
        """Put documents in force, and copy them. Raises StateUnavailable."""
        self._publish()
        self._copy()

    def _publish(self) -> None:
        repaired, found = self._publisher.publish_all()
        for cluster in repaired:
            self._report(f"{_subject(cluster)} was put in force as the book has it")
        problems = {
            cluster: f"{_subject(cluster)} is not in force: {why}" for cluster, why in found.items()
        }
        for subject, problem in problems.items():
            if self._problems.get(subject) != problem:
                self._report(problem)
        self._problems = problems

    def _copy(self) -> None:
        problem = ""
        try:
            self._copies.settle(asks=self._copies.is_open)
            if self._retention_days and self._copies.is_open:
                self._copies.purge(self._retention_days)
        except (BackendError, ConfigError) as error:
            problem = f"The archive is no copy of the policies now: {error}"
        if problem and problem != self._uncopied:
            self._report(problem)
        self._uncopied = problem

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except (BackendError, ConfigError) as error:
            LOG.warning("The upkeep of policies failed: %s", error)


def _subject(cluster: str) -> str:
    return "Which units are enabled" if cluster == UNITS else f"The policy of cluster {cluster}"
