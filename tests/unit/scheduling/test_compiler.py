"""Compiles policies to pipelines: units with their parameters, and all problems at once."""

from typing import Any

import msgspec
import pytest

from scheduler_worker.errors import ClusterPolicyError
from scheduler_worker.model.policies import (
    BalanceUse,
    ClusterPolicy,
    FilterUse,
    SelectorUse,
    WeightUse,
)
from scheduler_worker.scheduling.catalogue import UnitKind, entry
from scheduler_worker.scheduling.compiler import compile_policy, nova_policy
from scheduler_worker.scheduling.filters.capacity import IoOpsFilter, RamFilter
from scheduler_worker.scheduling.filters.isolated_hosts import IsolatedHostsFilter
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.ovirt.balances import EvenGuestsBalance, PowerSavingBalance
from scheduler_worker.scheduling.ovirt.resources import CpuOverloadFilter
from scheduler_worker.scheduling.plugin import Balance, Filter, NoParameters, UnitContext, Weigher
from scheduler_worker.scheduling.weighers.resources import IoOpsWeigher, RAMWeigher
from scheduler_worker.service.policies.units import unit_catalogue
from tests.support.hosts import NOW_S, host_record, host_table, request_spec


class Used(Weigher):
    """A cost: what is used of a host."""

    lower_is_better = True

    def weigh(self, hosts, spec):
        return hosts.vcpus_used.astype(float)


class Collaborating(Filter):
    """Uses an object of the worker."""

    collaborators = (dict,)

    def host_passes(self, host_state, spec_obj):
        return self.collaborator(dict).get("passes", False)


UNITS = unit_catalogue(
    {
        each.__name__: each
        for each in (
            *(RamFilter, IoOpsFilter, IsolatedHostsFilter, Collaborating),
            *(RAMWeigher, IoOpsWeigher, Used),
        )
    },
    {
        "OptimalForPowerSaving": PowerSavingBalance,
        "OptimalForEvenGuestDistribution": EvenGuestsBalance,
    },
)


def policy(**fields: Any) -> ClusterPolicy:
    named: dict[str, Any] = {"id": "p", "name": "p", "version": 1}
    return ClusterPolicy(**named | fields)


def compiled(collaborators=None, values=None, **fields):
    return compile_policy(policy(**fields), UNITS, Options(values=values or {}), collaborators)


def problems(**fields) -> list[str]:
    with pytest.raises(ClusterPolicyError) as refused:
        compiled(**fields)
    return [each.removeprefix("policy p@1: ") for each in refused.value.problems]


def test_a_parameter_is_set_by_use_policy_options_and_default_in_this_order():
    use = FilterUse(unit="IoOpsFilter", parameters={"max_io_ops_per_host": "3"})
    values = {"max_io_ops_per_host": 5}
    mine = {"max_io_ops_per_host": "4"}

    def most(use, **fields) -> int:
        return compiled(filters=(use,), **fields).filters[0].parameters.max_io_ops_per_host

    assert most(use, parameters=mine, values=values) == 3
    assert most(FilterUse(unit="IoOpsFilter"), parameters=mine, values=values) == 4
    assert most(FilterUse(unit="IoOpsFilter"), values=values) == 5
    assert most(FilterUse(unit="IoOpsFilter")) == 8


def test_a_text_becomes_the_parameters_type():
    given = {
        "isolated_hosts": "a, b",
        "restrict_isolated_hosts_to_isolated_images": "false",
    }
    pipeline = compiled(filters=(FilterUse(unit="IsolatedHostsFilter", parameters=given),))
    assert pipeline.filters[0].parameters.isolated_hosts == ("a", "b")
    assert pipeline.filters[0].parameters.restrict_isolated_hosts_to_isolated_images is False


def test_a_unit_gets_the_collaborators_that_it_declares():
    pipeline = compiled({dict: {"passes": True}}, filters=(FilterUse(unit="Collaborating"),))
    hosts = host_table([host_record()])
    assert pipeline.filters[0].passes(hosts, request_spec()).all()
    without = compiled(filters=(FilterUse(unit="Collaborating"),))
    assert not without.filters[0].passes(hosts, request_spec()).any()


