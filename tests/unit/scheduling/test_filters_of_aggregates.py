"""Filters by aggregate metadata, and limits that aggregates override."""

import pytest

from scheduler_worker.scheduling.filters.aggregates import (
    AggregateImagePropertiesIsolation,
    AggregateInstanceExtraSpecsFilter,
    AggregateMultiTenancyIsolation,
    AggregateTypeAffinityFilter,
)
from scheduler_worker.scheduling.filters.capacity import (
    AggregateCoreFilter,
    AggregateDiskFilter,
    AggregateRamFilter,
    IoOpsFilter,
    NumInstancesFilter,
)
from scheduler_worker.scheduling.options import Options
from tests.support.hosts import aggregate, host_record, host_table, request_spec
from tests.support.units import made


def verdict(unit, spec, *metadata, **facts) -> str | None:
    """Why a host in aggregates with this metadata does not pass; None: it passes."""
    some = [aggregate("h", id=number, **each) for number, each in enumerate(metadata)]
    hosts = host_table([host_record(**facts)], aggregates=some)
    [passes] = unit.passes(hosts, spec).tolist()
    assert passes == unit.host_passes(hosts.state(0), spec)
    assert passes or unit.applies(spec)
    return None if passes else unit.reason(hosts.state(0), spec)


@pytest.mark.parametrize(
    ("properties", "metadata", "why"),
    [
        (
            {"os_distro": "bsd"},
            {"os_distro": "windows, linux"},
            "is for images whose os_distro is linux, windows, not bsd",
        ),
        ({"img_bdm_v2": False}, {"img_bdm_v2": "true"}, None),
    ],
    ids=str,
)
def test_an_image_property_must_have_one_of_the_values(properties, metadata, why):
    spec = request_spec(image_properties=properties)
    assert verdict(AggregateImagePropertiesIsolation(), spec, metadata) == why


@pytest.mark.parametrize(
    ("extra_specs", "metadata", "why"),
    [
        ({"ssd": "true"}, [], "no aggregate of it has ssd, which should meet 'true'"),
        (
            {"a": ">= 3"},
            [{"a": "1, 2"}],
            "a of its aggregates is 1, 2, which does not meet '>= 3'",
        ),
    ],
    ids=str,
)
def test_each_extra_spec_must_be_met_by_some_aggregate(extra_specs, metadata, why):
    spec = request_spec(extra_specs=extra_specs)
    assert verdict(AggregateInstanceExtraSpecsFilter(), spec, *metadata) == why


@pytest.mark.parametrize(
    ("unit", "metadata", "why"),
    [
        (AggregateMultiTenancyIsolation, {"filter_tenant_id": "q, r"}, "is for 2 other projects"),
        (AggregateTypeAffinityFilter, {"instance_type": "b, a"}, "is for flavors a, b, not A"),
    ],
)
def test_the_reason_names_what_the_aggregates_are_for(unit, metadata, why):
    spec = request_spec(project_id="p", flavor={"name": "A"})
    assert verdict(unit(), spec, metadata) == why


@pytest.mark.parametrize(
    ("unit", "stats", "why"),
    [
        (IoOpsFilter, {"io_workload": "1"}, None),
        (IoOpsFilter, {"io_workload": "2"}, "has 2 I/O operations under way, 2 are allowed"),
        (NumInstancesFilter, {"num_instances": "2"}, None),
        (NumInstancesFilter, {"num_instances": "3"}, "has 3 instances, 3 are allowed"),
    ],
)
def test_the_option_limits_what_is_counted(unit, stats, why):
    options = Options.of(max_io_ops_per_host=2, max_instances_per_host=3)
    metadata = {"max_io_ops_per_host": "99", "max_instances_per_host": "99"}
    assert verdict(made(unit, options), request_spec(), metadata, stats=stats) == why


@pytest.mark.parametrize(
    ("unit", "key", "flavor"),
    [
        (AggregateCoreFilter, "cpu_allocation_ratio", {"vcpus": 4}),
        (AggregateRamFilter, "ram_allocation_ratio", {"memory_mb": 8192}),
        (AggregateDiskFilter, "disk_allocation_ratio", {"root_gb": 100}),
    ],
)
def test_the_smallest_ratio_of_the_aggregates_applies(unit, key, flavor):
    spec = request_spec(flavor={"vcpus": 0, "memory_mb": 0} | flavor)
    used = {"vcpus_used": 2, "memory_mb_used": 4096, "local_gb_used": 50}
    assert verdict(unit(), spec, **used)
    assert verdict(unit(), spec, {key: "1.5"}, **used) is None
    assert verdict(unit(), spec, {key: "1.5"}, {key: "1.4"}, **used)
    assert verdict(unit(), spec, {key: "16"}, {key: "x"}, **used), "the host's own ratio"
