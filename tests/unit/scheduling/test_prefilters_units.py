"""The hosts that the request filters pass, and the reasons for the others."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from scheduler_worker.codec.inventory import reshape_providers
from scheduler_worker.errors import NoValidHost, RequestError
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.providers import ResourceProvider, read_providers
from scheduler_worker.scheduling.prefilters.units import RequestFilters, ResourceProviders
from tests.support.hosts import host_record, host_table, request_spec
from tests.support.units import decided, made, pipeline_of


def passed(unit, hosts: HostTable, **asked) -> str:
    """The names of the hosts that pass, joined; both methods must agree."""
    spec = request_spec(**asked)
    names = [host.host for host in hosts.states() if unit.host_passes(host, spec)]
    mask = unit.passes(hosts, spec)
    assert names == [
        record.host for record, is_in in zip(hosts.records, mask, strict=True) if is_in
    ]
    return "".join(names)


def group(*hosts: str, id: int = 1, **metadata: str) -> Aggregate:
    plain = {key.replace("trait_", "trait:"): value for key, value in metadata.items()}
    return Aggregate(id=id, uuid=f"agg-{id}", hosts=hosts, metadata=plain)


def fleet(*aggregates: Aggregate, names: Iterable[str] = "abc", **fields) -> HostTable:
    records = [host_record(host=name, **fields) for name in names]
    return host_table(records, aggregates=aggregates)


def test_a_disabled_host_is_explained_in_words():
    service = {"disabled": True, "disabled_reason": "maintenance of rack 7"}
    records = [host_record(host="d", service=service), host_record(host="n")]
    records.append(host_record(host="e", traits=["COMPUTE_STATUS_DISABLED"]))
    records.append(host_record(host="f", service=service | {"forced_down": True}))
    hosts, spec = host_table(records), request_spec(extra_specs={"trait:X": "required"})
    reasons = [RequestFilters().reason(hosts.state(row), spec) for row in range(4)]
    assert reasons == [
        "its compute service is disabled: maintenance of rack 7",
        "lacks trait X",
        "its compute service is disabled (its provider has the trait COMPUTE_STATUS_DISABLED)",
        "its compute service is disabled: maintenance of rack 7",
    ]


def test_forcing_does_not_bypass_a_disabled_host():
    hosts = host_table([host_record(host="a", service={"disabled": True})])
    with pytest.raises(NoValidHost):
        decided(pipeline_of(), hosts, request_spec(force_hosts=["a"]))


def test_a_zone_that_no_aggregate_has_restricts_nothing():
    hosts = fleet(group("a", availability_zone="z"))
    assert passed(RequestFilters(), hosts, availability_zone="nova") == "abc"


def test_tenants_stay_in_their_aggregates_where_enabled():
    hosts = fleet(
        group("a", filter_tenant_id="p"),
        group("b", id=2, filter_tenant_id_2="p"),
        group("c", id=3, filter_tenant_id="p,q"),
    )
    unit = made(RequestFilters, limit_tenants_to_placement_aggregate=True)
    assert passed(unit, hosts, project_id="p") == "ab"
    assert passed(unit, hosts, project_id="q") == "abc"
    assert passed(RequestFilters(), hosts, project_id="p") == "abc"


def test_a_tenant_without_aggregate_may_be_refused():
    unit = made(
        RequestFilters,
        limit_tenants_to_placement_aggregate=True,
        placement_aggregate_required_for_tenants=True,
    )
    with pytest.raises(NoValidHost) as refused:
        unit.passes(fleet(), request_spec(project_id="p"))
    assert refused.value.reason == "Scheduling failed: No hosts available for tenant"


def test_aggregates_are_isolated_by_the_traits_that_they_require():
    isolated = [
        group("a", trait_X="required"),
        group("b", id=2, trait_X="required", trait_Y="required"),
        group("c", id=3, trait_X="maybe"),
    ]
    unit = made(RequestFilters, enable_isolated_aggregate_filtering=True)
    assert passed(unit, fleet(*isolated)) == "c"
    assert passed(RequestFilters(), fleet(*isolated)) == "abc"
    hosts = fleet(*isolated, traits=["X", "Y"])
    assert passed(unit, hosts, extra_specs={"trait:X": "required"}) == "ac"
    both = {"trait:X": "required", "trait:Y": "required"}
    assert passed(unit, hosts, extra_specs=both) == "abc"
    of_threads = group("a", trait_HW_CPU_HYPERTHREADING="required")
    cpus = {"uuid": "cpus", "inventories": {"PCPU": {"total": 2}}}
    threads = fleet(of_threads, resource_providers=[cpus])
    requires = {"resources:PCPU": "2", "hw:cpu_thread_policy": "require"}
    assert passed(unit, threads, extra_specs={"resources:PCPU": "2"}) == "bc"
    assert passed(unit, threads, extra_specs=requires) == "abc"


def test_a_destination_may_name_a_node_alone():
    hosts = host_table([host_record(host=name, nodename=f"node-{name}") for name in "ab"])
    unit = RequestFilters()
    asked: dict[str, Any] = {"requested_destination": {"node": "node-b"}}
    assert passed(unit, hosts, **asked) == "b"
    assert unit.reason(hosts.state(0), request_spec(**asked)) == "is not node node-b"
    assert passed(unit, hosts, requested_destination={"node": "node-c"}) == ""


def test_requested_networks_must_be_reported_where_enabled():
    hosts = host_table([host_record(host="a", networks=["n"]), host_record(host="b")])
    asked = {"requested_networks": [{"network_id": "n"}, {"port_id": "p"}]}
    unit = made(RequestFilters, query_placement_for_routed_network_aggregates=True)
    assert passed(unit, hosts, **asked) == "a"
    assert passed(RequestFilters(), hosts, **asked) == "ab"


@pytest.fixture
def with_providers() -> HostTable:
    """Host a has two GPUs of one, b one of two, c none."""
    reported = {"a": [gpu("a1", 1), gpu("a2", 1)], "b": [gpu("b1", 2, aggregates=["agg-7"])]}
    records = [host_record(host=name, resource_providers=reported.get(name)) for name in "abc"]
    return host_table(records, aggregates=[group("a")])


def gpu(uuid: str, total: int, **fields) -> ResourceProvider:
    plain = {"uuid": uuid, "inventories": {"VGPU": {"total": total}}} | fields
    return msgspec.convert(plain, ResourceProvider)


def test_columns_exclude_hosts_without_the_capacity(with_providers):
    unit = RequestFilters()
    assert passed(unit, with_providers, extra_specs={"resources1:VGPU": "2"}) == "b"
    spec = request_spec(extra_specs={"resources1:VGPU": "2"})
    assert unit.reason(with_providers.state(2), spec) == "has no provider of 2 VGPU"


def test_a_group_may_name_aggregates_of_its_provider_and_a_tree(with_providers):
    """As a Placement 16.0 answered: a provider below the compute node is in its own alone."""

    def asked(**fields):
        return {"requested_resources": [{"requester_id": "p", "resources": {"VGPU": 1}} | fields]}

    unit = ResourceProviders()
    assert passed(unit, with_providers, **asked(aggregates=[["agg-1"]])) == ""
    assert passed(unit, with_providers, **asked(aggregates=[["agg-7"]])) == "b"
    assert passed(unit, with_providers, **asked(forbidden_aggregates=["agg-1"])) == "ab"
    assert passed(unit, with_providers, **asked(forbidden_aggregates=["agg-7"])) == "a"
    of_root = asked(aggregates=[["agg-1"]])
    of_root["requested_resources"][0]["resources"] = {}
    assert passed(unit, with_providers, **of_root) == "a"
    assert passed(RequestFilters(), with_providers, **asked(in_tree="b1")) == "b"


def test_groups_count_together_of_what_one_instance_may_take_of_a_provider():
    """As a Placement 16.0 answered, which refuses a claim of more."""
    inventories = {"VCPU": {"total": 64, "max_unit": 4}, "MEMORY_MB": {"total": 9999}}
    root = {"uuid": "uuid-a", "inventories": inventories}
    devices = [gpu("gpu", 9, inventories={"VGPU": {"total": 9, "max_unit": 3}})]
    hosts = fleet(names="a", resource_providers=[root, *devices])
    unit = ResourceProviders()
    two = {"resources1:VGPU": "2", "group_policy": "none"}
    assert passed(unit, hosts, extra_specs=two | {"resources2:VGPU": "1"}) == "a"
    assert passed(unit, hosts, extra_specs=two | {"resources2:VGPU": "2"}) == ""
    flavor = {"resources:VCPU": "2"}
    assert passed(unit, hosts, extra_specs=flavor | {"resources1:VCPU": "2"}) == "a"
    assert passed(unit, hosts, extra_specs=flavor | {"resources1:VCPU": "3"}) == ""


def test_what_an_instance_takes_is_named_by_provider_and_group(with_providers):
    spec = request_spec(requested_resources=[{"requester_id": "p", "resources": {"VGPU": 2}}])
    [use] = ResourceProviders().taken_by(spec, with_providers.state(1))
    assert (use.provider, use.group, use.resources) == ("b1", "p", {"VGPU": 2})
    assert ResourceProviders().taken_by(spec, with_providers.state(0)) == ()


@pytest.mark.parametrize(
    ("reported", "problem"),
    [
        ([{"uuid": "a"}, {"uuid": "a"}], "names a provider twice"),
        (
            [
                {"uuid": "a", "parent_provider_uuid": "b"},
                {"uuid": "b", "parent_provider_uuid": "a"},
            ],
            "its own ancestor",
        ),
        ([{"uuid": "a", "inventories": {"VGPU": {"total": -1}}}], "total"),
        ([{"uuid": "a", "inventories": {"vgpu": {"total": 1}}}], "inventories"),
    ],
)
def test_providers_that_do_not_form_a_tree_are_refused(reported, problem):
    with pytest.raises(RequestError, match=problem):
        reshape_providers(reported, "hosts[0].resource_providers")


def test_a_tree_is_read_in_any_order():
    reported = [
        {"uuid": "leaf", "parent_provider_uuid": "numa"},
        {"uuid": "numa"},
        {"uuid": "host"},
    ]
    tree = read_providers("host", ("X",), reshape_providers(reported, "p"))
    assert tree.uuids == ("host", "leaf", "numa")
    assert [each.parent for each in tree.providers] == [0, 2, 0]
