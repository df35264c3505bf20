"""The filter for hosts that report the configured metrics."""

from __future__ import annotations

import msgspec

from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter, UnitContext
from scheduler_worker.scheduling.weighers.settings import ratios


class MetricsFilterParameters(msgspec.Struct, frozen=True):
    """``[metrics] weight_setting``: metric=ratio items."""

    metrics_weight_setting: tuple[str, ...] = ()


class MetricsFilter(Filter):
    """Passes hosts that report every metric of ``[metrics] weight_setting``.

    Reads: ``metrics``.
    Options: ``[metrics] weight_setting``.
    Example: ``weight_setting = cpu.percent=-1.0`` passes hosts that report ``cpu.percent``.
    """

    reads_request = False
    reads_use = False
    parameters_type = MetricsFilterParameters

    def __init__(self, context: UnitContext | None = None) -> None:
        super().__init__(context)
        self._names = frozenset(name for name, _ in ratios(self.parameters.metrics_weight_setting))

    def applies(self, spec: RequestSpec) -> bool:
        return bool(self._names)

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        key = (type(self).__name__, self._names)
        return hosts.derived(key, lambda host: not self._missing(host), "?")

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return not self._missing(host_state)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return f"does not report {', '.join(sorted(self._missing(host_state)))}"

    def _missing(self, host: HostState) -> frozenset[str]:
        return self._names - {str(each.get("name")) for each in host.metrics}