def test_a_unit_gets_no_collaborator_that_it_does_not_declare():
    with pytest.raises(TypeError, match=r"Collaborating\.collaborators does not name list"):
        Collaborating().collaborator(list)


def test_all_problems_are_reported_at_once_with_policy_unit_and_parameter():
    assert problems(
        filters=(
            FilterUse(unit="RamFiltre"),
            FilterUse(unit="RAMWeigher"),
            FilterUse(unit="RequestedDestination"),
            FilterUse(unit="IoOpsFilter", position="first", parameters={"max": "3"}),
            FilterUse(unit="IoOpsFilter", position="first"),
        ),
        weights=(WeightUse(unit="RAMWeigher", factor=float("inf")),),
        balance=BalanceUse(unit="Even"),
        selector=SelectorUse(unit="Dice", parameters={}),
        parameters={"max_io_ops_per_host": "many", "unheard_of": "1"},
    ) == [
        "IoOpsFilter, IoOpsFilter: only one filter can be first",
        "IoOpsFilter, parameter max: is not declared; known are max_io_ops_per_host",
        "IoOpsFilter: Expected `int`, got `str` - at `$.max_io_ops_per_host`",
        "IoOpsFilter: Expected `int`, got `str` - at `$.max_io_ops_per_host`",
        "balance Even: there is no balance of this name",
        "filter IoOpsFilter: is used twice; give one of them another `name`",
        "filter RAMWeigher: is a weight, not a filter",
        "filter RamFiltre: there is no filter of this name; did you mean RamFilter?",
        "filter RequestedDestination: is asked under every policy and cannot be named by one",
        "parameter unheard_of: no unit of the policy declares it",
        "selector Dice: there is no selector of this name",
        "weight RAMWeigher: factor inf is no finite number",
    ]


def test_the_options_make_a_policy():
    options = Options.of(io_ops_weight_multiplier=-7.0)
    found = nova_policy(["RamFilter", "RamFilter"], ["RAMWeigher", "IoOpsWeigher"], options, UNITS)
    assert (found.id, found.name) == ("nova", "nova")
    assert [each.label for each in found.filters] == ["RamFilter", "RamFilter#2"]
    assert [each.factor for each in found.weights] == [1.0, -7.0]
    again = nova_policy(["RamFilter", "RamFilter"], ["RAMWeigher", "IoOpsWeigher"], options, UNITS)
    assert again == found
    others = Options.of(io_ops_weight_multiplier=-7.0, max_io_ops_per_host=9)
    changed = nova_policy(["RamFilter"] * 2, ["RAMWeigher", "IoOpsWeigher"], others, UNITS)
    assert changed.version != found.version


def test_an_aggregate_overrides_the_factor_of_a_policy():
    [weight] = compiled(weights=(WeightUse(unit="RAMWeigher", factor=5.0),)).weights
    assert weight.default_multiplier() == 5.0


class TestCatalogue:
    def test_an_entry_describes_its_class(self):
        found = UNITS.find("IsolatedHostsFilter", UnitKind.FILTER)
        assert found.unit.is_internal()
        assert found.description.startswith("Passes ``isolated_hosts`` for")
        assert [(each.name, each.type, each.default) for each in found.parameters] == [
            ("isolated_images", "list", ()),
            ("isolated_hosts", "list", ()),
            ("restrict_isolated_hosts_to_isolated_images", "boolean", True),
        ]
        assert not UNITS.find("Used", UnitKind.WEIGHT).unit.is_internal()

    def test_a_unit_of_several_kinds_has_an_id_for_each(self):
        class All(Filter, Weigher, Balance):
            unit_id = "1" * 8

            def passes(self, hosts, spec):
                raise NotImplementedError

            def weigh(self, hosts, spec):
                raise NotImplementedError

            def plan(self, cluster, memory, now_s):
                raise NotImplementedError

        found = entry("All", All)
        assert found.kinds == {UnitKind.FILTER, UnitKind.WEIGHT, UnitKind.BALANCE}
        assert len({found.id_as(kind) for kind in found.kinds}) == 3
        assert entry("RankSum", type(compiled().selector)).id_as(UnitKind.SELECTOR)

    def test_a_class_that_is_no_unit_is_refused(self):
        with pytest.raises(TypeError, match="is no filter, weigher, balance or selector"):
            entry("int", int)  # type: ignore[arg-type]

    def test_a_balance_must_plan(self):
        with pytest.raises(TypeError, match=r"Idle must override plan\(\)"):
            type("Idle", (Balance,), {})

    def test_a_parameter_needs_a_default(self):
        class Needy(msgspec.Struct):
            size: int

        class Demanding(RamFilter):
            parameters_type = Needy

        with pytest.raises(TypeError, match=r"Needy\.size needs a default"):
            entry("Demanding", Demanding)


