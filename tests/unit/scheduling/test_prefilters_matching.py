"""The providers of a host that serve a request's groups."""

from scheduler_worker.model.providers import (
    Inventory,
    ProviderTree,
    ResourceProvider,
    read_providers,
)
from scheduler_worker.scheduling.prefilters.matching import match, uses_of
from scheduler_worker.scheduling.prefilters.needs import Group, Supply


def device(uuid: str, parent: str | None = None, traits: str = "", **classes: int):
    return ResourceProvider(
        uuid=uuid,
        parent_provider_uuid=parent,
        traits=tuple(traits.split()),
        inventories={name: Inventory(total=total) for name, total in classes.items()},
    )


def tree(*reported: ResourceProvider, traits: str = "") -> ProviderTree:
    return read_providers("host", traits.split(), reported)


def demand(name: str, required: str = "", forbidden: str = "", **resources: int) -> Group:
    return Group(
        name=name,
        resources=tuple(sorted(resources.items())),
        required=frozenset(required.split()),
        forbidden=frozenset(forbidden.split()),
    )


def served(found: ProviderTree, *groups: Group, **more) -> dict[str, str] | str:
    chosen = match(found.providers, frozenset(), Supply(groups=groups, **more))
    if isinstance(chosen, str):
        return chosen
    return {use.group: use.provider for use in uses_of(found, chosen)}


TWO_PORTS = tree(device("p1", SRIOV_NET_VF=4, traits="FAST"), device("p2", SRIOV_NET_VF=4))
TOGETHER = "has providers for each of the groups, but not for all of them together"


def test_a_group_takes_all_from_one_provider():
    both = tree(device("a", VGPU=1), device("b", FPGA=1), device("c", VGPU=1, FPGA=1))
    assert served(both, demand("g", VGPU=1, FPGA=1)) == {"g": "c"}
    assert served(tree(device("a", VGPU=1), device("b", FPGA=1)), demand("g", VGPU=1, FPGA=1)) == (
        "has no provider of 1 FPGA, 1 VGPU"
    )


def test_traits_choose_the_provider():
    assert served(TWO_PORTS, demand("g", required="FAST", SRIOV_NET_VF=1)) == {"g": "p1"}
    assert served(TWO_PORTS, demand("g", forbidden="FAST", SRIOV_NET_VF=1)) == {"g": "p2"}
    assert served(TWO_PORTS, demand("g", required="NONE", SRIOV_NET_VF=1)) == (
        "has no provider of 1 SRIOV_NET_VF with NONE"
    )


def test_many_equal_providers_are_decided_quickly():
    pool = tree(*(device(f"p{number}", SRIOV_NET_VF=1) for number in range(16)))
    groups = [demand(f"g{number}", SRIOV_NET_VF=1) for number in range(17)]
    assert len(served(pool, *groups[:16])) == 16
    assert served(pool, *groups) == TOGETHER


def test_equal_demands_are_not_permuted():
    pool = tree(*(device(f"p{number}", VGPU=2, OTHER=number) for number in range(5)))
    groups = [demand(f"g{number}", VGPU=1) for number in range(11)]
    assert len(served(pool, *groups[:10])) == 10
    assert served(pool, *groups) == TOGETHER


def test_a_host_that_takes_too_many_tries_does_not_pass():
    pool = tree(*(device(f"p{number}", VGPU=1 + number) for number in range(14)))
    groups = [demand(f"g{number}", VGPU=1) for number in range(15)]
    assert served(pool, *groups, isolates=True) == ("has more providers than 500 tries could match")
