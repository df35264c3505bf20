"""The rules of the book's documents."""

from typing import Any

import pytest
from msgspec import structs

from scheduler_worker.errors import InUse, NameTaken, NotFound
from scheduler_worker.model.documents import Attachment, Documents, StoredPolicy, StoredUnit
from scheduler_worker.model.policies import ClusterPolicy, FilterUse
from scheduler_worker.service.documents import rules
from scheduler_worker.service.documents.rules import attached, merged, removed, with_policy

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
    now = with_policy(with_policy(NONE, policy(name)), policy("other"))
    with pytest.raises(NameTaken, match=same):
        with_policy(now, policy(same))
    with pytest.raises(NameTaken, match=same):
        with_policy(now, renamed("other", same))


@pytest.mark.parametrize("similar", ["packing ", "pácking", "packing\u200b", "packing2"])
def test_similar_names_are_different(similar):
    now = with_policy(with_policy(NONE, policy("packing")), policy(similar))
    assert now.policy(f"id of {similar}").document.name == similar


def test_a_policy_keeps_its_own_name_in_other_letters():
    now = with_policy(with_policy(NONE, policy("p")), renamed("p", "P"))
    assert now.policy("id of p").document.name == "P"


def test_what_is_not_stored_cannot_be_changed():
    for change in (
        lambda: removed(NONE, "id of p"),
        lambda: attached(NONE, attachment()),
    ):
        with pytest.raises(NotFound, match="id of p"):
            change()
    with pytest.raises(NotFound, match="u"):
        rules.without_unit(NONE, "u")


def test_a_removed_policy_is_gone_and_its_name_is_free():
    now = removed(with_policy(NONE, policy()), "id of p")
    assert now == NONE
    assert with_policy(now, policy("P")).policies


def test_a_policy_with_clusters_is_not_removed():
    now = with_policy(NONE, policy())
    for cluster in ("west", "east"):
        now = attached(now, attachment(cluster))
    now = attached(now, attachment("north", policy_id="nova", is_built_in=True))
    assert now.clusters_of("id of p") == ["east", "west"]
    with pytest.raises(InUse, match="east, west") as refused:
        removed(now, "id of p")
    assert refused.value.users == ("east", "west")
    for cluster in ("west", "east"):
        now = attached(now, attachment(cluster, policy_id="nova", is_built_in=True, version=2))
    assert removed(now, "id of p").policies == {}


def test_a_user_unit_that_policies_use_is_not_removed():
    weight = structs.replace(BOUGHT, id="v", kind="weight")
    now = rules.with_units(NONE, [BOUGHT, weight])
    for name in ("q", "P"):
        now = with_policy(now, policy(name, filters=(FilterUse(unit="Bought"),)))
    now = rules.without_unit(now, "v")
    with pytest.raises(InUse) as refused:
        rules.without_unit(now, "u")
    assert refused.value.users == ("P", "q")
    now = with_policy(now, policy("q", version=2))
    assert rules.without_unit(removed(now, "id of P"), "u").units == {}


def test_an_edit_leaves_what_it_was_made_of():
    before = with_policy(NONE, policy())
    removed(attached(before, attachment(is_built_in=True, policy_id="nova")), "id of p")
    assert before == with_policy(NONE, policy())


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
