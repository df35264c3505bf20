"""Units from files: enabled and disabled."""

import pytest

from scheduler_worker.errors import (
    InUse,
    Invalid,
    NotFound,
    StateUnavailable,
)
from scheduler_worker.model.policies import ClusterPolicy, FilterUse
from scheduler_worker.ports import Seen
from scheduler_worker.scheduling.catalogue import UnitKind
from scheduler_worker.scheduling.external.contract import PluginClass, PluginFile
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies
from scheduler_worker.service.policies.units import with_external
from scheduler_worker.service.state import records
from tests.support.office import ANNA, BERT, Office

KEEP = PluginClass(file="keep.py", name="Keep", kind=UnitKind.FILTER, description="Keeps all.")
HEAP = PluginClass(file="keep.py", name="Heap", kind=UnitKind.WEIGHT, description="Likes all.")


@pytest.fixture
def filed():
    """An office with a directory of two files, one of them broken."""
    office = Office()
    files = [
        PluginFile(name="keep.py", classes=(KEEP, HEAP)),
        PluginFile(name="b.py", problem="odd"),
    ]
    office.use(with_external(office.world.pipelines.catalogue, files))
    office.desk.register_units()
    return office


def use_keep(office):
    policy_id = office.made().document.id
    return office.desk.add_filter(policy_id, office.unit_id("Keep"), ANNA)


def test_a_unit_from_a_file_waits_until_it_is_enabled(filed):
    assert not filed.desk.library().unit(filed.unit_id("Keep")).is_enabled
    with pytest.raises(
        Invalid,
        match=r"filters\.Keep: is disabled; enable it: scheduler-worker-manage unit enable Keep",
    ):
        use_keep(filed)
    (unit,) = filed.desk.switch_unit("Keep", BERT, is_enabled=True)
    assert (unit.name, unit.is_enabled) == ("Keep", True)
    filed.desk.register_units()
    assert filed.desk.library().unit(unit.id).is_enabled
    filed.desk.switch_unit("Keep", ANNA, is_enabled=True)  # it is already
    entry = filed.audited()[-1]
    assert (entry.user, entry.action, entry.subject) == ("bert", "unit.enable", unit.id)


def test_a_unit_that_policies_use_is_not_disabled(filed):
    filed.desk.switch_unit("Keep", BERT, is_enabled=True)
    made = use_keep(filed).document
    with pytest.raises(InUse, match="packing"):
        filed.desk.switch_unit("Keep", BERT, is_enabled=False)
    filed.desk.remove_unit_use(made.id, UnitKind.FILTER, filed.unit_id("Keep"), ANNA)
    (unit,) = filed.desk.switch_unit(filed.unit_id("Keep"), BERT, is_enabled=False)
    assert not unit.is_enabled


def test_a_file_that_cannot_be_used_is_listed_with_its_error(filed):
    (broken,) = [each for each in filed.desk.library().units if each.name == "b.py"]
    assert not broken.is_enabled
    assert broken.description == "b.py cannot be used: odd"
    assert broken.id not in {each.id for each in filed.book.documents().units.values()}
    with pytest.raises(Invalid, match="odd"):
        filed.desk.switch_unit("b.py", BERT, is_enabled=True)


@pytest.mark.parametrize(
    ("name", "error", "why"),
    [
        ("Nothing", NotFound, "Nothing"),
        ("RamFilter", Invalid, "always enabled"),
        ("Bought", Invalid, "always enabled"),
    ],
)
def test_only_units_from_files_are_switched(filed, name, error, why):
    with pytest.raises(error, match=why):
        filed.desk.switch_unit(name, BERT, is_enabled=False)


def switch(filed, *, is_enabled):
    return filed.desk.switch_unit("Keep", BERT, is_enabled=is_enabled)


def enabled(office):
    """The ids of the units that are enabled, as workers have them."""
    changes = office.world.state.changes("@global", Seen())
    return {each.key[2:] for each in changes.entries if each.key.startswith(records.UNIT)}


def test_a_unit_of_a_document_that_a_cluster_has_is_not_disabled(filed):
    document = ClusterPolicy(id="rpc", name="by-rpc", version=1, filters=(FilterUse(unit="Keep"),))
    with pytest.raises(Invalid, match="filter Keep is disabled"):
        filed.desk.attach_document("east", document, ANNA)
    switch(filed, is_enabled=True)
    filed.another().administration.attach_document("east", document, ANNA)
    with pytest.raises(InUse, match="Unit Keep is used by by-rpc"):
        switch(filed, is_enabled=False)
    with pytest.raises(InUse, match="by-rpc"):
        filed.desk.remove_unit(filed.unit_id("Keep"), ANNA)
    filed.desk.attach("east", ANNA, policy="nova", parameters={})
    filed.desk.remove("rpc", ANNA)
    switch(filed, is_enabled=False)
    assert filed.unit_id("Keep") not in enabled(filed)


def test_a_removed_unit_leaves_no_record(filed):
    switch(filed, is_enabled=True)
    keep = filed.unit_id("Keep")
    assert keep in enabled(filed)
    filed.desk.remove_unit(keep, ANNA)
    assert keep not in enabled(filed)
    assert filed.unit_id("Bought") in enabled(filed)


def test_an_outage_leaves_the_switch_to_the_upkeep(filed, monkeypatch):
    write = filed.world.state.write

    def writes(scope, *arguments, **named):
        if scope == "@global":
            raise StateUnavailable("no Redis")
        return write(scope, *arguments, **named)

    monkeypatch.setattr(filed.world.state, "write", writes)
    with pytest.raises(
        StateUnavailable, match=r"is stored, .*for units within a minute .*no Redis"
    ):
        switch(filed, is_enabled=True)
    upkeep, said = filed.parts.upkeep(), filed.parts.said
    for _ in range(2):
        upkeep.keep_up()
    assert said == ["Which units are enabled is not in force: no Redis"]
    monkeypatch.undo()
    for _ in range(2):
        upkeep.keep_up()
    assert said[1:] == ["Which units are enabled was put in force as the book has it"]
    assert filed.unit_id("Keep") in enabled(filed)


def test_switches_of_other_processes_in_between_are_not_undone(filed):
    keep = filed.unit_id("Keep")
    beside = ClusterPolicies(filed.world.beside().fleet, lambda: filed.world.pipelines)
    stored = [{keep}]

    def wanted():
        read = stored[-1]
        if len(stored) == 1:  # another process enables one more and is faster
            stored.append({keep, "another"})
            beside.settle_units(lambda: stored[-1])
        return read

    assert not filed.in_force.settle_units(wanted)
    assert enabled(filed) == {keep, "another"}
