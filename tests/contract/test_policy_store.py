"""What the policy store guarantees: in SQLite, in PostgreSQL and in MariaDB."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from scheduler_worker.errors import EditConflict, InUse, NameTaken, NotFound, RequestError
from scheduler_worker.model.policies import (
    BalanceUse,
    ClusterPolicy,
    FilterUse,
    SelectorUse,
    WeightUse,
)
from scheduler_worker.policy_store import (
    NEW,
    Attachment,
    AuditEntry,
    AuditFilter,
    PolicyStore,
    StoredPolicy,
    StoredUnit,
)
from scheduler_worker.service.documents.book import Book
from tests.support.threads import Threads

from .conftest import MemoryEngine
from .policy_stores import DATABASES, opened

RICH = ClusterPolicy(
    id="8f6b2f8e",
    name="Größe ✓ 🙂",
    version=1,
    description="two\nlines\tand a tab; ünïcödé 🙂",
    filters=(
        FilterUse(unit="Memory", position="last", parameters={"a": "1", "b": ""}),
        FilterUse(unit="CPU", name="CPU#2"),
        FilterUse(unit="Memory", name="again", position="first", parameters={"a": "2"}),
    ),
    weights=(
        WeightUse(unit="Memory", factor=0.1),
        WeightUse(unit="HA", factor=1e300, parameters={"Scale_Down": "100"}),
        WeightUse(unit="Never", factor=0.0),
        WeightUse(unit="RAMWeigher", factor=-2.5),
    ),
    balance=BalanceUse(unit="Even", parameters={"x": "y"}),
    selector=SelectorUse(unit="RankSum", parameters={"host_subset_size": "3"}),
    parameters={"HighUtilization": "80", "a": "x" * 4096, "empty": ""},
)
AT_S = 1763800000.123456


@pytest.fixture(params=[*DATABASES, "memory", "redis"])
def store(request, databases) -> Iterator[PolicyStore]:
    """Each database, and the book on each engine of the state."""
    if request.param in DATABASES:
        with opened(databases.emptied(request.param)) as store:
            yield store
        return
    engine = MemoryEngine()
    if request.param == "redis":
        engine = request.getfixturevalue("redis_engine")
    yield Book(engine.open())
    engine.close()


def policy(name: str = "p", version: int = 1, **fields: Any) -> StoredPolicy:
    document = ClusterPolicy(id=f"id of {name}", name=name, version=version, **fields)
    return StoredPolicy(document=document, changed_by="anna", changed_at_s=AT_S)


def entry(action: str = "policy.create", **fields: Any) -> AuditEntry:
    known = {"at_s": AT_S, "user": "anna", "subject": "p"}
    return AuditEntry(action=action, **{**known, **fields})


def attachment(cluster: str = "east", **fields: Any) -> Attachment:
    return Attachment(**{"cluster": cluster, "policy_id": "id of p", **fields})


@pytest.mark.parametrize("field", ["user", "origin", "action", "subject", "reason"])
def test_an_entry_of_the_audit_with_a_long_text_is_cut_not_lost(store, field):
    store.record(entry(**{field: "x" * 5000}))
    [found] = store.audit()
    assert 60 <= len(getattr(found, field)) <= 4096


def test_an_empty_store_has_nothing(store):
    assert (store.policies(), store.attachments(), store.units(), store.audit()) == ([],) * 4
    assert (store.policy("p"), store.attachment("east")) == (None, None)


def test_a_policy_comes_back_as_it_was_stored(store):
    stored = StoredPolicy(document=RICH, changed_by="anna ✓", changed_at_s=AT_S)
    store.add(stored, entry())
    assert store.policy(RICH.id) == stored
    assert store.policies() == [stored]
    assert store.policy(RICH.id.upper()) is None


def test_policies_are_sorted_by_name_without_letter_case(store):
    for name in ("beta", "Alpha", "GAMMA", "a b"):
        store.add(policy(name), entry())
    assert [each.document.name for each in store.policies()] == ["a b", "Alpha", "beta", "GAMMA"]


@pytest.mark.parametrize(("name", "same"), [("Packing", "pACKING"), ("STRASSE", "straße")])
def test_a_name_is_used_once_in_any_letter_case(store, name, same):
    store.add(policy(name), entry())
    with pytest.raises(NameTaken, match=same):
        store.add(policy(same), entry())
    store.add(policy("other"), entry())
    with pytest.raises(NameTaken, match=same):
        renamed = structs.replace(policy("other").document, name=same, version=2)
        store.replace(StoredPolicy(document=renamed), expected_version=1, audit=entry())
    assert len(store.policies()) == len(store.audit()) == 2


@pytest.mark.parametrize("similar", ["packing ", "pácking", "packing\u200b", "packing2"])
def test_similar_names_are_different(store, similar):
    store.add(policy("packing"), entry())
    store.add(policy(similar), entry())
    found = store.policy(f"id of {similar}")
    assert found is not None
    assert found.document.name == similar


def test_a_policy_keeps_its_own_name_in_other_letters(store):
    store.add(policy("p"), entry())
    renamed = structs.replace(policy("p").document, name="P", version=2)
    store.replace(StoredPolicy(document=renamed), expected_version=1, audit=entry())
    assert [each.document.name for each in store.policies()] == ["P"]


def test_an_id_is_used_once(store):
    store.add(policy("p"), entry())
    same_id = structs.replace(policy("p").document, name="q")
    with pytest.raises(EditConflict, match="anna"):
        store.add(StoredPolicy(document=same_id), entry())


def test_a_policy_is_replaced_whole(store):
    store.add(StoredPolicy(document=RICH), entry())
    plain = ClusterPolicy(id=RICH.id, name="plain", version=2, weights=(WeightUse(unit="A"),))
    after = StoredPolicy(document=plain, changed_by="bert", changed_at_s=2.0)
    store.replace(after, expected_version=1, audit=entry("policy.update"))
    assert store.policy(RICH.id) == after
    back = StoredPolicy(document=structs.replace(RICH, version=3))
    store.replace(back, expected_version=2, audit=entry("policy.update"))
    assert store.policy(RICH.id) == back


def test_a_lost_update_is_refused_and_names_who_was_first(store):
    store.add(policy(), entry())
    second = structs.replace(policy(version=2, description="b"), changed_by="bert")
    store.replace(second, expected_version=1, audit=entry())
    with pytest.raises(EditConflict, match="bert") as refused:
        store.replace(policy(version=2, description="c"), expected_version=1, audit=entry())
    assert (refused.value.who, refused.value.version) == ("bert", 2)
    with pytest.raises(EditConflict, match="version 2"):
        store.remove("id of p", expected_version=1, audit=entry())
    assert store.policy("id of p") == second
    assert len(store.audit()) == 2


def test_what_is_not_stored_cannot_be_changed(store):
    with pytest.raises(NotFound, match="id of p"):
        store.replace(policy(version=2), expected_version=1, audit=entry())
    with pytest.raises(NotFound, match="id of p"):
        store.remove("id of p", audit=entry())
    with pytest.raises(NotFound, match="id of p"):
        store.attach(attachment(), expected_version=NEW, audit=entry())
    with pytest.raises(NotFound, match="u"):
        store.remove_unit("u", entry())
    assert (store.attachments(), store.audit()) == ([], [])


def test_a_removed_policy_is_gone_and_its_name_is_free(store):
    store.add(StoredPolicy(document=RICH), entry())
    store.remove(RICH.id, expected_version=1, audit=entry("policy.remove"))
    assert store.policies() == []
    store.add(StoredPolicy(document=structs.replace(RICH, id="new")), entry())
    found = store.policy("new")
    assert found is not None
    assert found.document.parameters == RICH.parameters


def test_an_attachment_comes_back_and_is_replaced_in_its_version(store):
    store.add(policy(), entry())
    first = attachment(parameters={"HighUtilization": "70", "b": ""}, changed_by="anna")
    store.attach(first, expected_version=NEW, audit=entry("cluster.attach"))
    assert (store.attachment("east"), store.attachments()) == (first, [first])
    second = attachment(
        policy_id="none", is_built_in=True, version=2, changed_by="bert", changed_at_s=AT_S
    )
    store.attach(second, expected_version=1, audit=entry("cluster.attach"))
    assert store.attachment("east") == second
    for outdated in (NEW, 1):
        with pytest.raises(EditConflict, match="bert") as refused:
            store.attach(first, expected_version=outdated, audit=entry())
        assert refused.value.version == 2
    with pytest.raises(EditConflict):
        store.attach(attachment("west"), expected_version=1, audit=entry())
    assert store.attachments() == [second]


def test_a_policy_with_clusters_is_not_removed(store):
    store.add(policy(), entry())
    for cluster in ("west", "east"):
        store.attach(attachment(cluster), expected_version=NEW, audit=entry())
    store.attach(
        attachment("north", policy_id="nova", is_built_in=True), expected_version=NEW, audit=entry()
    )
    with pytest.raises(InUse, match="east, west") as refused:
        store.remove("id of p", audit=entry())
    assert refused.value.users == ("east", "west")
    away = attachment(policy_id="nova", is_built_in=True, version=2)
    for cluster in ("west", "east"):
        store.attach(structs.replace(away, cluster=cluster), expected_version=1, audit=entry())
    store.remove("id of p", audit=entry())
    assert store.policies() == []


def test_user_units_are_stored_replaced_and_removed(store):
    unit = StoredUnit(id="u", name="Bought", kind="filter", parameters={"x": "^[0-9]+$", "y": ""})
    other = StoredUnit(id="v", name="Bought", kind="weight", description="as a weight")
    store.put_units([other, unit])
    assert store.units() == [unit, other]
    changed = structs.replace(unit, is_enabled=False, description="d")
    store.put_units([changed])
    assert store.units() == [changed, other]
    store.put_units([])
    store.remove_unit("u", entry("unit.remove"))
    assert store.units() == [other]


def test_a_user_unit_that_policies_use_is_not_removed(store):
    store.put_units(
        [
            StoredUnit(id="u", name="Bought", kind="filter"),
            StoredUnit(id="v", name="Bought", kind="weight"),
        ]
    )
    uses = (FilterUse(unit="Bought"),)
    store.add(policy("p", filters=uses), entry())
    store.add(policy("Q", filters=uses), entry())
    store.remove_unit("v", entry("unit.remove"))
    with pytest.raises(InUse) as refused:
        store.remove_unit("u", entry("unit.remove"))
    assert set(refused.value.users) == {"p", "Q"}
    store.replace(policy("p", version=2), expected_version=1, audit=entry())
    store.remove("id of Q", audit=entry())
    store.remove_unit("u", entry("unit.remove"))
    assert store.units() == []


def test_the_audit_has_every_change_and_refused_attempts_in_pages(store):
    store.add(policy(), entry("policy.create", after='{"a": "✓ 🙂"}'))
    refused = entry("policy.remove", result="refused", reason="no right", origin="10.0.0.1")
    store.record(refused)
    store.remove("id of p", audit=entry("policy.remove", before="{}"))
    found = store.audit()
    assert [structs.replace(each, id="") for each in found] == [
        entry("policy.create", after='{"a": "✓ 🙂"}'),
        refused,
        entry("policy.remove", before="{}"),
    ]
    assert len({each.id for each in found}) == 3
    assert store.audit(limit=2) == found[:2]
    assert store.audit(after=found[1].id, limit=2) == found[2:]
    assert store.audit(after=found[2].id) == []


@pytest.mark.parametrize(
    "marker", ["", "x", "-1", "1.5", "\N{SUPERSCRIPT TWO}", str(2**63), "9" * 5000]
)
def test_a_marker_that_no_page_gave_is_refused(store, marker):
    store.record(entry())
    with pytest.raises(RequestError, match=r"^marker: ") as refused:
        store.audit(after=marker)
    assert len(str(refused.value)) < 200
    assert store.audit(after=str(2**63 - 1)) == []


def test_the_audit_is_filtered(store):
    for number, (user, action) in enumerate([("anna", "a"), ("bert", "a"), ("anna", "b")]):
        store.record(entry(action, user=user, subject=f"s{number}", at_s=100.0 + number))
    store.record(entry("a", user="anna", at_s=103.0, result="refused", reason="no right"))
    store.record(entry("c", user="carl", subject="", at_s=99.0))
    for wanted, found in (
        ({}, "12345"),
        ({"user": "anna"}, "134"),
        ({"user": "anna", "action": "a"}, "14"),
        ({"user": "Anna"}, ""),
        ({"subject": "s1"}, "2"),
        ({"subject": ""}, "5"),
        ({"result": "refused"}, "4"),
        ({"since_s": 101.0}, "234"),
        ({"until_s": 101.0}, "15"),
        ({"since_s": 101.0, "until_s": 103.0, "user": "anna"}, "3"),
    ):
        first = int(store.audit()[0].id) - 1
        ids = [int(each.id) - first for each in store.audit(AuditFilter(**wanted))]
        assert "".join(map(str, ids)) == found, wanted
    [_, second, *_] = store.audit()
    page = store.audit(AuditFilter(user="anna"), after=second.id, limit=1)
    assert [each.subject for each in page] == ["s2"]


def test_old_entries_are_purged_oldest_first_and_ids_are_not_given_again(store):
    for number in range(5):
        store.record(entry(subject=f"s{number}", at_s=100.0 + number))
    last = store.audit()[-1].id
    assert store.purge_audit(before_s=103.0, limit=2) == 2
    assert [each.subject for each in store.audit()] == ["s2", "s3", "s4"]
    assert store.purge_audit(before_s=103.0, limit=2) == 1
    assert store.purge_audit(before_s=103.0, limit=2) == 0
    assert store.purge_audit(before_s=1000.0, limit=10) == 2
    store.record(entry())
    assert int(store.audit()[0].id) > int(last)


def test_a_large_document_and_its_audit_are_stored(store):
    filters = tuple(
        FilterUse(unit=f"unit {number}", parameters={"a": "x" * 4096}) for number in range(200)
    )
    large = policy(filters=filters)
    store.add(large, entry(after="ß" * 1_000_000))
    assert store.policy("id of p") == large
    assert len(store.audit()[0].after or "") == 1_000_000


def test_one_of_many_concurrent_edits_of_a_version_wins(store):
    store.add(policy(), entry())

    def edit(name: str) -> str | None:
        made = policy(version=2, description=name)
        try:
            store.replace(
                structs.replace(made, changed_by=name), expected_version=1, audit=entry(user=name)
            )
        except EditConflict as error:
            assert error.version == 2
            return None
        return name

    with Threads(5) as pool:
        winners = [each for each in pool.map(edit, map(str, range(10))) if each]
    (winner,) = winners
    found = store.policy("id of p")
    assert (found.changed_by, found.document.description) == (winner, winner)
    assert [each.user for each in store.audit()] == ["anna", winner]


def test_one_of_many_policies_of_a_name_is_stored(store):
    def add(number: int) -> bool:
        document = ClusterPolicy(id=f"id {number}", name="same", version=1)
        try:
            store.add(StoredPolicy(document=document), entry())
        except NameTaken:
            return False
        return True

    with Threads(5) as pool:
        assert list(pool.map(add, range(10))).count(True) == 1
    assert len(store.policies()) == len(store.audit()) == 1


def test_a_policy_is_attached_or_removed_not_both(store):
    for round_ in range(10):
        name = f"p{round_}"
        store.add(policy(name), entry())

        def attach(name: str = name) -> bool:
            try:
                store.attach(
                    attachment(name, policy_id=f"id of {name}"), expected_version=NEW, audit=entry()
                )
            except NotFound:
                return False
            return True

        def remove(name: str = name) -> bool:
            try:
                store.remove(f"id of {name}", audit=entry())
            except InUse:
                return False
            return True

        with Threads(2) as pool:
            attached, removed = pool.submit(attach), pool.submit(remove)
            assert attached.result() != removed.result()


def test_a_policy_is_edited_before_another_cluster_has_it_or_not_at_all(store):
    """An editor has seen its clusters, and need not have a right to another one."""
    for round_ in range(10):
        name = f"p{round_}"
        store.add(policy(name), entry())
        store.attach(attachment(f"seen {name}", policy_id=f"id of {name}"),
                     expected_version=NEW, audit=entry())  # fmt: skip

        def attach(name: str = name) -> None:
            other = attachment(name, policy_id=f"id of {name}")
            store.attach(other, expected_version=NEW, audit=entry(user=f"attaches {name}"))

        def edit(name: str = name) -> bool:
            seen = [f"seen {name}"]
            edited = policy(name, version=2)
            try:
                by = entry(user=f"edits {name}")
                store.replace(edited, expected_version=1, clusters=seen, audit=by)
            except EditConflict as error:
                assert f"The policy of cluster {name}" in str(error)
                return False
            return True

        with Threads(2) as pool:
            attached, was_edited = pool.submit(attach), pool.submit(edit)
            attached.result()
            was_first = was_edited.result()
        version = store.policy(f"id of {name}").document.version
        assert version == (2 if was_first else 1)
        order = [each.user for each in store.audit(limit=1000) if each.user.endswith(f" {name}")]
        assert order == [f"edits {name}"] * was_first + [f"attaches {name}"]
        with pytest.raises(EditConflict):
            store.replace(policy(name, version=version + 1), expected_version=version,
                          clusters=[f"seen {name}"], audit=entry())  # fmt: skip
