"""What Placement is asked about a request, and what its answer means."""

from urllib.parse import parse_qsl

import pytest

from scheduler_worker.errors import RequestError
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.providers import (
    SHARES,
    AllocationRequest,
    CandidatesAnswer,
    ProviderSummary,
)
from scheduler_worker.scheduling.numa.constraints import with_topology
from scheduler_worker.scheduling.prefilters.candidates_query import (
    by_root,
    queries,
    suits,
)
from scheduler_worker.scheduling.prefilters.needs import Needs, needs_of
from scheduler_worker.scheduling.prefilters.traits import RequestFilterParameters
from tests.support.hosts import request_spec

PLAIN = {
    ("resources", "DISK_GB:20,MEMORY_MB:1024,VCPU:2"),
    ("root_required", "!COMPUTE_STATUS_DISABLED"),
    ("limit", "1000"),
}


def asked(
    *aggregates: Aggregate,
    parameters: RequestFilterParameters | None = None,
    vcpus: int = 2,
    root_gb: int = 20,
    **spec,
) -> list[set[tuple[str, str]]]:
    """The parameters of each query."""
    made = with_topology(
        request_spec(vcpus=vcpus, memory_mb=1024, flavor={"root_gb": root_gb}, **spec)
    )
    needs = needs_of(made, parameters or RequestFilterParameters())
    return [set(parse_qsl(each.text)) for each in queries(made, needs, aggregates, 1000)]


def test_groups_have_their_names_as_suffixes():
    extra_specs = {
        "resources1:VGPU": "1",
        "trait1:CUSTOM_A": "required",
        "resources_X:CUSTOM_B": "2",
        "group_policy": "isolate",
    }
    port = {
        "requester_id": "port-1",
        "resources": {"NET_BW_EGR_KILOBIT_PER_SEC": 1000},
        "required_traits": ["CUSTOM_PHYSNET"],
        "forbidden_traits": ["CUSTOM_SLOW"],
        "aggregates": [["agg-1", "agg-2"], ["agg-3"]],
        "forbidden_aggregates": ["agg-4"],
        "in_tree": "some-tree",
    }
    [found] = asked(extra_specs=extra_specs, requested_resources=[port])
    assert found - PLAIN == {
        ("resources1", "VGPU:1"),
        ("required1", "CUSTOM_A"),
        ("resources_X", "CUSTOM_B:2"),
        ("group_policy", "isolate"),
        ("resourcesport-1", "NET_BW_EGR_KILOBIT_PER_SEC:1000"),
        ("requiredport-1", "CUSTOM_PHYSNET,!CUSTOM_SLOW"),
        ("member_ofport-1", "in:agg-1,agg-2"),
        ("member_ofport-1", "in:agg-3"),
        ("member_ofport-1", "!in:agg-4"),
        ("in_treeport-1", "some-tree"),
    }


def test_several_groups_of_callers_may_share_a_provider():
    ports = [
        {"requester_id": name, "resources": {"SRIOV_NET_VF": 1}} for name in ("port-1", "port-2")
    ]
    [found] = asked(requested_resources=ports, request_level_params={"same_subtree": [["port-1"]]})
    assert ("group_policy", "none") in found
    assert ("same_subtree", "port-1") in found


def test_where_the_request_may_go_is_asked_by_aggregates():
    aggregates = (
        Aggregate(id=1, uuid="agg-z1", metadata={"availability_zone": "z"}),
        Aggregate(id=2, uuid="agg-z2", metadata={"availability_zone": "z"}),
        Aggregate(
            id=3, uuid="agg-t", metadata={"filter_tenant_id_1": "p", "trait:CUSTOM_T": "required"}
        ),
    )
    [found] = asked(
        *aggregates,
        availability_zone="z",
        project_id="p",
        requested_destination={"aggregates": ["a,b", "c"], "forbidden_aggregates": ["d"]},
        parameters=RequestFilterParameters(
            limit_tenants_to_placement_aggregate=True, enable_isolated_aggregate_filtering=True
        ),
    )
    assert found - PLAIN == {
        ("member_of", "in:a,b"),
        ("member_of", "in:c"),
        ("member_of", "in:agg-z1,agg-z2"),
        ("member_of", "in:agg-t"),
        ("member_of", "!in:agg-t,d"),
    }


@pytest.mark.parametrize(
    "bound",
    [
        {"force_hosts": ["h"]},
        {"force_nodes": ["n"]},
        {"only_hosts": ["h"]},
        {"requested_destination": {"host": "h"}},
        {"scheduler_hints": {"same_host": ["i"]}},
        {"scheduler_hints": {"group": ["g"]}},
    ],
)
def test_a_request_that_is_bound_to_hosts_has_no_limit_and_no_tree(bound):
    """``in_tree`` would leave out what is shared with the host."""
    assert asked(**bound) == [PLAIN - {("limit", "1000")}]


def test_pinned_cpus_are_asked_for_and_then_shared_ones():
    pinned, unpinned = asked(extra_specs={"hw:cpu_policy": "dedicated"})
    assert ("resources", "DISK_GB:20,MEMORY_MB:1024,PCPU:2") in pinned
    assert unpinned == PLAIN


