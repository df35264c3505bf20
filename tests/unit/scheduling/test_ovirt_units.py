"""What oVirt's units read of hosts and requests, and the reasons that they give."""

from typing import Any

import numpy as np
import pytest

from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.model.virt import VirtUse
from scheduler_worker.scheduling.ovirt import (
    affinity,
    demand,
    host_facts,
    host_metrics,
    hosted_engine,
    migration,
    numa,
    resources,
    weights,
)
from scheduler_worker.scheduling.plugin import Filter, Weigher
from scheduler_worker.scheduling.scales import RawScale
from tests.support.hosts import NOW_S, claim, host_record, host_table, request_spec
from tests.support.units import made

TOPOLOGY = {"sockets": 1, "cores": 4, "threads": 8}


def hosts_of(**virt: dict[str, Any]) -> HostTable:
    """Hosts by name, each with these facts of ``virt``."""
    return host_table(host_record(host=name, virt=facts) for name, facts in virt.items())


def vm(vcpus: Any = 1, memory_mb: Any = 1024, **fields: Any) -> RequestSpec:
    return request_spec(vcpus=vcpus, memory_mb=memory_mb, instance_uuid="new", vm=fields)


def kept(unit: type[Filter], hosts: HostTable, spec: RequestSpec, **parameters: str) -> list[str]:
    """The hosts that pass; asked at once and one by one, and every other one has a reason."""
    made_unit = made(unit, **parameters)
    if not made_unit.applies(spec):
        return [each.host for each in hosts.records]
    passed = made_unit.passes(hosts, spec).tolist()
    if not made_unit.of_one_request:
        assert [made_unit.host_passes(host, spec) for host in hosts.states()] == passed
    for host, passes in zip(hosts.states(), passed, strict=True):
        assert passes or len(made_unit.reason(host, spec)) > 10
    return [each.host for each, passes in zip(hosts.records, passed, strict=True) if passes]


def scores(unit: type[Weigher], hosts: HostTable, spec: RequestSpec, **parameters: str) -> Any:
    """The score of each host beside the others; raw scores are asked for at once and one by one."""
    made_unit = made(unit, **parameters)
    raw = made_unit.weigh(hosts, spec)
    if made_unit.declares_reads():
        one_by_one = np.array([made_unit.weigh_host(host, spec) for host in hosts.states()])
        assert np.array_equal(raw, one_by_one, equal_nan=True)
    scale = RawScale(made_unit, spec, 1.0, raw)
    return (-scale.scores if unit.lower_is_better else scale.scores).tolist()


def reserve(hosts: HostTable, host: str, **taken: Any) -> None:
    """A pending VM on a host."""
    hosts.consume(claim("other", host, **taken))


