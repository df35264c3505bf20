"""For any hosts and requests: nothing is taken twice, and giving back is exact."""

from itertools import permutations
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.model.topology import (
    NUMATopology,
    NUMAUse,
    PCIPools,
    count_devices,
    cpus,
    devices_taken,
    first,
    numbers,
    read_numa_topology,
    read_pci_pools,
)
from scheduler_worker.scheduling.filters.numa_topology import (
    NUMATopologyFilter,
    PciPassthroughFilter,
)
from scheduler_worker.scheduling.numa.cells import Ratios, fit_cell
from scheduler_worker.scheduling.numa.constraints import wanted
from scheduler_worker.scheduling.numa.fit import NumaAssignment, fit, ordered
from scheduler_worker.scheduling.pci.pools import devices_for
from scheduler_worker.scheduling.weighers.resources import PCIWeigher
from tests.support.hosts import host_record, host_table
from tests.support.trials import examples

GIB = 1024


@st.composite
def host_cells(draw, id):
    cores, threads = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    start = 100 * id
    everything = list(range(start, start + cores * threads))
    pinnable = draw(st.sets(st.sampled_from(everything)) | st.just(set(everything)))
    shared = draw(st.sampled_from([set(everything), set(everything) - pinnable, pinnable]))
    sizes = draw(st.sampled_from([(), (4,), (4, 2048), (4, 2048, 2**20)]))
    return {
        "id": id,
        "memory": 4 * GIB,
        "cpuset": sorted(shared),
        "pcpuset": sorted(pinnable),
        "cpu_usage": draw(st.integers(0, 6)),
        "memory_usage": draw(st.sampled_from([0, GIB, 3 * GIB])),
        "pinned_cpus": sorted(draw(st.sets(st.sampled_from(everything), max_size=3))),
        "siblings": draw(
            st.sampled_from(
                [[], [everything[at : at + threads] for at in range(0, cores * threads, threads)]]
            )
        ),
        "mempages": [
            {"size_kb": size, "total": 2 * 2**20 // size, "used": draw(st.sampled_from([0, 1]))}
            for size in sizes
        ],
        "network_metadata": {"physnets": [f"net{id}"], "tunneled": draw(st.booleans())},
        "socket": draw(st.sampled_from([0, 1, None])),
    }


@st.composite
def topologies(draw):
    return {"cells": [draw(host_cells(number)) for number in range(draw(st.integers(1, 4)))]}


pci_pools = st.lists(
    st.fixed_dictionaries(
        {
            "vendor_id": st.sampled_from(["8086", "10de"]),
            "product_id": st.just("1520"),
            "numa_node": st.sampled_from([None, 0, 1]),
            "count": st.integers(0, 3),
            "tags": st.dictionaries(
                st.sampled_from(["dev_type", "physical_network", "live_migratable"]),
                st.sampled_from(["type-PF", "type-VF", "vdpa", "true", "net0"]),
                max_size=2,
            ),
        }
    ),
    max_size=4,
)


@st.composite
def instance_cells(draw, id, policy, threads, pagesize):
    vcpus = list(range(8 * id, 8 * id + draw(st.integers(1, 4))))
    at = {"dedicated": len(vcpus), "mixed": len(vcpus) // 2}.get(policy, 0)
    return {
        "id": id,
        "memory": draw(st.sampled_from([GIB // 2, GIB, 2 * GIB])),
        "pcpuset": vcpus[:at],
        "cpuset": vcpus[at:],
        "pagesize": pagesize,
        "cpu_policy": policy,
        "cpu_thread_policy": threads,
    }


@st.composite
def requests(draw):
    policy = draw(st.sampled_from([None, "shared", "dedicated", "dedicated", "mixed"]))
    threads = draw(st.sampled_from([None, "prefer", "require", "isolate"]))
    pagesize = draw(st.sampled_from([None, -1, -2, -3, 4, 2048]))
    cells = [
        draw(instance_cells(number, policy, threads, pagesize))
        for number in range(draw(st.integers(1, 3)))
    ]
    asked = st.fixed_dictionaries(
        {
            "count": st.integers(1, 3),
            "spec": st.just([{"vendor_id": "8086"}]),
            "numa_policy": st.sampled_from([None, "required", "preferred", "socket"]),
        }
    )
    network = {"physnets": draw(st.sampled_from([[], ["net0"], ["net1", "other"]]))}
    plain = {
        "flavor": {"vcpus": 1, "memory_mb": 1, "extra_specs": {}},
        "numa_topology": {
            "cells": cells,
            "emulator_threads_policy": draw(st.sampled_from([None, "share", "isolate"])),
        },
        "pci_requests": {"requests": draw(st.lists(asked, max_size=2))},
        "network_metadata": draw(st.none() | st.just(network)),
    }
    return msgspec.convert(plain, RequestSpec)


uses = st.lists(
    st.builds(
        NUMAUse,
        id=st.integers(0, 3),
        memory=st.integers(0, 4 * GIB),
        cpus=st.integers(0, 4),
        pinned=st.sets(st.integers(0, 3)).map(lambda some: tuple(sorted(some))),
        page_kb=st.sampled_from([None, 4, 2048, 2**20]),
    ),
    max_size=3,
)
ratios = st.builds(Ratios, st.sampled_from([1.0, 2.0]), st.sampled_from([1.0, 1.5]))


def fitted(
    topology: NUMATopology, pools: PCIPools, spec: RequestSpec, ratio: Ratios, packs: bool
) -> NumaAssignment | None:
    asked = wanted(spec)
    assert asked is not None
    found = fit(topology, pools, asked, ratio, packs=packs)
    return found if isinstance(found, NumaAssignment) else None


@examples(100)
@given(topologies(), pci_pools, st.lists(requests(), min_size=1, max_size=4), ratios, st.booleans())
def test_what_is_taken_is_free_and_taken_once(reported, devices, specs, ratio, packs):
    topology, pools = read_numa_topology(reported), read_pci_pools(devices)
    free = {
        cell["id"]: set(cell["pcpuset"]) - set(cell["pinned_cpus"]) for cell in reported["cells"]
    }
    for spec in [*specs, *specs]:
        found = fitted(topology, pools, spec, ratio, packs)  # type: ignore[arg-type]
        if found is None:
            continue
        for cell, use in zip(spec.numa_topology["cells"], found.cells, strict=True):
            _is_there(next(each for each in topology.cells if each.id == use.id), cell, use, ratio)
            assert free[use.id].issuperset(use.pinned), "no CPU is pinned twice"
            free[use.id] -= set(use.pinned)
        assert len({use.id for use in found.cells}) == len(found.cells)
        asked = [each["count"] for each in spec.pci_requests["requests"]]
        assert count_devices(found.devices) == sum(asked)
        topology, pools = topology.taken(found.cells), devices_taken(pools, found.devices)
        assert all(pool.count >= 0 for pool in pools)


def _is_there(host, cell, use: NUMAUse, ratio: Ratios) -> None:
    assert len(use.pinned) >= len(cell["pcpuset"])
    assert use.cpus == len(cell["cpuset"])
    if cell["cpu_policy"] != "dedicated":
        assert host.cpu_usage + use.cpus <= host.cpuset.bit_count() * ratio.cpu
        assert host.memory_usage + use.memory <= host.memory * ratio.ram
    elif not host.mempages:
        assert use.memory <= host.free_memory
    if cell["pagesize"] or (host.mempages and cell["pcpuset"]):
        [pages] = [each for each in host.mempages if each.size_kb == use.page_kb]
        assert use.memory * 1024 <= pages.free * pages.size_kb


@given(topologies(), uses, uses)
def test_cells_are_given_back_exactly(reported, mine, theirs):
    """Even if others were taken in between, or have the same CPUs."""
    topology = read_numa_topology(reported)
    both = topology.taken(mine).taken(theirs)
    assert both.taken(mine, -1) == topology.taken(theirs)
    assert both.taken(mine, -1).taken(theirs, -1) == topology


@given(pci_pools, pci_pools, pci_pools)
def test_devices_are_given_back_exactly(reported, mine, theirs):
    pools, mine, theirs = map(read_pci_pools, (reported, mine, theirs))
    both = devices_taken(devices_taken(pools, mine), theirs)
    assert devices_taken(both, mine, -1) == devices_taken(pools, theirs)
    assert devices_taken(devices_taken(both, mine, -1), theirs, -1) == pools


@examples(100)
@given(topologies(), pci_pools, requests(), ratios, st.booleans())
def test_the_first_arrangement_that_fits_is_taken(reported, devices, spec, ratio, packs):
    topology, pools, asked = read_numa_topology(reported), read_pci_pools(devices), wanted(spec)
    isolates = asked.topology.emulator_threads_policy == "isolate"

    def suits(cells: Any) -> bool:
        pairs = zip(cells, asked.topology.cells, strict=True)
        networks = [cell.network_metadata for cell in cells]
        return (
            all(
                isinstance(fit_cell(cell, intent, int(isolates and not at), ratio), NUMAUse)
                for at, (cell, intent) in enumerate(pairs)
            )
            and devices_for(asked.devices, pools, cells, topology.cells) is not None
            and _networks_are_near(asked.network, networks, topology)  # type: ignore[arg-type]
        )

    in_order = ordered(topology, pools, asked, packs=packs)  # type: ignore[arg-type]
    tried = permutations(in_order, len(asked.topology.cells))
    first = next((cells for cells in tried if suits(cells)), None)
    found = fitted(topology, pools, spec, ratio, packs)  # type: ignore[arg-type]
    expected = None if first is None else [cell.id for cell in first]
    assert (found and [use.id for use in found.cells]) == expected


def _networks_are_near(network, near, topology: NUMATopology) -> bool:
    if network is None:
        return True
    here = {name for each in near for name in each.physnets}
    anywhere = {name for cell in topology.cells for name in cell.network_metadata.physnets}
    return not (set(network.physnets) & anywhere) - here


def alike(spec: RequestSpec) -> RequestSpec:
    """The request with as many cells, all of them like the first, and nothing near them."""
    topology: Any = spec.numa_topology
    topology = topology | {"cells": [topology["cells"][0]] * len(topology["cells"])}
    return msgspec.structs.replace(
        spec, numa_topology=topology, network_metadata=None, pci_requests=None
    )


@given(
    st.lists(st.tuples(st.none() | topologies(), pci_pools), min_size=3, max_size=5),
    requests() | requests().map(alike),
)
def test_both_methods_agree(reported, spec):
    reported = reported * 3  # many are fitted at once
    table = host_table(
        host_record(host=f"h{number}", numa_topology=topology, pci_device_pools=devices)
        for number, (topology, devices) in enumerate(reported)
    )
    for unit in (NUMATopologyFilter(), PciPassthroughFilter()):
        columns = unit.passes(table, spec).tolist()
        assert columns == [unit.host_passes(host, spec) for host in table.states()]
        for host, passes in zip(table.states(), columns, strict=True):
            assert passes or unit.reason(host, spec) != "does not pass"
    unit = PCIWeigher()  # type: ignore[assignment]
    weights = unit.weigh(table, spec).tolist()
    assert weights == [unit.weigh_host(host, spec) for host in table.states()]


@given(st.sets(st.integers(0, 300)), st.integers(0, 300))
def test_sets_of_cpus_are_sets(some, count):
    assert numbers(cpus(some)) == tuple(sorted(some))
    assert numbers(first(count, cpus(some))) == tuple(sorted(some)[:count])
