"""The providers of a host that serve a request's groups."""

from __future__ import annotations

from scheduler_worker.model.providers import (
    Inventory,
    ProviderTree,
    ResourceProvider,
    read_providers,
)
from scheduler_worker.scheduling.prefilters.matching import match, uses_of
from scheduler_worker.scheduling.prefilters.needs import Group, Supply

VF = "SRIOV_NET_VF"


def device(uuid: str, parent: str | None = None, traits: str = "", used: int = 0, **classes: int):
    return ResourceProvider(
        uuid=uuid,
        parent_provider_uuid=parent,
        traits=tuple(traits.split()),
        inventories={name: Inventory(total=total) for name, total in classes.items()},
        usages=dict.fromkeys(classes, used),
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


def test_the_flavors_own_group_may_take_from_several():
    spread = tree(device("a", VGPU=1), device("b", "a", FPGA=1))
    chosen = match(spread.providers, frozenset(), Supply(groups=(demand("", VGPU=1, FPGA=1),)))
    assert {use.provider for use in uses_of(spread, chosen)} == {"a", "b"}  # type: ignore[arg-type]


def test_traits_choose_the_provider():
    assert served(TWO_PORTS, demand("g", required="FAST", SRIOV_NET_VF=1)) == {"g": "p1"}
    assert served(TWO_PORTS, demand("g", forbidden="FAST", SRIOV_NET_VF=1)) == {"g": "p2"}
    assert served(TWO_PORTS, demand("g", required="NONE", SRIOV_NET_VF=1)) == (
        "has no provider of 1 SRIOV_NET_VF with NONE"
    )


def test_the_providers_of_the_flavor_have_its_traits_together():
    host = tree(device("a", VGPU=1, traits="GPU"), device("b", VGPU=1), traits="ROOT")
    assert served(host, demand("", required="ROOT GPU", VGPU=1)) == {"": "a"}
    assert served(host, demand("", required="ROOT", forbidden="GPU", VGPU=1)) == {"": "b"}
    assert served(host, demand("", required="OTHER", VGPU=1)) == TOGETHER
    assert served(host, demand("", forbidden="ROOT", VGPU=1)) == TOGETHER


def test_the_search_backtracks():
    narrow = demand("n", required="FAST", SRIOV_NET_VF=4)
    assert served(TWO_PORTS, demand("w", SRIOV_NET_VF=4), narrow) == {"w": "p2", "n": "p1"}
    assert served(TWO_PORTS, demand("w", SRIOV_NET_VF=4), narrow, demand("x", SRIOV_NET_VF=1)) == (
        TOGETHER
    )


def test_isolated_groups_have_a_provider_each():
    three = [demand(name, SRIOV_NET_VF=1) for name in "abc"]
    assert set(served(TWO_PORTS, *three[:2], isolates=True).values()) == {"p1", "p2"}
    assert served(TWO_PORTS, *three, isolates=True) == TOGETHER
    assert len(served(TWO_PORTS, *three)) == 3


def test_groups_of_a_subtree_share_a_branch():
    host = tree(
        device("n0", NUMA_CORE=8),
        device("n1", NUMA_CORE=4),
        device("g0", "n0", VGPU=1),
        device("g1", "n1", VGPU=1, traits="FAST"),
    )
    groups = demand("cpu", NUMA_CORE=4), demand("gpu", VGPU=1, required="FAST")
    subtree = (frozenset({"cpu", "gpu"}),)
    assert served(host, *groups, same_subtree=subtree) == {"cpu": "n1", "gpu": "g1"}
    larger = demand("cpu", NUMA_CORE=8), groups[1]
    assert served(host, *larger) == {"cpu": "n0", "gpu": "g1"}
    assert served(host, *larger, same_subtree=subtree) == TOGETHER


def test_units_and_steps_hold_for_one_request():
    inventory = Inventory(total=10, reserved=2, allocation_ratio=1.5, min_unit=2, max_unit=8, step_size=2)  # fmt: skip  # noqa: E501
    assert inventory.capacity == 12
    allowed = [amount for amount in range(1, 13) if inventory.allows(amount)]
    assert allowed == [2, 4, 6, 8]


def test_used_resources_cannot_be_taken():
    half = tree(device("p", VGPU=4, used=2))
    assert served(half, demand("g", VGPU=2)) == {"g": "p"}
    assert isinstance(served(half, demand("g", VGPU=3)), str)


def test_many_equal_providers_are_decided_quickly():
    pool = tree(*(device(f"p{number}", SRIOV_NET_VF=1) for number in range(16)))
    groups = [demand(f"g{number}", SRIOV_NET_VF=1) for number in range(17)]
    assert len(served(pool, *groups[:16])) == 16
    assert served(pool, *groups) == TOGETHER


def test_a_host_that_takes_too_many_tries_does_not_pass():
    pool = tree(*(device(f"p{number}", VGPU=1 + number) for number in range(14)))
    groups = [demand(f"g{number}", VGPU=1) for number in range(15)]
    assert served(pool, *groups, isolates=True) == (
        "has more providers than 5000 tries could match"
    )


def test_taking_and_giving_back_leaves_the_same():
    before = tree(device("p", VGPU=4), device("q", VGPU=4, FPGA=1))
    uses = uses_of(
        before,
        match(before.providers, frozenset(), Supply(groups=(demand("g", VGPU=2, FPGA=1),))),  # type: ignore[arg-type]
    )
    after = before.taken(uses)
    assert served(after, demand("g", FPGA=1)) == "has no provider of 1 FPGA"
    assert after.taken(uses, -1).providers is before.providers
