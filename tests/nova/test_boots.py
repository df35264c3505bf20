"""Servers are built where they were to be, or not at all."""

import pytest

few = pytest.mark.few


@few
def test_three_servers_of_one_request_are_built(tenant):
    servers = tenant.boot("whole", count=3)
    assert {each.host for each in servers} == set(tenant.cloud.fleet.names)


@pytest.mark.parametrize("host", ["cmp1", "cmp2", "cmp3"])
def test_a_forced_host_is_chosen(tenant, host):
    [server] = tenant.boot(host=host)
    assert server.host == host


def test_a_zone_is_kept_to(tenant):
    zone = tenant.nova.make_zone("east", "cmp3")
    try:
        servers = tenant.boot(count=3, zone="east")
        assert [(each.host, each.zone) for each in servers] == [("cmp3", "east")] * 3
        tenant.refused("whole", zone="east")
        tenant.nova.delete([each.id for each in servers])
    finally:
        tenant.leave()  # a host with servers stays in its zone
        tenant.nova.delete_zone(zone, "cmp3")


@few
def test_a_forced_host_takes_no_more_than_it_has(tenant):
    tenant.boot("whole", zone="nova:cmp2")
    assert "No valid host" in tenant.refused(zone="nova:cmp2").fault
    [other] = tenant.boot()
    assert other.host != "cmp2"


def test_a_group_has_a_host_for_each_member(tenant):
    group = tenant.nova.make_group("apart", "anti-affinity")
    try:
        servers = tenant.boot(count=3, group=group)
        assert {each.host for each in servers} == set(tenant.cloud.fleet.names)
        tenant.refused(group=group)
    finally:
        tenant.nova.delete_group(group)


@few
def test_a_full_cloud_takes_one_more_when_one_is_gone(tenant):
    servers = [tenant.boot("half")[0] for _ in range(2 * len(tenant.cloud.fleet.names))]
    assert "No valid host" in tenant.refused().fault
    gone = servers[2]
    tenant.nova.delete([gone.id])
    assert not tenant.books().places(gone.id)
    [last] = tenant.boot("half")
    assert last.host == gone.host


def test_a_request_for_more_than_there_is_leaves_nothing(tenant):
    tenant.boot("half")
    asked = tenant.ask("whole", count=3)
    assert [tenant.nova.settled(each, "ERROR").host for each in asked] == [None] * 3
    books = tenant.books()
    assert not any(books.places(each) for each in asked)