class TestMemory:
    def test_a_host_of_nova_has_its_own_figures(self):
        hosts = host_table([host_record(host="a", memory_mb_used=6000), host_record(host="b")])
        assert kept(resources.MemoryFilter, hosts, vm(memory_mb=4096)) == ["b"]

    def test_overhead_counts(self):
        hosts = hosts_of(a={"free_mb": 8192})
        # 7 GiB, page tables of 14 MiB, an emulator of 64, and 8 for the vCPU.
        assert kept(resources.MemoryFilter, hosts, vm(memory_mb=7168)) == ["a"]
        assert kept(resources.MemoryFilter, hosts, vm(memory_mb=8192 - 86)) == []
        assert kept(resources.MemoryFilter, hosts, vm(memory_mb=8192 - 87)) == ["a"]
        bare = {"static_overhead_mb": 0, "possible_overhead_mb": 0}
        assert kept(resources.MemoryFilter, hosts, vm(memory_mb=8192, **bare)) == ["a"]

    def test_pending_vms_count_with_their_overhead(self):
        hosts = hosts_of(a={"free_mb": 8192}, b={"free_mb": 8192})
        reserve(hosts, "a", memory_mb=4096, vcpus=2)
        assert host_metrics.pending_real_mb(hosts).tolist() == [4096 + 8 + 64, 0]
        assert host_metrics.schedulable_mb(hosts).tolist() == [8192 - 4184, 8192]
        assert kept(resources.MemoryFilter, hosts, vm(memory_mb=4000)) == ["b"]

    def test_swap_holds_what_free_memory_does_not(self):
        facts = {"free_mb": 1000, "overcommit_percent": 200}
        hosts = hosts_of(a=facts, b=facts | {"swap_free_mb": 200}, unknown={})
        assert kept(resources.MemoryFilter, hosts, vm(memory_mb=1024)) == ["b"]

    def test_a_vm_needs_nothing_on_its_own_host_or_while_it_is_paused(self):
        hosts = hosts_of(a={"free_mb": 0}, b={"free_mb": 0})
        assert kept(resources.MemoryFilter, hosts, vm(run_on="a")) == ["a"]
        assert kept(resources.HugePagesFilter, hosts, vm(run_on="a", hugepage_kb=2048)) == ["a"]
        assert kept(resources.MemoryFilter, hosts, vm(paused=True)) == ["a", "b"]

    def test_huge_pages_hold_the_vm_instead_of_normal_memory(self):
        facts = {"free_mb": 200, "free_hugepages": [[2048, 512]], "overcommit_percent": 100}
        hosts = hosts_of(a=facts, b=facts)
        asked = vm(hugepage_kb=2048)
        assert kept(resources.MemoryFilter, hosts, asked) == ["a", "b"]
        assert kept(resources.HugePagesFilter, hosts, asked) == ["a", "b"]
        reserve(hosts, "a", virt=VirtUse(hugepages=((2048, 1),)))
        assert kept(resources.HugePagesFilter, hosts, asked) == ["b"]
        hosts.give_back("other@uuid-a")
        assert kept(resources.HugePagesFilter, hosts, asked) == ["a", "b"]

    @pytest.mark.parametrize(
        ("text", "pages"),
        [("2048", 512), ("2MB", 512), ("1GB", 1), ("large", 512), ("small", 0), ("any", 0)],
    )
    def test_a_flavor_of_novas_may_ask_for_huge_pages(self, text, pages):
        spec = request_spec(extra_specs={"hw:mem_page_size": text})
        hosts = hosts_of(a={"free_hugepages": [[2048, 512], [1048576, 1]]}, b={})
        assert kept(resources.HugePagesFilter, hosts, spec) == (["a"] if pages else ["a", "b"])


