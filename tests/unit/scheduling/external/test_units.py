"""Units that ask classes outside of this process."""

import random

import msgspec
import pytest
from conformance.ovirt import record, request, table

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.cluster_load import BalanceMemory, ClusterLoad, HostLoad, VmLoad
from scheduler_worker.model.policies import BalanceUse, ClusterPolicy, FilterUse, WeightUse
from scheduler_worker.scheduling.catalogue import Catalogue, UnitKind, entry
from scheduler_worker.scheduling.compiler import compile_policy
from scheduler_worker.scheduling.explain import explain
from scheduler_worker.scheduling.external.contract import PluginClass, PluginFile
from scheduler_worker.scheduling.external.units import Plugins, unit_class
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.service.policies.units import unit_catalogue, with_external


class Answers(Plugins):
    """Answers instead of a sandbox; an exception stands for a failure."""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []

    def ask(self, question, read):
        self.asked.append(question)
        try:
            return read(self.answers[question.plugin.name], question.hosts)
        except (KeyError, ValueError):
            return None

    def trouble(self, plugin):
        return None if plugin.name in self.answers else "it did not answer in time"


KINDS = {"Keep": UnitKind.FILTER, "Cost": UnitKind.WEIGHT, "Move": UnitKind.BALANCE}
CLASSES = tuple(
    PluginClass(
        file="all.py",
        name=name,
        kind=kind,
        description=f"Is {name}.",
        parameters={"most": "[0-9]+"},
    )
    for name, kind in KINDS.items()
)
HOSTS = ["a", "b", "c"]


def catalogue(declared=None):
    classes = tuple(msgspec.structs.replace(each, on_failure=declared) for each in CLASSES)
    return with_external(unit_catalogue(), [PluginFile(name="all.py", classes=classes)])


def pipeline(plugins, declared=None, **parameters):
    policy = ClusterPolicy(
        id="p",
        name="p",
        version=1,
        filters=(FilterUse(unit="Keep"),),
        weights=(WeightUse(unit="Cost"),),
        balance=BalanceUse(unit="Move"),
        parameters=parameters,
    )
    return compile_policy(policy, catalogue(declared), Options(), {Plugins: plugins})


def decided(plugins, **parameters):
    compiled = pipeline(plugins, **parameters)
    hosts = table(record(name, {}, vcpus=8, memory_mb=4096, local_gb=10) for name in HOSTS)
    asked = Request(spec=request(), instance_uuids=("vm",))
    found = explain(compiled, hosts, asked, random.Random(0))
    passed = {each.host for each in found.verdicts if each.rejected_by is None}
    return found, passed


def test_a_filter_keeps_and_the_lowest_score_wins():
    found, passed = decided(Answers(Keep=["b", "c"], Cost=[["b", 7], ["c", 3]]))
    assert passed == {"b", "c"}
    assert found.chosen == "c"
    assert found.notes == ()
    (verdict,) = [each for each in found.verdicts if each.host == "a"]
    assert (verdict.rejected_by, verdict.reason) == ("Keep", "Keep of all.py does not keep it")


def test_a_filter_is_asked_once_for_an_instance_and_its_alternates():
    plugins = Answers(Keep=HOSTS, Cost=[])
    hosts = table(record(name, {}, vcpus=8, memory_mb=4096, local_gb=10) for name in HOSTS)
    asked = Request(spec=request(), instance_uuids=("vm-1",), num_alternates=2)
    compiled = pipeline(plugins)
    found = compiled.decide(hosts, asked, random.Random(0))
    assert len(found.selections[0]) == 3
    keeps = [each.hosts for each in plugins.asked if each.plugin.name == "Keep"]
    assert [sorted(each) for each in keeps] == [HOSTS]
    plugins.asked.clear()
    asked = msgspec.structs.replace(asked, instance_uuids=("vm-2", "vm-3"))
    found = compiled.decide(hosts, asked, random.Random(0))
    keeps = [each.hosts for each in plugins.asked if each.plugin.name == "Keep"]
    chosen = [each[0].nodename for each in found.selections]
    # Its second host has changed before the alternates are found.
    assert [sorted(each) for each in keeps] == [HOSTS, HOSTS, chosen[1:]]


