"""Filters by the names of hosts: those isolated for images, those tried before, and all."""

from collections.abc import Hashable
from typing import Annotated

import msgspec
import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.options import Opt
from scheduler_worker.scheduling.plugin import Filter


class IsolatedHostsParameters(msgspec.Struct, frozen=True):
    """Which hosts are reserved for which images."""

    isolated_images: Annotated[tuple[str, ...], Opt(mutable=True)] = ()
    """IsolatedHostsFilter: ids of the images that may run on isolated_hosts only."""
    isolated_hosts: Annotated[tuple[str, ...], Opt(mutable=True)] = ()
    """IsolatedHostsFilter: names of the hosts for isolated_images."""
    restrict_isolated_hosts_to_isolated_images: Annotated[bool, Opt(mutable=True)] = True
    """IsolatedHostsFilter: whether isolated_hosts take isolated_images only."""


class IsolatedHostsFilter(Filter):
    """Passes ``isolated_hosts`` for ``isolated_images`` only, and those images nowhere else.

    Without ``restrict_isolated_hosts_to_isolated_images`` other images may use these hosts too.

    Reads: the host's name; the image's id.
    Options: ``isolated_hosts``, ``isolated_images``,
    ``restrict_isolated_hosts_to_isolated_images``.
    Example: ``isolated_hosts = h1, h2`` and ``isolated_images = IMAGE_ID``.
    """

    run_filter_once_per_request = True
    RUN_ON_REBUILD = True
    reads_use = False
    parameters_type = IsolatedHostsParameters

    def applies(self, spec: RequestSpec) -> bool:
        return self._restricts or self._is_isolated(spec)

    def reads(self, spec: RequestSpec) -> Hashable:
        return self._is_isolated(spec)

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        isolated = hosts.rows_of(self.parameters.isolated_hosts)
        if self._is_isolated(spec):
            return isolated
        return ~isolated if self._restricts else np.ones(len(hosts), bool)

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        isolated = host_state.host in self.parameters.isolated_hosts
        return isolated if self._is_isolated(spec_obj) else not (isolated and self._restricts)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        if self._is_isolated(spec):
            return "is not one of the hosts for isolated images"
        return "is reserved for isolated images"

    @property
    def _restricts(self) -> bool:
        return bool(self.parameters.restrict_isolated_hosts_to_isolated_images)

    def _is_isolated(self, spec: RequestSpec) -> bool:
        return spec.image is not None and spec.image.id in self.parameters.isolated_images


class RetryFilter(Filter):
    """Passes hosts on which the same request has not failed before.

    Reads: the host's names; the hosts that the request lists as tried.
    Example: a caller that retries on another host after a failure sends ``retry``.
    """

    reads_use = False

    def applies(self, spec: RequestSpec) -> bool:
        return bool(_tried(spec))

    def reads(self, spec: RequestSpec) -> Hashable:
        return _tried(spec)

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        tried = _tried(spec)
        untried = ~hosts.rows_of(name for name, _ in tried if name is not None)
        rows = np.flatnonzero(~untried).tolist()
        for row, host in zip(rows, hosts.states(rows), strict=True):
            untried[row] = (host.host, host.nodename) not in tried
        return untried

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return (host_state.host, host_state.nodename) not in _tried(spec_obj)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return f"was tried before, as one of {len(_tried(spec))}"


def _tried(spec: RequestSpec) -> frozenset[tuple[str | None, str | None]]:
    hosts = spec.retry.hosts if spec.retry else ()
    return frozenset((host.host, host.hypervisor_hostname) for host in hosts)


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
