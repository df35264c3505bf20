"""How many more instances each host takes before a filter refuses one, for all hosts at once.

The filter itself is asked, about the hosts as they would be after some instances, so that ratios,
reserved amounts, units, steps and limits count as they do in a decision. A filter that refuses a
host after n instances is taken to refuse it after more than n, too.
"""

from __future__ import annotations

import numpy as np

from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import Mask, Values
from scheduler_worker.model.hosts_after import HostsAfter, Taken
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter

UNBOUNDED = 2**20
"""A host that a filter would let take so many instances is not bounded by that filter."""


def instances_before_refusal(
    unit: Filter, hosts: HostTable, taken: Taken, spec: RequestSpec
) -> Values:
    """For each host after how many instances the filter first refuses it; at most UNBOUNDED.

    Raises:
        NotInColumns: the filter looks at what only placing one by one can tell.
    """

    def passes(placed: Values | int) -> Mask:
        return unit.passes(HostsAfter(hosts, taken, placed), spec)

    fits = passes(0)
    endless = fits & passes(UNBOUNDED)
    growing, step = fits & ~endless, 1
    while step < UNBOUNDED and growing.any():
        growing &= passes(step)
        step *= 2
    last = np.zeros(len(hosts), "i8")  # after so many instances the filter is known to pass
    while step > 1:
        step //= 2
        last += step * passes(last + step)
    return np.where(endless, UNBOUNDED, np.where(fits, last + 1, 0))
