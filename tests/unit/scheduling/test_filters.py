"""The rules of the filters, and the reasons they give."""

import pytest

from scheduler_worker.errors import RequestError
from scheduler_worker.scheduling.filters.affinity import (
    ServerGroupAffinityFilter,
    ServerGroupAntiAffinityFilter,
)
from scheduler_worker.scheduling.filters.aggregates import AvailabilityZoneFilter
from scheduler_worker.scheduling.filters.capacity import CoreFilter, DiskFilter, RamFilter
from scheduler_worker.scheduling.filters.compute import ComputeFilter
from scheduler_worker.scheduling.filters.compute_capabilities import ComputeCapabilitiesFilter
from scheduler_worker.scheduling.filters.image_properties import (
    ImagePropertiesFilter,
)
from scheduler_worker.scheduling.filters.isolated_hosts import AllHostsFilter
from tests.support.hosts import NOW_S, aggregate, claim, host_record, host_table, request_spec
from tests.support.units import made


def passes(unit, spec, **facts) -> bool:
    """Whether one host with these facts passes; both methods must agree."""
    hosts = host_table([host_record(**facts)])
    [answer] = unit.passes(hosts, spec).tolist()
    assert unit.host_passes(hosts.state(0), spec) is answer
    return answer


def reason(unit, spec, **facts) -> str:
    """The reason for which it does not."""
    hosts = host_table([host_record(**facts)])
    assert unit.passes(hosts, spec).tolist() == [False]
    return unit.reason(hosts.state(0), spec)


def limits(unit, **facts):
    return unit.limits(host_table([host_record(**facts)]).state(0), request_spec())


def test_a_class_with_an_answer_of_its_own_is_asked_it_by_row_too():
    class Odd(RamFilter):
        def host_passes(self, host_state, spec_obj):
            return host_state.row % 2 == 1

    hosts = host_table([host_record(uuid=each, host=each) for each in "abc"])
    assert [RamFilter().row_check(hosts, request_spec())(row) for row in range(3)] == 3 * [True]
    assert [Odd().row_check(hosts, request_spec())(row) for row in range(3)] == [False, True, False]


def test_all_hosts():
    unit = AllHostsFilter()
    assert passes(unit, request_spec(vcpus=99))
    assert not unit.applies(request_spec())


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"reported_at_s": NOW_S - 90}, "has not reported for 90 s, 60 s are allowed"),
        (
            {"reported_at_s": NOW_S + 90},
            "its heartbeat is 90 s ahead of the clock, 60 s are allowed",
        ),
    ],
)
def test_a_host_that_does_not_report_is_refused(facts, why):
    unit = made(ComputeFilter, service_down_time_s=60)
    assert not passes(unit, request_spec(), **facts)
    assert reason(unit, request_spec(), **facts) == why


class TestCapacity:
    @pytest.mark.parametrize(
        ("unit", "amount", "facts"),
        [
            (CoreFilter(), "VCPU", {"vcpus": 4}),
            (RamFilter(), "MEMORY_MB", {"memory_mb": 4}),
            (DiskFilter(), "DISK_GB", {"local_gb": 4}),
        ],
    )
    def test_what_placement_is_asked_for_is_wanted(self, unit, amount, facts):
        def asked(number):
            flavor = {"vcpus": 9, "memory_mb": 9, "root_gb": 9}
            return request_spec(flavor=flavor, extra_specs={f"resources:{amount}": number})

        assert passes(unit, asked("4"), **facts)
        assert not passes(unit, asked("5"), **facts)
        assert unit.applies(asked("5"))
        assert not unit.applies(asked("0"))

    def test_limits_count_reserves_and_ratios(self):
        cores = {"reserved_host_cpus": 1, "cpu_allocation_ratio": 1.5}
        assert limits(CoreFilter(), **cores) == {"vcpu": 4.5}
        assert limits(CoreFilter(), vcpus=0) == {}
        memory = {"reserved_host_memory_mb": 192, "ram_allocation_ratio": 1.5}
        assert limits(RamFilter(), **memory) == {"memory_mb": 12000.0}
        disk = {"reserved_host_disk_mb": 2048, "disk_allocation_ratio": 0.5}
        assert limits(DiskFilter(), **disk) == {"disk_gb": 49.0}

    def test_reasons_have_the_figures(self):
        busy = {
            "memory_mb_used": 12000,
            "reserved_host_memory_mb": 100,
            "ram_allocation_ratio": 1.5,
        }
        assert (
            reason(RamFilter(), request_spec(memory_mb=4096), **busy)
            == "needs 4096 MiB; 12000 are used of (8192 - 100 reserved) x 1.5"
        )
        assert (
            reason(CoreFilter(), request_spec(vcpus=2), vcpus_used=3)
            == "needs 2 vCPUs; 3 are used of (4 - 0 reserved) x 1"
        )
        assert (
            reason(DiskFilter(), request_spec(flavor={"root_gb": 2}), local_gb_used=99)
            == "needs 2048 MiB of disk; 101376 are used of (102400 - 0 reserved) x 1"
        )
        assert (
            reason(CoreFilter(), request_spec(vcpus=8), cpu_allocation_ratio=16.0)
            == "needs 8 vCPUs, more than the 4 it has"
        )


