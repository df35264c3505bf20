"""Clusters, cluster policies with their history, and the units that policies use."""

from functools import partial
from typing import Any

import msgspec
import pytest

from scheduler_worker.errors import (
    AdministrationError,
    EditConflict,
    Forbidden,
    InUse,
    Invalid,
    NotFound,
)
from scheduler_worker.model.audit import AuditEntry
from scheduler_worker.operations.callers import Caller, Grant
from scheduler_worker.operations.clusters import (
    attach_cluster_policy,
    detach_cluster_policy,
    get_cluster,
    list_clusters,
)
from scheduler_worker.operations.policies import (
    PolicyCheck,
    attach_cluster,
    check_policy,
    create_policy,
    get_attachment,
    get_policy,
    list_cluster_history,
    list_policies,
    list_policy_history,
    put_policy,
    remove_policy,
)
from scheduler_worker.operations.units import get_unit, list_units, switch_unit
from scheduler_worker.service.documents.audit import Actor
from tests.support.interrupted import before_next
from tests.support.rest import BALANCE, CPU, CPU_WEIGHT, NONE

TEXT = {
    "name": "packed",
    "filters": [{"unit": "Memory"}, {"unit": "CPU", "position": "first"}],
    "weights": [{"unit": "OptimalForCpuEvenDistribution", "factor": 3.0}],
    "balance": {"unit": "OptimalForEvenDistribution"},
    "parameters": {"HighUtilization": "75"},
}
READER = Caller("rita", (Grant("reader"),), "")
EDITOR = Caller("edda", (Grant("policy_editor", "east"),), "")


@pytest.fixture
def policy(rest):
    return rest.call(create_policy, **TEXT)


def test_clusters_have_the_policy_in_force(rest):
    rest.administration.attach("east", Actor("anna"), policy=NONE)
    rest.world.place("one", requested_destination={"host": "host-east"})
    east, west = rest.call(list_clusters).items
    assert (east.policy.id, east.policy.name, east.policy.version) == (NONE, "none", 1)
    assert (east.hosts, east.reservations, west.policy.name) == (1, 1, "nova")
    document = rest.call(get_cluster, name="east").document
    assert [each["unit"] for each in document["filters"]] == ["CPU", "Memory"]
    for operation in (get_cluster, get_attachment):
        with pytest.raises(NotFound, match="'north'"):
            rest.call(operation, name="north")


# Units


def test_units_have_their_kinds_and_parameters(rest):
    units = {each.id: each for each in rest.call(list_units, limit=1000).items}
    cpu = units[CPU]
    assert (cpu.kind, cpu.description) == (
        "filter",
        "Passes hosts with as many cores for shared VMs as the largest of them has vCPUs.",
    )
    assert (cpu.can_be_switched, units[CPU_WEIGHT].is_cost) == (False, True)
    named = {each.name: each for each in units[BALANCE].parameters}
    assert (named["HighUtilization"].default, named["HighUtilization"].type) == ("75", "text")
    [rank_sum] = [each for each in units.values() if each.name == "RankSum"]
    assert {each.type for each in rank_sum.parameters} == {"integer", "boolean"}
    assert rest.call(get_unit, id=CPU) == cpu
    with pytest.raises(NotFound):
        rest.call(get_unit, id="none")


# Policies


def test_a_policy_is_created_read_changed_and_removed(rest, policy):
    assert (policy.version, policy.is_locked, policy.clusters) == (1, False, [])
    assert policy.changed_by == "anna"
    assert rest.call(get_policy, id=policy.id) == policy
    after = rest.call(put_policy, id=policy.id, **TEXT | {"name": "loose", "filters": []})
    assert (after.name, after.version, after.filters) == ("loose", 2, ())
    assert rest.call(get_policy, id=policy.id) == after
    rest.call(remove_policy, id=policy.id)
    with pytest.raises(NotFound):
        rest.call(get_policy, id=policy.id)


