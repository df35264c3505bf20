"""Computes the NUMA topology that a flavor's extra specs and an image's properties request.

It also says what such an instance takes of a host (:func:`taken_by`).

Callers that send Nova's objects compute it themselves; this is for callers that send a flavor only.
The extra spec of a name is ``hw:name``, the property ``hw_name``:

* ``numa_nodes``. They are equal, unless ``numa_cpus.0``, ``numa_mem.0`` (MiB) and so on divide the
  vCPUs and memory; the properties ``hw_numa_cpus`` and ``hw_numa_mem`` are lists.
* ``cpu_policy`` (shared, dedicated, mixed), ``cpu_thread_policy`` (prefer, isolate, require) and
  ``emulator_threads_policy`` (share, isolate).
* ``cpu_dedicated_mask``, or ``cpu_realtime`` with ``cpu_realtime_mask``: the pinned vCPUs of
  ``mixed``. Real time needs pinned CPUs, and a vCPU that the mask leaves out, or an emulator
  threads policy.
* ``mem_page_size``: small, large, any, or a size: ``2048`` (KiB), ``2MB``, ``1GB``.
  ``locked_memory`` needs one.

Masks are sets of vCPUs::

    cpus := item (',' item)*
    item := '^'? number ('-' number)?

Items with ``^`` are removed: from the other items, or from all vCPUs where there are no others. So
``0-3,^2`` is 0, 1 and 3, and ``^0`` is all but 0.

Instead of a CPU policy, ``resources:PCPU`` for all vCPUs dedicates them; instead of a thread
policy, the trait ``HW_CPU_HYPERTHREADING`` is required or forbidden. Empty extra specs are ignored.
Pinned CPUs, a page size and persistent memory (``hw:pmem``) need at least one node. The flavor is
the operator's and the image the user's: the image may add to the flavor, and choose where the
flavor leaves a choice, but must not contradict it.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec
from msgspec import structs

from scheduler_worker.conversion import convert
from scheduler_worker.errors import RequestError
from scheduler_worker.model.claims import Resources
from scheduler_worker.model.hosts import HostState
from scheduler_worker.model.image_properties import is_true
from scheduler_worker.model.requests import Flavor, RequestSpec, SchedulerLimits
from scheduler_worker.model.sizes import MAX_CELLS
from scheduler_worker.model.topology import (
    ANY_PAGES,
    LARGE_PAGES,
    SMALL_PAGES,
    InstanceNUMACell,
    InstanceNUMATopology,
)
from scheduler_worker.scheduling.extra_specs import parsed
from scheduler_worker.scheduling.numa.cells import Ratios
from scheduler_worker.scheduling.numa.fit import NumaAssignment, NumaRequest, fit
from scheduler_worker.scheduling.pci.pools import devices_for, pci_requests

_ITEM = re.compile(r"\s*(\^?)([0-9]{1,5})(?:-([0-9]{1,5}))?\s*\Z")


def cpu_set(text: str, every: frozenset[int]) -> frozenset[int]:
    """The vCPUs of ``every`` that a text names.

    Raises ValueError: names the item that is invalid.
    """
    named: dict[bool, set[int]] = {False: set(), True: set()}
    for item in map(str.strip, text.split(",")):
        matched = _ITEM.match(item)
        if not matched:
            raise ValueError(f"{item[:40]!r} is no CPU, range of CPUs, or one of them with ^")
        low, high = int(matched[2]), int(matched[3] or matched[2])
        if low > high or high not in every:
            raise ValueError(f"{item} is not within the {len(every)} vCPUs")
        named[bool(matched[1])].update(range(low, high + 1))
    return (frozenset(named[False]) or every) - named[True]


_CHOICES: Mapping[str, Mapping[str, Collection[str]]] = {
    "cpu_policy": {"shared": {"dedicated", "mixed"}, "dedicated": (), "mixed": {"dedicated"}},
    # ``prefer`` rules nothing out, so no image contradicts it.
    "cpu_thread_policy": {
        "prefer": (),
        "isolate": {"prefer", "require"},
        "require": {"prefer", "isolate"},
    },
    "emulator_threads_policy": {"share": {"isolate"}, "isolate": {"share"}},
}
"""The values of each policy, and the values that an image must not request under a flavor's."""
HYPERTHREADING = "HW_CPU_HYPERTHREADING"
"""The trait of hosts whose cores have several threads."""
_OF_TRAIT = {"required": "require", "forbidden": "isolate"}
"""The thread policies that the trait stands for."""
_PAGES = {"small": SMALL_PAGES, "large": LARGE_PAGES, "any": ANY_PAGES}
_PAGE_SIZE = re.compile(r"0*([1-9][0-9]{0,8})(?:([KMG])i?B)?\Z")
_MOST_VCPUS = 4096
"""As many as KVM gives a machine."""
_KIB = {"K": 1, "M": 2**10, "G": 2**20}
_NAMES = frozenset(
    f"hw{mark}{name}"
    for mark in ":_"
    for name in (*_CHOICES, "cpu_realtime", "locked_memory", "mem_page_size", "numa_nodes", "pmem")
)
"""Without one of these, a CPU among the extra specs' names, or a trait, nothing is requested."""

