"""The rules of the book's documents."""

from typing import Any

import pytest
from msgspec import structs

from scheduler_worker.errors import EditConflict, InUse, NameTaken, NotFound
from scheduler_worker.model.documents import NEW, Attachment, Documents, StoredPolicy, StoredUnit
from scheduler_worker.model.policies import ClusterPolicy, FilterUse
from scheduler_worker.service.documents import rules
from scheduler_worker.service.documents.rules import added, attached, merged, removed, replaced

NONE = Documents()
BOUGHT = StoredUnit(id="u", name="Bought", kind="filter")


def policy(name: str = "p", version: int = 1, by: str = "anna", **fields: Any) -> StoredPolicy:
    document = ClusterPolicy(id=f"id of {name}", name=name, version=version, **fields)
    return StoredPolicy(document=document, changed_by=by)


def attachment(cluster: str = "east", **fields: Any) -> Attachment:
    return Attachment(**{"cluster": cluster, "policy_id": "id of p", **fields})


def renamed(name: str, to: str) -> StoredPolicy:
    return StoredPolicy(document=structs.replace(policy(name).document, name=to, version=2))


@pytest.mark.parametrize(("name", "same"), [("Packing", "pACKING"), ("STRASSE", "straße")])
def test_a_name_is_used_once_in_any_letter_case(name, same):
    now = added(added(NONE, policy(name)), policy("other"))
    with pytest.raises(NameTaken, match=same):
        added(now, policy(same))
    with pytest.raises(NameTaken, match=same):
        replaced(now, renamed("other", same), 1)


@pytest.mark.parametrize("similar", ["packing ", "pácking", "packing\u200b", "packing2"])
def test_similar_names_are_different(similar):
    now = added(added(NONE, policy("packing")), policy(similar))
    assert now.policy(f"id of {similar}").document.name == similar


def test_a_policy_keeps_its_own_name_in_other_letters():
    now = replaced(added(NONE, policy("p")), renamed("p", "P"), 1)
    assert now.policy("id of p").document.name == "P"


def test_an_id_is_used_once():
    same_id = structs.replace(policy("p").document, name="q")
    with pytest.raises(EditConflict, match="anna"):
        added(added(NONE, policy("p")), StoredPolicy(document=same_id))


def test_a_lost_update_is_refused_and_names_who_was_first():
    now = replaced(added(NONE, policy()), policy(version=2, by="bert"), 1)
    with pytest.raises(EditConflict, match="bert") as refused:
        replaced(now, policy(version=2), 1)
    assert (refused.value.who, refused.value.version) == ("bert", 2)
    with pytest.raises(EditConflict, match="version 2"):
        removed(now, "id of p", 1)


def test_what_is_not_stored_cannot_be_changed():
    for change in (
        lambda: replaced(NONE, policy(version=2), 1),
        lambda: removed(NONE, "id of p"),
        lambda: attached(NONE, attachment(), NEW),
    ):
        with pytest.raises(NotFound, match="id of p"):
            change()
    with pytest.raises(NotFound, match="u"):
        rules.without_unit(NONE, "u")


def test_a_removed_policy_is_gone_and_its_name_is_free():
    now = removed(added(NONE, policy()), "id of p", 1)
    assert now == NONE
    assert added(now, policy("P")).policies


def test_an_attachment_is_replaced_in_its_version():
    now = attached(added(NONE, policy()), attachment(), NEW)
    second = attachment(policy_id="none", is_built_in=True, version=2, changed_by="bert")
    now = attached(now, second, 1)
    assert now.attachments == {"east": second}
    for outdated in (NEW, 1):
        with pytest.raises(EditConflict, match="bert") as refused:
            attached(now, attachment(), outdated)
        assert refused.value.version == 2
    with pytest.raises(EditConflict):
        attached(now, attachment("west"), 1)


def test_a_policy_with_clusters_is_not_removed():
    now = added(NONE, policy())
    for cluster in ("west", "east"):
        now = attached(now, attachment(cluster), NEW)
    now = attached(now, attachment("north", policy_id="nova", is_built_in=True), NEW)
    assert now.clusters_of("id of p") == ["east", "west"]
    with pytest.raises(InUse, match="east, west") as refused:
        removed(now, "id of p")
    assert refused.value.users == ("east", "west")
    for cluster in ("west", "east"):
        now = attached(now, attachment(cluster, policy_id="nova", is_built_in=True, version=2), 1)
    assert removed(now, "id of p").policies == {}


def test_a_user_unit_that_policies_use_is_not_removed():
    weight = structs.replace(BOUGHT, id="v", kind="weight")
    now = rules.with_units(NONE, [BOUGHT, weight])
    for name in ("q", "P"):
        now = added(now, policy(name, filters=(FilterUse(unit="Bought"),)))
    now = rules.without_unit(now, "v")
    with pytest.raises(InUse) as refused:
        rules.without_unit(now, "u")
    assert refused.value.users == ("P", "q")
    now = replaced(now, policy("q", version=2), 1)
    assert rules.without_unit(removed(now, "id of P"), "u").units == {}


def test_an_edit_leaves_what_it_was_made_of():
    before = added(NONE, policy())
    removed(attached(before, attachment(is_built_in=True, policy_id="nova")), "id of p")
    assert before == added(NONE, policy())


# Of two books


def at(document: Any, at_s: float) -> Any:
    return structs.replace(document, changed_at_s=at_s)


def test_what_was_changed_last_is_kept_of_both():
    old, new = at(policy(version=3), 1.0), at(policy(version=2), 2.0)
    first = Documents({"id of p": old, "only": policy("a")}, {"east": at(attachment(), 5.0)})
    second = Documents({"id of p": new}, {"east": attachment(version=9), "west": attachment()})
    for one, other in ((first, second), (second, first)):
        found = merged(one, other)
        assert found.policies == {"id of p": new, "only": policy("a")}
        assert found.attachments["east"].version == 1
        assert found.attachments.keys() == {"east", "west"}


def test_of_documents_without_a_time_those_of_the_second_are_kept():
    first = Documents(
        {"id of p": policy(version=3)}, {"east": attachment(version=3)}, {"u": BOUGHT}
    )
    second = Documents({"id of p": policy()}, {"east": attachment()}, {"v": BOUGHT})
    found = merged(first, second)
    assert (found.policies, found.attachments) == (second.policies, second.attachments)
    assert found.units.keys() == {"u", "v"}


def test_a_name_that_both_have_stays_unique():
    other = structs.replace(policy("p").document, id="2", name="P")
    found = merged(Documents({"2": StoredPolicy(document=other)}), Documents({"1": policy("p")}))
    assert {each.document.name for each in found.policies.values()} == {"p", "P (2)"}