class TestCpus:
    def test_the_largest_shared_vm_counts_and_not_the_sum(self):
        running = [{"id": "x", "vcpus": 4}, {"id": "y", "vcpus": 4}]
        hosts = hosts_of(a=TOPOLOGY | {"vms": running}, b={"cores": 8, "threads": 8})
        assert kept(resources.CpuFilter, hosts, vm(vcpus=4)) == ["a"]
        assert kept(resources.CpuFilter, hosts, vm(vcpus=5)) == []

    def test_threads_count_where_the_cluster_says_so(self):
        hosts = hosts_of(a=TOPOLOGY, b=TOPOLOGY | {"count_threads_as_cores": True})
        assert kept(resources.CpuFilter, hosts, vm(vcpus=8)) == ["b"]

    def test_cpus_of_their_own_are_no_others(self):
        own = [{"id": "x", "vcpus": 2, "exclusive_cpus": [0, 1]}]
        hosts = hosts_of(a=TOPOLOGY | {"vms": own}, b=TOPOLOGY, c=TOPOLOGY)
        reserve(hosts, "c", vcpus=2, virt=VirtUse(exclusive_vcpus=2))
        assert kept(resources.CpuFilter, hosts, vm(vcpus=3)) == ["b"]
        assert kept(resources.CpuFilter, hosts, vm(vcpus=3, pinning="dedicated")) == ["b"]
        assert kept(resources.CpuPinningFilter, hosts, vm(vcpus=7, pinning="dedicated")) == ["b"]

    def test_pinned_cpus_are_online_and_free(self):
        own = [{"id": "x", "exclusive_cpus": [0]}]
        hosts = hosts_of(a=TOPOLOGY | {"vms": own}, b=TOPOLOGY, c={"threads": 1})
        pinned = {"pinning": "manual", "pinned_cpus": [0, 7]}
        assert kept(resources.CpuPinningFilter, hosts, vm(**pinned)) == ["b"]
        assert kept(resources.CpuPinningFilter, hosts, vm(pinning="resize_and_pin")) == ["b", "c"]

    def test_a_host_must_have_been_overloaded_for_long_enough(self):
        busy = {"cores": 4, "cpu_percent": 95}
        records = [
            host_record(host="idle", virt={"cores": 4, "cpu_percent": 90}),
            host_record(host="since 1 min", virt=busy, over_commit_since_s=NOW_S - 60),
            host_record(host="since 3 min", virt=busy, over_commit_since_s=NOW_S - 180),
            host_record(host="unknown", virt={"cores": 4}),
        ]
        hosts = host_table(records)
        assert kept(resources.CpuOverloadFilter, hosts, vm()) == ["idle", "since 1 min"]
        ends_s = made(resources.CpuOverloadFilter).lasts_until_s(hosts, vm())
        assert ends_s == pytest.approx(NOW_S + 60)
        patient = {"CpuOverCommitDurationMinutes": "4", "HighUtilization": "80"}
        assert kept(resources.CpuOverloadFilter, hosts, vm(), **patient)[1:] == [
            "since 1 min",
            "since 3 min",
        ]
        quick = {"CpuOverCommitDurationMinutes": "0.5"}
        assert kept(resources.CpuOverloadFilter, hosts, vm(), **quick) == ["idle"]

    def test_flags_must_be_there_unless_a_passthrough_vm_starts(self):
        hosts = hosts_of(a={"cpu_flags": ["vmx", "avx"]}, b={"cpu_flags": ["vmx"]})
        asked = {"cpu_flags": ["avx", "vmx"]}
        assert kept(resources.CpuLevelFilter, hosts, vm(**asked)) == ["a"]
        starting = vm(**asked, cpu_passthrough=True)
        assert kept(resources.CpuLevelFilter, hosts, starting) == ["a", "b"]
        moving = asked | {"cpu_passthrough": True, "run_on": "a"}
        assert kept(resources.CpuLevelFilter, hosts, vm(**moving)) == ["a"]

    def test_the_topology_suits_pinning(self):
        nodes = [{"index": 0}, {"index": 1}]
        hosts = hosts_of(
            one=TOPOLOGY, two=TOPOLOGY | {"sockets": 2, "numa_nodes": nodes}, unknown={}
        )
        assert kept(resources.CpuTopologyFilter, hosts, vm(pinning="resize_and_pin")) == ["two"]
        threads = {"pinning": "dedicated", "threads_per_core": 3}
        assert kept(resources.CpuTopologyFilter, hosts, vm(**threads)) == []
        assert kept(resources.CpuTopologyFilter, hosts, vm(pinning="dedicated")) == ["one", "two"]


