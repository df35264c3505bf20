"""The weigher by the metrics that hosts report."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import numpy as np

from scheduler_worker.errors import ComputeHostMetricNotFound
from scheduler_worker.model.hosts import Hosts, HostState, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.options import Opt
from scheduler_worker.scheduling.plugin import UnitContext, Weigher
from scheduler_worker.scheduling.ratios import ratios

_MODES = ("user.", "kernel.", "idle.", "iowait.", "")
_FRACTIONS = frozenset(f"cpu.{mode}percent" for mode in _MODES)
"""Metrics reported as 0..1 and weighed as whole percents."""
_LARGEST = 1e18
"""Values beyond this are taken for invalid, so that weights stay finite."""


class MetricsParameters(msgspec.Struct, frozen=True):
    """``[metrics]``: metric=ratio items, and how a host without one of the metrics is weighed."""

    metrics_weight_setting: Annotated[
        tuple[str, ...], Opt(form="ratios", name="weight_setting", mutable=True)
    ] = ()
    """metric=ratio items, such as cpu.percent=-1.0; the weight is the sum of metric x ratio."""
    metrics_required: Annotated[bool, Opt(name="required", mutable=True)] = True
    """Whether a host without one of the metrics is an error. If not, such a host weighs
    weight_of_unavailable."""
    metrics_weight_of_unavailable: Annotated[
        float, Opt(name="weight_of_unavailable", mutable=True)
    ] = -10000.0
    """The weight of a host without one of the metrics."""

    def __post_init__(self) -> None:
        ratios(self.metrics_weight_setting)


class MetricsWeigher(Weigher):
    """The sum of metric x ratio over the items of ``[metrics] weight_setting``.

    A host without one of the metrics is an error with ``[metrics] required``; else it weighs
    ``weight_of_unavailable``, unless the metric's ratio or the multiplier is 0.

    Reads: ``metrics``.
    Options: ``[metrics] weight_setting``, ``[metrics] required``, ``[metrics]
    weight_of_unavailable``.
    Example: ``weight_setting = cpu.percent=-1.0`` prefers idle hosts.
    """

    reads_request = False
    reads_use = False
    option = "metrics_weight_multiplier"
    parameters_type = MetricsParameters

    def __init__(self, context: UnitContext | None = None) -> None:
        super().__init__(context)
        self._ratios = ratios(self.parameters.metrics_weight_setting)

    def applies(self, spec: RequestSpec) -> bool:
        return bool(self._ratios)

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        key = type(self).__name__, self.parameters, self.default_multiplier()
        raw = hosts.derived(key, self._sum, "f8")
        missing = np.flatnonzero(np.isnan(raw))
        if len(missing) and self.parameters.metrics_required:
            host = hosts.state(int(missing[0]))
            names = {str(metric.get("name")) for metric in host.metrics}
            name = next(name for name, _ in self._ratios if name not in names)
            raise ComputeHostMetricNotFound(host.host, host.nodename, name)
        return raw

    def _sum(self, host: HostState) -> float:
        """The raw score of one host; NaN: a required metric is missing."""
        values = {str(metric.get("name")): metric_value(metric) for metric in host.metrics}
        total = 0.0
        for name, ratio in self._ratios:
            if name in values:
                total += values[name] * ratio
            elif self.parameters.metrics_required:
                return float("nan")
            elif ratio * self.weight_multiplier(host) != 0:
                return float(self.parameters.metrics_weight_of_unavailable)
        return total


def metric_value(metric: Mapping[str, Any]) -> float:
    """A metric's value, truncated to an integer, fractions as percents; 0 if it is no number."""
    try:
        value = float(metric.get("value", 0))
    except (TypeError, ValueError, OverflowError):
        return 0.0
    if not abs(value) <= _LARGEST:  # negated, so that it catches NaN, too
        return 0.0
    return float(int(value * 100 if str(metric.get("name")) in _FRACTIONS else value))