def test_a_unit_without_a_context_has_its_defaults():
    unit = IoOpsWeigher()
    assert (unit.name, unit.default_multiplier()) == ("IoOpsWeigher", -1.0)
    assert unit.parameters == NoParameters()
    named = RAMWeigher(UnitContext(name="x", parameters=NoParameters(), factor=2.0))
    assert (named.name, named.default_multiplier()) == ("x", 2.0)


class TestOvirt:
    def test_a_filter_and_a_weight_may_share_a_name(self):
        units = unit_catalogue({"Both": RamFilter}, {"Both": RAMWeigher})
        found = [units.find("Both", kind) for kind in (UnitKind.FILTER, UnitKind.WEIGHT)]
        assert [each.unit for each in found if each] == [RamFilter, RAMWeigher]
        assert len([each for each in units if each.name == "Both"]) == 2
        assert units.problem("Both", UnitKind.SELECTOR) == (
            "is a filter and a weight, not a selector"
        )

    @pytest.mark.parametrize("value", ["8", "80 ", "180", "80\n", ""])
    def test_a_parameter_matches_its_expression_as_a_whole(self, value):
        units = unit_catalogue({"CPUOverloaded": CpuOverloadFilter})
        use = FilterUse(unit="CPUOverloaded", parameters={"HighUtilization": value})
        with pytest.raises(ClusterPolicyError, match=r"HighUtilization is .* does not match"):
            compile_policy(
                policy(filters=(use,), selector=SelectorUse(unit="RankSelector")), units, Options()
            )

    def test_a_balance_declares_parameters(self):
        saving = BalanceUse(unit="OptimalForPowerSaving")
        pipeline = compiled(balance=saving, parameters={"LowUtilization": "30"})
        assert isinstance(pipeline.balance, PowerSavingBalance)
        assert pipeline.balance.parameters.LowUtilization == "30"
        [problem] = problems(balance=saving, parameters={"LowUtilization": "90"})
        assert "LowUtilization is '90'" in problem
        [problem] = problems(parameters={"LowUtilization": "20"})
        assert problem == "parameter LowUtilization: no unit of the policy declares it"
        assert compiled().balance is None

    def test_a_unit_may_read_a_parameter_that_it_does_not_list(self):
        guests = UNITS.find("OptimalForEvenGuestDistribution", UnitKind.BALANCE)
        assert "HighUtilization" not in {each.name for each in guests.parameters}
        use = BalanceUse(unit="OptimalForEvenGuestDistribution")
        balance = compiled(balance=use, parameters={"HighUtilization": "60"}).balance
        assert balance.high_percent == 60.0

    @pytest.mark.parametrize(("id", "passes"), [("nova", True), ("p", False)])
    def test_hosts_that_are_down_are_rejected_under_every_policy_but_nova(self, id, passes):
        pipeline = compile_policy(policy(id=id), UNITS, Options())
        hosts = host_table([host_record(reported_at_s=NOW_S - 3600)])
        evaluated = pipeline.evaluator.evaluate(hosts, request_spec())
        assert bool(evaluated.results.passed) is passes

    def test_mandatory_filters_are_asked_under_every_policy(self):
        pinned = request_spec(vm={"pinned_to_host": True, "dedicated_hosts": ["b"]})
        hosts = host_table([host_record(host="a"), host_record(host="b")])
        for id in ("nova", "p"):
            pipeline = compile_policy(policy(id=id), UNITS, Options())
            assert pipeline.evaluator.evaluate(hosts, pinned).rows.tolist() == [1]
        assert UNITS.problem("PinToHost", UnitKind.FILTER) == (
            "is asked under every policy and cannot be named by one"
        )
