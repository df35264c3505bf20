"""What the hosts measure of themselves."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from scheduler_worker.errors import ComputeHostMetricNotFound
from scheduler_worker.model.hosts import Hosts, HostState, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.plugin import Weigher
from scheduler_worker.scheduling.weighers.settings import ratios

_FRACTIONS = frozenset(
    f"cpu.{kind}percent" for kind in ("user.", "kernel.", "idle.", "iowait.", "")
)
"""Reported as 0..1, weighed as whole percents."""
_LARGEST = 1e18
"""No measure is larger; weights stay finite."""


class MetricsWeigher(Weigher):
    """The sum of metric x ratio over ``[metrics] weight_setting``.

    A host without one of the metrics: an error when ``[metrics] required``, else it weighs
    ``weight_of_unavailable`` unless that metric could not have changed anything.

    Reads: ``metrics``.
    Options: ``[metrics] weight_setting``, ``[metrics] required``, ``[metrics]
    weight_of_unavailable``.
    Example: ``weight_setting = cpu.percent=-1.0`` prefers idle hosts.
    """

    reads_request = False
    reads_use = False
    option = "metrics_weight_multiplier"

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self._ratios = ratios(self.options.metrics_weight_setting)

    def applies(self, spec: RequestSpec) -> bool:
        return bool(self._ratios)

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        if not self._ratios:
            return np.zeros(len(hosts))
        raw = hosts.derived(self._key(), self._sum, "f8")
        missing = np.flatnonzero(np.isnan(raw))
        if len(missing) and self.options.metrics_required:
            raise self._not_found(hosts.state(int(missing[0])))
        return raw

    def _key(self) -> Hashable:
        """Everything that :meth:`_sum` reads besides the host."""
        options = self.options
        return (
            type(self).__name__,
            tuple(self._ratios.items()),
            options.metrics_required,
            options.metrics_weight_multiplier,
            options.metrics_weight_of_unavailable,
        )

    def _sum(self, host: HostState) -> float:
        """The weight of one host; not a number when a required metric is missing."""
        found = {str(each.get("name")): metric_value(each) for each in host.metrics}
        total = 0.0
        for name, ratio in self._ratios.items():
            if name in found:
                total += found[name] * ratio
            elif self.options.metrics_required:
                return float("nan")
            elif ratio * self.weight_multiplier(host) != 0:
                return self.options.metrics_weight_of_unavailable
        return total

    def _not_found(self, host: HostState) -> ComputeHostMetricNotFound:
        names = {str(each.get("name")) for each in host.metrics}
        missing = next(name for name in self._ratios if name not in names)
        return ComputeHostMetricNotFound(host.host, host.nodename, missing)


def metric_value(metric: Mapping[str, Any]) -> float:
    """A metric's value, cut to a whole number, fractions as percents; what is no number is 0."""
    try:
        value = float(metric.get("value", 0))
    except (TypeError, ValueError, OverflowError):
        return 0.0
    if not abs(value) <= _LARGEST:  # so that it refuses what is not a number, too
        return 0.0
    return float(int(value * 100 if str(metric.get("name")) in _FRACTIONS else value))
