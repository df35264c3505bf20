"""Capacity that a host's own inventories decide: who passes, what is taken, and why not."""

from typing import Any

import msgspec
import pytest

from scheduler_worker.model.claims import Claim, Reservation, Resources
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.inventories import UNLIMITED
from scheduler_worker.model.providers import ProviderUse
from scheduler_worker.scheduling.prefilters.units import Inventories, RequestFilters
from scheduler_worker.scheduling.weighers.resources import RAMWeigher
from tests.support.hosts import NOW_S, host_record, host_table, request_spec
from tests.support.units import decided, pipeline_of

UNIT = Inventories()
ALL_PINNED = {"cells": [{"id": 0, "cpuset": [], "pcpuset": [0, 1], "memory": 1024}]}


def root(name: str = "h", *, usages: dict[str, int] | None = None, **fields: Any) -> dict:
    """The root provider of a host: 8 VCPU at a ratio of 2, 4 GiB of memory, 20 GiB of disk."""
    inventories = {
        "VCPU": {"total": 8, "max_unit": 8, "allocation_ratio": 2.0},
        "MEMORY_MB": {"total": 4096, "reserved": 512, "max_unit": 4096},
        "DISK_GB": {"total": 20, "max_unit": 20},
    }
    inventories |= fields.pop("inventories", {})
    inventories = {name: each for name, each in inventories.items() if each}
    plain = {"uuid": f"uuid-{name}", "inventories": inventories, "usages": usages or {}}
    return plain | fields


def fed(name: str = "h", **fields: Any) -> HostRecord:
    """A host with inventories, whose own figures would refuse every flavor."""
    below = fields.pop("below", ())
    about = {key: fields.pop(key) for key in list(fields) if key in {"traits", "service"}}
    figures = {"vcpus": 1, "vcpus_used": 99, "memory_mb": 1, "local_gb": 1, "free_ram_mb": -1}
    figures |= {"disk_available_least": 0}
    providers = [root(name, **fields), *below]
    return host_record(host=name, resource_providers=providers, **figures, **about)


@pytest.mark.parametrize(
    ("host", "asked", "why"),
    [
        ({}, {"vcpus": 9}, "needs 9 VCPU; one instance may take 1 to 8"),
        (
            {"usages": {"VCPU": 15}},
            {"vcpus": 2},
            "needs 2 VCPU; 15 are used of (8 - 0 reserved) x 2 = 16",
        ),
        (
            {"inventories": {"DISK_GB": None}},
            {"flavor": {"root_gb": 1}},
            "needs 1 DISK_GB; its compute node has no inventory of that",
        ),
        (
            {"inventories": {"VCPU": {"total": 8, "step_size": 4}}},
            {"vcpus": 2},
            "needs 2 VCPU, which is no multiple of 4",
        ),
    ],
)
def test_the_reason_names_the_figures(host, asked, why):
    assert UNIT.reason(host_table([fed(**host)]).state(0), request_spec(**asked)) == why


# Pinned CPUs


def test_a_host_without_an_inventory_of_them_gives_others():
    records = [fed("a", usages={"VCPU": 14}), fed("b", usages={"VCPU": 15})]
    records.append(fed("c", inventories={"PCPU": {"total": 2}, "VCPU": {"total": 1}}))
    hosts, spec = host_table(records), request_spec(vcpus=2, numa_topology=ALL_PINNED)
    assert UNIT.passes(hosts, spec).tolist() == [True, False, True]
    assert [UNIT.host_passes(host, spec) for host in hosts.states()] == [True, False, True]
    [use] = UNIT.taken_by(spec, hosts.state(0))
    assert use.resources == {"VCPU": 2, "MEMORY_MB": 1024}
    [use] = UNIT.taken_by(spec, hosts.state(2))
    assert use.resources == {"PCPU": 2, "MEMORY_MB": 1024}


