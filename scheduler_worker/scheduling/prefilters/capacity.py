"""Room in the hosts' own inventories of vCPUs, memory and disk, as Placement decides it.

Placement is asked about a forced host too, so this filter is. It passes hosts that report no such
inventories.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask, Values
from scheduler_worker.model.inventories import UNUSED, use_of_root
from scheduler_worker.model.providers import Inventory, ProviderUse
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter
from scheduler_worker.scheduling.prefilters import hosts as facts
from scheduler_worker.scheduling.prefilters.groups import Resources
from scheduler_worker.scheduling.prefilters.needs import Needs, needs_of
from scheduler_worker.scheduling.prefilters.traits import RequestFilterParameters

PCPU = "PCPU"


class Inventories(Filter):
    """Passes hosts whose inventories have room for the instance's vCPUs, memory and disk."""

    momentary = True
    runs_on_forced_hosts = True
    parameters_type = RequestFilterParameters

    def applies(self, spec: RequestSpec) -> bool:
        return spec.allocation_candidates is None  # these say what a host's own inventories give

    def reads(self, spec: RequestSpec) -> Hashable:
        needs = needs_of(spec, self.parameters)
        return needs.amounts, needs.amounts_unpinned

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        if not hosts.has_inventories.any():
            return np.ones(len(hosts), bool)
        needs = needs_of(spec, self.parameters)
        passed = _have_room(hosts, needs.amounts)
        if needs.amounts != needs.amounts_unpinned:
            unpinned = facts.lacks_pinned_cpus(hosts)
            if unpinned.any():
                passed = np.where(unpinned, _have_room(hosts, needs.amounts_unpinned), passed)
        return passed

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        if not host_state.has_inventories:
            return True
        amounts = self.amounts_on(host_state, spec_obj)
        for name, amount in amounts:
            if getattr(host_state, UNUSED[name]) < amount:
                return False
        return facts.one_allows(host_state, amounts)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        inventories = facts.inventories_of(host_state)
        for name, amount in self.amounts_on(host_state, spec):
            why = _shortage(inventories, name, amount, getattr(host_state, UNUSED[name]))
            if why:
                return why
        return super().reason(host_state, spec)

    def demand(self, spec: RequestSpec) -> str:
        amounts = (f"{n:,} {name}" for name, n in needs_of(spec, self.parameters).amounts)
        return f"have {', '.join(amounts) or 'room'} left in their inventories"

    def shortages(self, hosts: Hosts, spec: RequestSpec) -> Mapping[str, Values]:
        if not hosts.has_inventories.any():
            return {}
        needs = needs_of(spec, self.parameters)
        unpinned = facts.lacks_pinned_cpus(hosts)
        lacking: dict[str, Values] = {}
        for amounts, those in (needs.amounts, ~unpinned), (needs.amounts_unpinned, unpinned):
            for name, amount in amounts:
                missing = np.where(those, np.maximum(0, amount - hosts.column(UNUSED[name])), 0)
                lacking[name] = np.maximum(lacking.get(name, 0), missing)
        return lacking

    def taken_in_columns(self, hosts: Hosts, spec: RequestSpec) -> Mapping[str, Values]:
        """Column -> what an instance takes of it on each host, of the hosts' own inventories."""
        if not hosts.has_inventories.any():
            return {}
        needs = needs_of(spec, self.parameters)
        unpinned = facts.lacks_pinned_cpus(hosts)
        amounts, others = dict(needs.amounts), dict(needs.amounts_unpinned)
        return {
            UNUSED[name]: hosts.has_inventories
            * np.where(unpinned, others.get(name, 0), amounts.get(name, 0))
            for name in amounts.keys() | others.keys()
        }

    def amounts_on(self, host: HostState, spec: RequestSpec) -> Resources:
        """What an instance takes of this host's own inventories."""
        needs = needs_of(spec, self.parameters)
        return amounts_on(host, needs)

    def taken_by(self, spec: RequestSpec, host_state: HostState) -> tuple[ProviderUse, ...]:
        """What an instance takes of its host's own inventories; nothing if it reports none."""
        if not host_state.has_inventories:
            return ()
        # An empty use counts too: without one, its flavor's sizes would.
        return (use_of_root(host_state.uuid, dict(self.amounts_on(host_state, spec))),)


def amounts_on(host: HostState, needs: Needs) -> Resources:
    """What the request takes of this host's own inventories."""
    if needs.amounts != needs.amounts_unpinned and facts.lacks_pinned_cpus_on(host):
        return needs.amounts_unpinned
    return needs.amounts


def _have_room(hosts: Hosts, amounts: Resources) -> Mask:
    passed = facts.allow(hosts, amounts)
    for name, amount in amounts:
        passed = passed & (hosts.column(UNUSED[name]) >= amount)
    return passed


def _shortage(
    inventories: Mapping[str, Inventory], name: str, amount: int, unused: int
) -> str | None:
    inventory = inventories.get(name)
    if inventory is None:
        return f"needs {amount} {name}; its compute node has no inventory of that"
    if not inventory.min_unit <= amount <= inventory.max_unit:
        bounds = f"{inventory.min_unit} to {inventory.max_unit}"
        return f"needs {amount} {name}; one instance may take {bounds}"
    if amount % inventory.step_size:
        return f"needs {amount} {name}, which is no multiple of {inventory.step_size}"
    if amount > unused:
        capacity, ratio = inventory.capacity, inventory.allocation_ratio
        of = f"({inventory.total} - {inventory.reserved} reserved) x {ratio:g}"
        return f"needs {amount} {name}; {capacity - unused} are used of {of} = {capacity}"
    return None
