"""Filters for VMs that run: away from the source's machine, same clock, no older system."""

import re
from typing import NamedTuple

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.host_attributes import attribute
from scheduler_worker.scheduling.ovirt import demand, host_metrics
from scheduler_worker.scheduling.plugin import Filter, Weigher

_TSC_TOLERANCE = (250, 1_000_000)
NEWER, SAME, OLDER = 0.0, 100_000.0, 1_000_000.0
"""The scores of a host's operating system compared with the source's."""


class SourceFilter(Filter):
    """A filter that compares other hosts with the VM's source, the host on which it runs."""

    of_one_request = True

    def applies(self, spec: RequestSpec) -> bool:
        return spec.machine.run_on is not None

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        return demand.is_there(hosts, spec) | self.fits(_source(hosts, spec), hosts)

    def fits(self, source: Hosts | None, to: Hosts) -> Mask:
        """Whether a VM may move from one host to each other, or from each to one.

        ``source`` and ``to`` are as many, or one of them is one. None: the source is not known.
        """
        return np.ones(max(len(to), 0 if source is None else len(source)), bool)


def _source(hosts: Hosts, spec: RequestSpec) -> Hosts | None:
    """The host on which the VM runs; None: it is in another cluster, or the VM does not run."""
    if not len(hosts):
        return None
    table = hosts.state(0).table  # a filter may have rejected the source itself
    rows = np.flatnonzero(demand.is_there(table, spec))
    return table.take(rows[:1]) if len(rows) else None


class MigrationFilter(SourceFilter):
    """Rejects hosts under another name that are the VM's host, by their address.

    The VM's host itself passes, so that a balance may decide to leave the VM where it is.

    Reads: ``host_ip``; ``vm.run_on``.
    Example: a second host with the address of the source, or a loopback address, is rejected.
    """

    unit_id = "e659c871-0bf1-4ccc-b748-f28f5d08ddda"

    def fits(self, source: Hosts | None, to: Hosts) -> Mask:
        same: Mask = to.derived("loopback", _is_loopback, "?")
        if source is not None:
            address = to.derived("address", _address, "O")
            same = same | ((address == source.derived("address", _address, "O")) & (address != ""))
        return ~same

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return f"its address {host_state.host_ip} is that of {spec.machine.run_on}"


def _address(host: HostState) -> str:
    """Empty where it is unknown."""
    return str(attribute(host, "host_ip") or "")


def _is_loopback(host: HostState) -> bool:
    address = attribute(host, "host_ip")
    return bool(getattr(address, "is_loopback", address == "localhost"))


class LeaveHostFilter(SourceFilter):
    """Rejects the host on which the VM runs: Migration as oVirt's design has it.

    Reads: the host's name; ``vm.run_on``.
    Example: in a policy for evacuations every VM changes its host.
    """

    unit_id = "84e6ddee-ab0d-42dd-82f0-c297779db5e5"

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        return ~demand.is_there(hosts, spec)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return "is the host on which the VM runs"


class TscFrequencyFilter(SourceFilter):
    """Rejects hosts whose time stamp counter is not as fast as the source's, to 250 per million.

    Every host passes if the source does not report its frequency, and none that does not report its
    own otherwise.

    Reads: ``virt.tsc_frequency_hz``; ``vm.use_tsc``, ``vm.run_on``.
    Example: 2,400,000,000 and 2,400,600,000 Hz are near enough.
    """

    unit_id = "47ea3cd0-8a2f-438d-9f63-49534178882a"

    def applies(self, spec: RequestSpec) -> bool:
        return spec.machine.use_tsc and super().applies(spec)

    def fits(self, source: Hosts | None, to: Hosts) -> Mask:
        if source is None:
            return super().fits(source, to)
        frequency, (share, million) = _tsc(source), _TSC_TOLERANCE
        near: Mask = np.abs(_tsc(to) - frequency) <= frequency * share // million
        return near | np.isnan(frequency)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        frequency = host_metrics.facts_of(host_state).tsc_frequency_hz
        return f"its time stamp counter has {frequency or 'an unknown number of'} Hz"


def _tsc(hosts: Hosts) -> Values:
    # None becomes NaN.
    return host_metrics.of_facts(hosts, "tsc", lambda virt: virt.tsc_frequency_hz, "f8")


class System(NamedTuple):
    """An operating system: its family and major version; minor ones do not matter."""

    family: str
    major: int


_SYSTEM = re.compile(r"\s*(?P<family>\S.*?)\s+-\s+(?P<major>\d+)(?:\.\d+)*\s*(?:-.*)?$")


def system_of(text: str | None) -> System | None:
    """The system that a host reports as ``NAME - VERSION - RELEASE``; None: unreadable."""
    match = _SYSTEM.match(text or "")
    return System(match["family"], int(match["major"])) if match else None


def _systems(hosts: Hosts) -> Values:
    """A tuple with the system of each host, or None."""
    return host_metrics.of_facts(hosts, "os", lambda virt: (system_of(virt.os),), "O")


def _is_no_older(own: System | None, its: System | None) -> bool:
    if own is None:
        return True
    return its is not None and its.family == own.family and its.major >= own.major


class UpgradeFilter(SourceFilter):
    """Passes hosts with the system of the VM's host, of no older major version.

    Reads: ``virt.os``; ``vm.run_on``.
    Example: a VM that runs on RHEL 9 does not migrate back to RHEL 8.
    """

    unit_id = "84e6ddee-ab0d-42dd-82f0-c298889db567"

    def fits(self, source: Hosts | None, to: Hosts) -> Mask:
        if source is None:
            return super().fits(source, to)
        pairs = np.broadcast(_systems(source), _systems(to))
        return np.fromiter((_is_no_older(*own, *its) for (own, its) in pairs), bool, pairs.size)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        system = host_metrics.facts_of(host_state).os or "unknown"
        return f"its system {system!r} is older than, or another than, that of the VM's host"


class UpgradeWeight(Weigher):
    """Prefers hosts with a newer system than the VM's host, or the newest one for a VM that starts.

    Reads: ``virt.os``; ``vm.run_on``.
    Example: while hosts are upgraded from RHEL 8 to 9, VMs that migrate move to upgraded hosts.
    """

    # It does not declare what it reads: scores depend on the other hosts.

    unit_id = "84e6ddee-ab0d-42dd-82f0-c298889db568"
    lower_is_better = True

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        systems = [system for (system,) in _systems(hosts)]
        known = [system for system in systems if system is not None]
        if spec.machine.run_on is not None:
            source = _source(hosts, spec)
            baseline = None if source is None else _systems(source)[0][0]
        else:
            families = {system.family for system in known}
            baseline = max(known, key=lambda system: system.major) if len(families) == 1 else None
        if baseline is None:
            return np.zeros(len(hosts))
        starts = spec.machine.run_on is None
        scores = (_system_score(system, baseline, starts=starts) for system in systems)
        return np.fromiter(scores, "f8", len(hosts))


def _system_score(system: System | None, baseline: System, *, starts: bool) -> float:
    if system is None or system.family != baseline.family or system.major < baseline.major:
        return OLDER
    if system.major > baseline.major or starts:
        return NEWER
    return SAME
