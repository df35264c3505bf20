"""How easy a request is to satisfy; easy ones get a head start over those that come shortly after.

A small request with few wishes is served in no time and leaves the others what they need; a large
one with many wishes gains nothing from hurry. The value is

::

    1 / (1 + instances * size + constraints / 4)

where the reference flavor has size 1 and each wish that narrows the choice of a host counts 1. It
is at most 1 and never 0.
"""

from __future__ import annotations

from scheduler_worker.model.requests import Flavor, RequestSpec

REFERENCE = Flavor(vcpus=4, memory_mb=8192, root_gb=80)
"""A flavor of middling size."""
_REFERENCE_SIZES = REFERENCE.vcpus, REFERENCE.memory_mb, REFERENCE.disk_mb
MAX_PRIORITY = 100
"""A caller's priority goes from minus this to this."""
_CONSTRAINTS_PER_SIZE = 4.0
"""So many constraints make a request as hard as one more instance of the reference flavor."""


def head_start_s(
    spec: RequestSpec, instances: int, *, priority: int = 0, max_head_start_s: float
) -> float:
    """Seconds by which a request may overtake others that came before it.

    The largest one is for the easiest request of the highest priority; with the lowest priority
    it is 0, and without any half of what it could be.
    """
    weight = (MAX_PRIORITY + priority) / (2 * MAX_PRIORITY)
    return max_head_start_s * weight * ease(spec, instances)


def ease(spec: RequestSpec, instances: int) -> float:
    """From just above 0 to 1: the fewer resources and constraints, the larger."""
    hardness = instances * _size(spec.flavor) + constraints(spec) / _CONSTRAINTS_PER_SIZE
    return 1.0 / (1.0 + hardness)


def _size(flavor: Flavor) -> float:
    """The mean of its shares of the reference flavor."""
    vcpus, memory, disk = _REFERENCE_SIZES
    return (flavor.vcpus / vcpus + flavor.memory_mb / memory + flavor.disk_mb / disk) / 3


def constraints(spec: RequestSpec) -> int:
    """How many wishes of the request narrow the choice of a host."""
    pci = (spec.pci_requests or {}).get("requests")
    single = (
        spec.availability_zone,
        spec.instance_group,
        spec.requested_destination,
        spec.force_hosts,
        spec.force_nodes,
        spec.ignore_hosts,
        spec.numa_topology,
    )
    return (
        sum(map(bool, single))
        + len(spec.scheduler_hints or ())
        + len(spec.flavor.extra_specs)
        + (len(pci) if isinstance(pci, (list, tuple)) else 0)
        + _traits(spec)
    )


def _traits(spec: RequestSpec) -> int:
    """Traits and groups of resources that are asked for or ruled out."""
    level = spec.request_level_params
    if level is None and not spec.requested_resources:
        return 0
    whole = len(level.root_required) + len(level.root_forbidden) if level else 0
    return whole + sum(
        1 + len(group.required_traits) + len(group.forbidden_traits)
        for group in spec.requested_resources or ()
    )
