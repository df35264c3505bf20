"""Queue priority: small, unconstrained requests may overtake others that arrived shortly before.

Such a request is served quickly and leaves the others what they need; a large one with many
constraints loses little by waiting. The priority is

::

    1 / (1 + instances * size + constraints / 4)

in which the reference flavor has size 1 and each constraint on the host counts 1. It is at most 1
and never 0.
"""

from scheduler_worker.model.requests import Flavor, RequestSpec

REFERENCE = Flavor(vcpus=4, memory_mb=8192, root_gb=80)
"""A flavor of middling size."""
_REFERENCE_SIZES = REFERENCE.vcpus, REFERENCE.memory_mb, REFERENCE.disk_mb
MAX_PRIORITY = 100
"""Upper bound of a caller's priority; the lower bound is its negative."""
_CONSTRAINTS_PER_SIZE = 4.0
"""How many constraints weigh as much as one more instance of the reference flavor."""


def priority_boost_s(
    spec: RequestSpec, instances: int, *, priority: int = 0, max_priority_boost_s: float
) -> float:
    """Seconds by which a request is taken to have arrived earlier than it did.

    The queue priority times ``max_priority_boost_s``, scaled by the caller's ``priority``: all of
    it at 100, half at 0, nothing at -100.
    """
    weight = (MAX_PRIORITY + priority) / (2 * MAX_PRIORITY)
    return max_priority_boost_s * weight * queue_priority(spec, instances)


def queue_priority(spec: RequestSpec, instances: int) -> float:
    """From just above 0 to 1: the fewer resources and constraints, the larger."""
    flavor, (vcpus, memory, disk) = spec.flavor, _REFERENCE_SIZES
    size = (flavor.vcpus / vcpus + flavor.memory_mb / memory + flavor.disk_mb / disk) / 3
    return 1.0 / (1.0 + instances * size + constraints(spec) / _CONSTRAINTS_PER_SIZE)


def constraints(spec: RequestSpec) -> int:
    """How many constraints the request puts on its host."""
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
    named = len(spec.scheduler_hints or ()) + len(spec.flavor.extra_specs)
    devices = len(pci) if isinstance(pci, (list, tuple)) else 0
    return sum(map(bool, single)) + named + devices + _traits(spec)


def _traits(spec: RequestSpec) -> int:
    """Required and forbidden traits, and resource groups."""
    level = spec.request_level_params
    if level is None and not spec.requested_resources:
        return 0
    whole = len(level.root_required) + len(level.root_forbidden) if level else 0
    groups = spec.requested_resources or ()
    return whole + sum(
        1 + len(each.required_traits) + len(each.forbidden_traits) for each in groups
    )
