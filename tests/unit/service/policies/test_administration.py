"""What administrators do with policies, on a policy store in memory."""

import json
from functools import partial

import pytest
from msgspec import structs

from scheduler_worker.errors import (
    EditConflict,
    Incomplete,
    InUse,
    Invalid,
    NameTaken,
    NotFound,
    StateUnavailable,
)
from scheduler_worker.model.policies import ClusterPolicy, FilterUse, SelectorUse, WeightUse
from scheduler_worker.policy_store import StoredPolicy, StoredUnit
from scheduler_worker.scheduling.catalogue import UnitKind
from scheduler_worker.service.policies.administration import PolicyFields
from scheduler_worker.service.policies.policy_rules import check_parameters, cluster_parameters
from tests.support.interrupted import before_next, raising
from tests.support.office import ANNA, BERT, Office


@pytest.fixture
def office() -> Office:
    return Office()


def with_threshold(office: Office, value: str = "5", name: str = "packing") -> StoredPolicy:
    made = office.made(name)
    office.desk.add_filter(made.document.id, office.unit_id("Overloaded"), ANNA)
    fields = PolicyFields(parameters={"threshold": value})
    return office.desk.update(made.document.id, fields, ANNA)


def test_the_audit_has_the_version_that_an_imported_policy_is_stored_with(office):
    document = structs.replace(office.made().document, id="imported", name="other", version=7)
    office.desk.add(document, ANNA)
    assert office.desk.library.policy("imported").document.version == 1
    assert json.loads(office.desk.audit_log.entries()[-1].after or "")["version"] == 1


def test_a_change_that_changes_nothing_makes_no_version(office):
    made = office.made()
    assert office.desk.update(made.document.id, PolicyFields(name="packing"), BERT) == made
    unused = office.unit_id("CoreFilter")
    kind = UnitKind.FILTER
    assert office.desk.remove_unit_use(made.document.id, kind, unused, BERT) == made
    assert [each.action for each in office.desk.audit_log.entries()] == ["policy.create"]


def test_units_are_added_and_removed(office):
    policy_id = office.made().document.id
    desk = office.desk
    desk.add_filter(policy_id, office.unit_id("RamFilter"), ANNA, position="last")
    desk.add_filter(policy_id, office.unit_id("CoreFilter"), ANNA)
    weight = office.unit_id("RAMWeigher", UnitKind.WEIGHT)
    desk.add_weight(policy_id, weight, ANNA, factor=-2.5)  # which inverts it
    balance = office.unit_id("Spread", UnitKind.BALANCE)
    made = desk.set_balance(policy_id, balance, ANNA).document
    assert made.filters == (
        FilterUse(unit="RamFilter", position="last"),
        FilterUse(unit="CoreFilter"),
    )
    assert made.weights == (WeightUse(unit="RAMWeigher", factor=-2.5),)
    assert made.balance is not None
    assert made.balance.unit == "Spread"
    desk.remove_unit_use(policy_id, UnitKind.FILTER, office.unit_id("RamFilter"), ANNA)
    desk.remove_unit_use(policy_id, UnitKind.WEIGHT, weight, ANNA)
    left = desk.remove_unit_use(policy_id, UnitKind.BALANCE, balance, ANNA).document
    assert (left.filters, left.weights, left.balance) == ((FilterUse(unit="CoreFilter"),), (), None)
    assert left.version == 8


@pytest.mark.parametrize("name", ["PACKING", "None", "nova"])
def test_a_name_is_taken_in_any_letter_case(office, name):
    office.made()
    with pytest.raises(NameTaken, match=name):
        office.made(name)
    assert len(office.store.policies()) == 1


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        (PolicyFields(name=""), "policy"),
        (PolicyFields(name="x" * 256), "policy"),
        (PolicyFields(name="a\x00b"), "name"),
        (PolicyFields(name="a\ud800b"), "name"),
        (PolicyFields(name=" a"), "name"),
        (PolicyFields(name="a", description="\x0b"), "description"),
        (PolicyFields(name="a", description="x" * 4097), "policy"),
        (PolicyFields(name="a", parameters={"threshold": "1"}), "properties.threshold"),
        (PolicyFields(name="a", selector=SelectorUse(unit="Dice")), "selector.Dice"),
        (PolicyFields(name="a", selector=SelectorUse(unit="RamFilter")), "selector.RamFilter"),
    ],
)
def test_a_new_policy_is_checked(office, fields, field):
    with pytest.raises(Invalid) as refused:
        office.desk.create(fields, ANNA)
    assert refused.value.field == field
    assert (office.store.policies(), office.desk.audit_log.entries()) == ([], [])


