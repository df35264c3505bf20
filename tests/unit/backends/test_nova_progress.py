"""What Nova's migrations mean for the ledger."""

from datetime import UTC, datetime

import msgspec
import pytest

from scheduler_worker.backends.nova.compute_api import NovaMigration
from scheduler_worker.backends.nova.target import CLOCKS_DIFFER_S, progress_of, row_of
from scheduler_worker.model.ledgers import AskedMigration

ASKED_AT_S = datetime(2026, 1, 29, 13, 42, 2, tzinfo=UTC).timestamp()
ASKED = AskedMigration(
    id="m", vm="vm", source="a", candidates=("a", "b"), reason="", policy="p@1",
    asked_at_s=ASKED_AT_S, overdue_at_s=ASKED_AT_S + 120,
)  # fmt: skip


def row(status="running", after_s=0.0, **others):
    """A migration in Nova that began so long after it was asked for."""
    created_at = datetime.fromtimestamp(ASKED_AT_S + after_s, UTC).replace(tzinfo=None)
    found = NovaMigration(7, "u", status, created_at, instance_uuid="vm", dest_compute="b")
    return msgspec.structs.replace(found, **others)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("accepted", None),
        ("queued", None),
        ("preparing", "started"),
        ("running", "started"),
        ("running (post-copy)", "started"),
        ("post-migrating", "started"),
        ("completed", "done"),
        ("error", "failed"),
        ("failed", "failed"),
        ("cancelled", "failed"),
    ],
)
def test_a_status_of_nova_is_a_state_of_the_migration(status, state):
    progress = progress_of(row(status))
    assert (progress and progress.state) == state
    assert progress is None or progress.destination == "b"


def test_a_failure_says_which_migration_of_nova_it_was():
    assert progress_of(row("cancelled")).why == "Nova's migration 7 ended as cancelled"


@pytest.mark.parametrize("nowhere", [None, ""])
def test_one_that_failed_before_it_had_a_destination_is_refused(nowhere):
    progress = progress_of(row("error", dest_compute=nowhere))
    assert (progress.state, progress.destination) == ("refused", None)
    assert progress.why == "Nova's migration 7 ended as error, without a host that can take the VM"


def test_an_unknown_status_says_nothing_and_is_logged(caplog):
    assert progress_of(row("teleporting")) is None
    assert "Nova's migration 7 has the unknown status 'teleporting'" in caplog.text


def test_the_last_migration_of_the_vm_is_its_own():
    rows = [row(after_s=2, instance_uuid="other"), row(after_s=1, id=2), row(id=1)]
    assert row_of(ASKED, rows).id == 2
    assert row_of(ASKED, rows[:1]) is None
    assert row_of(ASKED, []) is None


def test_clocks_may_differ_a_little():
    assert row_of(ASKED, [row(after_s=-CLOCKS_DIFFER_S)]) is not None
    assert row_of(ASKED, [row(after_s=-CLOCKS_DIFFER_S - 1)]) is None


def test_times_with_a_zone_are_read_too():
    with_zone = datetime.fromisoformat("2026-01-29T14:42:02+01:00")
    assert NovaMigration(1, "u", "running", with_zone).created_at_s == ASKED_AT_S