class TestAvailabilityZone:
    unit = made(AvailabilityZoneFilter, default_availability_zone="home")
    hosts = host_table(
        [host_record(host=name) for name in ("a", "b", "c")],
        aggregates=[
            aggregate("a", id=1, availability_zone="az1, az2"),
            aggregate("b", id=2, other="az1"),
            aggregate("c", id=3, availability_zone="az3"),
            aggregate("c", id=4, availability_zone="az1"),
        ],
    )

    @pytest.mark.parametrize(
        ("zone", "expected"),
        [("az1", "ac"), ("az2", "a"), ("home", "b"), ("AZ1", ""), (None, "abc")],
    )
    def test_zones_come_from_aggregates(self, zone, expected):
        mask = self.unit.passes(self.hosts, request_spec(availability_zone=zone))
        assert "".join(name for name, ok in zip("abc", mask, strict=True) if ok) == expected

    def test_it_applies_to_requests_with_a_zone_and_gives_a_reason(self):
        assert not self.unit.applies(request_spec())
        spec = request_spec(availability_zone="az9")
        assert self.unit.applies(spec)
        assert self.unit.reason(self.hosts.state(0), spec) == "is in zone az1, az2, not in az9"
        assert self.unit.reason(self.hosts.state(1), spec) == "is in zone home, not in az9"


NOON_S = 1767355200.0
"""2026-01-02 12:00 UTC."""
CAPABLE = {
    "hypervisor_type": "QEMU",
    "cpu_info": '{"arch": "x86_64", "features": ["aes", "mmx"], "maxphysaddr": {"bits": 46}}',
    "stats": {"rack": "7", "num_instances": "2"},
    "supported_hv_specs": [["x86_64", "kvm", "hvm"]],
    "updated_at": NOON_S,
}


class TestComputeCapabilities:
    unit = ComputeCapabilitiesFilter()

    @pytest.mark.parametrize(
        ("key", "requirement", "meets"),
        [
            ("hw:maxphysaddr_bits", "47", False),
            ("quota", "8", True),
            ("capabilities:supported_instances", "s>= [['x86_64'", True),
            ("capabilities:supported_instances", "<in> 'hvm']]", True),
        ],
    )
    def test_extra_specs(self, key, requirement, meets):
        spec = request_spec(extra_specs={key: requirement})
        assert passes(self.unit, spec, **CAPABLE) is meets

    @pytest.mark.parametrize("moment", [None, 1e18, -1e300])
    def test_a_time_out_of_range_is_none(self, moment):
        spec = request_spec(extra_specs={"capabilities:updated": "s> "})
        assert not passes(self.unit, spec, **CAPABLE | {"updated_at": moment})

    def test_reservations_are_read(self):
        hosts = host_table([host_record()])
        spec = request_spec(extra_specs={"capabilities:vcpus_used": "<= 0"})
        assert self.unit.passes(hosts, spec).tolist() == [True]
        hosts.consume(claim("i", "h", vcpus=1))
        assert self.unit.passes(hosts, spec).tolist() == [False]

    def test_it_gives_a_reason(self):
        spec = request_spec(extra_specs={"capabilities:cpu_info:arch": "s== arm"})
        assert (
            reason(self.unit, spec, **CAPABLE)
            == "cpu_info:arch is 'x86_64', which does not meet 's== arm'"
        )


SUPPORTING = {
    "supported_hv_specs": (("x86_64", "kvm", "hvm"), ("i686", "xapi", "pv")),
    "hypervisor_version": 8_002_002,
    "cpu_info": {"maxphysaddr": {"bits": 46}},
}


