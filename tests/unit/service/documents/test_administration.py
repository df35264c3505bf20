"""What administrators do with policies."""

import json
from functools import partial

import pytest
from msgspec import structs

from scheduler_worker.errors import (
    Conflict,
    EditConflict,
    Forbidden,
    Incomplete,
    InUse,
    Invalid,
    NameTaken,
    NotFound,
    StateUnavailable,
)
from scheduler_worker.model.documents import StoredPolicy, StoredUnit
from scheduler_worker.model.policies import ClusterPolicy, FilterUse, SelectorUse, WeightUse
from scheduler_worker.ports import ABSENT, Guard
from scheduler_worker.scheduling.catalogue import UnitKind
from scheduler_worker.service.documents import book as books
from scheduler_worker.service.documents import rules
from scheduler_worker.service.documents.administration import PolicyFields
from scheduler_worker.service.documents.audit import Actor
from scheduler_worker.service.documents.book import Edited
from scheduler_worker.service.documents.policy_rules import check_parameters, cluster_parameters
from tests.support.interrupted import before_next
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
    assert office.desk.library().policy("imported").document.version == 1
    assert json.loads(office.audited()[-1].after or "")["version"] == 1


def test_a_change_that_changes_nothing_makes_no_version(office):
    made = office.made()
    assert office.desk.update(made.document.id, PolicyFields(name="packing"), BERT) == made
    unused = office.unit_id("CoreFilter")
    kind = UnitKind.FILTER
    assert office.desk.remove_unit_use(made.document.id, kind, unused, BERT) == made
    assert [each.action for each in office.audited()] == ["policy.create"]


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
    assert len(office.stored()) == 1


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
    assert (office.stored(), office.audited()) == ([], [])


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
    before = desk.library().policy(policy_id)
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
    assert desk.library().policy(policy_id) == before


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
    assert office.desk.library().policy(made.document.id) == made


@pytest.mark.parametrize("policy_id", ["nova", "b4ed2332"])
def test_a_built_in_policy_refuses_every_change(office, policy_id):
    desk, ram = office.desk, office.unit_id("RamFilter")
    before = desk.library().policy(policy_id)
    for change in (
        lambda: desk.update(policy_id, PolicyFields(description="x"), ANNA),
        lambda: desk.add_filter(policy_id, ram, ANNA),
        lambda: desk.remove_unit_use(policy_id, UnitKind.FILTER, ram, ANNA),
        lambda: desk.remove(policy_id, ANNA),
        lambda: desk.put(structs.replace(before.document, name="mine"), ANNA),
    ):
        with pytest.raises(Invalid, match="locked"):
            change()
    with pytest.raises(Invalid, match="built-in"):
        desk.add(structs.replace(before.document, name="mine"), ANNA)
    assert desk.library().policy(policy_id) == before


@pytest.mark.parametrize("expects_a_version", [True, False])
def test_an_edit_between_reading_and_writing_is_not_overwritten(
    office, monkeypatch, expects_a_version
):
    made = office.made()
    first, second = PolicyFields(description="first"), PolicyFields(name="second")
    edit = partial(office.another().administration.update, made.document.id, first, BERT)
    before_next(monkeypatch, office.world.state, "write", edit)
    if expects_a_version:

        def seen(library):
            if library.policy(made.document.id) != made:
                raise EditConflict("the policy", "bert", 2)

        with pytest.raises(EditConflict, match="bert"):
            office.desk.put(structs.replace(made.document, name="second"), ANNA, seen)
    else:
        after = office.desk.update(made.document.id, second, ANNA)
        assert (after.document.name, after.document.description) == ("second", "first")


# Clusters


def test_a_cluster_keeps_its_values_under_its_policy_and_drops_unknown_ones(office):
    made = with_threshold(office)
    desk, policy_id = office.desk, made.document.id
    with pytest.raises(Invalid, match=r"properties.x: no unit of the policy declares it"):
        desk.attach("east", ANNA, policy=policy_id, parameters={"x": "1"})
    attached = desk.attach("east", ANNA, policy=policy_id, parameters={"threshold": "7"})
    assert attached.parameters == {"threshold": "7"}
    assert desk.attach("east", ANNA, policy=policy_id) == attached
    assert desk.attach("east", ANNA, policy="none").parameters == {"threshold": "1"}
    assert desk.attach("east", ANNA, parameters={"threshold": "9"}).policy_id == "b4ed2332"
    with pytest.raises(Invalid, match="threshold"):
        desk.attach("east", ANNA, parameters={"threshold": "many"})
    assert office.in_force.in_force("east").parameters == {"threshold": "9"}


def test_a_cluster_has_the_values_of_a_built_in_policy_that_nothing_reads_yet():
    policy = ClusterPolicy(id="b", name="b", version=1, parameters={"later": "1", "other": "2"})
    units = Office().desk.library().units
    found = cluster_parameters(policy, {"later": "9", "unknown": "0"}, units)
    assert found == {"later": "9", "other": "2"}
    check_parameters(policy, found, units, known=policy.parameters)
    with pytest.raises(Invalid, match="no unit of the policy declares it"):
        check_parameters(policy, found, units)