class TestMigration:
    def test_another_name_of_the_source_is_no_destination(self):
        addresses = {"a": "10.0.0.1", "b": "10.0.0.1", "c": "127.0.0.1", "d": "10.0.0.2"}
        hosts = host_table(host_record(host=name, host_ip=ip) for name, ip in addresses.items())
        assert kept(migration.MigrationFilter, hosts, vm(run_on="a")) == ["a", "d"]
        assert kept(migration.MigrationFilter, hosts, vm(run_on="elsewhere")) == ["a", "b", "d"]
        assert kept(migration.MigrationFilter, hosts, vm()) == ["a", "b", "c", "d"]
        assert kept(migration.LeaveHostFilter, hosts, vm(run_on="a")) == ["b", "c", "d"]

    def test_clocks_differ_by_250_per_million_at_most(self):
        hz = {"a": 1_000_000, "near": 1_000_250, "far": 1_000_251}
        hosts = hosts_of(**{name: {"tsc_frequency_hz": each} for name, each in hz.items()}, x={})
        moving = vm(run_on="a", use_tsc=True)
        assert kept(migration.TscFrequencyFilter, hosts, moving) == ["a", "near"]

    def test_the_weight_compares_with_a_source_that_a_filter_rejected(self):
        hosts = hosts_of(a={"os": "RHEL - 8.4 - 1"}, b={"os": "RHEL - 9.0 - 1"}, c={"os": "x"})
        others = hosts.take(hosts.rows_of(["b", "c"]).nonzero()[0])
        found = made(migration.UpgradeWeight).weigh(others, vm(run_on="a"))
        assert found.tolist() == [migration.NEWER, migration.OLDER]


class TestNetwork:
    HOSTS = hosts_of(
        all={
            "networks": [
                {"name": "blue", "free_virtual_functions": 1},
                {"name": "display", "has_address": True},
            ]
        },
        mute={"networks": [{"name": "blue"}, {"name": "display"}]},
        none={"networks": []},
    )

    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            ({"nics": [{"network": "blue"}]}, ["all", "mute"]),
            ({"nics": [{"network": "blue", "plugged": False}]}, ["all", "mute", "none"]),
            ({"nics": [{}]}, ["all", "mute", "none"]),
            ({"nics": [{"network": "x", "external": True}]}, ["all", "mute", "none"]),
            (
                {"nics": [{"network": "x", "external": True, "physical_network": "blue"}]},
                ["all", "mute"],
            ),
            ({"nics": [{"network": "blue", "passthrough": True}]}, ["all"]),
            ({"nics": 2 * [{"network": "blue", "passthrough": True}]}, []),
            ({"nics": [{"network": "blue", "passthrough": True, "failover": "red"}]}, []),
            ({"display_network": "display"}, ["all"]),
            (
                {
                    "nics": [{"network": "red", "required": False}],
                    "display_network": "display",
                    "only_required_networks": True,
                },
                ["all", "mute", "none"],
            ),
        ],
    )
    def test_plugged_interfaces_need_their_networks(self, asked, expected):
        assert kept(host_facts.NetworkFilter, self.HOSTS, vm(**asked)) == expected

    def test_networks_in_novas_form_count(self):
        hosts = host_table([host_record(host="a", networks=["blue"]), host_record(host="b")])
        assert kept(host_facts.NetworkFilter, hosts, vm(nics=[{"network": "blue"}])) == ["a"]


@pytest.mark.parametrize(
    ("unit", "facts", "asked"),
    [
        (host_facts.EmulatedMachineFilter, {"emulated_machines": ["pc"]}, {"machine_type": "pc"}),
        (host_facts.HostHooksFilter, {"hooks": ["50_vhostmd"]}, {"sap_agent": True}),
        (
            host_facts.CompatibilityVersionFilter,
            {"compatibility_versions": ["4.6", "4.7"]},
            {"compatibility_version": "4.6"},
        ),
        (
            host_facts.LeasesReadyFilter,
            {"storage_domains": ["s1", "s2"]},
            {"lease_domains": ["s1"]},
        ),
        (
            host_facts.MediatedDevicesFilter,
            {"free_mediated_devices": [["gpu", 2]]},
            {"mediated_devices": ["gpu", "gpu"]},
        ),
        (
            host_facts.HostDeviceFilter,
            {"free_devices": ["d1"], "passthrough": True},
            {"host_devices": ["d1"], "dedicated_hosts": ["has", "has not"]},
        ),
        (
            hosted_engine.EngineHaFilter,
            {"hosted_engine": {"configured": True, "score": 1}},
            {"hosted_engine": True},
        ),
    ],
)
def test_a_host_must_have_what_the_vm_asks_for(unit, facts, asked):
    hosts = hosts_of(**{"has": facts, "has not": {}})
    assert kept(unit, hosts, vm(**asked)) == ["has"]
    assert kept(unit, hosts, vm()) == ["has", "has not"]


