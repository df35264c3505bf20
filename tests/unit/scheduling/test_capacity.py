"""Capacity: what limits hosts, what is lost to other filters, zones, and honest upper bounds."""

from typing import Any

from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.policy_references import PolicyReference
from scheduler_worker.scheduling.capacity import MOST_STEPS, Measurement, of_cluster, of_flavor
from scheduler_worker.scheduling.filters.capacity import CoreFilter, NumInstancesFilter, RamFilter
from scheduler_worker.scheduling.filters.compute import ComputeFilter
from scheduler_worker.scheduling.filters.isolated_hosts import AllHostsFilter
from scheduler_worker.scheduling.numa.constraints import with_topology
from scheduler_worker.scheduling.plugin import Filter
from tests.support.hosts import aggregate, host_record, host_table, request_spec
from tests.support.units import decided, made, pipeline_of

POLICY = PolicyReference("nova", "nova", 1)


class Even(Filter):
    """In Nova's signature: hosts with an even number of instances, or none."""

    def host_passes(self, host_state, spec_obj):
        return host_state.num_instances % 2 == 0 or host_state.host != "odd"


class AtMostThree(Filter):
    """In Nova's signature: hosts with fewer than three instances."""

    def host_passes(self, host_state, spec_obj):
        return host_state.num_instances < 3 and len(host_state.instances) < 3


def inventoried(name: str, inventories: dict[str, Any]) -> HostRecord:
    """A host whose compute node has these inventories."""
    provider = {"uuid": f"uuid-{name}", "inventories": inventories}
    return host_record(host=name, resource_providers=[provider])


def measured(hosts, *filters, spec=None, steps=MOST_STEPS):
    pipeline = pipeline_of([made(each) for each in filters])
    room = Measurement(pipeline, hosts, spec or request_spec()).finish(iter(range(steps)))
    return of_cluster("east", POLICY, room)


def test_each_host_is_limited_by_what_runs_out_first():
    hosts = host_table(
        [
            host_record(host="a", vcpus=2, memory_mb=8192),
            host_record(host="b", vcpus=9, memory_mb=3072),
            host_record(host="c", vcpus=9, memory_mb=4096, memory_mb_used=4000),
        ]
    )
    found = measured(hosts, CoreFilter, RamFilter)
    assert (found.instances, found.hosts, found.fitting_hosts) == (5, 3, 2)
    limited = {name: (each.hosts, each.full_hosts) for name, each in found.limited_by.items()}
    assert limited == {"VCPU": (1, 0), "MEMORY_MB": (2, 1)}
    assert found.runs_out_first == "MEMORY_MB"


def test_hosts_that_other_filters_reject_are_lost_and_limit_nothing():
    hosts = host_table([host_record(host="a"), host_record(host="b", service={"disabled": True})])
    found = measured(hosts, ComputeFilter, CoreFilter)
    assert found.instances == 4
    [(name, lost)] = found.lost_to.items()
    # The filter that every policy asks first knows of disabled services, too.
    assert (name, lost.hosts, lost.instances) == ("RequestFilters", 1, 4)
    assert found.limited_by["VCPU"].hosts == 1


def test_zones_add_up():
    hosts = host_table(
        [host_record(host=name) for name in "abc"],
        aggregates=[aggregate("a", "c", availability_zone="az1")],
    )
    assert measured(hosts, CoreFilter).zones == {"az1": 8, "nova": 4}


def test_without_a_filter_that_bounds_them_instances_are_not_counted():
    hosts = host_table([host_record(host="a"), host_record(host="b", vcpus=0)])
    found = measured(hosts, AllHostsFilter, CoreFilter)
    assert (found.instances, found.zones) == (None, {"nova": None})
    assert of_flavor("small", [found]).instances is None
    assert measured(hosts, AllHostsFilter).runs_out_first is None


def test_inventories_count_in_units_and_steps():
    inventories = {
        "VCPU": {"total": 6, "max_unit": 4, "allocation_ratio": 2.0, "reserved": 1},
        "MEMORY_MB": {"total": 5000, "max_unit": 5000, "step_size": 512},
    }
    hosts = host_table([inventoried("a", inventories)])
    assert measured(hosts, spec=request_spec(vcpus=2, memory_mb=512)).instances == 5
    assert measured(hosts, spec=request_spec(vcpus=2, memory_mb=512)).runs_out_first == "VCPU"
    assert measured(hosts, spec=request_spec(vcpus=1, memory_mb=1024)).instances == 4
    refused = measured(hosts, spec=request_spec(vcpus=1, memory_mb=1000))
    assert (refused.instances, refused.runs_out_first) == (0, "Inventories")


def test_pinned_cpus_come_from_vcpus_where_there_are_no_others():
    extra_specs = {"hw:cpu_policy": "dedicated"}
    spec = with_topology(request_spec(vcpus=2, memory_mb=64, extra_specs=extra_specs))
    shared = {"VCPU": {"total": 6}, "MEMORY_MB": {"total": 8192}}
    both = shared | {"PCPU": {"total": 4}}
    hosts = host_table([inventoried("a", shared), inventoried("b", both)])
    found = measured(hosts, spec=spec)
    assert found.instances == 3 + 2
    assert {name: each.hosts for name, each in found.limited_by.items()} == {"VCPU": 1, "PCPU": 1}


def test_groups_that_take_of_the_hosts_own_inventories_count():
    inventories = {"VCPU": {"total": 6}, "MEMORY_MB": {"total": 8192}}
    hosts = host_table([inventoried("a", inventories)])
    spec = request_spec(memory_mb=64, extra_specs={"resources1:VCPU": "2"})
    found = measured(hosts, spec=spec)
    assert (found.instances, found.runs_out_first) == (3, "ResourceProviders")


def test_copies_have_the_instances_and_reservations_of_their_hosts():
    hosts = host_table([host_record(host="a"), host_record(host="b")])
    hosts.set_instances("a", {"i1": {"uuid": "i1"}})
    pipeline = pipeline_of([made(CoreFilter), made(AtMostThree)])
    decided(pipeline, hosts, request_spec(), "i2")
    found = measured(hosts, CoreFilter, AtMostThree)
    assert (found.instances, found.is_exact) == (4, True)


def test_a_unit_in_novas_signature_is_asked_instance_by_instance():
    hosts = host_table([host_record(host="odd"), host_record(host="other")])
    found = measured(hosts, CoreFilter, Even)
    assert (found.instances, found.is_exact) == (1 + 4, True)
    assert {name: each.hosts for name, each in found.limited_by.items()} == {"VCPU": 1, "Even": 1}


def test_when_there_are_too_many_steps_the_count_is_an_upper_bound_and_says_so():
    hosts = host_table([host_record(host=name) for name in ("a", "odd", "c")])
    found = measured(hosts, CoreFilter, Even, steps=5)
    assert (found.instances, found.is_exact) == (4 + 4 + 4, False)  # two of `odd` were not tried
    full = measured(hosts, NumInstancesFilter, CoreFilter, Even, steps=0)
    assert (full.instances, full.is_exact) == (12, False)
