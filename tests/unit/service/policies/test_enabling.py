"""Units from files: enabled and disabled, for policies of administrators and over RPC."""

import pytest
from msgspec import structs

from scheduler_worker.errors import (
    InUse,
    Invalid,
    NotFound,
    RequestError,
    StateUnavailable,
)
from scheduler_worker.model.policies import ClusterPolicy, FilterUse, WeightUse
from scheduler_worker.ports import Seen
from scheduler_worker.scheduling.catalogue import UnitKind
from scheduler_worker.scheduling.external.contract import PluginClass, PluginFile
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.policies.reconciler import Reconciler
from scheduler_worker.service.policies.units import with_external
from scheduler_worker.service.state import records
from tests.support.interrupted import raising
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
    office.catalogue = with_external(office.catalogue, files)
    office.pipelines = Pipelines(
        office.catalogue, office.pipelines.nova_policy, office.world.options
    )
    office.desk = office.another()
    office.desk.register_units()
    return office


def use_keep(office):
    policy_id = office.made().document.id
    return office.desk.add_filter(policy_id, office.unit_id("Keep"), ANNA)


def test_a_unit_from_a_file_waits_until_it_is_enabled(filed):
    assert not filed.desk.library.unit(filed.unit_id("Keep")).is_enabled
    with pytest.raises(
        Invalid,
        match=r"filters\.Keep: is disabled; enable it: scheduler-worker-manage unit enable Keep",
    ):
        use_keep(filed)
    (unit,) = filed.desk.switch_unit("Keep", BERT, is_enabled=True)
    assert (unit.name, unit.is_enabled) == ("Keep", True)
    filed.desk.register_units()
    assert filed.desk.library.unit(unit.id).is_enabled
    filed.desk.switch_unit("Keep", ANNA, is_enabled=True)  # it is already
    _, entry = filed.store.audit()
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
    (broken,) = [each for each in filed.desk.library.units() if each.name == "b.py"]
    assert not broken.is_enabled
    assert broken.description == "b.py cannot be used: odd"
    assert broken.id not in {each.id for each in filed.store.units()}
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


# Over RPC

BY_RPC = ClusterPolicy(id="rpc", name="by-rpc", version=1, filters=(FilterUse(unit="Keep"),))


def switch(filed, *, is_enabled):
    return filed.desk.switch_unit("Keep", BERT, is_enabled=is_enabled)


def enabled(office):
    """The ids of the units that are enabled, as the shared state has them."""
    changes = office.world.state.changes("@global", Seen())
    return {each.key[2:] for each in changes.entries if each.key.startswith(records.UNIT)}


def test_a_policy_over_rpc_is_refused_until_its_units_are_enabled(filed):
    with pytest.raises(
        RequestError,
        match=r"filter Keep is disabled; enable it: scheduler-worker-manage unit enable Keep$",
    ):
        filed.in_force.attach("east", BY_RPC)
    assert filed.in_force.in_force("east").id == "nova"
    switch(filed, is_enabled=True)
    beside = ClusterPolicies(filed.world.beside().fleet, lambda: filed.pipelines)
    beside.attach("east", BY_RPC)  # another process, which asks no policy store
    assert filed.in_force.in_force("east") == BY_RPC


def test_all_units_that_are_not_enabled_are_named(filed):
    policy = structs.replace(
        BY_RPC,
        filters=(FilterUse(unit="RamFilter"), *BY_RPC.filters),
        weights=(WeightUse(unit="Heap"),),
    )
    with pytest.raises(RequestError) as refused:
        filed.in_force.attach("east", policy)
    assert "filter Keep is disabled" in str(refused.value)
    assert "weight Heap is disabled" in str(refused.value)
    assert "RamFilter" not in str(refused.value)


def test_a_unit_of_a_policy_over_rpc_is_not_disabled(filed):
    switch(filed, is_enabled=True)
    for cluster in ("east", "west"):
        filed.in_force.attach(cluster, BY_RPC)
    with pytest.raises(InUse, match="Unit Keep is used by cluster east, cluster west"):
        switch(filed, is_enabled=False)
    with pytest.raises(InUse, match="cluster east, cluster west"):
        filed.desk.remove_unit(filed.unit_id("Keep"), ANNA)
    assert filed.desk.library.unit(filed.unit_id("Keep")).is_enabled
    for cluster in ("east", "west"):
        filed.in_force.detach(cluster)
    switch(filed, is_enabled=False)
    with pytest.raises(RequestError, match="Keep is disabled"):
        filed.in_force.attach("east", BY_RPC)


def test_a_removed_unit_leaves_no_record(filed):
    switch(filed, is_enabled=True)
    keep = filed.unit_id("Keep")
    assert keep in enabled(filed)
    filed.desk.remove_unit(keep, ANNA)
    assert keep not in enabled(filed)
    assert filed.unit_id("Bought") in enabled(filed)


def test_an_outage_leaves_the_switch_to_the_reconciler(filed, monkeypatch):
    said: list[str] = []
    reconciler = Reconciler(filed.desk, report=said.append)

    monkeypatch.setattr(filed.world.state, "write", raising(StateUnavailable("no Redis")))
    with pytest.raises(StateUnavailable, match=r"is stored, .*within a minute .*no Redis"):
        switch(filed, is_enabled=True)
    for _ in range(2):
        reconciler.reconcile()
    assert said == ["Which units are enabled is not in force for RPC: no Redis"]
    monkeypatch.undo()
    for _ in range(2):
        reconciler.reconcile()
    assert said[1:] == ["The units that are enabled were put in force as they are stored"]
    filed.in_force.attach("east", BY_RPC)


def test_switches_of_other_processes_in_between_are_not_undone(filed):
    keep = filed.unit_id("Keep")
    beside = ClusterPolicies(filed.world.beside().fleet, lambda: filed.pipelines)
    stored = [{keep}]

    def wanted():
        read = stored[-1]
        if len(stored) == 1:  # another process enables one more and is faster
            stored.append({keep, "another"})
            beside.settle_units(lambda: stored[-1])
        return read

    assert not filed.in_force.settle_units(wanted)
    assert enabled(filed) == {keep, "another"}
