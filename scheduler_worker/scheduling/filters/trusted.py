"""Hosts that an attestation service trusts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple

from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter

TRUST = "trust:trusted_host"
UNKNOWN = "unknown"


class TrustLevels(NamedTuple):
    """What the attestation service said of the nodes, when it was last asked."""

    number: int = 0
    """Another one for other levels."""
    of: Mapping[str, str] = {}
    """Node name -> level; a node that is not there is ``unknown``."""


class TrustedFilter(Filter):
    """Passes hosts of exactly the trust level that the extra spec ``trust:trusted_host`` names.

    Asks nobody: the levels are kept up to date in the background. Without an attestation service
    every host is ``unknown``.

    Reads: the node's name; the extra spec ``trust:trusted_host``.
    Options: ``[trusted_computing] attestation_server``,
    ``[trusted_computing] attestation_auth_timeout``.
    Example: ``openstack flavor set --property trust:trusted_host=trusted FLAVOR``
    """

    run_filter_once_per_request = True
    reads_use = False
    of_one_request = True  # for the levels change while hosts and requests do not
    levels: ClassVar[Callable[[], TrustLevels]] = TrustLevels

    def applies(self, spec: RequestSpec) -> bool:
        return bool(_wanted(spec))

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        wanted, levels = _wanted(spec), type(self).levels()
        key = (TRUST, wanted, levels.number)
        return hosts.derived(key, lambda host: _is(host, wanted, levels), "?")

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return _is(host_state, _wanted(spec_obj), type(self).levels())

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        level = type(self).levels().of.get(host_state.nodename, UNKNOWN)
        return f"its trust level is {level}, not {_wanted(spec)}"


def _wanted(spec: RequestSpec) -> str:
    return spec.flavor.extra_specs.get(TRUST, "")


def _is(host: HostState, wanted: str, levels: TrustLevels) -> bool:
    return not wanted or levels.of.get(host.nodename, UNKNOWN) == wanted