def test_a_policy_without_name_is_incomplete(office):
    with pytest.raises(Incomplete, match="name") as refused:
        office.desk.create(PolicyFields(description="d"), ANNA)
    assert refused.value.fields == ("name",)


def test_units_of_a_policy_are_checked(office):
    policy_id = office.made().document.id
    desk = office.desk
    ram, core = office.unit_id("RamFilter"), office.unit_id("CoreFilter")
    weight = office.unit_id("RAMWeigher", UnitKind.WEIGHT)
    cost = office.unit_id("EvenCpu", UnitKind.WEIGHT)
    desk.add_filter(policy_id, ram, ANNA, position="first")
    before = desk.library.policy(policy_id)
    for change, text in (
        (lambda: desk.add_filter(policy_id, ram, ANNA), "used twice"),
        (lambda: desk.add_filter(policy_id, core, ANNA, position="first"), "only one filter"),
        (lambda: desk.add_filter(policy_id, weight, ANNA), "is a weight, not a filter"),
        (lambda: desk.add_filter(policy_id, "gone", ANNA), "no unit 'gone'"),
        (lambda: desk.add_weight(policy_id, cost, ANNA, factor=-1.0), "not 0 or above"),
        (lambda: desk.add_weight(policy_id, weight, ANNA, factor=float("nan")), "no finite"),
        (lambda: desk.set_balance(policy_id, ram, ANNA), "not a balance"),
    ):
        with pytest.raises(Invalid, match=text):
            change()
    assert desk.library.policy(policy_id) == before


def test_a_document_is_checked_in_the_order_of_the_rules(office):
    wrong = ClusterPolicy(
        id="p",
        name="none",
        version=1,
        filters=(FilterUse(unit="Gone"),),
        weights=(WeightUse(unit="RAMWeigher", factor=float("inf")),),
        parameters={"a;b": "1"},
    )
    with pytest.raises(NameTaken):
        office.desk.add(wrong, ANNA)
    wrong = structs.replace(wrong, name="p", parameters={})
    with pytest.raises(Invalid, match=r"filters\.Gone"):
        office.desk.add(wrong, ANNA)
    wrong = structs.replace(wrong, filters=())
    with pytest.raises(Invalid, match=r"weights\.RAMWeigher"):
        office.desk.add(wrong, ANNA)


@pytest.mark.parametrize("value", ["many", "1;2", "a\x00"])
def test_a_value_of_a_parameter_is_checked(office, value):
    made = with_threshold(office)
    with pytest.raises(Invalid, match="threshold"):
        office.desk.update(made.document.id, PolicyFields(parameters={"threshold": value}), ANNA)
    assert office.desk.library.policy(made.document.id) == made


@pytest.mark.parametrize("policy_id", ["nova", "b4ed2332"])
def test_a_built_in_policy_refuses_every_change(office, policy_id):
    desk, ram = office.desk, office.unit_id("RamFilter")
    before = desk.library.policy(policy_id)
    for change in (
        lambda: desk.update(policy_id, PolicyFields(description="x"), ANNA),
        lambda: desk.add_filter(policy_id, ram, ANNA),
        lambda: desk.remove_unit_use(policy_id, UnitKind.FILTER, ram, ANNA),
        lambda: desk.remove(policy_id, ANNA),
        lambda: desk.put(structs.replace(before.document, name="mine"), ANNA, before, []),
    ):
        with pytest.raises(Invalid, match="locked"):
            change()
    with pytest.raises(Invalid, match="built-in"):
        desk.add(structs.replace(before.document, name="mine"), ANNA)
    assert desk.library.policy(policy_id) == before


