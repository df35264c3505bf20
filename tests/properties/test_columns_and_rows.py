"""Column and row methods of every built-in agree."""

from importlib.metadata import entry_points
from itertools import pairwise

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.model.aggregates import Aggregate, by_host
from scheduler_worker.model.host_reports import merged
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.filter_results import FilterResults
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.plugin import Filter, Weigher
from scheduler_worker.scheduling.selectors import best
from tests.support.trials import examples
from tests.support.units import made

FILTERS = {each.name: each.load() for each in entry_points(group="scheduler_worker.filters")}
WEIGHERS = {each.name: each.load() for each in entry_points(group="scheduler_worker.weighers")}
OPTIONS = Options.of(
    metrics_weight_setting=("cpu.percent=-1.0", "numa.membw.max=2"),
    metrics_required=False,
    image_props_weight_multiplier=1.0,
    image_properties_default_architecture="x86_64",
    max_io_ops_per_host=4,
    max_instances_per_host=5,
    isolated_images=("isolated",),
    isolated_hosts=("h1", "h2"),
)

RETRIED = [
    {"host": "h0", "hypervisor_hostname": "h0"},
    {"host": "h1", "hypervisor_hostname": "n"},
    {"hypervisor_hostname": "h2"},
]

small = st.integers(0, 9)
host_reports = st.fixed_dictionaries(
    {
        "vcpus": small,
        "vcpus_used": small,
        "memory_mb": small.map(lambda n: n * 1024),
        "memory_mb_used": small.map(lambda n: n * 512),
        "local_gb": small,
        "local_gb_used": small,
        "cpu_allocation_ratio": st.sampled_from([0.5, 1.0, 1.5, 16.0]),
        "ram_allocation_ratio": st.sampled_from([0.9, 1.0, 1.5]),
        "disk_allocation_ratio": st.sampled_from([1.0, 2.0]),
        "reserved_host_cpus": st.integers(0, 2),
        "reserved_host_memory_mb": st.sampled_from([0, 512]),
        "reserved_host_disk_mb": st.sampled_from([0, 1024]),
        "hypervisor_type": st.sampled_from(["QEMU", "xen"]),
        "hypervisor_version": st.sampled_from([0, 6000, 8002002]),
        "supported_hv_specs": st.sampled_from(
            [(), (("x86_64", "kvm", "hvm"),), (("AMD64", "xapi", "pv"), ("i686", "qemu", "hvm"))]
        ),
        "cpu_info": st.sampled_from([None, "{", '{"arch": "x86_64", "maxphysaddr": {"bits": 46}}']),
        "stats": st.dictionaries(
            st.sampled_from(["num_instances", "io_workload", "failed_builds", "rack"]),
            small.map(str),
        ),
        "metrics": st.lists(
            st.fixed_dictionaries(
                {
                    "name": st.sampled_from(["cpu.percent", "numa.membw.max"]),
                    "value": st.floats(0, 1),
                }
            ),
            max_size=2,
        ),
        "service": st.sampled_from([{}, {"disabled": True}, {"up": False}, {"forced_down": True}]),
        "reported_at_s": st.sampled_from([100.0, 40.0, 39.0, 1000.0]),
        "cell_uuid": st.sampled_from(["c1", "c2", None]),
        "instances": st.sets(st.sampled_from(["i1", "i2", "i3"])),
        "zone": st.sampled_from([None, "az1", "az1, az2", "nova"]),
        "multiplier": st.sampled_from([None, "2", "x"]),
        "host_ip": st.sampled_from([None, "192.0.2.1", "192.0.3.1", "2001:db8::1", "?"]),
        "metadata": st.dictionaries(
            st.sampled_from(
                [
                    "max_io_ops_per_host",
                    "max_instances_per_host",
                    "cpu_allocation_ratio",
                    "ram_allocation_ratio",
                    "disk_allocation_ratio",
                    "instance_type",
                    "filter_tenant_id",
                    "filter_tenant_id2",
                    "rack",
                    "hw_architecture",
                ]
            ),
            st.sampled_from(["", "1", "2.0", "a, b", "x86_64,3", "nan"]),
            max_size=4,
        ),
    }
)
hints = st.fixed_dictionaries(
    {},
    optional={
        "different_host": st.lists(st.sampled_from(["i1", "i2", ""]), max_size=2),
        "same_host": st.lists(st.sampled_from(["i1", "i2", ""]), max_size=2),
        "build_near_host_ip": st.sampled_from([["192.0.2.9"], ["2001:db8::9"], [""]]),
        "cidr": st.sampled_from([["/16"], ["/0"], ["/31"]]),
        "query": st.sampled_from(
            [
                [""],
                ['[">", "$free_ram_mb", 2000]'],
                ['["not", ["<", "$stats.rack", "3"], ["in", "$host", "h1"]]'],
                ['["<", "$hypervisor_type", 1]'],
            ]
        ),
    },
)
specs = st.fixed_dictionaries(
    {
        "flavor": st.fixed_dictionaries(
            {
                "id": st.sampled_from([None, 1, 2]),
                "name": st.sampled_from([None, "a", "b"]),
                "vcpus": small,
                "memory_mb": small.map(lambda n: n * 700),
                "root_gb": small,
                "swap": st.sampled_from([0, 300]),
                "extra_specs": st.dictionaries(
                    st.sampled_from(
                        [
                            "capabilities:hypervisor_type",
                            "capabilities:cpu_info:arch",
                            "rack",
                            "capabilities:free_ram_mb",
                            "hw:maxphysaddr_bits",
                            "other:thing",
                            "capabilities:stats:rack",
                            "aggregate_instance_extra_specs:rack",
                            "quota",
                        ]
                    ),
                    st.sampled_from(
                        ["QEMU", ">= 3", "s== x86_64", "<or> 1 <or> 2", "<in> x", "46"]
                    ),
                    max_size=2,
                ),
            }
        ),
        "availability_zone": st.sampled_from([None, "az1", "az2", "nova", "none"]),
        "image": st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {
                    "id": st.sampled_from([None, "isolated", "other"]),
                    "properties": st.fixed_dictionaries(
                        {},
                        optional={
                            "hw_architecture": st.sampled_from(["x86_64", "i386", "AMD64"]),
                            "img_hv_type": st.sampled_from(["kvm", "xapi"]),
                            "hw_vm_mode": st.sampled_from(["hvm", "hv"]),
                            "img_hv_requested_version": st.sampled_from([">=6.0", ">6.0,<9"]),
                            "hw_maxphysaddr_bits": st.sampled_from([40, 52]),
                        },
                    ),
                }
            ),
        ),
        "instance_uuid": st.sampled_from([None, "i1", "new"]),
        "project_id": st.sampled_from([None, "a", "1"]),
        "scheduler_hints": hints,
        "retry": st.sampled_from([None, {"hosts": RETRIED}]),
        "instance_group": st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {
                    "policy": st.sampled_from(
                        ["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]
                    ),
                    "members": st.lists(st.sampled_from(["i1", "i2", "i3", "i9"]), max_size=4),
                    "hosts": st.lists(st.sampled_from(["h0", "h1", "H1"]), max_size=2),
                    "_rules": st.sampled_from([{}, {"max_server_per_host": "2"}]),
                }
            ),
        ),
        "requested_destination": st.sampled_from(
            [None, {"cell": {"uuid": "c1"}, "allow_cross_cell_move": True}]
        ),
    }
)