def test_an_unknown_policy_or_cluster_is_refused(office):
    with pytest.raises(NotFound, match="fastest"):
        office.desk.attach("east", ANNA, policy="fastest")
    with pytest.raises(NotFound, match="north"):
        office.desk.attach("north", ANNA, policy="none")
    office.desk.attach("north", ANNA, policy="none", is_new=True)
    assert office.desk.clusters() == ["east", "north", "west"]
    with pytest.raises(Invalid, match="@tuning"):
        office.desk.attach("@tuning", ANNA, policy="none", is_new=True)


def test_an_edit_reaches_attached_clusters_and_not_their_parameters(office):
    made = with_threshold(office)
    policy_id = made.document.id
    office.desk.attach("east", ANNA, policy=policy_id)
    fields = PolicyFields(parameters={"threshold": "6"})
    office.desk.update(policy_id, fields, ANNA)
    office.desk.add_filter(policy_id, office.unit_id("RamFilter"), ANNA)
    found = office.in_force.in_force("east")
    assert [each.unit for each in found.filters] == ["Overloaded", "RamFilter"]
    assert (found.version, found.parameters) == (5, {"threshold": "5"})
    office.desk.update(policy_id, PolicyFields(parameters={}), ANNA)
    office.desk.remove_unit_use(policy_id, UnitKind.FILTER, office.unit_id("Overloaded"), ANNA)
    assert office.in_force.in_force("east").parameters == {}  # nothing declares it any more


def test_a_document_is_stored_and_attached_in_one_edit(office):
    document = ClusterPolicy(id="r", name="by-rpc", version=3, parameters={})
    office.desk.attach_document("west", document, ANNA)
    assert office.in_force.in_force("west") == document
    assert office.desk.library().policy("r").document == document
    before = office.audited()
    assert [each.action for each in before] == ["policy.create", "cluster.attach"]
    office.desk.attach_document("west", document, ANNA)
    assert office.audited() == before
    later = structs.replace(document, version=5, description="d")
    office.desk.attach_document("east", document, ANNA)
    office.desk.attach_document("east", later, BERT)
    assert office.in_force.in_force("west") == office.in_force.in_force("east") == later


def test_a_document_has_its_parameters_in_its_cluster_and_not_in_others(office):
    made = with_threshold(office).document
    for cluster in ("east", "west"):
        office.desk.attach_document(cluster, made, ANNA)
    later = structs.replace(made, version=made.version + 1, parameters={"threshold": "9"})
    office.desk.attach_document("east", later, ANNA)
    assert office.in_force.in_force("east") == later
    assert office.in_force.in_force("west").parameters == {"threshold": "5"}


@pytest.mark.parametrize("later", [{"version": 2}, {"version": 3, "description": "other"}])
def test_an_older_version_or_another_document_of_one_is_refused(office, later):
    document = ClusterPolicy(id="r", name="by-rpc", version=3)
    office.desk.attach_document("west", document, ANNA)
    with pytest.raises(Conflict, match="needs a version above 3"):
        office.desk.attach_document("east", structs.replace(document, **later), ANNA)
    assert office.in_force.in_force("west") == document
    assert office.in_force.in_force("east").id == "nova"


def test_a_document_may_say_what_no_form_can_show(office):
    twice = FilterUse(unit="RamFilter"), FilterUse(unit="RamFilter", name="again")
    document = ClusterPolicy(id="r", name="r", version=1, filters=twice)
    office.desk.attach_document("east", document, ANNA)
    assert office.in_force.in_force("east") == document
    with pytest.raises(Invalid, match="used twice"):
        office.change("r", description="d")


def test_all_units_that_a_document_cannot_use_are_named(office):
    uses = (FilterUse(unit="Gone"), FilterUse(unit="RamFiltre"), FilterUse(unit="RamFilter"))
    with pytest.raises(Invalid, match=r"^policy: filter Gone .*; filter RamFiltre .*RamFilter\?"):
        document = ClusterPolicy(id="r", name="r", version=1, filters=uses)
        office.desk.attach_document("east", document, ANNA)


def test_a_document_that_cannot_be_stored_is_not_attached(office):
    office.made("packing")
    for document, error in (
        (ClusterPolicy(id="r", name="Packing", version=1), NameTaken),
        (ClusterPolicy(id="nova", name="nova", version=2), Invalid),
        (ClusterPolicy(id="r", name="r", version=1, filters=(FilterUse(unit="Gone"),)), Invalid),
    ):
        with pytest.raises(error):
            office.desk.attach_document("east", document, ANNA)
    with pytest.raises(NotFound, match="north"):
        office.desk.attach_document("north", ClusterPolicy(id="r", name="r", version=1), ANNA)
    assert office.in_force.in_force("east").id == "nova"
    assert [each.document.name for each in office.stored()] == ["packing"]


