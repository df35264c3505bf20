"""What processes that died, and outages, have left is repaired."""

import threading
from functools import partial

import pytest
from msgspec import structs

from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.errors import ArchiveUnavailable, StateUnavailable
from scheduler_worker.model.audit import AuditEntry
from scheduler_worker.model.documents import Attachment, StoredPolicy
from scheduler_worker.model.policies import ClusterPolicy, FilterUse
from scheduler_worker.service.documents import rules
from scheduler_worker.service.documents.administration import PolicyFields
from scheduler_worker.service.documents.book import Edited
from tests.support.archive import MemoryArchive
from tests.support.interrupted import before_next, raising
from tests.support.office import ANNA, Office
from tests.support.patience import SOON_S
from tests.support.services import host

ENTRY = AuditEntry(at_s=0.0, user="anna", action="cluster.attach", subject="east")


class Scene:
    def __init__(self) -> None:
        self.archive = MemoryArchive()
        self.office = Office(self.archive)
        self.parts = self.office.parts
        self.said = self.parts.said
        self.upkeep = self.parts.upkeep()

    def store(self, cluster: str, policy_id: str = "b4ed2332", version: int = 1) -> None:
        """An attachment whose process died before it was put in force."""
        made = Attachment(cluster=cluster, policy_id=policy_id, is_built_in=True, version=version)
        self.edit(lambda now: rules.attached(now, made))

    def edit(self, change) -> None:
        self.office.book.edit(lambda now: Edited(change(now), [ENTRY]))

    def in_force(self, cluster: str) -> str:
        return self.office.in_force.in_force(cluster).id


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_was_stored_and_not_put_in_force_is_repaired(scene):
    scene.store("east")
    assert scene.in_force("east") == "nova"
    scene.upkeep.keep_up()
    assert scene.in_force("east") == "b4ed2332"
    assert scene.said == ["The policy of cluster east was put in force as the book has it"]
    assert scene.archive.documents().attachments.keys() == {"east"}
    scene.upkeep.keep_up()
    assert len(scene.said) == 1


def test_a_detached_cluster_loses_its_document(scene):
    scene.office.desk.attach("east", ANNA, policy="none")
    scene.store("east", "nova", version=2)
    scene.upkeep.keep_up()
    assert scene.in_force("east") == "nova"


def test_a_document_that_was_changed_behind_the_book_is_replaced(scene):
    scene.office.desk.attach("east", ANNA, policy="none")
    stored = scene.office.in_force.in_force("east")
    other = ClusterPolicy(id="other", name="other", version=9)
    for cluster in ("east", "west"):
        scene.office.in_force.settle(cluster, lambda _: other)
    scene.upkeep.keep_up()
    assert scene.office.in_force.in_force("east") == stored
    assert scene.in_force("west") == "other"  # never attached


def test_a_state_that_lost_everything_gets_its_policies_before_its_hosts(scene):
    scene.office.desk.attach("north", ANNA, policy="none", is_new=True)
    empty = Office(scene.archive, MemoryState(scene.office.world.clock, hold_timeout_s=10.0))
    empty.another().upkeep().keep_up()
    empty.world.report(host("n", cluster="north"))
    assert empty.in_force.in_force("north").id == "b4ed2332"


def test_one_policy_that_cannot_be_compiled_does_not_stop_the_others(scene):
    broken = ClusterPolicy(id="x", name="x", version=1, filters=(FilterUse(unit="Gone"),))
    scene.edit(lambda now: rules.with_policy(now, StoredPolicy(document=broken)))
    for cluster in ("east", "west"):
        attachment = Attachment(cluster=cluster, policy_id="x")
        scene.edit(lambda now, made=attachment: rules.attached(now, made))
    scene.store("west", version=2)
    scene.store("a-third", "no longer built in")
    for _ in range(3):
        scene.upkeep.keep_up()
    assert scene.in_force("west") == "b4ed2332"
    assert scene.in_force("east") == "nova"
    assert len(scene.said) == 3  # each problem once
    assert "filter Gone" in " ".join(scene.said)
    assert "no longer built in" in " ".join(scene.said)


def test_outages_are_said_once_and_waited_out(scene, monkeypatch):
    scene.store("east")
    with monkeypatch.context() as patch:
        no_state = raising(StateUnavailable("no Redis"))
        patch.setattr(scene.office.world.state, "write", no_state)
        patch.setattr(scene.archive, "state", raising(ArchiveUnavailable("no database")))
        for _ in range(2):
            scene.upkeep.keep_up()
    assert scene.said == [
        "The policy of cluster east is not in force: no Redis",
        "The archive is no copy of the policies now: no database",
    ]
    scene.upkeep.keep_up()
    assert scene.in_force("east") == "b4ed2332"


def test_a_problem_that_comes_again_is_said_again(scene, monkeypatch):
    for number in range(2):
        scene.office.made(f"p{number}")
        with monkeypatch.context() as patch:
            patch.setattr(scene.archive, "state", raising(ArchiveUnavailable("gone")))
            scene.upkeep.keep_up()
        scene.upkeep.keep_up()
    assert scene.said == ["The archive is no copy of the policies now: gone"] * 2


def test_one_process_at_a_time_repairs_and_each_does_at_its_start(scene):
    other = scene.parts.upkeep()
    scene.upkeep.run_due()
    scene.store("east")
    other.run_due()
    assert scene.in_force("east") == "nova"
    other.start()
    other.stop()
    assert scene.in_force("east") == "b4ed2332"
    scene.store("east", "nova", version=2)
    scene.office.world.clock.advance(60.0)
    scene.upkeep.run_due()
    assert scene.in_force("east") == "nova"


def test_it_is_done_regularly(scene):
    repaired = threading.Event()

    def report(text: str) -> None:
        if "west" in text:
            repaired.set()

    running = scene.parts.upkeep(interval_s=0.01)
    running._report = report
    scene.store("west")
    running.start()
    assert repaired.wait(SOON_S)
    running.stop()
    running._thread.join(SOON_S)
    assert not running._thread.is_alive()


def test_a_cluster_has_the_newest_document_whichever_process_writes_last(scene, monkeypatch):
    """Another process edits and puts in force while this one puts an earlier edit in force."""
    office = scene.office
    made = office.made()
    office.desk.attach("east", ANNA, policy="packing")
    earlier = structs.replace(made.document, description="earlier", version=2)
    scene.edit(lambda now: rules.with_policy(now, structs.replace(made, document=earlier)))
    newest = PolicyFields(description="newest")
    edit = partial(office.another().administration.update, earlier.id, newest, ANNA)
    before_next(monkeypatch, office.world.state, "write", edit)
    scene.upkeep.keep_up()
    assert office.in_force.in_force("east").description == "newest"


def test_old_entries_of_the_archive_are_deleted(scene):
    scene.office.made("old")
    scene.office.world.clock.advance(2 * 86_400.0)
    scene.office.made("new")
    scene.parts.upkeep(audit_retention_days=1.0).keep_up()
    assert len(scene.archive.audit()) == 1
    assert len(scene.office.audited()) == 2