Share = tuple[frozenset[int], int]
"""The vCPUs and the memory (MiB) of a node."""


def instance_topology(flavor: Flavor, properties: Mapping[str, Any]) -> InstanceNUMATopology | None:
    """The NUMA cells that an instance requests; None: it requests none.

    Raises RequestError: names the extra spec or property that is invalid or a contradiction.
    """
    if (
        _NAMES.isdisjoint(flavor.extra_specs)
        and _NAMES.isdisjoint(properties)
        and "traits_required" not in properties
        and not any("CPU" in name for name in flavor.extra_specs)
    ):
        return None  # most requests have no name that is worth reading
    asked = _Asked(flavor, properties)
    policy, pagesize, nodes = _cpu_policy(asked), _pagesize(asked), _nodes(asked)
    pins = policy in {"dedicated", "mixed"}
    threads, emulator = _thread_policy(asked), _emulator_policy(asked, pins=pins)
    if threads and not pins:
        raise RequestError(asked.threads_field, "needs cpu_policy dedicated or mixed")
    _check_amounts(asked, emulator)
    _check_real_time(asked, emulator, pins=pins)
    _check_locked_memory(asked, pagesize)
    # After the checks: a contradiction is an error even where nothing is requested.
    if not (nodes or pins or pagesize or (asked.flavor("pmem") or "").strip()):
        return None
    dedicated = _dedicated(asked, policy)
    cells = [
        {
            "id": number,
            "memory": memory,
            "cpuset": cpus - dedicated,
            "pcpuset": cpus & dedicated,
            "pagesize": pagesize,
            "cpu_policy": policy,
            "cpu_thread_policy": threads,
        }
        for number, (cpus, memory) in enumerate(_shares(asked, nodes or 1))
    ]
    fields = {"cells": cells, "emulator_threads_policy": emulator}
    return convert(fields, InstanceNUMATopology)


def cpu_thread_policy(flavor: Flavor, properties: Mapping[str, Any]) -> str | None:
    """The ``cpu_thread_policy`` of flavor and image. Raises RequestError."""
    return _Asked(flavor, properties).policy("cpu_thread_policy")