@pytest.mark.parametrize(
    ("unit", "facts", "asked"),
    [
        (
            host_facts.MediatedDevicesFilter,
            {"free_mediated_devices": [["gpu", 1]]},
            {"mediated_devices": ["gpu"]},
        ),
        (
            host_facts.HostDeviceFilter,
            {"free_devices": ["d1"], "passthrough": True},
            {"host_devices": ["d1"], "dedicated_hosts": ["a"]},
        ),
        (
            host_facts.NetworkFilter,
            {"networks": [{"name": "blue", "free_virtual_functions": 1}]},
            {"nics": [{"network": "blue", "passthrough": True}]},
        ),
    ],
)
def test_a_device_of_a_pending_vm_is_taken(unit, facts, asked):
    hosts, spec = hosts_of(a=facts), vm(**asked)
    assert kept(unit, hosts, spec) == ["a"]
    reserve(hosts, "a", virt=demand.virt_use_of(spec))
    assert kept(unit, hosts, spec) == []
    hosts.give_back("other@uuid-a")
    assert kept(unit, hosts, spec) == ["a"]


def test_the_management_vm_may_lose_800_points_when_it_migrates():
    part = {"configured": True, "active": True}
    found = {"a": 3400, "b": 2601, "c": 2600}
    hosts = hosts_of(
        **{name: {"hosted_engine": part | {"score": score}} for name, score in found.items()}
    )
    unit = hosted_engine.EngineHaFilter
    assert kept(unit, hosts, vm(hosted_engine=True, run_on="a")) == ["a", "b"]
    quiet = vm(hosted_engine=True, run_on="a", global_maintenance=True)
    assert kept(unit, hosts, quiet) == ["a", "b", "c"]
    assert scores(hosted_engine.EngineHaWeight, hosts, vm(hosted_engine=True)) == [0, 235, 235]


def test_a_vm_takes_nothing_that_is_kept_for_the_management_vm_on_its_own_host():
    part = {"configured": True, "active": True, "score": 3400}
    engine = {"id": "engine", "memory_mb": 4096, "hosted_engine": True}
    spare = {"hosted_engine": part, "committed_mb": 0}
    hosts = hosts_of(a={"hosted_engine": part, "vms": [engine]}, b=spare, c=spare)
    unit, asked = hosted_engine.EngineSparesFilter, {"HeSparesCount": "2"}
    assert kept(unit, hosts, vm(memory_mb=7000), **asked) == ["a"]
    assert kept(unit, hosts, vm(memory_mb=7000, run_on="b"), **asked) == ["a", "b"]


@pytest.mark.parametrize(
    "facts", [{"service": {"disabled": True}}, {"reported_at_s": NOW_S - 61}], ids=str
)
def test_a_host_that_takes_no_vms_is_no_spare_for_the_management_vm(facts):
    part = {"configured": True, "active": True, "score": 3400}
    engine = {"id": "engine", "memory_mb": 4096, "hosted_engine": True}
    virt = {"hosted_engine": part, "committed_mb": 0}
    hosts = [
        host_record(host="a", virt=virt | {"vms": [engine]}),
        host_record(host="b", virt=virt),
        host_record(host="c", virt=virt),
    ]
    unit, spec = hosted_engine.EngineSparesFilter, vm(memory_mb=7000)
    assert kept(unit, host_table(hosts), spec, HeSparesCount="1") == ["a", "b", "c"]
    hosts[2] = host_record(host="c", virt=virt, **facts)
    assert kept(unit, host_table(hosts), spec, HeSparesCount="1") == ["a", "c"]


