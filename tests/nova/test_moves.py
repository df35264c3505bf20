"""Servers move, and their allocations with them."""

import pytest
from nova_cloud.client import IMAGE, OTHER_IMAGE

few = pytest.mark.few


@few
def test_a_resize_is_confirmed(tenant):
    [server] = tenant.boot("small")
    moved = tenant.resize(server, "medium")
    done = tenant.confirm(moved)
    assert (done.host, done.resources["MEMORY_MB"]) == (moved.host, 2048)


def test_a_cold_migration_to_a_named_host_is_reverted(tenant):
    [server] = tenant.boot("medium", host="cmp1")
    moved = tenant.migrate(server, "medium", host="cmp3")
    assert moved.host == "cmp3"
    assert tenant.revert(moved).host == "cmp1"


def test_a_move_without_a_place_changes_nothing(tenant):
    [server] = tenant.boot("small", host="cmp1")
    for host in ("cmp2", "cmp3"):
        tenant.boot("whole", host=host)
    tenant.nova.act(server.id, "migrate", {"host": None})
    assert tenant.active(server).host == "cmp1"
    assert [each["status"] for each in tenant.nova.migrations(server.id)] == ["error"]


@few
def test_a_live_migration(tenant):
    [server] = tenant.boot("medium")
    tenant.live_migrate(server)


def test_a_live_migration_to_a_named_host(tenant):
    [server] = tenant.boot("medium", host="cmp1")
    assert tenant.live_migrate(server, "cmp2").host == "cmp2"
    assert tenant.live_migrate(server, "cmp3").host == "cmp3"


@pytest.mark.parametrize("image", [IMAGE, OTHER_IMAGE], ids=["same image", "new image"])
def test_a_rebuild_on_a_full_host_stays(tenant, image):
    [server] = tenant.boot("whole")
    tenant.rebuild(server, image)


@few
def test_a_shelved_server_has_nothing_until_it_is_unshelved(tenant):
    [server] = tenant.boot("medium")
    tenant.nova.act(server.id, "shelve")
    tenant.nova.settled(server.id, "SHELVED_OFFLOADED")
    books = tenant.books()
    assert books.is_empty
    tenant.nova.act(server.id, "unshelve")
    tenant.active(server)


@few
@pytest.mark.parametrize("host", [None, "cmp3"], ids=["any host", "a named host"])
def test_an_evacuation_holds_both_places_until_the_source_is_back(tenant, dead_rack, host):
    dead_host = dead_rack[0]
    [server] = tenant.boot("medium", host=dead_host.name)
    dead_host.die()
    tenant.nova.act(server.id, "evacuate", {"host": host} if host else {})
    evacuated = tenant.nova.evacuated(server)
    assert evacuated.host in ([host] if host else ["cmp2", "cmp3"])
    assert tenant.books().places(server.id) == {
        dead_host.name: server.resources,
        evacuated.host: server.resources,
    }
    dead_host.come_back()
    assert tenant.active(server, "SHUTOFF").host == evacuated.host
