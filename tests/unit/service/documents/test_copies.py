"""The archive is a copy of the book, and refills a lost one."""

from functools import partial
from typing import Any

import msgspec
import pytest
from sqlalchemy import update

from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.backends.sql.archive import book
from scheduler_worker.errors import ArchiveUnavailable
from scheduler_worker.model.audit import AuditEntry
from scheduler_worker.model.documents import Attachment, Documents, StoredPolicy
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.ports import Put, Seen, Transaction
from scheduler_worker.scheduling.filters.capacity import CoreFilter, RamFilter
from tests.support.archive import MemoryArchive
from tests.support.interrupted import before_next, raising
from tests.support.office import ANNA, Office
from tests.support.services import World, host


@pytest.fixture
def archive() -> MemoryArchive:
    return MemoryArchive()


@pytest.fixture
def office(archive) -> Office:
    return Office(archive)


def elsewhere(office: Office, archive: MemoryArchive | None) -> Office:
    """The same archive, or another one, over a state that has lost everything."""
    return over(MemoryState(office.world.clock, hold_timeout_s=10.0), office, archive)


def over(state: MemoryState, office: Office, archive: MemoryArchive | None) -> Office:
    world = World(state=state, clock=office.world.clock, filters=(CoreFilter, RamFilter))
    world.report(host("a", cluster="east"), host("b", cluster="west"))
    return Office(archive, world=world)


def actions(entries: list[AuditEntry]) -> list[str]:
    return [each.action for each in entries if each.action != "unit.register"]


def entry(number: int, **fields: Any) -> AuditEntry:
    known: dict[str, Any] = {"at_s": 1.0, "user": "anna", "action": "policy.create"}
    return AuditEntry(id=str(number), **{"subject": "p"} | known | fields)


def stored(name: str, version: int = 1, at_s: float = 0.0) -> StoredPolicy:
    document = ClusterPolicy(id=f"id of {name}", name=name, version=version)
    return StoredPolicy(document=document, changed_at_s=at_s)


def of(*policies: StoredPolicy, **attached: str) -> Documents:
    return Documents(
        {each.document.id: each for each in policies},
        {name: Attachment(cluster=name, policy_id=f"id of {to}") for name, to in attached.items()},
    )


def without(office: Office) -> Any:
    """The database is away for as long as this is not undone."""
    patch = pytest.MonkeyPatch()
    for name in ("state", "keep", "documents", "audit"):
        patch.setattr(office._archive, name, raising(ArchiveUnavailable("no database")))
    return patch


def test_an_edit_is_in_the_archive_before_it_is_answered(office, archive):
    office.made()
    office.desk.attach("east", ANNA, policy="packing")
    assert archive.documents() == office.book.documents()
    assert archive.audit() == office.book.audit() == office.parts.copies.entries()
    assert office.book.kept == office.book.head.number


def test_an_edit_without_the_archive_is_made_and_copied_later(office, archive, caplog):
    away = without(office)
    office.made()
    assert "An edit of policies is not in the archive yet: no database" in caplog.text
    assert "edits are in the shared state" in (office.parts.copies.problem() or "")
    with pytest.raises(ArchiveUnavailable):
        office.parts.copies.entries()
    away.undo()
    assert archive.documents().policies == {}
    assert office.parts.copies.problem() is None
    assert archive.documents() == office.book.documents()
    assert archive.audit() == office.book.audit()


def test_edits_do_not_wait_again_for_an_archive_that_was_away(office, archive, monkeypatch):
    away = raising(ArchiveUnavailable("no database"))
    monkeypatch.setattr(archive, "state", away)
    made = office.made()
    for number in range(3):
        office.change(made.document.id, description=f"{number}")
    assert len(away.mock_calls) == 1
    monkeypatch.undo()
    office.parts.upkeep().keep_up()
    assert archive.documents() == office.book.documents()
    office.change(made.document.id, description="at once again")
    assert archive.documents() == office.book.documents()


def test_the_archive_is_not_asked_where_it_has_all(office, archive):
    office.made()
    without(office)
    office.another().copies.settle()


def test_what_processes_without_the_archive_edit_is_copied(office, archive):
    Office(None, world=office.world).made()
    office.parts.copies.settle()
    assert archive.documents() == office.book.documents()