def test_built_in_policies_are_marked(rest):
    found = {each.id: (each.is_locked, each.is_default) for each in rest.call(list_policies).items}
    assert found == {NONE: (True, True), "nova": (True, False)}


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"parameters": {"HighUtilization": "20"}}, "properties.HighUtilization"),
        ({"filters": [{"unit": "None such"}]}, "filters.None such"),
        ({"name": "NONE"}, "name"),
    ],
)
def test_a_check_names_the_field_and_nothing_is_stored(rest, changed, field):
    before = rest.state()
    assert rest.call(check_policy, id="new", **TEXT) == PolicyCheck(None, None)
    found = rest.call(check_policy, id="new", **TEXT | changed)
    assert found.field.startswith(field)
    assert found.problem
    with pytest.raises(AdministrationError):
        rest.call(create_policy, **TEXT | changed)
    assert rest.state() == before


def test_the_history_has_every_change_and_can_be_put_back(rest, policy):
    rest.call(put_policy, id=policy.id, **TEXT | {"filters": []})
    first, second = rest.call(list_policy_history, id=policy.id).items
    assert [(each.action, each.version) for each in (first, second)] == [
        ("create", 1), ("update", 2)
    ]  # fmt: skip
    assert (second.user, second.policy.filters) == ("anna", ())
    page = rest.call(list_policy_history, id=policy.id, limit=1)
    assert page.items == [first]
    assert rest.call(list_policy_history, id=policy.id, marker=page.next).items == [second]
    text = msgspec.to_builtins(first.policy)
    rest.call(put_policy, id=policy.id, **text)
    restored = msgspec.to_builtins(rest.call(get_policy, id=policy.id))
    assert {name: restored[name] for name in text} == text
    rest.call(remove_policy, id=policy.id)
    assert rest.call(list_policy_history, id=policy.id).items[-1].policy is None


def test_the_history_says_who_attached_and_detached_which_cluster_from_where(rest, policy):
    rest.call(attach_cluster, name="east", policy=policy.id)
    rest.call(put_policy, id=policy.id, **TEXT | {"filters": []})
    bert = Actor("bert", "command on admin1")
    rest.administration.attach("east", bert, policy=NONE)
    over_rpc: list[dict[str, Any]] = [
        {"action": "policy.attach", "after": msgspec.json.encode({"id": policy.id}).decode()},
        {"action": "policy.detach", "before": msgspec.json.encode({"id": policy.id}).decode()},
    ]
    for each in over_rpc:
        rest.book.record(AuditEntry(at_s=1.0, user="c", origin="RPC", subject="west", **each))
    refused = {"result": "refused", **over_rpc[0]}
    rest.book.record(AuditEntry(at_s=1.0, user="c", origin="RPC", subject="west", **refused))
    edits = rest.call(list_policy_history, id="Packed").items
    assert [(each.action, each.cluster, each.user, each.origin) for each in edits] == [
        ("create", None, "anna", "127.0.0.1"),
        ("attach", "east", "anna", "127.0.0.1"),
        ("update", None, "anna", "127.0.0.1"),
        ("detach", "east", "bert", "command on admin1"),
        ("attach", "west", "c", "RPC"),
        ("detach", "west", "c", "RPC"),
    ]
    for cluster, policies in {"east": [policy.id, NONE], "west": [policy.id, "nova"]}.items():
        found = rest.call(list_cluster_history, name=cluster).items
        assert [each.id for each in found] == policies
    paged, marker = [], None
    while not paged or marker:
        page = rest.call(list_policy_history, id=policy.id, marker=marker, limit=2)
        paged, marker = [*paged, *page.items], page.next
    assert paged == edits


def test_what_is_attached_over_rpc_has_its_history(rest):
    rest.call(attach_cluster_policy, cluster="east", policy={"id": "p", "name": "p", "version": 4})
    rest.call(detach_cluster_policy, cluster="east")
    edits = rest.call(list_policy_history, id="p").items
    assert [(each.action, each.version, each.cluster) for each in edits] == [
        ("create", 4, None), ("attach", None, "east"), ("detach", None, "east"),
    ]  # fmt: skip
    found = rest.call(list_cluster_history, name="east").items
    assert [each.id for each in found] == ["p", "nova"]


