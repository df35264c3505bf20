"""What Nova's own NUMA and PCI units answered."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler_worker.model.requests import RequestGroup, RequestSpec
from scheduler_worker.scheduling.filters.numa_topology import NUMATopologyFilter
from scheduler_worker.scheduling.filters.pci_passthrough import PciPassthroughFilter
from scheduler_worker.scheduling.plugin import Filter
from scheduler_worker.scheduling.weighers.pci import PCIWeigher
from tests.support.nova_cases import cases, options, spec, table

FILTERS = {unit.__name__: unit for unit in (NUMATopologyFilter, PciPassthroughFilter)}
RECORDED = [case for case in cases("filters.jsonl") if case["filter"] in FILTERS]


def with_providers(request: RequestSpec, candidate: dict[str, Any]) -> RequestSpec:
    """The request as one that placement chose the candidate's providers for."""
    groups = tuple(
        RequestGroup(requester_id=requester, provider_uuids=tuple(providers))
        for requester, providers in candidate["mappings"].items()
    )
    return msgspec.structs.replace(request, requested_resources=groups)


def answer(unit: Filter, case: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Whether some candidate of placement passes, and the limits that are left then."""
    hosts, request = table([case["host"]]), spec(case)
    if not unit.applies(request):
        return True, {}
    if not request.numa_topology and isinstance(unit, NUMATopologyFilter):
        return bool(unit.passes(hosts, request)[0]), {}
    for candidate in case["host"]["allocation_candidates"]:
        offered = with_providers(request, candidate)
        passes = bool(unit.passes(hosts, offered)[0])
        assert passes == unit.host_passes(hosts.state(0), offered)
        if passes:
            return True, dict(unit.limits(hosts.state(0), offered))
        assert unit.reason(hosts.state(0), offered) != "does not pass"
    return False, {}


def plain(value: Any) -> Any:
    """A primitive without its wrappings; sets are lists in some order there."""
    if isinstance(value, dict):
        data = value.get("nova_object.data", value)
        return {key: plain(each) for key, each in data.items()}
    return sorted(value) if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["filter"])
def test_filters(case):
    unit = FILTERS[case["filter"]](options(case["config"]))
    passes, limits = answer(unit, case)
    assert passes == case["expect"]["passes"]
    assert plain(limits) == plain(case["expect"].get("limits", {}))


@pytest.mark.parametrize(
    "case",
    [case for case in cases("weighers.jsonl") if "PCIWeigher" in case.get("per_weigher", {})],
)
def test_the_pci_weigher(case):
    unit = PCIWeigher(options(case["config"]))
    expected = case["per_weigher"]["PCIWeigher"]
    hosts = table(case["hosts"])
    assert unit.weigh(hosts, spec(case)).tolist() == expected["raw"]
    assert [unit.weight_multiplier(host) for host in hosts.states()] == expected["mult"]


def test_the_cases_are_there():
    assert len(RECORDED) > 100