def test_classes_get_ids_and_the_parameters_that_are_set():
    plugins = Answers(Keep=["b", "c"], Cost=[])
    decided(plugins, most="5")
    first = plugins.asked[0]
    assert (list(first.hosts), first.vm, first.properties) == (HOSTS, "vm", {"most": "5"})
    cost = next(each for each in plugins.asked if each.plugin.name == "Cost")
    assert list(cost.hosts) == ["b", "c"]
    plugins.asked.clear()
    decided(plugins)
    assert plugins.asked[0].properties == {}


def test_failures_pass_all_hosts_and_score_nothing_and_are_noted():
    found, passed = decided(Answers())
    assert passed == set(HOSTS)
    assert found.notes == (
        "Keep failed, all hosts pass: it did not answer in time",
        "Cost failed, every score is 0: it did not answer in time",
    )


def test_a_refusal_says_that_a_filter_failed():
    plugins = Answers()
    plugins.on_failure = "refuse"
    hosts = table(record(name, {}, vcpus=8, memory_mb=4096, local_gb=10) for name in HOSTS)
    with pytest.raises(NoValidHost) as refused:
        asked = Request(spec=request(), instance_uuids=("vm",))
        pipeline(plugins).decide(hosts, asked, random.Random(0))
    why = "Keep failed, no host passes: it did not answer in time"
    assert why in refused.value.diagnosis.notes


VMS = (VmLoad(id="vm-1"), VmLoad(id="pinned", can_move=False))
CLUSTER = ClusterLoad(hosts=(HostLoad(name="a", vms=VMS), HostLoad(name="b"), HostLoad(name="c")))


def planned(plugins):
    return pipeline(plugins).balance.plan(CLUSTER, BalanceMemory(), 1000.0)


def test_a_balance_proposes_a_move():
    (move,) = planned(Answers(Move=["vm-1", ["b", "a"]])).migrations
    assert (move.vm, move.source, move.destinations) == ("vm-1", "a", ("b",))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ([], "proposes nothing"),
        (["vm-1", ["a"]], "cannot move"),
        (["pinned", ["b"]], "cannot move"),
        (["unknown", ["b"]], "cannot move"),
    ],
)
def test_a_balance_that_cannot_be_followed_moves_nothing(answer, why):
    plan = planned(Answers(Move=answer))
    assert plan.migrations == ()
    assert why in plan.nothing_because


def test_a_balance_that_fails_moves_nothing():
    why = "Move failed, nothing moves: it did not answer in time"
    assert planned(Answers()).nothing_because == why


def test_units_from_files_do_not_come_with_the_worker():
    found = catalogue().find("Keep", UnitKind.FILTER)
    assert not found.unit.is_internal()
    assert found.description == "Is Keep."
    assert [(each.name, each.regex) for each in found.parameters] == [("most", "[0-9]+")]


def test_names_that_are_taken_and_files_that_do_not_load_are_named():
    classes = [
        PluginClass(file="a.py", name=name, kind=UnitKind.FILTER) for name in ("X", "Memory")
    ]
    memory = entry("Memory", unit_class(classes[1]))
    found = with_external(
        Catalogue([memory]),
        [
            PluginFile(name="a.py", classes=tuple(classes)),
            PluginFile(name="b.py", classes=(classes[0],)),
            PluginFile(name="c.py", problem="SyntaxError: invalid syntax"),
        ],
    )
    assert found.find("X", UnitKind.FILTER).problem is None
    assert found.find("Memory", UnitKind.FILTER) is memory
    problems = {
        name: str(found.problem(name, UnitKind.FILTER)) for name in ("a.py", "b.py", "c.py")
    }
    assert "the worker has a filter Memory already" in problems["a.py"]
    assert "a.py has a filter X already" in problems["b.py"]
    assert problems["c.py"] == "cannot be used: SyntaxError: invalid syntax"
