"""Rehearsals behind the REST API: each in a process of its own, so that requests are served on.

This process reads the copies and hands them over; the progress of the rehearsal and its result are
in the shared state for every process that serves the API.
"""

import logging
import multiprocessing
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from msgspec import structs

from scheduler_worker.components import Periodic
from scheduler_worker.compose import rehearsal
from scheduler_worker.conf import Settings
from scheduler_worker.errors import Conflict, RequestError, SchedulerWorkerError, StateUnavailable
from scheduler_worker.model.decision_history import KeptDecision
from scheduler_worker.model.host_reports import HostReport
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.model.rehearsals import RehearsalQuery, RehearsalRecord, RehearsalSummary
from scheduler_worker.service.decisions.kept import DecisionQuery, KeptDecisions
from scheduler_worker.service.rehearsal import snapshots
from scheduler_worker.service.rehearsal.records import RehearsalRecords
from scheduler_worker.service.rehearsal.replay import RehearsalOverrides
from scheduler_worker.service.state.replica import Fleet

LOG = logging.getLogger(__name__)

MAX_DECISIONS = 100_000
"""Of one rehearsal; some kilobytes of memory each."""
_PROGRESS_S = 0.5
_RETRIES = 60
_STOP_S = 5.0
_PROCESSES = multiprocessing.get_context("spawn")  # a fork would copy locks that threads hold


class Rehearsals:
    """Starts rehearsals, one at a time, and knows the rehearsals of all processes."""

    def __init__(self, settings: Settings, fleet: Fleet, kept: KeptDecisions | None) -> None:
        """``kept`` is None where no decisions are kept."""
        self._settings = settings
        self._fleet = fleet
        self._kept = kept
        self._guard = threading.Lock()
        self._run: _Run | None = None
        self.records = RehearsalRecords(fleet.store)
        """The rehearsals of all processes."""

    def begin(
        self,
        asked: RehearsalQuery,
        policy: ClusterPolicy | None,
        added: Sequence[HostReport],
        user: str,
    ) -> RehearsalRecord:
        """Start one, of a policy or None, and with further hosts; returns its record.

        Raises:
            RequestError: nothing is kept, or there is no such cluster.
            Conflict: one that this process began is still running.
            StateUnavailable: the shared state cannot be reached.
        """
        if self._kept is None:
            raise RequestError("since", "no decisions are kept: [decisions] enabled is false")
        if asked.cluster is not None:
            self._fleet.known_cluster(asked.cluster)
        with self._guard:
            if self._run is not None and self._run.is_busy:
                running = self._run.record
                raise Conflict(
                    f"The rehearsal {running.id} of {running.user} is running; wait until it has "
                    "ended, or cancel it."
                )
            record = RehearsalRecord(
                id=secrets.token_hex(8), user=user, begun_at_s=self.records.now_s(), asked=asked
            )
            self.records.add(record)
            tried = RehearsalOverrides(policy, asked.cluster, asked.drained, added)
            self._run = _Run(self._settings, self._fleet, self._kept, self.records, record, tried)
            self._run.start()
            return record

    def end(self, id: str, user: str) -> None:
        """Cancel one that is running; remove one that has ended. Raises StateUnavailable."""
        self.records.end(id, user)
        with self._guard:
            if self._run is not None and self._run.record.id == id:
                self._run.cancel()

    def stop(self) -> None:
        """End what is running, and wait until its process is gone."""
        with self._guard:
            if self._run is not None:
                self._run.cancel("its API process was stopped")
                self._run.join(_STOP_S)


