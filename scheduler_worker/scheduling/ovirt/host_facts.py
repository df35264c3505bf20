"""Filters for what a host has: networks, devices, hooks, machines, leases; and PreferredHosts."""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.model.virt import HostNetwork, Nic
from scheduler_worker.scheduling.filters.compute import ComputeFilter
from scheduler_worker.scheduling.filters.facts import FactFilter
from scheduler_worker.scheduling.ovirt import host_metrics
from scheduler_worker.scheduling.plugin import Filter, Weigher
from scheduler_worker.wording import listed

SAP_HOOK = "50_vhostmd"
NOT_PREFERRED = 10_000.0


class MigrationDomainFilter(ComputeFilter):
    """Passes hosts of the cluster that are up; asked first under every policy but ``nova``.

    Reads: heartbeat, ``service``.
    Example: a host that has not reported for ``[DEFAULT] service_down_time`` is rejected.
    """

    unit_id = "a267eddb-768d-45fd-9dbb-6ebcee343508"
    runs_on_forced_hosts = True


class EmulatedMachineFilter(FactFilter):
    """Passes hosts that can emulate the VM's machine; every host where it names none.

    Reads: ``virt.emulated_machines``; ``vm.machine_type`` or the image's ``hw_machine_type``.
    Example: ``pc-q35-rhel9.2.0`` does not start on hosts that know older machines only.
    """

    unit_id = "58894b5b-d55d-4f85-8f82-5bf217e640b0"

    def asked(self, spec: RequestSpec) -> Any:
        return spec.machine.machine_type or spec.image_properties.get("hw_machine_type")

    def rejection(self, host: HostState, asked: Any) -> str | None:
        known = host_metrics.facts_of(host).emulated_machines
        if asked in known:
            return None
        return f"cannot emulate {asked}; known are {listed(list(known)) or 'none'}"


class HostHooksFilter(FactFilter):
    """Passes hosts with the hook ``50_vhostmd`` for VMs with the SAP agent.

    Reads: ``virt.hooks``; ``vm.sap_agent``.
    Example: a VM with the SAP agent starts where the hook is installed.
    """

    unit_id = "aae8c702-4756-4934-b84c-8daf59efc134"

    def asked(self, spec: RequestSpec) -> Any:
        return spec.machine.sap_agent and SAP_HOOK

    def rejection(self, host: HostState, asked: Any) -> str | None:
        return None if asked in host_metrics.facts_of(host).hooks else f"lacks the hook {SAP_HOOK}"


class CompatibilityVersionFilter(FactFilter):
    """Passes hosts that support the VM's own compatibility version.

    Reads: ``virt.compatibility_versions``; ``vm.compatibility_version``.
    Example: a VM of version 4.6 in a cluster of 4.7 needs hosts that support both.
    """

    unit_id = "3e4a7d54-9e7f-11e5-8994-feff819cdc9f"
    runs_on_forced_hosts = True

    def asked(self, spec: RequestSpec) -> Any:
        return spec.machine.compatibility_version

    def rejection(self, host: HostState, asked: Any) -> str | None:
        if asked in host_metrics.facts_of(host).compatibility_versions:
            return None
        return f"does not support compatibility version {asked}"


class LeasesReadyFilter(FactFilter):
    """Passes hosts that have acquired the storage domains that hold the VM's leases.

    Reads: ``virt.storage_domains``; ``vm.lease_domains``.
    Example: a host that cannot reach the storage of the lease is rejected.
    """

    unit_id = "b454ae40-f767-45b1-949a-7e5bd04d83ab"
    runs_on_forced_hosts = True

    def asked(self, spec: RequestSpec) -> Any:
        return frozenset(spec.machine.lease_domains)

    def rejection(self, host: HostState, asked: Any) -> str | None:
        missing = sorted(asked - set(host_metrics.facts_of(host).storage_domains))
        return f"has not acquired storage domain {listed(missing)}" if missing else None


