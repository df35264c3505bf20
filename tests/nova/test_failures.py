"""Spawns that fail: alternates are tried, and what was claimed in vain is given back."""

import pytest

few = pytest.mark.few


@few
@pytest.mark.parametrize("sound", ["cmp1", "cmp3"])
def test_a_server_whose_spawns_fail_ends_where_one_does_not(tenant, sound):
    """On three hosts the third attempt is the last one, and the one that succeeds."""
    others = [each for each in tenant.cloud.fleet.names if each != sound]
    tenant.cloud.set_faults(dict.fromkeys(others, "fail"))
    [server] = tenant.boot("medium")
    assert server.host == sound


def test_a_server_whose_spawns_all_fail_has_nothing(tenant):
    tenant.cloud.set_faults(dict.fromkeys(tenant.cloud.fleet.names, "fail"))
    assert "Exceeded maximum number of retries" in tenant.refused("medium").fault


def test_a_build_that_is_aborted_is_not_tried_elsewhere(tenant):
    tenant.cloud.set_faults(dict.fromkeys(tenant.cloud.fleet.names, "abort"))
    assert "aborted" in tenant.refused("medium").fault


def test_a_server_deleted_while_it_is_spawned_leaves_nothing(tenant):
    tenant.cloud.set_faults(dict.fromkeys(tenant.cloud.fleet.names, 3))
    [asked] = tenant.ask("medium")
    tenant.await_task(asked, "spawning")
    tenant.nova.delete([asked])
    assert tenant.books().is_empty


def test_a_cloud_with_a_single_place_left_tries_no_alternate(tenant):
    tenant.boot("whole", host="cmp1")
    tenant.boot("whole", host="cmp2")
    tenant.cloud.set_faults({"cmp3": "fail"})
    tenant.refused("whole")
    tenant.cloud.set_faults({})
    [server] = tenant.boot("whole")
    assert server.host == "cmp3"
