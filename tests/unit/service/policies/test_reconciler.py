"""Differences between the policy store and the documents in force are repaired."""

import threading
from functools import partial

import pytest
from msgspec import structs

from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.errors import PolicyStoreUnavailable, StateUnavailable
from scheduler_worker.model.policies import ClusterPolicy, FilterUse
from scheduler_worker.policy_store import NEW, Attachment, AuditEntry, StoredPolicy
from scheduler_worker.service.policies.administration import PolicyFields
from scheduler_worker.service.policies.reconciler import Reconciler
from tests.support.interrupted import before_next, raising
from tests.support.office import ANNA, Office
from tests.support.patience import SOON_S
from tests.support.services import host

ENTRY = AuditEntry(at_s=0.0, user="anna", action="cluster.attach", subject="east")


class Scene:
    def __init__(self) -> None:
        self.office = Office()
        self.said: list[str] = []
        self.reconciler = Reconciler(self.office.desk, report=self.said.append)

    def store(self, cluster: str, policy_id: str = "b4ed2332", version: int = 1) -> None:
        """An attachment whose process died before it was put in force."""
        made = Attachment(cluster=cluster, policy_id=policy_id, is_built_in=True, version=version)
        self.office.store.attach(made, expected_version=version - 1, audit=ENTRY)

    def in_force(self, cluster: str) -> str:
        return self.office.in_force.in_force(cluster).id


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_was_stored_and_not_put_in_force_is_repaired(scene):
    scene.store("east")
    assert scene.in_force("east") == "nova"
    assert scene.reconciler.reconcile() == ["east"]
    assert scene.in_force("east") == "b4ed2332"
    assert scene.said == ["The policy of cluster east was put in force as it is stored"]
    assert scene.reconciler.reconcile() == []
    assert len(scene.said) == 1


def test_a_detached_cluster_loses_its_document(scene):
    scene.office.desk.attachments.attach("east", ANNA, policy="none")
    scene.store("east", "nova", version=2)
    assert scene.reconciler.reconcile() == ["east"]
    assert scene.in_force("east") == "nova"


def test_a_document_that_was_changed_behind_the_store_is_replaced(scene):
    scene.office.desk.attachments.attach("east", ANNA, policy="none")
    stored = scene.office.in_force.in_force("east")
    scene.office.in_force.attach("east", ClusterPolicy(id="other", name="by-rpc", version=9))
    scene.office.in_force.attach("west", ClusterPolicy(id="other", name="by-rpc", version=9))
    assert scene.reconciler.reconcile() == ["east"]
    assert scene.office.in_force.in_force("east") == stored
    assert scene.in_force("west") == "other"  # never attached: RPC alone governs it


def test_a_state_that_lost_everything_gets_its_policies_before_its_hosts(scene):
    scene.office.desk.attachments.attach("north", ANNA, policy="none", is_new=True)
    empty = Office(scene.office.store, MemoryState(scene.office.world.clock, hold_timeout_s=10.0))
    fresh = Reconciler(empty.another(), report=scene.said.append)
    assert fresh.reconcile() == ["north"]
    empty.world.report(host("n", cluster="north"))
    assert empty.in_force.in_force("north").id == "b4ed2332"


def test_one_policy_that_cannot_be_compiled_does_not_stop_the_others(scene):
    broken = ClusterPolicy(id="x", name="x", version=1, filters=(FilterUse(unit="Gone"),))
    scene.office.store.add(StoredPolicy(document=broken), ENTRY)
    for cluster in ("east", "west"):
        scene.office.store.attach(
            Attachment(cluster=cluster, policy_id="x"), expected_version=NEW, audit=ENTRY
        )
    scene.store("west", version=2)
    scene.store("a-third", "no longer built in")
    for _ in range(3):
        scene.reconciler.reconcile()
    assert scene.in_force("west") == "b4ed2332"
    assert scene.in_force("east") == "nova"
    assert len(scene.said) == 3  # each problem once
    assert "filter Gone" in " ".join(scene.said)
    assert "no longer built in" in " ".join(scene.said)


def test_outages_are_said_once_and_waited_out(scene, monkeypatch):
    scene.store("east")
    no_state = raising(StateUnavailable("no Redis"))
    no_store = raising(PolicyStoreUnavailable("no database"))
    with monkeypatch.context() as patch:
        patch.setattr(scene.office.world.state, "write", no_state)
        assert scene.reconciler.reconcile() == scene.reconciler.reconcile() == []
        with monkeypatch.context() as further:
            further.setattr(scene.office.store, "attachments", no_store)
            assert scene.reconciler.reconcile() == scene.reconciler.reconcile() == []
        assert scene.reconciler.reconcile() == [], "it has been said of this cluster"
    said = ["The policy of cluster east is not in force: no Redis", "no database"]
    assert scene.said == said
    assert scene.reconciler.reconcile() == ["east"]


def test_a_problem_that_comes_again_is_said_again(scene, monkeypatch):
    away = raising(PolicyStoreUnavailable("gone"))
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(scene.office.store, "attachments", away)
            scene.reconciler.reconcile()
        scene.reconciler.reconcile()
    assert scene.said == ["gone", "gone"]


def test_it_compares_at_start_and_regularly(scene):
    repaired = threading.Event()

    def report(text: str) -> None:
        if "west" in text:
            repaired.set()

    scene.store("east")
    running = Reconciler(scene.office.desk, report=report, interval_s=0.01)
    running.start()
    assert scene.in_force("east") == "b4ed2332"
    scene.store("west")
    assert repaired.wait(SOON_S)
    running.stop()
    running._thread.join(SOON_S)
    assert not running._thread.is_alive()


def test_a_cluster_has_the_newest_document_whichever_process_writes_last(scene, monkeypatch):
    """Another process edits and puts in force while this one puts an earlier edit in force."""
    office = scene.office
    made = office.made()
    office.desk.attachments.attach("east", ANNA, policy="packing")
    earlier = structs.replace(made.document, description="earlier", version=2)
    stored = structs.replace(made, document=earlier)
    office.store.replace(stored, expected_version=1, audit=ENTRY)
    edit = partial(office.another().update, earlier.id, PolicyFields(description="newest"), ANNA)
    before_next(monkeypatch, office.world.state, "write", edit)
    office.desk.attachments.put_in_force("east")
    assert office.in_force.in_force("east").description == "newest"
