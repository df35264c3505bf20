"""What the recorded figures of weighers leave open: metrics, groups, images and multipliers."""

import numpy as np
import pytest

from scheduler_worker.errors import ComputeHostMetricNotFound
from scheduler_worker.scheduling.catalogue import parameter_values
from scheduler_worker.scheduling.ratios import ratios
from scheduler_worker.scheduling.scales import NormalizedScale
from scheduler_worker.scheduling.weighers.image_properties import ImagePropertiesWeigher
from scheduler_worker.scheduling.weighers.metrics import MetricsParameters, MetricsWeigher
from scheduler_worker.scheduling.weighers.resources import (
    CPUWeigher,
    CrossCellWeigher,
    RAMWeigher,
    ServerGroupSoftAffinityWeigher,
    ServerGroupSoftAntiAffinityWeigher,
)
from tests.support.hosts import aggregate, host_record, host_table, request_spec
from tests.support.units import made

SPEC = request_spec()


def raw(unit, *facts, spec=SPEC, **more) -> list[float]:
    """The raw scores of hosts h0, h1, ... with these facts."""
    records = [host_record(host=f"h{number}", **each) for number, each in enumerate(facts)]
    return unit.weigh(host_table(records, **more), spec).tolist()


class TestMultiplier:
    hosts = host_table(
        [host_record(host=name) for name in "abcd"],
        aggregates=[
            aggregate("a", "b", id=1, ram_weight_multiplier="3"),
            aggregate("b", "c", id=2, ram_weight_multiplier=" -2.5 "),
            aggregate("c", id=3, ram_weight_multiplier="1,5"),
        ],
    )

    def test_the_smallest_of_the_aggregates_or_the_option(self):
        unit = made(RAMWeigher, ram_weight_multiplier=7.0)
        expected = [3.0, -2.5, 7.0, 7.0]
        assert unit.multiplier(self.hosts).tolist() == expected
        assert [unit.weight_multiplier(host) for host in self.hosts.states()] == expected

    def test_one_number_where_no_aggregate_has_a_value(self):
        assert made(CPUWeigher, cpu_weight_multiplier=2.0).multiplier(self.hosts) == 2.0


def test_raw_scores_are_not_written_to():
    values = np.array([-5, 7])
    NormalizedScale(RAMWeigher(), SPEC, 1.0, values)
    assert values.tolist() == [-5, 7]


def test_a_unit_that_would_weigh_nothing_does_not_apply():
    cell = {"cell": {"uuid": "c1"}, "allow_cross_cell_move": False}
    assert not CrossCellWeigher().applies(request_spec(requested_destination=cell))
    assert not CrossCellWeigher().applies(SPEC)
    assert not MetricsWeigher().applies(SPEC)


class TestMetrics:
    setting = ("cpu.frequency=2", "cpu.percent=-1")

    @staticmethod
    def reported(**values):
        return {"metrics": [{"name": name.replace("_", "."), "value": value}
                            for name, value in values.items()]}  # fmt: skip

    def unit(self, **options):
        return made(MetricsWeigher, **{"metrics_weight_setting": self.setting} | options)

    def test_the_sum_of_whole_value_times_ratio_fractions_as_percents(self):
        found = raw(
            self.unit(),
            self.reported(cpu_frequency=1000, cpu_percent=0.179),
            self.reported(cpu_frequency="2.5", cpu_percent=0, other=9),
        )
        assert found == [1983, 4]

    def test_a_required_metric_that_is_missing_fails_the_request(self):
        some = self.reported(cpu_frequency=1, cpu_percent=1)
        with pytest.raises(ComputeHostMetricNotFound, match=r"Metric cpu\.percent .* h1\.h1$"):
            raw(self.unit(), some, self.reported(cpu_frequency=1))

    @pytest.mark.parametrize("value", ["nan", "-inf", "1e300", 10**400, None, [], {"0": 1}, "fast"])
    @pytest.mark.parametrize("name", ["cpu.frequency", "cpu.percent"])
    def test_an_invalid_metric_counts_0(self, name, value):
        unit = self.unit(metrics_weight_setting=(f"{name}=1",))
        metrics = [{"name": name, "value": value}, {"name": ["odd"]}, {}]
        assert raw(unit, {"metrics": metrics}) == [0]

    def test_settings_are_names_and_ratios(self):
        assert ratios(["a=1.5", " e =3", "a=-1"]) == (("a", 1.5), (" e ", 3.0), ("a", -1.0))

    @pytest.mark.parametrize("item", ["b=x", "=2", "c", "d=1=2", "f=nan", ""])
    def test_a_policy_with_another_item_is_refused(self, item):
        with pytest.raises(ValueError, match=f"'{item}' is no name=number"):
            parameter_values(MetricsParameters, [{"metrics_weight_setting": ["a=1", item]}])