def test_server_groups_of_nova_are_affinity_groups():
    hosts = host_table(
        [host_record(host=name) for name in "ab"], instances={"a": {"i1": {}}, "b": {}}
    )
    for policy, expected in (("affinity", ["a"]), ("anti-affinity", ["b"])):
        group = {"policy": policy, "members": ["i1", "new"], "hosts": ["a"]}
        spec = request_spec(instance_uuid="new", instance_group=group)
        assert kept(affinity.VmAffinityFilter, hosts, spec) == expected
    group = {"policy": "soft-anti-affinity", "members": ["i1", "new"]}
    spec = request_spec(instance_uuid="new", instance_group=group)
    assert kept(affinity.VmAffinityFilter, hosts, spec) == ["a", "b"]
    assert scores(affinity.VmAffinityWeight, hosts, spec) == [2, 1]


class TestNuma:
    NODES = (
        {"index": 0, "memory_mb": 4096, "free_mb": 1024, "cpus": [0, 1]},
        {"index": 1, "memory_mb": 4096, "cpus": [2, 3]},
    )
    HOSTS = hosts_of(two={"numa_support": True, "numa_nodes": NODES}, none={})

    @pytest.mark.parametrize(
        ("nodes", "expected"),
        [
            ([{"memory_mb": 2048, "host_nodes": [0, 1]}], ["two"]),
            ([{"memory_mb": 2048, "host_nodes": [0]}], []),
            ([{"memory_mb": 2048, "host_nodes": [0], "mode": "interleave"}], []),
            ([{"memory_mb": 2048, "host_nodes": [0], "mode": "preferred"}], ["two"]),
            # The small one has to go to node 0, so that the large one fits on node 1.
            (
                [
                    {"memory_mb": 1024, "host_nodes": [1, 0]},
                    {"memory_mb": 4096, "host_nodes": [1]},
                ],
                ["two"],
            ),
            (2 * [{"memory_mb": 2560, "host_nodes": [1]}], []),
        ],
    )
    def test_pinned_nodes_fit_together(self, nodes, expected):
        assert kept(numa.NumaFilter, self.HOSTS, vm(numa_nodes=nodes)) == expected

    @pytest.mark.parametrize(
        ("sizes", "reason"),
        [
            (11 * [600], "pinned nodes"),
            ([*(600 - each for each in range(11)), 1], "in any of 1000 ways that were tried"),
        ],
    )
    def test_nodes_that_do_not_fit_together_are_soon_found_out(self, sizes, reason):
        nodes = [{"index": each, "free_mb": 1000 + each} for each in range(10)]
        hosts = hosts_of(ten={"numa_support": True, "numa_nodes": nodes})
        spec = vm(numa_nodes=[{"memory_mb": size, "host_nodes": [*range(10)]} for size in sizes])
        assert kept(numa.NumaFilter, hosts, spec) == []
        assert numa.NumaFilter().reason(hosts.state(0), spec).endswith(reason)

    def test_pinned_cpus_want_nodes_of_theirs(self):
        asked = {"numa_nodes": [{"memory_mb": 2048}], "pinning": "manual"}
        spread = [vm(**asked, pinned_cpus=[cpu_number]) for cpu_number in (0, 2)]
        found = [scores(numa.PinningWeight, self.HOSTS, each)[0] for each in spread]
        assert found == [1000, 1]

    def test_pinned_nodes_are_where_they_are_on_the_own_host(self):
        facts = {"numa_support": True, "numa_nodes": self.NODES}
        hosts = hosts_of(a=facts, b=facts)
        nodes = [{"memory_mb": 2048, "host_nodes": [0]}]
        there = vm(numa_nodes=nodes, pinning="manual", pinned_cpus=[0], run_on="a")
        assert kept(numa.NumaFilter, hosts, there) == ["a"]
        assert scores(numa.PinningWeight, hosts, there) == [1, 1000]


