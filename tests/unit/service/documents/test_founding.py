"""What a book is made of where clusters have policies in force already."""

from typing import Any

from msgspec import structs

from scheduler_worker.model.documents import Attachment, StoredUnit
from scheduler_worker.model.policies import ClusterPolicy, FilterUse
from scheduler_worker.service.documents.founding import documents

RAM = (FilterUse(unit="RamFilter"),)


def policy(name: str, version: int = 1, **fields: Any) -> ClusterPolicy:
    return ClusterPolicy(id=f"id of {name}", name=name, version=version, **fields)


def found(**in_force: ClusterPolicy) -> tuple[dict[str, ClusterPolicy], dict[str, ClusterPolicy]]:
    """The policies by name, and what each cluster has in force afterwards."""
    made = documents(in_force, {"id of none"}, {})
    after = {}
    for cluster, attached in made.attachments.items():
        stored = made.policies.get(attached.policy_id)
        document = in_force[cluster] if stored is None else stored.document
        assert attached.is_built_in == (stored is None)
        after[cluster] = structs.replace(document, parameters=attached.parameters)
    return {each.document.name: each.document for each in made.policies.values()}, after


def test_clusters_that_share_a_policy_share_it_with_parameters_of_their_own():
    packing = policy("packing", filters=RAM, parameters={"a": "1"})
    other = structs.replace(packing, parameters={"a": "2"})
    stored, after = found(east=packing, west=other)
    assert stored == {"packing": packing}
    assert after == {"east": packing, "west": other}


def test_an_older_form_of_a_policy_gets_an_id_of_its_own():
    old, new = policy("packing"), policy("packing", 2, filters=RAM)
    stored, after = found(east=old, west=new)
    assert stored["packing"] == new
    older = stored["packing (east)"]
    assert older.id not in {"", new.id}
    assert after == {"east": older, "west": new}
    assert structs.replace(older, id=old.id, name=old.name) == old


def test_policies_of_one_name_get_that_of_their_cluster():
    stored, _ = found(east=policy("packing"), west=structs.replace(policy("Packing"), id="2"))
    assert stored.keys() == {"packing", "Packing (west)"}


def test_a_built_in_policy_is_attached_and_not_stored():
    stored, after = found(east=policy("none", parameters={"a": "2"}))
    assert stored == {}
    assert after == {"east": policy("none", parameters={"a": "2"})}


def test_units_are_taken_as_they_are():
    units = {"u": StoredUnit(id="u", name="Bought", kind="filter")}
    made = documents({"east": policy("p")}, (), units)
    assert made.units == units
    assert made.attachments == {"east": Attachment(cluster="east", policy_id="id of p")}