@pytest.mark.parametrize("policy", ["require", "isolate"])
@pytest.mark.parametrize("has_threads", [True, False])
def test_thread_policies_are_traits_of_hosts_that_give_pinned_cpus(policy, has_threads):
    traits = ["HW_CPU_HYPERTHREADING"] if has_threads else []
    records = [
        fed("pins", inventories={"PCPU": {"total": 2}}, traits=traits),
        fed("shares", traits=traits),
        host_record(host="plain"),
    ]
    extra_specs = {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": policy}
    hosts, unit = host_table(records), RequestFilters()
    spec = request_spec(vcpus=2, numa_topology=ALL_PINNED, extra_specs=extra_specs)
    fits = has_threads == (policy == "require")
    assert unit.passes(hosts, spec).tolist() == [fits, True, True]
    assert unit.host_passes(hosts.state(0), spec) is fits
    if not fits:
        assert "HW_CPU_HYPERTHREADING" in unit.reason(hosts.state(0), spec)
    shared = request_spec(vcpus=2, extra_specs={"hw:cpu_thread_policy": policy})
    assert unit.passes(hosts, shared).all()


@pytest.mark.parametrize(("vcpus", "fits"), [(0, False), (8, True)])
def test_a_root_with_other_inventories_gives_nothing_else_where_the_host_has_nothing(vcpus, fits):
    provider = {"uuid": "uuid-h", "inventories": {"CUSTOM_GOLD": {"total": 1}}}
    node = host_record(vcpus=vcpus, memory_mb=vcpus, local_gb=vcpus, resource_providers=[provider])
    hosts = host_table([node])
    nothing = {f"resources:{name}": "0" for name in ("VCPU", "MEMORY_MB", "DISK_GB")}
    for spec, expected in ((request_spec(), fits), (request_spec(extra_specs=nothing), True)):
        assert UNIT.passes(hosts, spec).tolist() == [expected]
        assert UNIT.host_passes(hosts.state(0), spec) is expected


# Reservations


def decide(hosts: HostTable, uuid: str, **asked: Any) -> Claim:
    [claim] = decided(
        pipeline_of(weights=[RAMWeigher()]), hosts, request_spec(**asked), uuid
    ).claims
    return claim


def stored(claim: Claim, created_at_s: float = NOW_S, **fields: Any) -> Reservation:
    names = ("instance_uuid", "host_uuid", "host", "nodename", "resources")
    plain = {name: getattr(claim, name) for name in names} | fields
    return Reservation(created_at_s=created_at_s, expires_at_s=2 * NOW_S, token=1, **plain)


def test_a_rebuild_is_not():
    hosts = host_table([fed(usages={"VCPU": 99})])
    hints = {"_nova_check_type": ["rebuild"]}
    spec = request_spec(force_hosts=["h"], scheduler_hints=hints)
    assert decided(pipeline_of(), hosts, spec).claims == ()


def test_pending_resources_are_told_apart():
    hosts = host_table([fed()])
    claim = decide(hosts, "i1", vcpus=4)
    hosts.consume(stored(claim))
    without = hosts.without_pending()
    assert without is not None
    assert (without.unused_vcpu.tolist(), hosts.unused_vcpu.tolist()) == ([16], [12])
    hosts.consume(stored(claim, announced_at_s=NOW_S))
    assert hosts.without_pending() is None
    assert hosts.unused_vcpu.tolist() == [12]


def test_what_was_reserved_before_the_inventories_came_counts_by_its_flavor():
    hosts = host_table([host_record()])
    claim = decide(hosts, "i1", vcpus=2, memory_mb=1000, flavor={"root_gb": 1, "swap": 1})
    assert claim.resources.providers == ()
    hosts.put(fed(), 2)
    host = hosts.state(0)
    assert (host.unused_vcpu, host.unused_memory_mb, host.unused_disk_gb) == (14, 2584, 18)
    hosts.put(host_record(), 3)
    hosts.give_back(claim.id)
    assert hosts.unused_vcpu.tolist() == [UNLIMITED]


# Consumers


def test_a_claim_is_replaced_exactly_even_if_usages_were_read_in_between():
    hosts = host_table([fed()])
    claim = decide(hosts, "i1", vcpus=4)
    usages = {"VCPU": 4, "MEMORY_MB": 1024}
    hosts.put(fed(usages=usages, consumers=("i1",), read_at_s=NOW_S + 1), 2)
    assert hosts.unused_vcpu.tolist() == [8]  # a claim is later than all reports
    hosts.consume(stored(claim))
    assert hosts.unused_vcpu.tolist() == [12]
    hosts.give_back(claim.id)
    assert hosts.unused_vcpu.tolist() == [12]


def test_each_provider_of_a_tree_says_whom_it_includes():
    device = {"uuid": "gpu", "inventories": {"VGPU": {"total": 4}}, "usages": {"VGPU": 0}}
    seen = device | {"usages": {"VGPU": 1}, "consumers": ("i1",), "read_at_s": NOW_S + 1}
    hosts = host_table([fed(below=(device,))])
    hosts.consume(stored(decide(hosts, "i1", extra_specs={"resources:VGPU": "1"})))
    assert hosts.provider_tree[0].providers[1].used == (1,)
    hosts.put(fed(below=(seen,)), 2)
    assert hosts.provider_tree[0].providers[1].used == (1,)
    assert hosts.unused_vcpu.tolist() == [15]


def test_an_unlimited_host_takes_and_gives_back_too():
    hosts = host_table([host_record()])
    before = msgspec.structs.asdict(hosts.records[0])
    resources = Resources(vcpus=1, providers=(ProviderUse(provider="x", resources={"A": 1}),))
    claim = stored(decide(hosts, "i1"), resources=resources)
    hosts.consume(claim)
    hosts.give_back(claim.id)
    assert hosts.unused_vcpu.tolist() == [UNLIMITED]
    assert msgspec.structs.asdict(hosts.records[0]) == before