class TestWeights:
    def test_pending_vms_and_the_storage_manager_add_to_the_load(self):
        facts = {"cores": 4, "cpu_percent": 20}
        hosts = hosts_of(a=facts, b=facts | {"spm": True}, c=facts)
        reserve(hosts, "a", vcpus=2)
        # 80 in use, 20 pending, 10 of the manager, 10 of the VM; for each of four CPUs.
        assert made(weights.EvenCpuWeight).weigh(hosts, vm()).tolist() == [28, 25, 23]
        assert scores(weights.EvenCpuWeight, hosts, vm()) == [1000, 401, 1]

    def test_too_many_vcpus_make_a_host_a_thousand_times_worse(self):
        facts = {"cores": 4, "cpu_percent": 20}
        hosts = hosts_of(a=facts | {"vms": [{"id": "x", "vcpus": 7}]}, b=facts)
        unit = made(weights.EvenCpuWeight, VCpuToPhysicalCpuRatio="2")
        assert unit.weigh(hosts, vm()).tolist() == [22500, 23]
        assert scores(weights.EvenCpuWeight, hosts, vm(), VCpuToPhysicalCpuRatio="2") == [1000, 1]

    def test_a_host_without_statistics_is_worst(self):
        hosts = hosts_of(a={"cores": 4, "cpu_percent": 20}, b={"cores": 4}, c={})
        assert scores(weights.EvenCpuWeight, hosts, vm()) == [1, 1000, 1000]
        assert scores(weights.PackedCpuWeight, hosts, vm()) == [1, 1000, 1000]

    def test_vms_are_counted_with_pending_ones_and_the_managers_share(self):
        running = {"vms": [{"id": "x"}, {"id": "y"}]}
        hosts = hosts_of(a=running, b={"spm": True}, c={})
        reserve(hosts, "c")
        assert scores(weights.EvenGuestsWeight, hosts, vm()) == [2, 5, 1]
        assert scores(weights.EvenGuestsWeight, hosts, vm(), SpmVmGrace="1") == [2, 1, 1]

    def test_instances_that_a_host_lists_run_there_unless_they_are_pending(self):
        listed = {"old": {}, "other": {}}
        hosts = host_table([host_record(host="a"), host_record(host="b")], instances={"a": listed})
        reserve(hosts, "a", memory_mb=4096)
        assert host_metrics.reported_vms(hosts).tolist() == [1, 0]
        assert scores(weights.EvenGuestsWeight, hosts, vm()) == [2, 0]
        assert host_metrics.pending_real_mb(hosts).tolist() == [4096 + 8 + 64, 0]

    def test_highly_available_vms_are_spread(self):
        counts = {"a": 4, "b": 1, "c": 0}
        hosts = hosts_of(
            **{
                name: {"vms": [{"id": f"{name}{n}", "highly_available": True} for n in range(many)]}
                for name, many in counts.items()
            }
        )
        spec = vm(highly_available=True, ha_reservation=True)
        assert scores(weights.HaReservationWeight, hosts, spec) == [100, 25, 0]
        assert scores(weights.HaReservationWeight, hosts, spec, ScaleDown="10") == [10, 3, 0]
        assert not made(weights.HaReservationWeight).applies(vm(highly_available=True))

    def test_cpus_of_its_own_are_on_few_sockets(self):
        hosts = hosts_of(
            wide={"sockets": 1, "cores": 8, "threads": 8},
            threads={"sockets": 1, "cores": 8, "threads": 16},
            narrow={"sockets": 4, "cores": 8, "threads": 8},
        )
        asked = vm(vcpus=4, pinning="dedicated")
        found = scores(weights.HighPerformanceWeight, hosts, asked)
        assert found == [3, 1, 1000]  # 1004, 1002 and 2004, rescaled
