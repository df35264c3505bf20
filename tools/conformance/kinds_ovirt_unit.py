"""Single units: maintenance, preferred hosts, huge pages, clocks, cores, topology, NUMA."""

from collections.abc import Callable, Iterator
from typing import Any

from conformance import ovirt
from scheduler_worker.model.claims import Resources
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.virt import VirtUse


def recognise(document: Any) -> bool:
    return ovirt.is_case(document, "unit") and document["unit"] in _RUNNERS


def run(document: Any) -> Iterator[str]:
    yield from _RUNNERS[document["unit"]](document)


def _compare(found: Any, document: Any, *keys: str) -> Iterator[str]:
    for key in keys:
        if key in document and found != document[key]:
            yield f"is {found}; {key} is {document[key]}"


def _maintenance(document: Any) -> Iterator[str]:
    vm = document["vm"]
    spec = ovirt.request(run_on=vm["run_on"], highly_available=vm["highly_available"])
    hosts = ovirt.table(ovirt.record(name, {}) for name in document["hosts"])
    unit = ovirt.filter_unit("ClusterInMaintenance")
    kept = ovirt.kept(unit, hosts, spec)
    yield from _compare(kept, document, "expected")
    rejected = [host for host in hosts.states() if host.host not in kept]
    for name in document.get("message_for", []):
        if not any(host.host == name and unit.reason(host, spec) for host in rejected):
            yield f"no reason is given for {name}"


def _preferred(document: Any) -> Iterator[str]:
    vm = document.get("vm", {})
    named: list[str] = next(
        (
            some[key]
            for some in (vm, document)
            for key in ("preferred_hosts", "preferred", "dedicated_hosts")
            if key in some
        ),
        [],
    )
    spec = ovirt.request(run_on=vm.get("run_on"), dedicated_hosts=named)
    hosts = ovirt.table(ovirt.record(name, {}) for name in document["hosts"])
    found = ovirt.scores(ovirt.weight_unit("PreferredHosts"), hosts, spec)
    if not named and vm.get("run_on") is None:
        found = dict.fromkeys(document["hosts"], 0.0)  # nothing is preferred
    keys = ("expected", "expected_scores", "derived_scores", "expected_weights")
    for key in keys:
        if key in document and found != dict(document[key]):
            yield f"the scores are {found}; {key} are {document[key]}"


def _pages(document: Any) -> Iterator[str]:
    vm, host = document["vm"], document["host"]
    hosts = ovirt.table([ovirt.record(host["id"], {"free_hugepages": host["free_hugepages"]})])
    pending = tuple((size, count) for size, count in document["pending_other_vm"])
    use = VirtUse(hugepages=pending)
    hosts.consume(ovirt.claim("other", host["id"], Resources(virt=use)))
    spec = ovirt.request(1, vm["mem_mb"], hugepage_kb=vm["hugepages_kb"])
    yield from _compare(
        ovirt.kept(ovirt.filter_unit("HugePages"), hosts, spec), document, "expected"
    )


def _clock(document: Any) -> Iterator[str]:
    vm = document["vm"]
    names = [f"target{number}" for number in range(len(document["target_tsc"]))]
    records = [_clocked(*each) for each in zip(names, document["target_tsc"], strict=True)]
    records.append(_clocked("source", document["source_tsc"]))
    spec = ovirt.request(run_on="source" if vm["run_on"] else None, use_tsc=vm["use_tsc"])
    kept = ovirt.kept(ovirt.filter_unit("Migration-Tsc-Frequency"), ovirt.table(records), spec)
    numbers = [number for number, name in enumerate(names) if name in kept]
    yield from _compare(numbers, document, "derived_kept")
    yield from _compare(len(numbers), document, "expected_count")


def _clocked(name: str, frequency: str | None) -> HostRecord:
    known = None if frequency is None else int(frequency)
    return ovirt.record(name, {"tsc_frequency_hz": known})


def _cores(document: Any) -> Iterator[str]:
    vm, host = document["vm"], document["host"]
    shape = [vm["sockets"], vm["cores_per_socket"], vm["threads_per_core"]]
    virt = {key: host.get(key) for key in ("sockets", "cores", "threads")}
    virt["count_threads_as_cores"] = document["threads_as_cores"]
    spec = ovirt.request(shape[0] * shape[1] * shape[2], pinning=vm.get("pinning", "none"))
    hosts = ovirt.table([ovirt.record(host["id"], virt)])
    yield from _compare(ovirt.kept(ovirt.filter_unit("CPU"), hosts, spec), document, "expected")


def _topology(document: Any) -> Iterator[str]:
    vm, host = document["vm"], document["host"]
    shape = {key: vm[key] for key in ("sockets", "cores_per_socket", "threads_per_core")}
    special = vm.get("type") == "high_performance"
    vcpus = shape["sockets"] * shape["cores_per_socket"] * shape["threads_per_core"]
    spec = ovirt.request(vcpus, **shape, high_performance=special)
    # Scores are rescaled: beside the host there are one that suits and one that does not.
    hosts = ovirt.table([_shaped(host), *(_shaped(other) for other in _OTHERS)])
    found = ovirt.scores(ovirt.weight_unit(document["unit"]), hosts, spec)
    yield from _compare(found.get(host["id"], 1.0), document, "expected_score")


_OTHERS = (
    {"id": "large", "sockets": 64, "cores_per_socket": 64, "threads_per_core": 64},
    {"id": "small", "sockets": 1, "cores_per_socket": 1, "threads_per_core": 1},
)


def _shaped(host: Any) -> HostRecord:
    cores = host["sockets"] * host["cores_per_socket"]
    threads = cores * host["threads_per_core"]
    return ovirt.record(
        host["id"], {"sockets": host["sockets"], "cores": cores, "threads": threads}
    )


def _one_node(document: Any) -> Iterator[str]:
    vm, host = document["vm"], document["host"]
    nodes, first = [], 0
    for index, node in enumerate(host.get("numa_nodes") or []):
        cpus = list(range(first, first + node["cpus"]))
        nodes.append({"index": index, "memory_mb": node["mem_mb"], "cpus": cpus})
        first += node["cpus"]
    hosts = ovirt.table(
        [ovirt.record(host["id"], {"numa_support": host["numa_support"], "numa_nodes": nodes})]
    )
    virtual = [{"memory_mb": vm["mem_mb"] // vm["vnuma_nodes"]} for _ in range(vm["vnuma_nodes"])]
    spec = ovirt.request(vm["cpus"], vm["mem_mb"], numa_nodes=virtual)
    found = ovirt.scores(ovirt.weight_unit(document["unit"]), hosts, spec)
    yield from _compare(found.get(host["id"], 1.0), document, "expected_score")


_RUNNERS: dict[str, Callable[[Any], Iterator[str]]] = {
    "ClusterInMaintenance": _maintenance,
    "PreferredHosts": _preferred,
    "HugePages": _pages,
    "Migration-Tsc-Frequency": _clock,
    "CPU": _cores,
    "CPU for high performance VMs": _topology,
    "Fit VM to single host NUMA node": _one_node,
}