@pytest.mark.parametrize(
    ("policy", "trait"),
    [("require", "HW_CPU_HYPERTHREADING"), ("isolate", "!HW_CPU_HYPERTHREADING"), ("prefer", None)],
)
def test_thread_policies_are_asked_of_hosts_with_pinned_cpus(policy, trait):
    extra_specs = {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": policy}
    pinned, unpinned = asked(extra_specs=extra_specs)
    assert dict(pinned).get("required") == trait
    assert unpinned == PLAIN


@pytest.mark.parametrize(
    ("policy", "trait"),
    [("require", "HW_CPU_HYPERTHREADING"), ("isolate", "!HW_CPU_HYPERTHREADING")],
)
@pytest.mark.parametrize("suffix", ["", "1"])
def test_pinned_cpus_of_an_extra_spec_are_asked_for_once_and_with_the_thread_policy(
    suffix, policy, trait
):
    extra_specs = {f"resources{suffix}:PCPU": "2", "hw:cpu_thread_policy": policy}
    [found] = asked(extra_specs=extra_specs)
    of_flavor = {"DISK_GB:20", "MEMORY_MB:1024"} | ({"PCPU:2"} if not suffix else set())
    assert set(dict(found)["resources"].split(",")) == of_flavor
    assert dict(found).get("resources1") == ("PCPU:2" if suffix else None)
    assert dict(found)["required"] == trait


def test_a_trait_that_stands_for_a_thread_policy_stays_in_its_group():
    extra_specs = {
        "hw:cpu_policy": "dedicated",
        "resources2:VGPU": "1",
        "trait2:HW_CPU_HYPERTHREADING": "required",
    }
    for found in map(dict, asked(extra_specs=extra_specs)):
        assert (found.get("required"), found["required2"]) == (None, "HW_CPU_HYPERTHREADING")


def test_a_flavor_that_takes_nothing_asks_for_its_traits_at_the_compute_node():
    extra_specs = {
        **{f"resources:{name}": "0" for name in ("VCPU", "MEMORY_MB", "DISK_GB")},
        "trait:CUSTOM_A": "required",
        "resources1:CUSTOM_BAREMETAL": "1",
    }
    [found] = asked(extra_specs=extra_specs)
    assert found == {
        ("resources1", "CUSTOM_BAREMETAL:1"),
        ("root_required", "CUSTOM_A,!COMPUTE_STATUS_DISABLED"),
        ("limit", "1000"),
    }


def test_a_name_that_placement_does_not_accept_is_refused():
    group = {"requester_id": "a b", "resources": {"VGPU": 1}}
    with pytest.raises(RequestError, match="requester_id: needs 1 to 64 letters"):
        asked(requested_resources=[group])


@pytest.mark.parametrize("other", ["port", "1"])
def test_two_groups_of_one_name_are_refused(other):
    groups = [{"requester_id": each, "resources": {"VGPU": 1}} for each in ("port", other)]
    with pytest.raises(RequestError, match=r"requested_resources\[1\]\.requester_id: .* another"):
        asked(requested_resources=groups, extra_specs={"resources1:VGPU": "1"})


# The answer


def needs(**spec) -> Needs:
    made = request_spec(vcpus=1, memory_mb=512, flavor={"root_gb": 10}, **spec)
    return needs_of(made, RequestFilterParameters())


def answer(*requests: AllocationRequest) -> CandidatesAnswer:
    names = {name for each in requests for name in each.held}
    summaries = {
        name: ProviderSummary(
            root=name.partition("/")[0], rooms={}, traits=(SHARES,) * name.startswith("pool")
        )
        for name in names
    }
    return CandidatesAnswer(requests, summaries)


OF_FLAVOR = {"VCPU": 1, "MEMORY_MB": 512}


def test_a_candidate_belongs_to_the_root_of_what_does_not_share():
    held = {"h/numa": OF_FLAVOR, "pool": {"DISK_GB": 10}}
    asked = AllocationRequest(held, {"": ("h/numa", "pool")})
    own = AllocationRequest({"pool2": OF_FLAVOR | {"DISK_GB": 10}}, {"": ("pool2",)})
    found = by_root(needs(), answer(asked, own))
    assert found.keys() == {"h", "pool2"}  # a compute node that shares, for itself
    [candidate] = found["h"]
    assert {use.provider: use.resources for use in candidate.uses} == held


def test_amounts_that_placement_added_up_too_often_do_not_count():
    """As a Placement 16.0 answered: 10 + 20 became 170."""
    spec = {"extra_specs": {"resources:DISK_GB": "10", "resources1:DISK_GB": "20"}}
    asked = AllocationRequest(
        {"h": OF_FLAVOR | {"DISK_GB": 40}, "pool": {"DISK_GB": 170}},
        {"": ("h", "pool"), "1": ("h",)},
    )
    [candidate] = by_root(needs(**spec), answer(asked))["h"]
    assert {(use.group, use.provider): use.resources for use in candidate.uses} == {
        ("", "h"): OF_FLAVOR,
        ("", "pool"): {"DISK_GB": 10},
        ("1", "h"): {"DISK_GB": 20},
    }


@pytest.mark.parametrize(
    ("aggregates", "does"),
    [({"a", "c"}, True), ({"a"}, False), ({"a", "c", "x"}, False), (set(), False)],
)
def test_whether_a_host_is_where_a_query_asks_for_it(aggregates, does):
    query = "resources=VCPU:1&member_of=in:a,b&member_of1=in:c&member_of=!in:x,y"
    assert suits(query, aggregates) is does
