"""The filter for hosts that an attestation service trusts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter, UnitContext

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
        return bool(_wanted(spec))

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        wanted, levels = _wanted(spec), self._trust.levels()
        key = (TRUST, wanted, levels.number)
        return hosts.derived(key, lambda host: _is(host, wanted, levels), "?")

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return _is(host_state, _wanted(spec_obj), self._trust.levels())

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        level = self._trust.levels().of.get(host_state.nodename, UNKNOWN)
        return f"its trust level is {level}, not {_wanted(spec)}"


def _wanted(spec: RequestSpec) -> str:
    return spec.flavor.extra_specs.get(TRUST, "")


def _is(host: HostState, wanted: str, levels: TrustLevels) -> bool:
    return not wanted or levels.of.get(host.nodename, UNKNOWN) == wanted