class TestImageProperties:
    unit = ImagePropertiesFilter()
    version = "img_hv_requested_version"

    @pytest.mark.parametrize(
        ("properties", "suits"),
        [
            ({"hw_architecture": "AMD64"}, True),
            ({"hw_architecture": "i386", "img_hv_type": "xen", "hw_vm_mode": "xen"}, True),
            ({"hw_vm_mode": "hv"}, True),
            ({"img_hv_type": "kvm", version: ">=8.2, <9"}, True),
            ({"img_hv_type": "kvm", "hw_maxphysaddr_bits": 46}, True),
            # an image that names none of the three passes
            ({version: ">99", "hw_maxphysaddr_bits": 99}, True),
        ],
        ids=str,
    )
    def test_properties(self, properties, suits):
        spec = request_spec(image_properties=properties)
        assert passes(self.unit, spec, **SUPPORTING) is suits
        assert self.unit.applies(spec) or suits

    def test_hosts_that_report_little(self):
        spec = request_spec(image_properties={"img_hv_type": "kvm", self.version: ">=9"})
        assert not passes(self.unit, spec, **SUPPORTING | {"supported_hv_specs": ()})
        assert passes(self.unit, spec, **SUPPORTING | {"hypervisor_version": 0})
        wide = request_spec(image_properties={"img_hv_type": "kvm", "hw_maxphysaddr_bits": 40})
        assert not passes(self.unit, wide, **SUPPORTING | {"cpu_info": None})

    @pytest.mark.parametrize(
        ("name", "value"),
        [(version, "about 8"), (version, ">=eight"), (version, "8.2"), (version, ">=8,")]
        + [("hw_maxphysaddr_bits", value) for value in ("many", [1], float("inf"))],
    )
    def test_an_invalid_property_is_refused_by_name(self, name, value):
        spec = request_spec(image_properties={"img_hv_type": "kvm", name: value})
        with pytest.raises(RequestError, match=rf"image\.properties\.{name}: .* is not a "):
            passes(self.unit, spec, **SUPPORTING)

    @pytest.mark.parametrize(
        ("properties", "why"),
        [
            ({"hw_architecture": "aarch64"}, "supports no instance of aarch64"),
            ({version: ">=9"}, "hypervisor version 8.2.2 does not meet >=9"),
            ({"hw_maxphysaddr_bits": 47}, "has 46 physical address bits, not 47"),
        ],
    )
    def test_it_gives_a_reason(self, properties, why):
        spec = request_spec(image_properties={"img_hv_type": "kvm"} | properties)
        assert reason(self.unit, spec, **SUPPORTING).startswith(why)


class TestServerGroups:
    hosts = host_table(
        [host_record(host=name) for name in ("a", "b", "c")],
        instances={"a": {"i1": {}, "i2": {}}, "b": {"i3": {}}},
    )

    @staticmethod
    def group(policy, members=("i1", "i2", "i3"), hosts=(), **rules):
        return {"policy": policy, "members": members, "hosts": hosts, "_rules": rules}

    def passing(self, unit, hosts=None, **spec) -> str:
        mask = unit.passes(hosts or self.hosts, request_spec(**spec))
        return "".join(name for name, ok in zip("abc", mask, strict=True) if ok)

    def test_anti_affinity_counts_members(self):
        unit, group = ServerGroupAntiAffinityFilter(), self.group
        assert self.passing(unit, instance_group=group("anti-affinity")) == "c"
        twice = group("anti-affinity", max_server_per_host="2")
        assert self.passing(unit, instance_group=twice) == "bc"
        assert self.passing(unit, instance_group=group("anti-affinity", ["i3"])) == "ac"
        assert self.passing(unit, instance_group=group("affinity")) == "abc"
        assert self.passing(unit) == "abc"

    def test_an_instance_may_stay_on_its_host(self):
        group = self.group("anti-affinity")
        unit = ServerGroupAntiAffinityFilter()
        assert self.passing(unit, instance_group=group, instance_uuid="i1") == "ac"

    def test_they_apply_to_their_policy(self):
        for unit, policy in (
            (ServerGroupAntiAffinityFilter(), "anti-affinity"),
            (ServerGroupAffinityFilter(), "affinity"),
        ):
            assert unit.applies(request_spec(instance_group=self.group(policy, hosts=["a"])))
            soft = self.group(f"soft-{policy}", hosts=["a"])
            assert not unit.applies(request_spec(instance_group=soft))
            assert not unit.applies(request_spec())
