"""Clusters in oVirt's REST API: their policies and their own values."""

import pytest

from scheduler_worker.api.presentation import cluster_id
from tests.support.rest_bodies import (
    V3,
    attach,
    balanced,
    fault,
    made,
    own_properties,
    properties,
    update,
    xml,
)


def test_a_cluster_has_the_policy_of_the_options_until_one_is_attached(rest):
    [east, _] = xml(rest.request("GET", "/clusters"))
    assert east.findtext("name") == "east"
    assert east.find("scheduling_policy").get("id") == "nova"
    policy = balanced(rest)
    xml(update(rest, policy, properties(HighUtilization="70", CpuOverCommitDurationMinutes="4")))
    given = own_properties(HighUtilization="75")
    attached = xml(attach(rest, "east", policy, given))
    own = attached.find("custom_scheduling_policy_properties")
    assert {p.findtext("name"): p.findtext("value") for p in own} == {
        "HighUtilization": "75",
        "CpuOverCommitDurationMinutes": "4",
    }
    assert rest.services.policies.in_force("east").parameters["HighUtilization"] == "75"
    [only] = xml(rest.request("GET", f"/schedulingpolicies/{policy}/clusters"))
    assert only.get("id") == attached.get("id")
    detail = fault(rest.request("DELETE", f"/schedulingpolicies/{policy}"), 400)
    assert "attached to cluster(s): east" in detail


def test_a_cluster_keeps_its_values_under_the_next_policy(rest):
    first, second = balanced(rest, "first"), balanced(rest, "second")
    given = own_properties(HighUtilization="75")
    xml(attach(rest, "east", first, given))
    attached = xml(attach(rest, "east", second))
    assert attached.findtext("custom_scheduling_policy_properties/property/value") == "75"


def test_a_policy_is_attached_by_its_name_in_any_case(rest):
    policy = made(rest, "Packing")
    for element in ("name", "policy"):
        path = f"/clusters/{cluster_id('east')}"
        policy_text = f"<scheduling_policy><{element}>PACKING</{element}></scheduling_policy>"
        text = f"<cluster>{policy_text}</cluster>"
        attached = xml(rest.request("PUT", path, text))
        assert attached.find("scheduling_policy").get("id") == policy


def test_what_a_cluster_cannot_be_given_is_refused(rest):
    policy = balanced(rest)
    given = own_properties(HighUtilization="75")
    xml(attach(rest, "east", policy, given))
    before = rest.state()
    wrong = given.replace("HighUtilization", "HighVmCnt")
    assert "HighVmCnt: no unit of the policy declares it" in fault(
        attach(rest, "east", policy, wrong), 400
    )
    path = f"/clusters/{cluster_id('east')}"
    for text in ("<name>west</name>", "<colour>red</colour>"):
        response = rest.request("PUT", path, f"<cluster>{text}</cluster>")
        assert response.status_code == 400
    # What it has of the policy before goes with it, as in oVirt.
    assert "options" in fault(attach(rest, "east", "nova", wrong), 400)
    assert rest.state() == before
    assert xml(attach(rest, "east", made(rest, "plain"), given)).get("id") == cluster_id("east")


@pytest.mark.parametrize("duration", ["1", "90", "100", "120", "86399"])
def test_thresholds_of_version_3_are_read_as_they_were_written(rest, duration):
    policy = balanced(rest)
    text = (
        f'<cluster><scheduling_policy id="{policy}"><thresholds high="85" duration="{duration}"/>'
        "</scheduling_policy></cluster>"
    )
    path = f"/clusters/{cluster_id('east')}"
    nested = xml(rest.request("PUT", path, text, headers=V3)).find("scheduling_policy")
    assert nested.find("thresholds").attrib == {"high": "85", "duration": duration}
    assert nested.findtext("policy") == nested.findtext("name") == "balanced"
    text = text.replace("<thresholds", properties(HighUtilization="90") + "<thresholds")
    nested = xml(rest.request("PUT", path, text, headers=V3)).find("scheduling_policy")
    assert nested.find("thresholds").get("high") == "90"  # properties win
    links = xml(rest.request("GET", f"/schedulingpolicies/{policy}", headers=V3)).iter("link")
    assert "clusters" in {each.get("rel") for each in links}


@pytest.mark.parametrize(
    ("search", "count"), [("name=east", 1), ("name=%2Ast", 2), ("EAST", 1), ("name=north", 0)]
)
def test_clusters_are_searched_by_name(rest, search, count):
    assert len(xml(rest.request("GET", f"/clusters?search={search}"))) == count


def test_a_search_by_another_field_is_refused(rest):
    assert "name=" in fault(rest.request("GET", "/clusters?search=cpu%3D4"), 400)


def test_clusters_are_not_created(rest):
    response = rest.request("POST", "/clusters", "<cluster><name>north</name></cluster>")
    assert "first report" in fault(response, 409)
