"""Filters for what is known of a host's service: that it is up, is trusted, reports metrics."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from scheduler_worker.model.host_records import COMPUTE, SERVICE_DOWN_TIME_S, out_of_service
from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.filters.facts import FactFilter
from scheduler_worker.scheduling.plugin import Filter, UnitContext
from scheduler_worker.scheduling.ratios import ratios


class ComputeParameters(msgspec.Struct, frozen=True):
    """How old a heartbeat may be, in seconds."""

    service_down_time_s: float = SERVICE_DOWN_TIME_S


class ComputeFilter(Filter):
    """Passes hosts whose service is enabled and whose last heartbeat is within
    ``service_down_time``.

    Reads: the host's service and its last heartbeat.
    Options: ``[DEFAULT] service_down_time``.
    Example: ``openstack compute service set --disable HOST nova-compute``
    """

    momentary = True
    run_filter_once_per_request = True
    reads_request = False
    reads_use = False
    parameters_type = ComputeParameters

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        return hosts.taking_vms(self.parameters.service_down_time_s)

    def demand(self, spec: RequestSpec) -> str:
        return "are up and enabled"

    def lasts_until_s(self, hosts: Hosts, spec: RequestSpec) -> float:
        """When the next heartbeat expires, or is no longer too far ahead of the clock."""
        heartbeat_s, allowed_s = hosts.heartbeat_s, self.parameters.service_down_time_s
        ends = (heartbeat_s + allowed_s, heartbeat_s - allowed_s)
        return min(float(ends_s[ends_s >= hosts.now_s].min(initial=np.inf)) for ends_s in ends)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        if why := out_of_service(host_state.record):
            return why
        age_s = host_state.now_s - host_state.heartbeat_s
        allowed = f"{self.parameters.service_down_time_s:g} s are allowed"
        if age_s < 0:
            return f"its heartbeat is {-age_s:.0f} s ahead of the clock, {allowed}"
        silence = f"has not reported for {age_s:.0f} s, {allowed}"
        if not host_state.heartbeat_s:
            silence = "its compute service has never reported"
        return silence + _other_source(host_state)


def _other_source(host_state: HostState) -> str:
    """The source that reported last: an operator sees reports come, and the host is down."""
    sources = host_state.record.sources.items()
    names = {source.reported_at_s: name for name, source in sources if name != COMPUTE}
    if not names:
        return ""
    latest_s = max(names)
    ago_s = host_state.now_s - latest_s
    return f"; source {names[latest_s]} reported {ago_s:.0f} s ago, which is no heartbeat"


TRUST = "trust:trusted_host"
UNKNOWN = "unknown"


class TrustLevels(NamedTuple):
    """The trust levels of nodes in the attestation service's last answer."""

    number: int = 0
    """Identifies these levels: the key of derived columns."""
    of: Mapping[str, str] = {}
    """Node name -> level; a node without an entry is ``unknown``."""


class TrustSource:
    """Provides trust levels; this one, for workers without an attestation service, knows none."""

    def levels(self) -> TrustLevels:
        """The current levels; does not block."""
        return TrustLevels()


class TrustedFilter(Filter):
    """Passes hosts of exactly the trust level that the extra spec ``trust:trusted_host`` names.

    Does not call the attestation service: the levels are updated in the background. Without such a
    service every host is ``unknown``.

    Reads: the node's name; the extra spec ``trust:trusted_host``.
    Options: ``[trusted_computing] attestation_server``,
    ``[trusted_computing] attestation_auth_timeout``.
    Example: ``openstack flavor set --property trust:trusted_host=trusted FLAVOR``
    """

    run_filter_once_per_request = True
    reads_use = False
    of_one_request = True  # the levels change while hosts and requests do not
    collaborators = (TrustSource,)

    def __init__(self, context: UnitContext | None = None) -> None:
        super().__init__(context)
        self._trust = self.collaborator(TrustSource)

    def applies(self, spec: RequestSpec) -> bool:
        return bool(_level(spec))

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        level, levels = _level(spec), self._trust.levels()
        key = (TRUST, level, levels.number)
        return hosts.derived(key, lambda host: _is(host, level, levels), "?")

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return _is(host_state, _level(spec_obj), self._trust.levels())

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        level = self._trust.levels().of.get(host_state.nodename, UNKNOWN)
        return f"its trust level is {level}, not {_level(spec)}"


def _level(spec: RequestSpec) -> str:
    return spec.flavor.extra_specs.get(TRUST, "")


def _is(host: HostState, level: str, levels: TrustLevels) -> bool:
    return not level or levels.of.get(host.nodename, UNKNOWN) == level


class MetricsFilterParameters(msgspec.Struct, frozen=True):
    """``[metrics] weight_setting``: metric=ratio items."""

    metrics_weight_setting: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ratios(self.metrics_weight_setting)


class MetricsFilter(FactFilter):
    """Passes hosts that report every metric of ``[metrics] weight_setting``.

    Reads: ``metrics``.
    Options: ``[metrics] weight_setting``.
    Example: ``weight_setting = cpu.percent=-1.0`` passes hosts that report ``cpu.percent``.
    """

    reads_request = False
    parameters_type = MetricsFilterParameters

    def __init__(self, context: UnitContext | None = None) -> None:
        super().__init__(context)
        self._names = frozenset(name for name, _ in ratios(self.parameters.metrics_weight_setting))

    def asked(self, spec: RequestSpec) -> frozenset[str]:
        return self._names

    def rejection(self, host: HostState, asked: Any) -> str | None:
        missing = asked - {str(metric.get("name")) for metric in host.metrics}
        return f"does not report {', '.join(sorted(missing))}" if missing else None