def test_a_lost_book_is_refilled_once(office, archive):
    office.made()
    office.desk.attach("east", ANNA, policy="packing")
    kept, entries = archive.documents(), archive.audit()
    again = elsewhere(office, archive)
    assert again.book.documents() == kept
    again.another().book.documents()
    assert again.parts.copies.entries() == entries
    again.made("other")
    assert archive.documents() == again.book.documents()


def test_a_book_that_was_lost_and_edited_gets_what_the_archive_has(office, archive):
    """The process that edited it first has no archive."""
    made = office.made()
    office.desk.attach("east", ANNA, policy="packing")
    entries = archive.audit()
    office.world.clock.advance(1)
    alone = elsewhere(office, None)
    alone.made("other")
    alone.desk.attach("east", ANNA, policy="other")
    beside = Office(archive, world=alone.world)
    assert {each.document.name for each in beside.stored()} == {"packing", "other"}
    documents = beside.book.documents()
    assert documents.policies[made.document.id] == made
    assert documents.policies[documents.attachments["east"].policy_id].document.name == "other"
    assert archive.documents() == documents
    assert archive.audit()[: len(entries)] == entries
    new = actions(archive.audit()[len(entries) :])
    assert new == ["book.found", "policy.create", "cluster.attach", "book.found"]
    assert len({each.id for each in archive.audit()}) == len(archive.audit())


def test_what_an_earlier_release_has_stored_is_taken_over(archive):
    """Its rows, and what clusters have in force that it did not attach."""
    packing = stored("packing", 3, at_s=5.0)
    archive.keep(of(packing, east="packing"), [entry(1), entry(2)], 2)
    with archive.database.writing() as connection:
        connection.execute(update(book).values(number=None))
    world = World(filters=(CoreFilter, RamFilter))
    world.report(host("a", cluster="east"), host("b", cluster="west"))
    rpc = ClusterPolicy(id="r", name="by-rpc", version=7)
    for cluster, document in (("east", packing.document), ("west", rpc)):
        world.desk.in_force.settle(cluster, lambda _, made=document: made)
    by_rpc = msgspec.json.encode(entry(0, action="policy.attach", subject="west"))
    world.state.write("@audit", [Transaction([Put("1", by_rpc)])])
    upgraded = Office(archive, world=world)
    documents = upgraded.book.documents()
    assert documents.policies == {packing.document.id: packing, "r": StoredPolicy(document=rpc)}
    assert {name: each.policy_id for name, each in documents.attachments.items()} == {
        "east": packing.document.id, "west": "r",
    }  # fmt: skip
    assert upgraded.parts.said == []  # nothing in force was changed
    assert upgraded.in_force.in_force("west") == rpc
    assert archive.documents() == documents
    assert actions(archive.audit()) == [
        "policy.create", "policy.create", "policy.attach", "book.found",
    ]  # fmt: skip


def test_the_archive_of_another_book_is_refused(office, archive):
    other = MemoryArchive()
    elsewhere(office, other).made("other")
    office.made()
    wrong = Office(other, world=office.world)
    assert "archive of another book" in (wrong.parts.copies.problem() or "")
    wrong.made("made")
    assert len(other.documents().policies) == 1
    assert office.parts.copies.problem() is None
    assert archive.documents() == office.book.documents()


def test_an_empty_database_becomes_the_new_archive(office):
    office.made()
    new = MemoryArchive()
    moved = Office(new, world=office.world)
    assert moved.parts.copies.problem() is None
    assert new.documents() == office.book.documents()
    assert moved.parts.said == [
        "The book of policies has a new archive, which begins with the book's entries of the audit"
    ]


def lost(office: Office, *, later: int) -> World:
    """A state that has lost the last two edits by a failover, and was edited ``later`` times."""
    before = office.made()
    failed_over = MemoryState(office.world.clock, hold_timeout_s=10.0)
    for scope in list(office.world.state._scopes):
        entries = office.world.state.changes(scope, Seen()).entries
        failed_over.write(scope, [Transaction([Put(each.key, each.value) for each in entries])])
    office.change(before.document.id, description="lost")
    office.desk.attach("west", ANNA, policy="packing")
    after = over(failed_over, office, None)
    office.world.clock.advance(1)
    for number in range(later):
        after.change(before.document.id, description=f"later {number}")
    return after.world


