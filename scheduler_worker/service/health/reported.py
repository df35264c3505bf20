"""Reads which workers there are, and what each last reported of itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scheduler_worker.mends import DRAINED
from scheduler_worker.model.worker_reports import WorkerFacts, WorkerReport, WorkerState
from scheduler_worker.ports import Store
from scheduler_worker.service.state.presence import RENEW_S, ReportRecords, WorkerRecords

SILENT_S = 2 * RENEW_S
"""A worker that has reported nothing for so long counts as silent."""


class Reported(NamedTuple):
    """A worker as the shared state knows it."""

    facts: WorkerFacts
    report: WorkerReport | None = None
    """None: it is of a version that makes none, or has just begun."""
    age_s: float = 0.0
    """How old the report is."""

    @property
    def name(self) -> str:
        """``[DEFAULT] host``."""
        return self.facts.name

    @property
    def is_silent(self) -> bool:
        """Whether it should have reported again by now."""
        return self.report is not None and self.age_s > SILENT_S

    @property
    def missing(self) -> list[str]:
        """What keeps it from serving, but for a drain."""
        return [each for each in self.report.missing if each != DRAINED] if self.report else []

    @property
    def state(self) -> WorkerState:
        """In one word or two."""
        if self.is_silent:
            return "silent"
        if self.report is None and not (self.facts.is_dry_run or self.facts.is_drained):
            return "no report"
        in_hand = self.report.running + self.report.waiting if self.report else 0
        return state_of(self.facts, self.missing, in_hand)


def state_of(facts: WorkerFacts, missing: Sequence[str], in_hand: int) -> WorkerState:
    """The state of a worker that answers: with what is missing, and its requests in hand."""
    if facts.is_dry_run:
        return "dry run"
    if facts.is_drained:
        return "draining" if in_hand else "drained"
    return "not ready" if any(each != DRAINED for each in missing) else "serving"


class ReportedWorkers:
    """Reads the records again and again, each time what has changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._workers = WorkerRecords()
        self._reports = ReportRecords()

    def read(self) -> list[Reported]:
        """The workers that are there now, by name. Raises StateUnavailable."""
        with self._workers.lock:
            self._workers.refresh(self._store)
            facts = sorted(self._workers.workers.values(), key=lambda each: each.name)
        with self._reports.lock:
            now_s = self._reports.refresh(self._store).now_s
            reports = dict(self._reports.reports)
        return [_reported(each, reports.get(each.name), now_s) for each in facts]


def _reported(facts: WorkerFacts, report: WorkerReport | None, now_s: float) -> Reported:
    age_s = 0.0 if report is None else max(0.0, now_s - report.at_s)
    return Reported(facts, report, age_s)
