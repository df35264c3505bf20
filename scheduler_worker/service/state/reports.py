"""Reports of workers for operators: scope ``@reports``, one record under ``w:`` and each name.

They have a scope of their own: who only lists the workers does not read them, and neither do
workers of versions that know of none.
"""

from __future__ import annotations

import logging

import msgspec

from scheduler_worker.model.worker_reports import WorkerReport
from scheduler_worker.ports import Put, Store, Transaction
from scheduler_worker.service.state.replica import Replica

LOG = logging.getLogger(__name__)

SCOPE = "@reports"
_KEY = "w:"


class ReportRecords(Replica):
    """A replica of the records."""

    def __init__(self) -> None:
        super().__init__(SCOPE)
        self.reports: dict[str, WorkerReport] = {}
        """By the names of the workers."""

    def take(self, key: str, version: int, value: bytes | None) -> None:
        name = key.removeprefix(_KEY)
        self.reports.pop(name, None)
        if value is None:
            return
        try:
            self.reports[name] = msgspec.json.decode(value, type=WorkerReport)
        except msgspec.DecodeError as error:
            LOG.debug("The report of worker %s, of another version, is left out: %s", name, error)


def write(
    store: Store, name: str, report: WorkerReport | None, expires_at_s: float | None = None
) -> None:
    """Store a worker's report, or remove it. Raises StateUnavailable."""
    value = None if report is None else msgspec.json.encode(report)
    store.write(SCOPE, [Transaction([Put(_KEY + name, value, expires_at_s)])])