@pytest.mark.parametrize("expects_a_version", [True, False])
def test_an_edit_between_reading_and_writing_is_not_overwritten(
    office, monkeypatch, expects_a_version
):
    made = office.made()
    first, second = PolicyFields(description="first"), PolicyFields(name="second")
    edit = partial(office.another().update, made.document.id, first, BERT)
    before_next(monkeypatch, office.store, "replace", edit)
    if expects_a_version:
        with pytest.raises(EditConflict, match="bert"):
            office.desk.put(structs.replace(made.document, name="second"), ANNA, made, [])
    else:
        after = office.desk.update(made.document.id, second, ANNA)
        assert (after.document.name, after.document.description) == ("second", "first")


# Clusters


def test_a_cluster_keeps_its_values_under_its_policy_and_drops_unknown_ones(office):
    made = with_threshold(office)
    desk, policy_id = office.desk, made.document.id
    with pytest.raises(Invalid, match=r"properties.x: no unit of the policy declares it"):
        desk.attachments.attach("east", ANNA, policy=policy_id, parameters={"x": "1"})
    attached = desk.attachments.attach(
        "east", ANNA, policy=policy_id, parameters={"threshold": "7"}
    )
    assert attached.parameters == {"threshold": "7"}
    assert desk.attachments.attach("east", ANNA, policy=policy_id) == attached
    assert desk.attachments.attach("east", ANNA, policy="none").parameters == {"threshold": "1"}
    assert (
        desk.attachments.attach("east", ANNA, parameters={"threshold": "9"}).policy_id == "b4ed2332"
    )
    with pytest.raises(Invalid, match="threshold"):
        desk.attachments.attach("east", ANNA, parameters={"threshold": "many"})
    assert office.in_force.in_force("east").parameters == {"threshold": "9"}


def test_a_cluster_has_the_values_of_a_built_in_policy_that_nothing_reads_yet():
    policy = ClusterPolicy(id="b", name="b", version=1, parameters={"later": "1", "other": "2"})
    units = Office().desk.library.units()
    found = cluster_parameters(policy, {"later": "9", "unknown": "0"}, units)
    assert found == {"later": "9", "other": "2"}
    check_parameters(policy, found, units, known=policy.parameters)
    with pytest.raises(Invalid, match="no unit of the policy declares it"):
        check_parameters(policy, found, units)


def test_an_unknown_policy_or_cluster_is_refused(office):
    with pytest.raises(NotFound, match="fastest"):
        office.desk.attachments.attach("east", ANNA, policy="fastest")
    with pytest.raises(NotFound, match="north"):
        office.desk.attachments.attach("north", ANNA, policy="none")
    office.desk.attachments.attach("north", ANNA, policy="none", is_new=True)
    assert office.desk.attachments.clusters() == ["east", "north", "west"]
    with pytest.raises(Invalid, match="@tuning"):
        office.desk.attachments.attach("@tuning", ANNA, policy="none", is_new=True)


def test_an_edit_reaches_attached_clusters_and_not_their_parameters(office):
    made = with_threshold(office)
    policy_id = made.document.id
    office.desk.attachments.attach("east", ANNA, policy=policy_id)
    fields = PolicyFields(parameters={"threshold": "6"})
    office.desk.update(policy_id, fields, ANNA)
    office.desk.add_filter(policy_id, office.unit_id("RamFilter"), ANNA)
    found = office.in_force.in_force("east")
    assert [each.unit for each in found.filters] == ["Overloaded", "RamFilter"]
    assert (found.version, found.parameters) == (5, {"threshold": "5"})
    office.desk.update(policy_id, PolicyFields(parameters={}), ANNA)
    office.desk.remove_unit_use(policy_id, UnitKind.FILTER, office.unit_id("Overloaded"), ANNA)
    assert office.in_force.in_force("east").parameters == {}  # nothing declares it any more


def test_a_policy_by_rpc_stays_in_a_cluster_that_was_never_attached(office):
    document = ClusterPolicy(id="r", name="by-rpc", version=1)
    office.in_force.attach("west", document)
    assert not office.desk.attachments.put_in_force("west")
    assert office.in_force.in_force("west") == document