def table(reports: list[dict]) -> HostTable:
    hosts, aggregates = HostTable(), []
    hosts.now_s = 100.0
    for number, each in enumerate(reports):
        facts = {key: value for key, value in each.items() if value is not None}
        instances, zone = facts.pop("instances"), facts.pop("zone", None)
        said_of_all = facts.pop("metadata", {})
        multiplier, reported = facts.pop("multiplier", None), facts.pop("reported_at_s")
        name = f"h{number}"
        stamp = {"nodename": name, "cluster": "c", "reported_at_s": reported}
        hosts.put(merged(None, {"uuid": name, "host": name, **facts}, **stamp), number + 1)
        hosts.set_instances(
            name,
            {uuid: {"uuid": uuid, "instance_type_id": len(instances),
                    "system_metadata": {"image_hw_vm_mode": "hvm"}}
             for uuid in instances},
        )  # fmt: skip
        metadata = {"availability_zone": zone} if zone else {}
        if multiplier:
            metadata |= {f"{kind}_weight_multiplier": multiplier for kind in ("ram", "metrics")}
            metadata["build_failure_weight_multiplier"] = multiplier
        aggregates.append(Aggregate(id=number, hosts=(name,), metadata=metadata))
        neighbours = (name, f"h{number + 1}")
        aggregates.append(Aggregate(id=100 + number, hosts=neighbours, metadata=said_of_all))
    hosts.set_aggregates(by_host(aggregates))
    return hosts