@pytest.mark.parametrize("later", [0, 1, 2, 3, 5])
def test_edits_that_a_failover_has_lost_are_reported_and_not_merged(office, archive, later):
    world = lost(office, later=later)
    history = archive.audit()
    after = Office(archive, world=world)
    book = after.book.documents()
    assert after.parts.copies.problem() is None
    [said] = after.parts.said
    assert "has lost edits of policies" in said
    assert "cluster west attached to" in said
    assert ("policy packing@2, of which the book has 1" in said) == (later == 0)
    assert after.book.documents() == archive.documents() == book
    assert archive.audit()[: len(history)] == history
    new = archive.audit()[len(history) :]
    assert actions(new) == [*["policy.update"] * later, "book.lost"]
    assert "cluster west" in new[-1].reason
    after.change(next(iter(book.policies)), description="goes on")
    assert archive.documents() == after.book.documents()
    assert after.parts.copies.problem() is None
    assert len(after.parts.said) == 1


def test_an_edit_while_lost_ones_are_reported_is_kept(office, archive, monkeypatch):
    world = lost(office, later=1)
    other = Office(None, world=world)
    edit = partial(other.made, "meanwhile")
    before_next(monkeypatch, world.state, "write", edit, scope="@documents")
    after = Office(archive, world=world)
    assert after.parts.copies.problem() is None
    assert {policy.document.name for policy in after.stored()} == {"packing", "meanwhile"}
    assert archive.documents() == after.book.documents()
    made = after.desk.library().policy_called("meanwhile").document.id
    assert [entry.subject for entry in archive.audit()].count(made) == 1


def test_an_archive_that_was_restored_from_an_older_copy_is_reported(office, archive):
    office.made()
    older = MemoryArchive()
    archive.database.copy_to(older.database)
    for number in range(3):
        office.change(office.stored()[0].document.id, description=f"{number}")
    older.database.copy_to(archive.database)
    assert office.parts.copies.problem() is None
    assert "was restored from an older copy" in office.parts.said[0]
    assert archive.documents() == office.book.documents()
    assert archive.audit() == office.book.audit()


def test_entries_that_nobody_has_any_more_are_reported(office, archive, monkeypatch):
    monkeypatch.setattr("scheduler_worker.service.documents.book.MAX_ENTRIES", 2)
    first = archive.audit()[-1].id
    away = without(office)
    made = office.made()
    for number in range(3):
        office.change(made.document.id, description=f"{number}")
    away.undo()
    assert office.parts.copies.problem() is None
    [said] = office.parts.said
    assert f"Entries {int(first) + 1} to {int(first) + 2} of the audit are lost" in said
    assert archive.documents() == office.book.documents()


def test_a_process_without_the_archive_names_the_option(office, archive):
    office.made()
    beside = Office(None, world=office.world)
    assert beside.book.documents() == office.book.documents()
    with pytest.raises(ArchiveUnavailable, match=r"\[policy_store\] connection"):
        beside.parts.copies.entries()
    assert beside.parts.copies.problem() is None


def test_a_book_that_cannot_be_founded_is_not_edited(archive):
    world = World()
    with pytest.MonkeyPatch.context() as away:
        away.setattr(archive, "state", raising(ArchiveUnavailable("no database")))
        with pytest.raises(ArchiveUnavailable, match="no database"):
            Office(archive, world=world)
    assert world.desk.book.head is None
    assert Office(archive, world=world).stored() == []


def test_a_book_is_replaced_by_what_the_archive_has(office, archive):
    """A state that was restored from an older copy, and an archive of another book."""
    made = office.made()
    wanted = office.book.documents()
    older = elsewhere(office, None)
    office.world.clock.advance(1)
    older.made("other")
    beside = Office(archive, world=older.world)
    beside.change(made.document.id, description="d")
    assert len(beside.stored()) == 2
    copy = MemoryArchive()
    copy.keep(wanted, [entry(1)], 1)
    restoring = Office(copy, world=older.world).parts
    assert restoring.copies.restore(ANNA) == wanted
    assert restoring.book.documents() == copy.documents() == wanted
    assert restoring.copies.problem() is None
    last = copy.audit()[-1]
    assert (last.user, last.action) == ("anna", "book.restore")
    assert "policy other@1, of which the book has none" in last.reason
    assert actions(copy.audit())[-2] == "policy.update"
    assert "policies" not in " ".join(restoring.said)


def test_nothing_is_restored_without_an_archive():
    with pytest.raises(ArchiveUnavailable, match="connection is not set"):
        Office().parts.copies.restore(ANNA)