class _Run(threading.Thread):
    """One rehearsal: reads the copies, hands them to a process, and reports what that says."""

    def __init__(
        self,
        settings: Settings,
        fleet: Fleet,
        kept: KeptDecisions,
        records: RehearsalRecords,
        record: RehearsalRecord,
        tried: RehearsalOverrides,
    ) -> None:
        super().__init__(name=f"rehearsal {record.id}", daemon=True)
        self._fleet = fleet
        self._kept = kept
        self._records = records
        self._is_cancelled = threading.Event()
        self._problem: str | None = None
        self._reports = Periodic(f"reports of rehearsal {record.id}", self._report, _PROGRESS_S)
        self._pipe, self._peer = _PROCESSES.Pipe()
        self._process = _PROCESSES.Process(
            target=rehearsal.serve, args=(self._peer, settings, tried)
        )
        self.record = record

    @property
    def is_busy(self) -> bool:
        """Whether there is no result yet, which others may see before this thread has ended."""
        return self.is_alive() and self.record.is_running

    def cancel(self, problem: str | None = None) -> None:
        """End it soon, without a result. The problem is stored; None: who ends it has said why."""
        self._problem = problem
        self._is_cancelled.set()
        if self._process.pid is not None:
            self._process.kill()  # so that nothing waits for it

    def run(self) -> None:
        summary = None
        self._reports.start()
        try:
            with closing(self._pipe):
                self._process.start()
                self._peer.close()
                if self._is_cancelled.is_set():
                    self._process.kill()
                summary = self._conversation()
        except SchedulerWorkerError as error:
            self._fail(str(error))
        except (EOFError, OSError) as error:
            if not self._is_cancelled.is_set():
                self._fail(self._what_broke(error))
        finally:
            self._reports.stop()
            if self._process.pid is not None:
                self._process.kill()
                self._process.join()
        if self._is_cancelled.is_set():
            LOG.info("The rehearsal %s was cancelled", self.record.id)
            if self._problem is None:
                return
            self._fail(self._problem)
        self._finish(summary)

    def _conversation(self) -> RehearsalSummary:
        """What the process answers. Raises EOFError, OSError, SchedulerWorkerError."""
        for line in snapshots.lines(snapshots.snapshot_of(self._fleet), self._read()):
            self._pipe.send_bytes(line)
        self._pipe.send_bytes(b"")
        self._note(state="deciding")
        while True:
            match self._pipe.recv():
                case RehearsalSummary() as summary:
                    return summary
                case str(problem):
                    raise SchedulerWorkerError(problem)
                case done, total:
                    self._note(done=done, total=total)

    def _read(self) -> Iterator[KeptDecision]:
        asked = self.record.asked
        names = ("cluster", "project", "since_s", "until_s")
        query = DecisionQuery(**{name: getattr(asked, name) for name in names})
        for number, with_detail in enumerate(self._kept.with_details(query)):
            if number == MAX_DECISIONS:
                raise RequestError(
                    "since", f"there are more than {MAX_DECISIONS:,} decisions; narrow the span"
                )
            yield with_detail
            self._note(read=number + 1)

    def _note(self, **changes: Any) -> None:
        self.record = structs.replace(self.record, **changes)

    def _report(self) -> float:
        """Store how far it is; returns the seconds until the next time."""
        record = self.record
        try:
            if record.is_running and not self._records.renew(record):
                self.cancel()
        except StateUnavailable as error:
            LOG.warning("The progress of the rehearsal %s was not stored: %s", record.id, error)
        return _PROGRESS_S

    def _what_broke(self, error: Exception) -> str:
        if self._process.pid is None:
            return f"its process cannot be started: {error}"
        self._process.join(_STOP_S)
        return f"its process ended with status {self._process.exitcode}"

    def _fail(self, problem: str) -> None:
        LOG.warning("The rehearsal %s failed: %s", self.record.id, problem)
        self._note(state="failed", problem=problem)

    def _finish(self, summary: RehearsalSummary | None) -> None:
        """Store the result, which took its time, even if the state is away for a while."""
        if summary is not None:
            self._note(state="done", done=summary.rehearsed, total=summary.rehearsed)
        for _ in range(_RETRIES):
            try:
                self._records.renew(self.record, summary)
            except StateUnavailable as error:
                LOG.warning("The rehearsal %s cannot be stored: %s", self.record.id, error)
                if not self._is_cancelled.wait(1.0):
                    continue
            return