# To draw hosts and a request costs more than to ask all units about them.


@examples(40)
@given(reports=st.lists(host_reports, min_size=1, max_size=6), plain=specs)
def test_a_filters_methods_agree(reports, plain):
    hosts, spec = table(reports), msgspec.convert(plain, RequestSpec)
    every = hosts.take(np.arange(len(hosts)))
    for name, kind in FILTERS.items():
        unit: Filter = made(kind, OPTIONS)
        columns = unit.passes(hosts, spec).tolist()
        assert columns == [unit.host_passes(host, spec) for host in hosts.states()], name
        assert columns == list(map(unit.row_check(hosts, spec), range(len(hosts)))), name
        assert columns == unit.passes(every, spec).tolist(), name
        assert unit.applies(spec) or all(columns), name
        for host, passes in zip(hosts.states(), columns, strict=True):
            assert passes or unit.reason(host, spec), name


@given(
    reports=st.lists(host_reports, min_size=1, max_size=6),
    plain=specs,
    names=st.lists(st.sampled_from(sorted(FILTERS)), unique=True, max_size=6),
    data=st.data(),
)
def test_filters_only_ever_remove_in_whatever_order(reports, plain, names, data):
    hosts, spec = table(reports), msgspec.convert(plain, RequestSpec)

    def survivors(order: list[str]) -> list[Mask]:
        units = [made(FILTERS[name], OPTIONS) for name in order]
        results = FilterResults(hosts, spec, units)
        return results.masks

    masks = survivors(names)
    assert all((after <= before).all() for before, after in pairwise(masks))
    other = survivors(data.draw(st.permutations(names)))
    assert masks[-1].tolist() == other[-1].tolist()


@examples(40)
@given(reports=st.lists(host_reports, min_size=1, max_size=6), plain=specs)
def test_a_weighers_methods_agree(reports, plain):
    hosts, spec = table(reports), msgspec.convert(plain, RequestSpec)
    for name, kind in WEIGHERS.items():
        unit: Weigher = made(kind, OPTIONS)
        columns = unit.weigh(hosts, spec).tolist()
        assert columns == [unit.weigh_host(host, spec) for host in hosts.states()], name
        assert columns == list(map(unit.row_score(hosts, spec), range(len(hosts)))), name
        multipliers = np.broadcast_to(unit.multiplier(hosts), len(hosts)).tolist()
        assert multipliers == [unit.weight_multiplier(host) for host in hosts.states()], name
        assert unit.applies(spec) or not any(columns), name
        for rows in (slice(None, None, 2), slice(0)):
            some = hosts.take(np.arange(len(hosts))[rows])
            assert unit.weigh(some, spec).tolist() == columns[rows], name
            found = np.broadcast_to(unit.multiplier(some), len(some)).tolist()
            assert found == multipliers[rows], name


@given(st.lists(st.integers(0, 5).map(float), min_size=1, max_size=60), st.integers(1, 70))
def test_the_best_are_the_head_of_a_stable_sort(totals, count):
    values = np.array(totals)
    assert best(values, count).tolist() == np.argsort(-values, kind="stable")[:count].tolist()
