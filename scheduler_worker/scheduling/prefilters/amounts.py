"""What a request takes of its compute node: the part of Nova's Placement request without a suffix.

``VCPU``, ``MEMORY_MB`` and ``DISK_GB`` come from the flavor: its root disk unless the instance
boots from a volume, its ephemeral disk, and its swap, rounded up to GiB. CPUs that the request pins
are ``PCPU``, with one more for emulator threads of their own; the others stay ``VCPU``. Extra specs
``resources:`` override all of these, also with 0; one with a suffix takes the class from a group of
its own instead, and ``PCPU`` stands in for ``VCPU``. A host that has ``VCPU`` to give and no
``PCPU`` at all gives ``VCPU`` where all CPUs are pinned.
"""

from __future__ import annotations

from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.numa.requests import wanted
from scheduler_worker.scheduling.prefilters.groups import OF_FLAVOR, Resources, suffixed, unsuffixed


def amounts_of(spec: RequestSpec, *, has_pcpu: bool = True) -> Resources:
    """The amounts by resource class, without zeros.

    ``has_pcpu`` false: of a host without ``PCPU``. Raises RequestError for an invalid topology.
    """
    flavor, set_by_spec = spec.flavor, unsuffixed(spec.flavor)
    pinned, emulator = _pinned_cpus(spec, has_pcpu=has_pcpu)
    disk_gb = flavor.ephemeral_gb + -(-flavor.swap // 1024)
    found = {
        "VCPU": flavor.vcpus - pinned,
        "PCPU": pinned + emulator,
        "MEMORY_MB": flavor.memory_mb,
        "DISK_GB": disk_gb if spec.is_bfv else disk_gb + flavor.root_gb,
    }
    for name in suffixed(flavor) | set_by_spec.keys():
        found.pop("VCPU" if name == "PCPU" else name, None)
    if "PCPU" in set_by_spec:
        del found["PCPU"]  # It is a resource like any other then, see groups.
    found |= {name: set_by_spec[name] for name in OF_FLAVOR & set_by_spec.keys()}
    return tuple((name, amount) for name, amount in sorted(found.items()) if amount > 0)


def _pinned_cpus(spec: RequestSpec, *, has_pcpu: bool) -> tuple[int, int]:
    """How many CPUs are pinned, and how many more their emulator threads need."""
    asked = wanted(spec)
    if asked is None:
        return 0, 0
    cells = asked.topology.cells
    pinned = sum(len(cell.pcpuset) for cell in cells)
    if not (has_pcpu or any(cell.cpuset for cell in cells)):
        return 0, 0
    return pinned, int(asked.topology.emulator_threads_policy == "isolate")
