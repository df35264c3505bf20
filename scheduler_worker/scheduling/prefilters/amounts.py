"""What a request takes of its compute node: the part of Nova's Placement request without a suffix.

``VCPU``, ``MEMORY_MB`` and ``DISK_GB`` come from the flavor: its root disk unless the instance
boots from a volume, its ephemeral disk, and its swap, rounded up to GiB. CPUs that the request pins
are ``PCPU``, with one more for emulator threads of their own; the others stay ``VCPU``. Extra specs
``resources:`` override all of these, also with 0. A host that has ``VCPU`` to give and no ``PCPU``
at all gives ``VCPU`` for pinned CPUs too.
"""

from __future__ import annotations

from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.numa.requests import wanted
from scheduler_worker.scheduling.prefilters.groups import Resources, unsuffixed


def amounts_of(spec: RequestSpec, *, pins: bool = True) -> Resources:
    """The amounts by resource class, without zeros; ``pins`` false: all CPUs are ``VCPU``.

    Raises RequestError for an invalid topology.
    """
    flavor = spec.flavor
    pinned, emulator = _pinned_cpus(spec) if pins else (0, 0)
    disk_gb = flavor.ephemeral_gb + -(-flavor.swap // 1024)
    found = {
        "VCPU": flavor.vcpus - pinned,
        "PCPU": pinned + emulator,
        "MEMORY_MB": flavor.memory_mb,
        "DISK_GB": disk_gb if spec.is_bfv else disk_gb + flavor.root_gb,
    }
    for name, amount in unsuffixed(flavor).items():
        if name == "PCPU":
            del found[name]  # It is a resource like any other then, see groups.
        elif name in found:
            found[name] = amount
    return tuple((name, amount) for name, amount in sorted(found.items()) if amount > 0)


def _pinned_cpus(spec: RequestSpec) -> tuple[int, int]:
    """How many CPUs are pinned, and how many more their emulator threads need."""
    asked = wanted(spec)
    if asked is None:
        return 0, 0
    pinned = sum(len(cell.pcpuset) for cell in asked.topology.cells)
    return pinned, int(asked.topology.emulator_threads_policy == "isolate")
