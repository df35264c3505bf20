"""Filters for VMs that run: away from the source's machine, same clock, no older system."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.ovirt import demand, figures
from scheduler_worker.scheduling.plugin import Filter, Weigher

_TSC_TOLERANCE = (250, 1_000_000)
NEWER, SAME, OLDER = 0.0, 100_000.0, 1_000_000.0
"""The scores of a host's operating system compared with the source's."""


class _Migration:
    """A filter that compares other hosts with the one on which the VM runs."""

    of_one_request = True

    def applies(self, spec: RequestSpec) -> bool:
        return spec.machine.run_on is not None


def _source(hosts: Hosts, spec: RequestSpec) -> HostState | None:
    """The host on which the VM runs; None: it is in another cluster, or the VM does not run."""
    if not len(hosts):
        return None
    table = hosts.state(0).table  # a filter may have rejected the source itself
    rows = np.flatnonzero(demand.is_there(table, spec))
    return table.state(int(rows[0])) if len(rows) else None


class MigrationFilter(_Migration, Filter):
    """Rejects hosts under another name that are the VM's host, by their address.

    The VM's host itself passes, so that a balance may decide to leave the VM where it is.

    Reads: ``host_ip``; ``vm.run_on``.
    Example: a second host with the address of the source, or a loopback address, is rejected.
    """

    unit_id = "e659c871-0bf1-4ccc-b748-f28f5d08ddda"

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        there, source = demand.is_there(hosts, spec), _source(hosts, spec)
        addresses = hosts.derived("address", _address, "O")
        same: Mask = hosts.derived("loopback", _is_loopback, "?").copy()
        if source is not None and (address := _address(source)) is not None:
            same |= addresses == address
        return there | ~same

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return f"its address {host_state.host_ip} is that of {spec.machine.run_on}"


def _address(host: HostState) -> str | None:
    try:
        return str(ipaddress.ip_address(host.host_ip or ""))
    except ValueError:
        return host.host_ip


def _is_loopback(host: HostState) -> bool:
    try:
        return ipaddress.ip_address(host.host_ip or "").is_loopback
    except ValueError:
        return host.host_ip == "localhost"


class LeaveHostFilter(_Migration, Filter):
    """Rejects the host on which the VM runs: Migration as oVirt's design has it.

    Reads: the host's name; ``vm.run_on``.
    Example: in a policy for evacuations every VM changes its host.
    """

    unit_id = "84e6ddee-ab0d-42dd-82f0-c297779db5e5"

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        return ~demand.is_there(hosts, spec)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return "is the host on which the VM runs"


class TscFrequencyFilter(_Migration, Filter):
    """Rejects hosts whose time stamp counter is not as fast as the source's, to 250 per million.

    Every host passes if the source does not report its frequency, and none that does not report its
    own otherwise.

    Reads: ``virt.tsc_frequency_hz``; ``vm.use_tsc``, ``vm.run_on``.
    Example: 2,400,000,000 and 2,400,600,000 Hz are near enough.
    """

    unit_id = "47ea3cd0-8a2f-438d-9f63-49534178882a"

    def applies(self, spec: RequestSpec) -> bool:
        return spec.machine.use_tsc and super().applies(spec)

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        source = _source(hosts, spec)
        frequency = figures.facts_of(source).tsc_frequency_hz if source else None
        if frequency is None:
            return np.ones(len(hosts), bool)
        share, million = _TSC_TOLERANCE
        near: Mask = np.abs(_tsc(hosts) - frequency) <= frequency * share // million
        return near

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        frequency = figures.facts_of(host_state).tsc_frequency_hz
        return f"its time stamp counter has {frequency or 'an unknown number of'} Hz"


def _tsc(hosts: Hosts) -> Values:
    return figures.of_facts(
        hosts,
        "tsc",
        lambda virt: figures.NAN if virt.tsc_frequency_hz is None else virt.tsc_frequency_hz,
        "f8",
    )


class System(NamedTuple):
    """An operating system: its family and major version; minor ones do not matter."""

    family: str
    major: int


_SYSTEM = re.compile(r"\s*(?P<family>\S.*?)\s+-\s+(?P<major>\d+)(?:\.\d+)*\s*(?:-.*)?$")


def system_of(text: str | None) -> System | None:
    """The system that a host reports as ``NAME - VERSION - RELEASE``; None: unreadable."""
    found = _SYSTEM.match(text or "")
    if found is None:
        return None
    return System(found["family"], int(found["major"]))


def _systems(hosts: Hosts) -> list[System | None]:
    found = figures.of_facts(hosts, "os", lambda virt: (system_of(virt.os),), "O")
    return [each for (each,) in found]


class UpgradeFilter(_Migration, Filter):
    """Passes hosts with the system of the VM's host, of no older major version.

    Reads: ``virt.os``; ``vm.run_on``.
    Example: a VM that runs on RHEL 9 does not migrate back to RHEL 8.
    """

    unit_id = "84e6ddee-ab0d-42dd-82f0-c298889db567"

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        source = _source(hosts, spec)
        system = system_of(figures.facts_of(source).os) if source else None
        if system is None:
            return np.ones(len(hosts), bool)
        found = (
            each is not None and each.family == system.family and each.major >= system.major
            for each in _systems(hosts)
        )
        return np.fromiter(found, bool, len(hosts))

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        system = figures.facts_of(host_state).os or "unknown"
        return f"its system {system!r} is older than, or another than, that of the VM's host"


class UpgradeWeight(Weigher):
    """Prefers hosts with a newer system than the VM's host, or the newest one for a VM that starts.

    Reads: ``virt.os``; ``vm.run_on``.
    Example: while hosts are upgraded from RHEL 8 to 9, VMs that migrate move to upgraded hosts.
    """

    unit_id = "84e6ddee-ab0d-42dd-82f0-c298889db568"
    lower_is_better = True

    def reads(self, spec: RequestSpec) -> Hashable | None:
        return None  # scores depend on the other hosts

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        systems = _systems(hosts)
        known = [each for each in systems if each is not None]
        if spec.machine.run_on is not None:
            source = _source(hosts, spec)
            baseline = system_of(figures.facts_of(source).os) if source else None
        else:
            families = {each.family for each in known}
            baseline = max(known, key=lambda each: each.major) if len(families) == 1 else None
        if baseline is None:
            return np.zeros(len(hosts))
        starts = spec.machine.run_on is None
        scores = (_system_score(each, baseline, starts=starts) for each in systems)
        return np.fromiter(scores, "f8", len(hosts))


def _system_score(system: System | None, baseline: System, *, starts: bool) -> float:
    if system is None or system.family != baseline.family or system.major < baseline.major:
        return OLDER
    if system.major > baseline.major or starts:
        return NEWER
    return SAME
