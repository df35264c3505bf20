"""Migrations by Nova: asked for by its API, and followed in its list of migrations.

Nova is not told where to: it asks for a destination as for any live migration, and gets one of the
migration's candidates (``service/requests/lease.py``).
"""

import logging
from collections.abc import Mapping, Sequence

from scheduler_worker.backends.nova.compute_api import ComputeApi, NovaMigration
from scheduler_worker.errors import BackendError, MigrationRefused
from scheduler_worker.model.ledgers import AskedMigration, Progress

LOG = logging.getLogger(__name__)

CLOCKS_DIFFER_S = 30.0
"""How far the clocks of the shared state and of Nova may be apart."""
_WAITS = {"accepted", "queued"}
"""Asked for; no host is chosen yet, or its source is busy with others."""
_BEGUN = {"pre-migrating", "preparing", "running", "running (post-copy)", "post-migrating"}
_DONE = {"completed", "done"}
_FAILED = {"error", "failed", "cancelled"}


class NovaTarget:
    """Has VMs migrated by Nova. A VM's id is that of its server."""

    def __init__(self, api: ComputeApi) -> None:
        self._api = api

    def migrate(self, cluster: str, migration: AskedMigration) -> None:
        self._api.live_migrate(migration.vm, migration.id)

    def progress(self, migrations: Sequence[AskedMigration]) -> Mapping[str, Progress]:
        rows = self._rows(migrations)
        by_id = {}
        for asked in migrations:
            row = row_of(asked, rows)
            progress = self._without_row(asked) if row is None else progress_of(row)
            if progress is not None:
                by_id[asked.id] = progress
        return by_id

    def withdraw(self, migration: AskedMigration) -> None:
        row = row_of(migration, self._rows([migration]))
        if row is None or row.status in _DONE | _FAILED:
            return
        try:
            self._api.abort(migration.vm, row.id)
        except MigrationRefused as error:
            LOG.warning("The migration of %s in Nova is not aborted: %s", migration.vm, error)

    def _rows(self, migrations: Sequence[AskedMigration]) -> list[NovaMigration]:
        first_s = min(migration.asked_at_s for migration in migrations)
        return self._api.live_migrations(first_s - CLOCKS_DIFFER_S)

    def _without_row(self, asked: AskedMigration) -> Progress | None:
        """What the server says of a migration that Nova does not list.

        One that Nova has not begun to work on looks like one of which it never heard.
        """
        try:
            host = self._api.host_of(asked.vm)
        except MigrationRefused as error:
            return Progress(state="failed", why=str(error))
        except BackendError as error:
            LOG.warning("Nothing is known of the migration of %s: %s", asked.vm, error)
            return None
        if host is None or host == asked.source:
            return None
        return Progress(state="done", destination=host)


def row_of(asked: AskedMigration, rows: Sequence[NovaMigration]) -> NovaMigration | None:
    """The last migration of the VM since it was asked for; ``rows`` have the last one first."""
    since_s = asked.asked_at_s - CLOCKS_DIFFER_S
    own = (row for row in rows if row.instance_uuid == asked.vm)
    return next((row for row in own if row.created_at_s >= since_s), None)


def progress_of(row: NovaMigration) -> Progress | None:
    """What a migration's status in Nova means here; None: it has not begun, or is not known."""
    status, destination = row.status, row.dest_compute or None
    if status in _BEGUN:
        return Progress(state="started", destination=destination)
    if status in _DONE:
        return Progress(state="done", destination=destination)
    if status in _FAILED:
        why = f"Nova's migration {row.id} ended as {status}"
        if destination is None:
            return Progress(state="refused", why=f"{why}, without a host that can take the VM")
        return Progress(state="failed", destination=destination, why=why)
    if status not in _WAITS:
        LOG.warning("Nova's migration %d has the unknown status %r", row.id, status)
    return None