class _Asked:
    """The extra specs of a flavor and the properties of an image, by their common names."""

    def __init__(self, flavor: Flavor, properties: Mapping[str, Any]) -> None:
        self._extra_specs = flavor.extra_specs
        self._properties = properties
        self.memory_mb = flavor.memory_mb
        self.count = flavor.vcpus
        resources, traits = parsed(flavor.extra_specs)
        own = [amounts for suffix, amounts in resources.items() if _counts(suffix)]
        self.amounts = {name: sum(each.get(name, 0) for each in own) for name in ("VCPU", "PCPU")}
        values = [trait.get(HYPERTHREADING) for suffix, trait in traits.items() if _counts(suffix)]
        listed = properties.get("traits_required")
        by_image = isinstance(listed, (list, tuple)) and HYPERTHREADING in listed
        self.hyperthreading = next(filter(None, values), "required" if by_image else None)
        """``required``, ``forbidden`` or None."""

    @cached_property
    def vcpus(self) -> frozenset[int]:
        if not 0 < self.count <= _MOST_VCPUS:
            problem = f"is {self.count}; a NUMA topology is for 1 to {_MOST_VCPUS}"
            raise RequestError("spec_obj.flavor.vcpus", problem)
        return frozenset(range(self.count))

    def flavor(self, name: str) -> str | None:
        return self._extra_specs.get(f"hw:{name}") or None

    def image(self, name: str) -> Any:
        return self._properties.get(f"hw_{name}")

    def either(self, name: str) -> Any:
        """The flavor's value, else the image's. Raises RequestError if both have one."""
        flavor, image = self.flavor(name), self.image(name)
        if flavor is not None and image is not None:
            raise self.wrong(name, "must not be set, as the flavor sets it", of_image=True)
        return image if flavor is None else flavor

    def policy(self, name: str) -> str | None:
        """The flavor's policy, else the image's. Raises RequestError if it cannot be used."""
        flavor, image, allowed = self.flavor(name), self.image(name), _CHOICES[name]
        for value, of_image in ((flavor, False), (image, True)):
            if value is not None and value not in allowed:
                problem = f"{str(value)[:40]!r} is none of {', '.join(allowed)}"
                raise self.wrong(name, problem, of_image=of_image)
        if flavor and image in allowed[flavor]:
            problem = f"{image!r} contradicts the flavor's {flavor!r}"
            raise self.wrong(name, problem, of_image=True)
        return flavor or image

    @property
    def threads_field(self) -> str:
        """The field that the thread policy is from."""
        if self.flavor("cpu_thread_policy") or self.image("cpu_thread_policy"):
            return self.wrong("cpu_thread_policy", "").field
        of_flavor = any(HYPERTHREADING in extra_spec for extra_spec in self._extra_specs)
        names = f"flavor.extra_specs.trait:{HYPERTHREADING}", "image.properties.traits_required"
        return f"spec_obj.{names[not of_flavor]}"

    def wrong(self, name: str, problem: str, *, of_image: bool = False) -> RequestError:
        if of_image or self.flavor(name) is None:
            return RequestError(f"spec_obj.image.properties.hw_{name}", problem)
        return RequestError(f"spec_obj.flavor.extra_specs.hw:{name}", problem)


def _counts(suffix: str) -> bool:
    """Whether Nova derives CPU and thread policies from items with this suffix."""
    return not suffix or suffix.isdecimal()


def _cpu_policy(asked: _Asked) -> str | None:
    policy = asked.policy("cpu_policy")
    # The amounts say already which vCPUs are dedicated; a policy could contradict them.
    if policy and any(asked.amounts.values()):
        raise asked.wrong("cpu_policy", "must not be set, as resources:VCPU or resources:PCPU is")
    return "dedicated" if asked.amounts["PCPU"] else policy


def _check_amounts(asked: _Asked, emulator: str | None) -> None:
    """Raises RequestError for a number of dedicated CPUs that the vCPUs do not need."""
    # Isolated emulator threads take one dedicated CPU beside those of the vCPUs.
    pinned, needed = asked.amounts["PCPU"], asked.count + (emulator == "isolate")
    if pinned and (pinned != needed or asked.amounts["VCPU"]):
        problem = f"has to be {needed}, for all vCPUs and isolated emulator threads, without VCPU"
        raise RequestError("spec_obj.flavor.extra_specs.resources:PCPU", problem)


