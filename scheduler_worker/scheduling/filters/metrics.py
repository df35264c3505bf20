"""What the hosts must measure of themselves."""

from __future__ import annotations

from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.plugin import Filter
from scheduler_worker.scheduling.weighers.settings import ratios


class MetricsFilter(Filter):
    """Passes hosts that report every metric of ``[metrics] weight_setting``.

    Reads: ``metrics``.
    Options: ``[metrics] weight_setting``.
    Example: ``weight_setting = cpu.percent=-1.0`` passes hosts that report ``cpu.percent``.
    """

    reads_request = False
    reads_use = False

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self._names = frozenset(ratios(self.options.metrics_weight_setting))

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
