"""What an instance takes of a host, as an allocation that Placement understands."""

from __future__ import annotations

from scheduler_worker.model.claims import Resources
from scheduler_worker.model.decisions import Allocation
from scheduler_worker.model.hosts import HostState
from scheduler_worker.model.inventories import uses_on
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.pci.requests import providers_of
from scheduler_worker.scheduling.prefilters.amounts import amounts_of

FLAVOR = ""
"""The name of the flavor's own group in mappings."""


def groups_of(spec: RequestSpec) -> list[str]:
    """The names of the groups for which the caller needs to know a provider."""
    return [each.requester_id for each in spec.requested_resources or () if each.requester_id]


def mappings_on(host: HostState, spec: RequestSpec, taken: Resources) -> dict[str, list[str]]:
    """The provider that serves each of these groups: the host's own where none was chosen."""
    providers = {use.group: use.provider for use in taken.providers}
    providers |= providers_of(spec, taken.pci or ())
    return {group: [providers.get(group, host.uuid)] for group in groups_of(spec)}


def allocation_on(host: HostState, spec: RequestSpec, taken: Resources) -> Allocation:
    """The whole allocation: vCPUs, memory and disk of the host, and what else was chosen there.

    Raises RequestError for an invalid request.
    """
    taken_of = uses_on(host.record, taken)
    uses = [(use.group, use.provider, use.resources) for use in taken_of if use.resources]
    chosen = {group for group, _, _ in uses}
    mappings = mappings_on(host, spec, taken)
    uses += [
        (group.requester_id or "", mappings[group.requester_id or ""][0], group.resources)
        for group in spec.requested_resources or ()
        if group.requester_id and group.requester_id not in chosen  # devices, for example
    ]
    if not host.has_inventories:  # else it is in what is taken
        given = {name for group, _, resources in uses if group == FLAVOR for name in resources}
        of_host = {name: amount for name, amount in amounts_of(spec) if name not in given}
        if of_host:
            uses.insert(0, (FLAVOR, host.uuid, of_host))
    return _allocation(uses)


def _allocation(uses: list[tuple[str, str, dict[str, int]]]) -> Allocation:
    """Adds up what is taken of each provider; ``uses`` are group, provider and amounts."""
    totals: dict[str, dict[str, int]] = {}
    mappings: dict[str, list[str]] = {}
    for group, provider, resources in uses:
        serving = mappings.setdefault(group, [])
        if provider not in serving:
            serving.append(provider)
        for name, amount in resources.items():
            total = totals.setdefault(provider, {})
            total[name] = total.get(name, 0) + amount
    return Allocation({each: {"resources": total} for each, total in totals.items()}, mappings)
