"""The filter for the requested availability zone."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated

import msgspec

from scheduler_worker.model.aggregates import zones
from scheduler_worker.model.hosts import Aggregates, Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.options import Opt
from scheduler_worker.scheduling.plugin import Filter


class ZoneParameters(msgspec.Struct, frozen=True):
    """The zone of hosts whose aggregates name none."""

    default_availability_zone: Annotated[str, Opt(mutable=True)] = "nova"
    """The availability zone of hosts that are in no aggregate with one."""


class AvailabilityZoneFilter(Filter):
    """Passes hosts of the requested zone; hosts without a zone are in the default one.

    Reads: the zones of the host's aggregates; the requested zone.
    Options: ``[DEFAULT] default_availability_zone``.
    Metadata: ``availability_zone``; several zones are separated by commas.
    Example: ``openstack server create --availability-zone az1 ...``
    """

    run_filter_once_per_request = True
    reads_use = False
    parameters_type = ZoneParameters

    def applies(self, spec: RequestSpec) -> bool:
        return bool(spec.availability_zone)

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.availability_zone

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        wanted = spec.availability_zone
        if not wanted:
            return super().passes(hosts, spec)
        key = ("zone", wanted, self.parameters.default_availability_zone)
        return hosts.derived(
            key,
            lambda host: wanted in self._zones(host.aggregates),
            "?",
            lambda all_: all_.by_aggregates().spread(lambda some: wanted in self._zones(some)),
        )

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        wanted = spec_obj.availability_zone
        return not wanted or wanted in self._zones(host_state.aggregates)

    def demand(self, spec: RequestSpec) -> str:
        return f"are in zone {spec.availability_zone}"

    def _zones(self, some: Aggregates) -> set[str]:
        return zones(some) or {self.parameters.default_availability_zone}

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        found = ", ".join(sorted(self._zones(host_state.aggregates)))
        return f"is in zone {found}, not in {spec.availability_zone}"