def test_a_history_is_whole_however_many_entries_the_store_answers_at_once(
    rest, policy, monkeypatch
):
    rest.call(attach_cluster, name="east", policy=policy.id)
    for number in range(12):
        rest.call(put_policy, id=policy.id, **TEXT | {"description": str(number)})
    whole = rest.call(list_policy_history, id=policy.id).items
    assert [each.action for each in whole] == ["create", "attach", *["update"] * 12]
    assert [each.version for each in whole if each.action != "attach"] == [*range(1, 14)]
    monkeypatch.setattr("scheduler_worker.operations.policies.MAX_PAGE", 2)
    assert rest.call(list_policy_history, id=policy.id).items == whole


def test_a_cluster_is_attached_with_its_own_values(rest, policy):
    asked = {"name": "east", "policy": policy.id, "parameters": {"HighUtilization": "90"}}
    before = rest.call(get_attachment, name="east")
    assert (before.policy, before.changed_by) == ("nova", None)
    with pytest.raises(Invalid, match=r"properties\.HighUtilisation: no unit"):
        rest.call(attach_cluster, **asked | {"parameters": {"HighUtilisation": "90"}})
    found = rest.call(attach_cluster, **asked)
    assert (found.policy, found.parameters["HighUtilization"]) == (policy.id, "90")
    assert rest.call(get_attachment, name="east") == found
    assert rest.call(get_cluster, name="east").document["name"] == "packed"
    assert rest.call(get_policy, id=policy.id).clusters == ["east"]
    with pytest.raises(InUse, match="east"):
        rest.call(remove_policy, id=policy.id)


def test_editors_change_what_is_of_their_clusters_alone(rest, policy):
    own = {"id": policy.id, "caller": EDITOR} | TEXT
    rest.call(list_policies, caller=READER)
    for operation, asked in (
        (create_policy, TEXT | {"name": "x", "caller": READER}),
        (put_policy, own | {"caller": READER}),
        (attach_cluster, {"name": "west", "policy": policy.id, "caller": EDITOR}),
        (switch_unit, {"id": CPU, "is_enabled": False, "caller": EDITOR}),
    ):
        with pytest.raises(Forbidden):
            rest.call(operation, **asked)
    rest.call(attach_cluster, name="east", policy=policy.id, caller=EDITOR)
    rest.call(put_policy, **own | {"name": "y"})
    rest.call(attach_cluster, name="west", policy=policy.id)
    with pytest.raises(Forbidden):
        rest.call(put_policy, **own | {"name": "z"})


def test_an_edit_fails_if_a_cluster_was_attached_since_its_check(rest, policy, monkeypatch):
    attach = partial(rest.call, attach_cluster, name="west", policy=policy.id)
    before_next(monkeypatch, rest.world.state, "write", attach)
    with pytest.raises(Forbidden):
        rest.call(put_policy, id=policy.id, caller=EDITOR, **TEXT | {"name": "y"})
    assert rest.call(get_policy, id=policy.id).name == "packed"


def test_who_names_a_version_must_have_seen_the_latest(rest, policy):
    rest.call(put_policy, id=policy.id, version=1, **TEXT | {"filters": []})
    attached = rest.call(attach_cluster, name="east", policy=policy.id, version=0)
    for operation, asked in (
        (put_policy, {"id": policy.id, "version": 1} | TEXT),
        (remove_policy, {"id": policy.id, "version": 1}),
        (attach_cluster, {"name": "east", "policy": "nova", "version": 0}),
    ):
        with pytest.raises(EditConflict, match="anna"):
            rest.call(operation, **asked)
    rest.call(attach_cluster, name="east", policy="nova", version=attached.version)
    rest.call(remove_policy, id=policy.id, version=2)