def _thread_policy(asked: _Asked) -> str | None:
    """The flavor's policy, else the image's, else that of the trait."""
    policy = asked.policy("cpu_thread_policy")
    if policy and asked.hyperthreading:
        problem = f"must not be set, as the trait {HYPERTHREADING} is {asked.hyperthreading}"
        raise asked.wrong("cpu_thread_policy", problem)
    return policy or _OF_TRAIT.get(asked.hyperthreading or "")


def _emulator_policy(asked: _Asked, *, pins: bool) -> str | None:
    policy = asked.policy("emulator_threads_policy")
    if policy == "isolate" and not pins:
        raise asked.wrong("emulator_threads_policy", "isolate needs cpu_policy dedicated or mixed")
    return policy


def _real_time_mask(asked: _Asked) -> Any:
    return asked.image("cpu_realtime_mask") or asked.flavor("cpu_realtime_mask")


def _check_real_time(asked: _Asked, emulator: str | None, *, pins: bool) -> None:
    """The emulator needs CPUs that do not run in real time, or a policy that says where it runs."""
    if not is_true(asked.flavor("cpu_realtime")):
        return
    if not pins:
        raise asked.wrong("cpu_realtime", "needs cpu_policy dedicated or mixed")
    mask = _real_time_mask(asked)
    cpus = _cpus(asked, "cpu_realtime_mask", mask) if mask else asked.vcpus
    if not cpus:
        raise asked.wrong("cpu_realtime_mask", "must name some vCPUs")
    if cpus == asked.vcpus and emulator is None:
        problem = "needs a cpu_realtime_mask that leaves out a vCPU, or an emulator_threads_policy"
        raise asked.wrong("cpu_realtime", problem)


def _check_locked_memory(asked: _Asked, pagesize: int | None) -> None:
    flavor, image = asked.flavor("locked_memory"), asked.image("locked_memory")
    locks = [is_true(str(value)) for value in (flavor, image) if value is not None]
    if len(set(locks)) > 1:
        raise asked.wrong("locked_memory", "contradicts the flavor's", of_image=True)
    if any(locks) and not pagesize:
        raise asked.wrong("locked_memory", "needs a mem_page_size")


def _pagesize(asked: _Asked) -> int | None:
    """KiB, or a negative constant. The image chooses where the flavor has large or any."""
    of_flavor, of_image = asked.flavor("mem_page_size"), asked.image("mem_page_size")
    flavor = None if of_flavor is None else _page_size(asked, of_flavor, of_image=False)
    if of_image is None:
        return flavor
    image = _page_size(asked, of_image, of_image=True)
    # A flavor with a size, or with small pages, leaves nothing to choose.
    if flavor not in {LARGE_PAGES, ANY_PAGES}:
        problem = "is only for flavors whose hw:mem_page_size is large or any"
        raise asked.wrong("mem_page_size", problem, of_image=True)
    return image


def page_kb(text: str) -> int | None:
    """The size in KiB that a text such as ``2048`` or ``2MB`` names; None: it names none."""
    matched = _PAGE_SIZE.match(text)
    return int(matched[1]) * _KIB[matched[2] or "K"] if matched else None


def _page_size(asked: _Asked, value: Any, *, of_image: bool) -> int:
    text = str(value)
    size = _PAGES.get(text) or page_kb(text)
    if size is None:
        problem = f"{text[:40]!r} is none of small, large, any, or a size such as 2048, 2MB, 1GB"
        raise asked.wrong("mem_page_size", problem, of_image=of_image)
    return size


def _nodes(asked: _Asked) -> int:
    """How many nodes are requested; 0: it is not specified."""
    value = asked.either("numa_nodes")
    nodes = 0 if value is None else _number(asked, "numa_nodes", value, least=1)
    if nodes > MAX_CELLS:
        raise asked.wrong("numa_nodes", f"{nodes} is more than {MAX_CELLS}")
    if nodes > asked.count:
        raise asked.wrong("numa_nodes", f"{nodes} cannot share {asked.count} vCPUs")
    return nodes


