"""A filter that passes every host, for deployments that leave the choice to weighers."""

from __future__ import annotations

import numpy as np

from scheduler_worker.model.hosts import Hosts, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter


class AllHostsFilter(Filter):
    """Passes every host.

    Reads: nothing.
    Example: ``enabled_filters = AllHostsFilter`` leaves the choice to the weighers.
    """

    run_filter_once_per_request = True
    reads_use = False
    reads_request = False

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        return np.ones(len(hosts), bool)

    def applies(self, spec: RequestSpec) -> bool:
        return False
