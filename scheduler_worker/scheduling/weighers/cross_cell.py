"""The weigher against moves between cells, which are slow."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from scheduler_worker.model.hosts import Hosts, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.options import MULTIPLIERS
from scheduler_worker.scheduling.plugin import Weigher


class CrossCellWeigher(Weigher):
    """1 in the instance's cell, -1 elsewhere, when a move may cross cells.

    Reads: the host's cell; the requested destination.
    Example: with the default multiplier a resize leaves its cell only if no other host is left.
    """

    reads_use = False
    option = "cross_cell_move_weight_multiplier"
    default_factor = MULTIPLIERS.cross_cell_move_weight_multiplier

    def applies(self, spec: RequestSpec) -> bool:
        destination = spec.requested_destination
        return bool(destination and destination.cell_uuid and destination.allow_cross_cell_move)

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.requested_destination.cell_uuid if spec.requested_destination else None

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        if not self.applies(spec) or spec.requested_destination is None:
            return np.zeros(len(hosts))
        cell = spec.requested_destination.cell_uuid
        key = (type(self).__name__, cell)
        return hosts.derived(key, lambda host: 1.0 if host.cell_uuid == cell else -1.0, "f8")
