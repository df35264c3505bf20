"""Policies of an engine as ours: which unit is meant, what is left out, in which order."""

import pytest

from scheduler_worker.api import resource_types as types
from scheduler_worker.api.codec import MalformedBody, read_collection
from scheduler_worker.api.engine_client import EnginePolicy
from scheduler_worker.cli.import_ovirt import NO_BALANCE, EngineUnits, imported
from scheduler_worker.errors import Invalid
from scheduler_worker.scheduling.catalogue import UnitKind
from tests.support.office import Office

UNKNOWN = "0c5e2b52-6f6a-4c4e-9a1d-7f1f0f2d9a11"


@pytest.fixture
def office():
    return Office()


def read(office, *, filters=(), weights=(), balances=(), theirs=(), before=None, **fields):
    policy = types.Policy(**{"id": "p", "name": "packing", **fields})
    units = EngineUnits(theirs, office.desk.library().units)
    engine = EnginePolicy(policy, list(filters), list(weights), list(balances))
    return imported(engine, units, before)


def member(kind, unit_id, **fields):
    return kind(id=unit_id, scheduling_policy_unit=types.Unit(id=unit_id), **fields)


def test_units_are_found_by_id_with_position_and_factor(office):
    ram, cores = office.unit_id("RamFilter"), office.unit_id("CoreFilter")
    weight = office.unit_id("RAMWeigher", UnitKind.WEIGHT)
    found = read(
        office,
        filters=[
            member(types.Filter, ram, position=1),
            member(types.Filter, cores, position=-1),
            types.Filter(id=office.unit_id("Overloaded")),
        ],
        weights=[member(types.Weight, weight, factor=3)],
        balances=[member(types.Balance, office.unit_id("Spread", UnitKind.BALANCE))],
        properties=(types.Property(name="threshold", value="7"),),
    )
    document = found.document
    assert [(each.unit, each.position) for each in document.filters] == [
        ("RamFilter", "last"),
        ("CoreFilter", "first"),
        ("Overloaded", "none"),
    ]
    assert [(each.unit, each.factor) for each in document.weights] == [("RAMWeigher", 3.0)]
    assert document.balance.unit == "Spread"
    assert document.selector.unit == "RankSelector"
    assert (document.parameters, found.unknown, found.notes) == ({"threshold": "7"}, [], [])


def test_an_external_unit_is_found_by_its_name(office):
    theirs = types.Unit(id=UNKNOWN, name="Bought", internal=False, type="filter")
    found = read(office, filters=[member(types.Filter, UNKNOWN)], theirs=[theirs])
    assert [each.unit for each in found.document.filters] == ["Bought"]


@pytest.mark.parametrize(
    ("unit", "described"),
    [
        (types.Unit(name="max_vms", internal=False), "the external filter max_vms"),
        (types.Unit(name="Bought", internal=True), "the filter Bought"),
        (None, "the filter without a name"),
    ],
)
def test_unknown_units_are_described_and_left_out(office, unit, described):
    theirs = (
        [] if unit is None else [types.Unit(id=UNKNOWN, name=unit.name, internal=unit.internal)]
    )
    found = read(office, filters=[member(types.Filter, UNKNOWN)], theirs=theirs)
    assert found.unknown == [f"{described} ({UNKNOWN})"]
    assert found.document.filters == ()


def test_a_unit_of_another_kind_is_not_taken(office):
    found = read(office, weights=[member(types.Weight, office.unit_id("RamFilter"))])
    assert (len(found.unknown), found.document.weights) == (1, ())


def test_properties_that_no_unit_declares_are_left_out_and_named(office):
    found = read(office, properties=(types.Property(name="maximum", value="7"),))
    assert found.document.parameters == {}
    assert "the property maximum" in found.notes[0]


def test_the_balance_that_moves_nothing_is_no_balance(office):
    found = read(office, balances=[member(types.Balance, NO_BALANCE)])
    assert (found.document.balance, found.unknown) == (None, [])


def test_the_stored_order_is_kept_and_new_units_come_last(office):
    ids = [office.unit_id(name) for name in ("RamFilter", "CoreFilter", "Overloaded")]
    before = read(office, filters=[member(types.Filter, each) for each in ids[:2]]).document
    backwards = [member(types.Filter, each) for each in reversed(ids)]
    after = read(office, filters=backwards, before=before).document
    assert [each.unit for each in after.filters] == ["RamFilter", "CoreFilter", "Overloaded"]


@pytest.mark.parametrize(
    "fields", [{"id": None}, {"name": None}, {"name": "a\nb"}, {"description": "d" * 5000}]
)
def test_what_no_policy_may_be_is_refused_with_its_name(office, fields):
    with pytest.raises(Invalid, match="the engine's policy"):
        read(office, **fields)


def test_a_member_without_a_unit_is_refused(office):
    with pytest.raises(Invalid, match="has no id"):
        read(office, filters=[types.Filter(position=1)])


# Collections

WRONG_WEIGHT = "<weights><weight><factor>x</factor></weight></weights>"


def test_a_collection_is_read_with_more_elements_than_a_body_may_have():
    links = "<link/>" * 20_000
    text = f"<clusters><cluster id='1'>{links}<name>a</name></cluster><other/></clusters>"
    assert [each.name for each in read_collection(types.Cluster, text.encode())] == ["a"]


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        (types.Cluster, "<cluster/>", "is a <cluster>, not a <clusters>"),
        (types.Cluster, WRONG_WEIGHT, "is a <weights>"),
        (types.Weight, WRONG_WEIGHT, r"weights: .*factor"),
    ],
)
def test_other_texts_are_no_collection(kind, text, problem):
    with pytest.raises(MalformedBody, match=problem):
        read_collection(kind, text.encode())