class MediatedDevicesFilter(Filter):
    """Passes hosts with free instances of each mediated device type that the VM needs.

    Reads: ``virt.free_mediated_devices``, pending VMs; ``vm.mediated_devices``.
    Example: a VM with two ``nvidia-223`` needs two free instances.
    """

    momentary = True
    unit_id = "aa604ea6-f758-4d28-8e05-bf5f4a0818bd"
    runs_on_forced_hosts = True

    def applies(self, spec: RequestSpec) -> bool:
        return bool(spec.machine.mediated_devices)

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.machine.mediated_devices

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        free = _free_mediated_devices(host_state)
        needed = Counter(spec_obj.machine.mediated_devices)
        return all(free[kind] >= count for kind, count in needed.items())

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        free = dict(_free_mediated_devices(host_state))
        return f"has free mediated devices {free}, needed are {spec.machine.mediated_devices}"


def _free_mediated_devices(host: HostState) -> Counter[str]:
    """Free instances by type, less the instances of pending VMs."""
    free = Counter(dict(host_metrics.facts_of(host).free_mediated_devices))
    free.subtract(dict(host.virt_use.mediated_devices))
    return free


class HostDeviceFilter(Filter):
    """Passes, for a VM with devices of its host, the first of its hosts, if they are free there.

    PCI devices need a host with passthrough.

    Reads: ``virt.passthrough``, ``virt.free_devices``, pending VMs; ``vm.host_devices``,
    ``vm.dedicated_hosts``, ``vm.pci_devices``.
    Example: a VM with ``pci_0000_03_00_0`` of host a starts on a only.
    """

    momentary = True
    unit_id = "728a21f1-f97e-4d32-bc3e-b3cc49756abb"
    runs_on_forced_hosts = True

    def applies(self, spec: RequestSpec) -> bool:
        return bool(spec.machine.host_devices)

    def reads(self, spec: RequestSpec) -> Hashable:
        vm = spec.machine
        return vm.host_devices, vm.dedicated_hosts[:1], vm.pci_devices

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        vm = spec_obj.machine
        is_ready = not vm.pci_devices or host_metrics.facts_of(host_state).passthrough
        is_its = host_state.host in vm.dedicated_hosts[:1]
        return is_its and is_ready and set(vm.host_devices) <= _free_devices(host_state)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        if host_state.host not in spec.machine.dedicated_hosts[:1]:
            return "is not the host of the VM's devices"
        missing = sorted(set(spec.machine.host_devices) - _free_devices(host_state))
        return f"device {listed(missing)} is not free" if missing else "has no passthrough"


def _free_devices(host: HostState) -> set[str]:
    """Free devices, less the devices of pending VMs."""
    return set(host_metrics.facts_of(host).free_devices) - dict(host.virt_use.devices).keys()


class PinToHostFilter(Filter):
    """Passes the dedicated hosts of a VM that is pinned to them.

    If a pinned VM names none, it starts on any host and migrates to none.

    Reads: the host's name; ``vm.pinned_to_host``, ``vm.dedicated_hosts``, ``vm.run_on``.
    Example: a VM pinned to hosts a and b starts on one of them.
    """

    unit_id = "12262ab6-9690-4bc3-a2b3-35573b172d54"
    runs_on_forced_hosts = True
    reads_use = False

    def applies(self, spec: RequestSpec) -> bool:
        vm = spec.machine
        return vm.pinned_to_host and (bool(vm.dedicated_hosts) or vm.run_on is not None)

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.machine.dedicated_hosts

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        return hosts.rows_of(spec.machine.dedicated_hosts)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        named = listed(list(spec.machine.dedicated_hosts))
        return f"the VM is pinned to {named or 'the host on which it runs'}"