def _number(asked: _Asked, name: str, value: Any, least: int) -> int:
    text = str(value)
    if not re.match(r"[0-9]{1,12}\Z", text) or int(text) < least:
        raise asked.wrong(name, f"{text[:40]!r} is not an integer >= {least}")
    return int(text)


def _dedicated(asked: _Asked, policy: str | None) -> frozenset[int]:
    mask = asked.flavor("cpu_dedicated_mask")
    if policy != "mixed":
        if mask is not None:
            raise asked.wrong("cpu_dedicated_mask", "needs hw:cpu_policy mixed")
        return asked.vcpus if policy == "dedicated" else frozenset()
    name = "cpu_dedicated_mask"
    if mask is None and is_true(asked.flavor("cpu_realtime")):
        name, mask = "cpu_realtime_mask", _real_time_mask(asked)
    if mask is None:
        raise asked.wrong("cpu_policy", "mixed needs hw:cpu_dedicated_mask or a real-time mask")
    dedicated = _cpus(asked, name, mask)
    if not dedicated or dedicated == asked.vcpus:
        raise asked.wrong(name, "must name some vCPUs, and not all")
    return dedicated


def _cpus(asked: _Asked, name: str, value: Any) -> frozenset[int]:
    text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    try:
        return cpu_set(text, asked.vcpus)
    except ValueError as error:
        raise asked.wrong(name, str(error)) from None


def _shares(asked: _Asked, nodes: int) -> Sequence[Share]:
    cpus, memory = _of_nodes(asked, "numa_cpus", nodes), _of_nodes(asked, "numa_mem", nodes)
    if not cpus and not memory:
        return _equal_shares(asked, nodes)
    if not cpus or not memory:
        missing, present = ("numa_mem", "numa_cpus") if cpus else ("numa_cpus", "numa_mem")
        raise asked.wrong("numa_nodes", f"needs {missing} of each node, as {present} is given")
    shares = [
        (_cpus(asked, cpus_name, value), _number(asked, memory_name, size, least=0))
        for (cpus_name, value), (memory_name, size) in zip(cpus, memory, strict=True)
    ]
    placed = [cpu for share, _ in shares for cpu in share]
    if len(placed) != len(asked.vcpus) or set(placed) != asked.vcpus:
        raise asked.wrong("numa_nodes", "needs every vCPU in numa_cpus of exactly one node")
    if sum(size for _, size in shares) != asked.memory_mb:
        raise asked.wrong("numa_nodes", f"needs numa_mem that adds up to {asked.memory_mb} MiB")
    return shares


def _of_nodes(asked: _Asked, name: str, nodes: int) -> list[tuple[str, Any]]:
    """The name and value for each node; empty: no node has one."""
    listed = asked.image(name)
    named = [(f"{name}.{node}", asked.flavor(f"{name}.{node}")) for node in range(nodes)]
    values = [(key, value) for key, value in named if value is not None]
    if listed is not None:
        if not isinstance(listed, (list, tuple)):
            problem = f"has to be a list with an entry for each node, got {str(listed)[:40]!r}"
            raise asked.wrong(name, problem, of_image=True)
        if values:
            raise asked.wrong(name, "must not be set, as the flavor sets it", of_image=True)
        values = [(name, value) for value in listed]
    if values and len(values) != nodes:
        raise asked.wrong("numa_nodes", f"needs {name} of each of the {nodes} nodes")
    return values


