"""What has changed a moment ago counts: with the next request, whoever schedules."""

from collections.abc import Callable, Iterator

import pytest
from nova_cloud.fleet import FLAVORS

from tests.nova.conftest import DIRECTORY
from tests.nova.tenant import Tenant
from tests.support.threads import Threads

TRAIT, ACCELERATOR = "CUSTOM_FAST", "CUSTOM_ACCELERATOR"
few = pytest.mark.few


@pytest.fixture
def flavor_of(tenant: Tenant) -> Iterator[Callable[..., str]]:
    """Makes flavors as large as ``small``, with an extra spec."""
    made: list[str] = []

    def make(key: str, value: str) -> str:
        name = f"special{len(made)}"
        made.append(tenant.nova.make_flavor(name, FLAVORS["small"], {key: value}))
        return name

    yield make
    for each in made:
        tenant.nova.delete_flavor(each)


def built(tenant: Tenant, flavor: str = "small") -> str:
    [server] = tenant.ask(flavor)
    host = tenant.nova.settled(server, "ACTIVE").host
    assert host is not None
    return host


def refused(tenant: Tenant, flavor: str) -> None:
    [server] = tenant.ask(flavor)
    assert "No valid host" in tenant.nova.settled(server, "ERROR").fault


@few
def test_hosts_that_are_forced_down_get_nothing_from_then_on(tenant):
    """Their computes run on: who declares a host dead may be the only one who knows."""
    assert {built(tenant) for _ in range(3)}
    try:
        for host in ("cmp2", "cmp3"):
            tenant.nova.force_down(host, True)
        servers = [each for _ in range(6) for each in tenant.ask("small")]
        hosts = [tenant.nova.settled(each, "ACTIVE").host for each in servers]
        assert hosts == ["cmp1"] * 6
    finally:
        for host in ("cmp2", "cmp3"):
            tenant.nova.force_down(host, False)
    tenant.boot("medium", host="cmp2")  # and as soon they serve again


@few
@pytest.mark.parametrize(("just", "other"), [("cmp1", "cmp2"), ("cmp2", "cmp1")])
def test_a_host_is_forced_down_while_alternates_are_short(tenant, just, other):
    """With the third host long down, no answer has the alternates that it was asked for."""
    tenant.nova.force_down("cmp3", True)
    try:
        assert {built(tenant) for _ in range(4)} == {just, other}  # known to be down by now
        for _ in range(3):
            tenant.nova.force_down(just, True)
            assert built(tenant) == other
            tenant.nova.force_down(just, False)
            tenant.leave()
            assert built(tenant) in {just, other}
    finally:
        for host in (just, "cmp3"):
            tenant.nova.force_down(host, False)


@few
def test_a_rack_fails_and_its_servers_are_evacuated_at_once(tenant, dead_rack):
    servers = [server for host in dead_rack for server in tenant.boot(host=host.name)]
    for host in dead_rack:
        host.die()
    for each in servers:
        tenant.nova.act(each.id, "evacuate", {})
    hosts = [tenant.nova.evacuated(each).host for each in servers]
    assert hosts == ["cmp3"] * len(servers)


@few
def test_a_trait_counts_when_it_is_added_and_when_it_is_removed(tenant, flavor_of):
    fast = flavor_of(f"trait:{TRAIT}", "required")
    slow = flavor_of(f"trait:{TRAIT}", "forbidden")
    providers = tenant.placement.providers()

    def label(host: str, *, is_fast: bool) -> None:
        change = set.union if is_fast else set.difference
        tenant.placement.set_traits(providers[host], lambda traits: change(traits, {TRAIT}))

    refused(tenant, fast)
    try:
        label("cmp2", is_fast=True)
        assert built(tenant, fast) == "cmp2"
        label("cmp1", is_fast=True)
        assert built(tenant, slow) == "cmp3"
        label("cmp2", is_fast=False)
        assert [built(tenant, fast) for _ in range(3)] == ["cmp1"] * 3
        label("cmp1", is_fast=False)
        refused(tenant, fast)
    finally:
        for host in ("cmp1", "cmp2"):
            label(host, is_fast=False)


@few
def test_a_new_nested_provider_serves_the_next_request(tenant, flavor_of):
    flavor = flavor_of(f"resources:{ACCELERATOR}", "1")
    tenant.placement.make_class(ACCELERATOR)
    refused(tenant, flavor)
    root = tenant.placement.providers()["cmp2"]
    child = tenant.placement.make_child("accelerator", root, ACCELERATOR, 1)
    try:
        assert built(tenant, flavor) == "cmp2"
        refused(tenant, flavor)
        tenant.nova.delete([each.id for each in tenant.nova.servers()])
        assert built(tenant, flavor) == "cmp2"
        tenant.nova.delete([each.id for each in tenant.nova.servers()])
    finally:
        tenant.leave()  # a provider with a server stays
        tenant.placement.delete_provider(child)
    refused(tenant, flavor)


@few
def test_thirty_conflicts_lose_no_boot(tenant):
    """Each of ten servers meets a faster writer three times; Nova tries four times."""
    conflicts = DIRECTORY / "conflicts"
    before = len(list(conflicts.glob("*"))) if conflicts.exists() else 0
    tenant.cloud.set_faults({"placement": 3})
    with Threads(10) as threads:
        answers = list(threads.map(tenant.ask, ["small"] * 10))
    servers = [each for some in answers for each in some]
    hosts = [tenant.nova.settled(each, "ACTIVE").host for each in servers]
    assert len(hosts) == 10
    assert len(list(conflicts.glob("*"))) - before == 30
    assert tenant.books()