class NetworkFilter(FactFilter):
    """Passes hosts with all networks of the VM's plugged interfaces, and with its display network.

    Interfaces without a network pass. An external network needs none of the host's, unless it runs
    on a physical one. A passthrough interface needs a free virtual function instead, and its
    failover network. The display network must have an address. With
    ``vm.only_required_networks`` the others and the display network do not matter.

    Reads: ``virt.networks``, else the report's ``networks``, pending VMs; ``vm.nics``,
    ``vm.display_network``, ``vm.only_required_networks``.
    Example: a VM on the network blue starts on hosts to which blue is attached.
    """

    unit_id = "72163d1c-9468-4480-99d9-0888664eb143"
    reads_use = True

    def applies(self, spec: RequestSpec) -> bool:
        return bool(spec.machine.nics or spec.machine.display_network)

    def asked(self, spec: RequestSpec) -> Any:
        vm = spec.machine
        return vm.nics, vm.display_network, vm.only_required_networks

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        if not any(nic.passthrough for nic in spec.machine.nics):
            return super().passes(hosts, spec)
        passed = (self.host_passes(host, spec) for host in hosts.states())  # functions are used
        return np.fromiter(passed, bool, len(hosts))

    def rejection(self, host: HostState, asked: Any) -> str | None:
        return listed(list(_lacks(host, *asked))) or None


def _lacks(
    host: HostState, nics: Sequence[Nic], display: str | None, only_required: bool
) -> Iterator[str]:
    attached = host_metrics.facts_of(host).networks
    if attached is None:
        attached = tuple(HostNetwork(name=name, has_address=True) for name in host.record.networks)
    networks = {network.name: network for network in attached}
    functions = Counter({name: each.free_virtual_functions for name, each in networks.items()})
    functions.subtract(dict(host.virt_use.virtual_functions))
    for nic in nics:
        if nic.network is None or not nic.plugged:
            continue
        if nic.passthrough:
            yield from _lacks_function(nic, networks, functions)
            continue
        needed = nic.physical_network if nic.external else nic.network
        matters = nic.required or nic.external or not only_required
        if needed is not None and matters and needed not in networks:
            yield f"lacks network {needed}"
    if display is not None and not only_required:
        yield from _lacks_display(networks.get(display), display)


def _lacks_display(network: HostNetwork | None, name: str) -> Iterator[str]:
    if network is None:
        yield f"lacks display network {name}"
    elif not network.has_address:
        yield f"has no address in display network {name}"


def _lacks_function(
    nic: Nic, networks: dict[str, HostNetwork], functions: Counter[str]
) -> Iterator[str]:
    network = nic.network or ""
    if nic.failover is not None and nic.failover not in networks:
        yield f"lacks failover network {nic.failover}"
    if functions[network] <= 0:
        yield f"has no free virtual function for network {network}"
    else:
        functions[network] -= 1


class ClusterInMaintenanceFilter(Filter):
    """Starts highly available VMs only; running VMs may migrate.

    Reads: ``vm.highly_available``, ``vm.run_on``.
    Example: while a cluster is upgraded, nobody starts new VMs on it.
    """

    unit_id = "0bd8fef9-bcb4-4250-9998-410f01608d9b"
    reads_use = False

    def applies(self, spec: RequestSpec) -> bool:
        return spec.machine.run_on is None and not spec.machine.highly_available

    def reads(self, spec: RequestSpec) -> Hashable:
        return ()

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        return np.zeros(len(hosts), bool)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return "its cluster is in maintenance, where only highly available VMs start"


class PreferredHostsWeight(Weigher):
    """Prefers the VM's dedicated hosts while it is down.

    Reads: the host's name; ``vm.dedicated_hosts``, ``vm.run_on``.
    Example: a VM that prefers host a starts there if it can.
    """

    unit_id = "591cdb81-ba67-45b4-9642-e28f61a97d57"
    lower_is_better = True
    reads_use = False

    def applies(self, spec: RequestSpec) -> bool:
        return spec.machine.run_on is None and bool(spec.machine.dedicated_hosts)

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.machine.dedicated_hosts

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        return np.where(hosts.rows_of(spec.machine.dedicated_hosts), 0.0, NOT_PREFERRED)