@pytest.mark.parametrize("is_guarded", [True, False])
def test_rights_are_asked_in_the_clusters_that_are_attached_when_it_is_written(
    office, monkeypatch, is_guarded
):
    """Another process attaches the policy elsewhere between the check and the write."""
    made = office.made()
    office.desk.attach("east", ANNA, policy="packing")

    def check(clusters):
        if "west" in clusters:
            raise Forbidden("not in west")

    carl = Actor("carl", check=check)
    other = office.another().administration
    attach = partial(other.attach, "west", ANNA, policy="packing")
    before_next(monkeypatch, office.world.state, "write", attach)
    if not is_guarded:
        monkeypatch.setattr(books, "Guard", lambda *_: Guard("none", ABSENT))
        office.desk.update(made.document.id, PolicyFields(description="d"), carl)
        assert office.stored() != [made]
        return
    with pytest.raises(Forbidden, match="west"):
        office.desk.update(made.document.id, PolicyFields(description="d"), carl)
    later = structs.replace(made.document, version=2)
    for change in (
        lambda: office.desk.attach_document("east", later, carl),
        lambda: office.desk.remove(made.document.id, carl),
        lambda: office.desk.attach("west", carl, policy="none"),
    ):
        with pytest.raises(Forbidden, match="west"):
            change()
    assert office.stored() == [made]


def test_what_the_state_did_not_get_is_said_and_put_in_force_later(office, monkeypatch):
    made = with_threshold(office)
    write = office.world.state.write

    def writes(scope, *arguments, **named):
        if scope == "east":
            raise StateUnavailable("no connection")
        return write(scope, *arguments, **named)

    monkeypatch.setattr(office.world.state, "write", writes)
    with pytest.raises(StateUnavailable, match="is stored, and takes effect in cluster east"):
        office.desk.attach("east", ANNA, policy="packing")
    monkeypatch.undo()
    assert office.in_force.in_force("east").id == "nova"
    assert office.parts.publisher.publish_all() == (["east"], {})
    assert office.in_force.in_force("east").id == made.document.id
    assert office.parts.publisher.publish_all() == ([], {})


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
        desk.library().unit(bought)
    with pytest.raises(Invalid, match="no unit"):
        desk.add_filter(made.document.id, bought, ANNA)
    document = ClusterPolicy(id="q", name="q", version=1, filters=(FilterUse(unit="Bought"),))
    with pytest.raises(Invalid, match="was removed"):
        desk.add(document, ANNA)
    desk.register_units()  # the units are those that this process has seen
    with pytest.raises(NotFound, match=bought):
        desk.library().unit(bought)
    office.another().administration.register_units()
    assert desk.library().unit(bought).is_enabled


def test_units_are_stored_only_where_they_changed(office):
    before = office.book.audit()
    office.another().administration.register_units()
    assert office.book.audit() == before


def test_a_unit_that_is_not_installed_any_more_is_disabled(office):
    gone = StoredUnit(id="g", name="Gone", kind="filter", parameters={"x": "[0-9]+", "y": ""})
    store(office, gone)
    found = office.desk.library().unit("g")
    assert (found.is_enabled, found.is_internal) == (False, False)
    assert {each.name: each.regex for each in found.parameters} == {"x": "[0-9]+", "y": None}
    with pytest.raises(Invalid, match=r"filters\.Gone"):
        office.desk.add_filter(office.made().document.id, "g", ANNA)


def test_a_unit_of_the_worker_is_not_removed(office):
    with pytest.raises(Invalid, match="RamFilter"):
        office.desk.remove_unit(office.unit_id("RamFilter"), ANNA)


def store(office, unit):
    entry = office.desk.audit.entry(ANNA, "unit.register", unit.id, None, None)
    office.book.edit(lambda now: Edited(rules.with_units(now, [unit]), [entry]))


# Audit


def test_every_change_is_audited_with_before_and_after(office):
    made = office.made()
    policy_id = made.document.id
    office.desk.update(policy_id, PolicyFields(description="d"), BERT)
    office.desk.attach("east", ANNA, policy=policy_id)
    office.desk.attach("east", ANNA, policy="nova", parameters={})
    office.desk.remove(policy_id, BERT)
    office.desk.audit.refused(BERT, "policy.remove", "b4ed2332", "no right to it")
    found = office.audited()
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
    assert office.book.audit(after=found[3].id, limit=1) == [found[4]]


def test_units_are_listed_again_only_where_they_have_changed(office):
    before = office.desk.library().units
    office.desk.update(office.made().document.id, PolicyFields(description="other"), ANNA)
    assert office.desk.library().units is before
    store(office, StoredUnit(id="new", name="New", kind="filter"))
    assert office.desk.library().units is not before
    assert office.desk.library().units.find("new") is not None