def test_what_the_state_did_not_get_is_said_and_put_in_force_later(office, monkeypatch):
    made = with_threshold(office)

    monkeypatch.setattr(office.world.state, "write", raising(StateUnavailable("no connection")))
    with pytest.raises(StateUnavailable, match="is stored, and takes effect in cluster east"):
        office.desk.attachments.attach("east", ANNA, policy="packing")
    monkeypatch.undo()
    assert office.in_force.in_force("east").id == "nova"
    assert office.desk.attachments.put_in_force("east")
    assert office.in_force.in_force("east").id == made.document.id
    assert not office.desk.attachments.put_in_force("east")


# Units


def test_a_user_unit_is_listed_until_it_is_removed(office):
    desk, bought = office.desk, office.unit_id("Bought")
    made = office.made()
    desk.add_filter(made.document.id, bought, ANNA)
    with pytest.raises(InUse, match="packing"):
        desk.remove_unit(bought, ANNA)
    desk.remove_unit_use(made.document.id, UnitKind.FILTER, bought, ANNA)
    desk.remove_unit(bought, ANNA)
    with pytest.raises(NotFound, match=bought):
        desk.library.unit(bought)
    with pytest.raises(Invalid, match="no unit"):
        desk.add_filter(made.document.id, bought, ANNA)
    document = ClusterPolicy(id="q", name="q", version=1, filters=(FilterUse(unit="Bought"),))
    with pytest.raises(Invalid, match="was removed"):
        desk.add(document, ANNA)
    desk.register_units()
    assert desk.library.unit(bought).is_enabled


def test_units_are_stored_only_where_they_changed(office, monkeypatch):
    monkeypatch.setattr(office.store, "put_units", lambda units: pytest.fail("nothing changed"))
    office.desk.register_units()


def test_a_unit_that_is_not_installed_any_more_is_disabled(office):
    gone = StoredUnit(id="g", name="Gone", kind="filter", parameters={"x": "[0-9]+", "y": ""})
    office.store.put_units([gone])
    found = office.desk.library.unit("g")
    assert (found.is_enabled, found.is_internal) == (False, False)
    assert {each.name: each.regex for each in found.parameters} == {"x": "[0-9]+", "y": None}
    with pytest.raises(Invalid, match=r"filters\.Gone"):
        office.desk.add_filter(office.made().document.id, "g", ANNA)


def test_a_unit_of_the_worker_is_not_removed(office):
    with pytest.raises(Invalid, match="RamFilter"):
        office.desk.remove_unit(office.unit_id("RamFilter"), ANNA)


# Audit


def test_every_change_is_audited_with_before_and_after(office):
    made = office.made()
    policy_id = made.document.id
    office.desk.update(policy_id, PolicyFields(description="d"), BERT)
    office.desk.attachments.attach("east", ANNA, policy=policy_id)
    office.desk.attachments.attach("east", ANNA, policy="nova", parameters={})
    office.desk.remove(policy_id, BERT)
    office.desk.audit_log.refused(BERT, "policy.remove", "b4ed2332", "no right to it")
    found = office.desk.audit_log.entries()
    assert [(each.action, each.subject, each.user, each.result) for each in found] == [
        ("policy.create", policy_id, "anna", "done"),
        ("policy.update", policy_id, "bert", "done"),
        ("cluster.attach", "east", "anna", "done"),
        ("cluster.attach", "east", "anna", "done"),
        ("policy.remove", policy_id, "bert", "done"),
        ("policy.remove", "b4ed2332", "bert", "refused"),
    ]
    assert found[0].before is None
    assert found[0].origin == "10.0.0.1"
    assert json.loads(found[1].after or "")["description"] == "d"
    assert json.loads(found[2].after or "")["policy_id"] == policy_id
    assert (found[4].after, found[5].reason) == (None, "no right to it")
    assert office.desk.audit_log.entries(after=found[3].id, limit=1) == [found[4]]


def test_units_are_listed_again_only_where_they_have_changed(office):
    library = office.desk.library
    before = library.units()
    office.desk.update(office.made().document.id, PolicyFields(description="other"), ANNA)
    assert library.units() is before
    office.store.put_units([StoredUnit(id="new", name="New", kind="filter")])
    assert library.units() is not before
    assert library.units().find("new") is not None