MEMBERS = {"h0": {"i1": {}, "i2": {}}, "h1": {"i3": {}, "other": {}}}


class TestSoftGroups:
    @pytest.mark.parametrize(
        ("policy", "together", "apart"),
        [
            ("soft-affinity", [2, 1, 0], [0, 0, 0]),
            ("soft-anti-affinity", [0, 0, 0], [-2, -1, 0]),
            ("affinity", [0, 0, 0], [0, 0, 0]),
        ],
    )
    def test_members_on_the_host(self, policy, together, apart):
        spec = request_spec(instance_group={"policy": policy, "members": ["i1", "i2", "i3", "i4"]})
        for unit, expected in (
            (ServerGroupSoftAffinityWeigher(), together),
            (ServerGroupSoftAntiAffinityWeigher(), apart),
        ):
            assert raw(unit, {}, {}, {}, spec=spec, instances=MEMBERS) == expected
            assert unit.applies(spec) is any(expected)
            assert not unit.applies(SPEC)


DEBIAN = {"system_metadata": {"image_os_distro": "debian", "image_hw_vm_mode": "hvm"}}
FEDORA = {"system_metadata": {"image_os_distro": "fedora", "image_vm_mode": "hvm"}}
PLAIN = {"system_metadata": {"os_distro": "debian"}}
IMAGED = {"h0": {"i1": DEBIAN, "i2": FEDORA}, "h1": {"i3": FEDORA, "i4": PLAIN, "i5": {}}}


class TestImageProperties:
    spec = request_spec(image_properties={"os_distro": "debian", "hw_vm_mode": "hvm"})

    def raw(self, spec=spec, **options):
        unit = made(ImagePropertiesWeigher, **options)
        return raw(unit, {}, {}, {}, spec=spec, instances=IMAGED)

    def test_equal_pairs_are_counted(self):
        assert self.raw(image_props_weight_multiplier=1.0) == [3, 1, 0]

    def test_ratios_choose_properties(self):
        chosen = ("os_distro=2.5",)
        found = self.raw(image_props_weight_multiplier=1.0, image_props_weight_setting=chosen)
        assert found == [2.5, 0, 0]

    def test_what_instances_stored_as_text_is_compared_as_a_value(self):
        spec = request_spec(image_properties={"os_distro": "debian", "hw_boot_menu": True})
        stored = {"image_os_distro": "debian", "image_hw_boot_menu": "yes"}
        hosts = {"h0": {"i1": {"system_metadata": stored}}, "h1": {"i2": DEBIAN}}
        unit = made(ImagePropertiesWeigher, image_props_weight_multiplier=1.0)
        assert raw(unit, {}, {}, spec=spec, instances=hosts) == [2, 1]

    def test_it_does_not_apply_while_its_option_is_zero(self):
        assert not ImagePropertiesWeigher().applies(self.spec)
        assert self.raw() == [0, 0, 0]
        assert self.raw(spec=SPEC, image_props_weight_multiplier=1.0) == [0, 0, 0]