def _equal_shares(asked: _Asked, nodes: int) -> Sequence[Share]:
    count, memory = len(asked.vcpus), asked.memory_mb
    if count % nodes or memory % nodes:
        problem = f"{nodes} cannot share {count} vCPUs and {memory} MiB evenly"
        raise asked.wrong("numa_nodes", problem)
    size = count // nodes
    return [(frozenset(range(at, at + size)), memory // nodes) for at in range(0, count, size)]


def wanted(spec: RequestSpec) -> NumaRequest | None:
    """The requirements; None: no topology is requested. Raises RequestError for an invalid one."""
    if not spec.numa_topology:
        return None
    try:
        sent = convert(spec.numa_topology, InstanceNUMATopology)
    except msgspec.ValidationError as error:
        raise RequestError("spec_obj.numa_topology", str(error)) from None
    topology = structs.replace(sent, cells=tuple(map(_as_pinned, sent.cells)))
    return NumaRequest(topology=topology, network=spec.network_metadata, devices=pci_requests(spec))


def with_topology(spec: RequestSpec) -> RequestSpec:
    """The request with the topology that flavor and image ask for, if it has none.

    Raises RequestError, which names the invalid field.
    """
    if spec.numa_topology is not None:
        return spec
    asked = instance_topology(spec.flavor, spec.image_properties)
    if asked is None:
        return spec
    return structs.replace(spec, numa_topology=msgspec.to_builtins(asked))


def with_page_sizes(spec: RequestSpec, taken: Resources) -> RequestSpec:
    """The request for its next instance, with the page sizes that the first one got."""
    if spec.numa_topology is None or not taken.numa:
        return spec
    if not any((cell.get("pagesize") or 0) < 0 for cell in spec.numa_topology["cells"]):
        return spec
    cells = [
        cell | {"pagesize": used.page_kb} if (cell.get("pagesize") or 0) < 0 else cell
        for cell, used in zip(spec.numa_topology["cells"], taken.numa, strict=True)
    ]
    return structs.replace(spec, numa_topology=spec.numa_topology | {"cells": cells})


def _as_pinned(cell: InstanceNUMACell) -> InstanceNUMACell:
    """Callers older than ``pcpuset`` send pinned vCPUs in ``cpuset``."""
    if cell.cpu_policy != "dedicated" or cell.pcpuset:
        return cell
    return structs.replace(cell, cpuset=frozenset(), pcpuset=cell.cpuset)


def wants_threads(spec: RequestSpec) -> bool:
    """Whether flavor or image require pinned CPUs that are threads of one core."""
    extra, image = spec.flavor.extra_specs, spec.image_properties
    pins = "dedicated" in {extra.get("hw:cpu_policy"), image.get("hw_cpu_policy")}
    threads = {extra.get("hw:cpu_thread_policy"), image.get("hw_cpu_thread_policy")}
    return pins and "require" in threads


def ratios_of(host: HostState) -> Ratios:
    """The host's allocation ratios."""
    return Ratios(host.cpu_allocation_ratio, host.ram_allocation_ratio)


def taken_by(
    spec: RequestSpec, host: HostState, limits: SchedulerLimits, *, packs: bool = False
) -> NumaAssignment:
    """What an instance takes from the cells and devices of the host that was chosen for it.

    ``limits`` are its selection's. Without limits of NUMATopologyFilter, because it is not
    enabled or an administrator forced the host, cells may be overcommitted and networks be on other
    cells. If the topology does not even fit then, no cell is taken, and devices on any node are; if
    the host has too few for all requests, devices of the first ones.
    """
    if not (spec.numa_topology or spec.pci_requests):
        return NumaAssignment()
    asked, topology, pools = wanted(spec), host.numa_topology, host.pci_pools
    if asked is not None and topology is not None:
        known, ratios = limits.numa_topology, None
        if known is None:
            asked = structs.replace(asked, network=None)
        else:
            ratios = Ratios(known["cpu_allocation_ratio"], known["ram_allocation_ratio"])
        fitted = fit(topology, pools, asked, ratios, packs=packs)
        if packs and isinstance(fitted, str):  # the filter does not pack, and may have found more
            fitted = fit(topology, pools, asked, ratios)
        if isinstance(fitted, NumaAssignment):
            return fitted
    requests = pci_requests(spec)
    served = (devices_for(requests[:count], pools) for count in range(len(requests), 0, -1))
    return NumaAssignment((), next(filter(None, served), ()))
