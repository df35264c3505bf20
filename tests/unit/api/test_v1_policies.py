"""``/v1`` without a server: units, policies, their history, and the policies of clusters."""

import json

import pytest

from scheduler_worker.operations.callers import Grant
from tests.support.rest import BALANCE, CPU, CPU_WEIGHT, NONE, Rest

TEXT = {
    "name": "packed",
    "filters": [{"unit": "Memory"}, {"unit": "CPU", "position": "first"}],
    "weights": [{"unit": "OptimalForCpuEvenDistribution", "factor": 3.0}],
    "balance": {"unit": "OptimalForEvenDistribution"},
    "parameters": {"HighUtilization": "75"},
}


@pytest.fixture
def rest():
    found = Rest("east", "west")
    found.add_user("rita", Grant("reader"))
    found.add_user("edda", Grant("policy_editor", "east"))
    return found


def ask(rest, method, path, body=None, status=200, *, etag=None, user="admin@internal"):
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if etag:
        headers["If-Match"] = etag
    text = "" if body is None else json.dumps(body)
    response = rest.request(method, path, text, headers=headers, user=user)
    assert response.status_code == status, response.get_data(as_text=True)
    return response


def read(rest, path, **options):
    return ask(rest, "GET", path, **options).get_json()


def made(rest, **changed):
    return ask(rest, "POST", "/v1/policies", TEXT | changed, 201).get_json()


def test_units_have_their_kinds_and_parameters(rest):
    units = {each["id"]: each for each in read(rest, "/v1/units?limit=1000")["items"]}
    assert units[CPU]["kind"] == "filter"
    assert units[CPU]["description"] == "Keeps hosts with enough cores."
    assert units[CPU_WEIGHT]["is_cost"]
    assert not units[CPU]["can_be_switched"]
    named = {each["name"]: each for each in units[BALANCE]["parameters"]}
    assert named["HighUtilization"]["default"] == "80"
    assert named["HighUtilization"]["type"] == "integer"
    assert read(rest, f"/v1/units/{CPU}") == units[CPU]
    ask(rest, "GET", "/v1/units/none", status=404)


def test_units_come_in_pages(rest):
    everything = read(rest, "/v1/units?limit=1000")["items"]
    page = read(rest, "/v1/units?limit=3")
    rest_of_it = read(rest, page["next"].replace("limit=3", "limit=1000"))
    assert [*page["items"], *rest_of_it["items"]] == everything


def test_a_unit_of_the_worker_is_not_switched(rest):
    path = f"/v1/units/{CPU}"
    ask(rest, "PUT", path, {"is_enabled": False}, 428)
    found = ask(rest, "PUT", path, {"is_enabled": False}, 400, etag="*").get_json()
    assert "always enabled" in found["detail"]
    ask(rest, "PUT", path, {"is_enabled": False}, 403, etag="*", user="edda")


def test_a_policy_is_created_read_changed_and_removed(rest):
    policy = made(rest)
    path = f"/v1/policies/{policy['id']}"
    assert (policy["version"], policy["is_locked"], policy["clusters"]) == (1, False, [])
    assert policy["changed_by"] == "admin@internal"
    response = ask(rest, "GET", path)
    assert response.get_json() == policy
    etag = response.headers["ETag"]
    changed = TEXT | {"name": "loose", "filters": []}
    assert "If-Match" in ask(rest, "PUT", path, changed, 428).get_json()["detail"]
    after = ask(rest, "PUT", path, changed, etag=etag)
    assert (after.get_json()["name"], after.get_json()["version"]) == ("loose", 2)
    assert after.headers["ETag"] == ask(rest, "GET", path).headers["ETag"]
    ask(rest, "PUT", path, TEXT, 412, etag=etag)
    ask(rest, "DELETE", path, status=428)
    ask(rest, "DELETE", path, status=204, etag="*")
    ask(rest, "GET", path, status=404)


def test_built_in_policies_are_marked_and_not_changed(rest):
    found = {each["id"]: each for each in read(rest, "/v1/policies")["items"]}
    assert found[NONE]["is_locked"]
    assert found[NONE]["is_default"]
    assert found["nova"]["is_locked"]
    assert not found["nova"]["is_default"]
    detail = ask(rest, "PUT", f"/v1/policies/{NONE}", TEXT, 400, etag="*").get_json()["detail"]
    assert "locked" in detail


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"parameters": {"HighUtilization": "20"}}, "properties.HighUtilization"),
        ({"parameters": {"Unknown": "1"}}, "properties.Unknown"),
        ({"filters": [{"unit": "CPU"}, {"unit": "CPU"}]}, "filters.CPU"),
        ({"filters": [{"unit": "None such"}]}, "filters.None such"),
        ({"weights": [{"unit": "OptimalForCpuEvenDistribution", "factor": -1.0}]}, "weights."),
        ({"name": "NONE"}, "name"),
    ],
)
def test_a_check_names_the_field_and_stores_nothing(rest, changed, field):
    before = rest.state()
    found = ask(rest, "POST", "/v1/policies/new/check", TEXT | changed).get_json()
    assert found["field"].startswith(field)
    assert found["problem"]
    assert rest.state() == before
    refused = rest.request(
        "POST",
        "/v1/policies",
        json.dumps(TEXT | changed),
        headers={"Content-Type": "application/json"},
    )
    assert refused.status_code in {400, 409}


def test_a_check_finds_nothing_wrong(rest):
    nothing = {"field": None, "problem": None}
    assert ask(rest, "POST", "/v1/policies/new/check", TEXT).get_json() == nothing


def test_the_history_has_every_change_and_can_be_put_back(rest):
    policy = made(rest)
    path = f"/v1/policies/{policy['id']}"
    ask(rest, "PUT", path, TEXT | {"filters": []}, etag="*")
    first, second = read(rest, f"{path}/history")["items"]
    assert [each["action"] for each in (first, second)] == ["create", "update"]
    assert [each["version"] for each in (first, second)] == [1, 2]
    assert second["user"] == "admin@internal"
    assert second["policy"].get("filters", []) == []
    page = read(rest, f"{path}/history?limit=1")
    assert page["items"] == [first]
    assert read(rest, page["next"])["items"] == [second]
    ask(rest, "PUT", path, first["policy"], etag="*")
    restored = read(rest, path)
    assert {name: restored[name] for name in first["policy"]} == first["policy"]
    ask(rest, "DELETE", path, status=204, etag="*")
    assert read(rest, f"{path}/history")["items"][-1]["policy"] is None


def test_a_cluster_is_attached_with_its_own_values(rest):
    policy = made(rest)
    path = "/v1/clusters/east/policy"
    response = ask(rest, "GET", path)
    assert (response.get_json()["policy"], response.get_json()["changed_by"]) == ("nova", None)
    body = {"policy": policy["id"], "parameters": {"HighUtilization": "90"}}
    ask(rest, "PUT", path, body, 428)
    wrong = {**body, "parameters": {"HighUtilisation": "90"}}
    refused = ask(rest, "PUT", path, wrong, 400, etag=response.headers["ETag"])
    assert "properties.HighUtilisation: no unit" in refused.get_json()["detail"]
    found = ask(rest, "PUT", path, body, etag=response.headers["ETag"]).get_json()
    assert found["policy"] == policy["id"]
    assert found["parameters"]["HighUtilization"] == "90"
    assert read(rest, path) == found
    assert read(rest, "/v1/clusters/east")["document"]["name"] == "packed"
    assert read(rest, f"/v1/policies/{policy['id']}")["clusters"] == ["east"]
    ask(rest, "PUT", path, body, 412, etag=response.headers["ETag"])
    refused = ask(rest, "DELETE", f"/v1/policies/{policy['id']}", status=409, etag="*")
    assert "east" in refused.get_json()["detail"]
    ask(rest, "GET", "/v1/clusters/north/policy", status=404)


def test_who_may_change_what(rest):
    policy = made(rest)
    path = f"/v1/policies/{policy['id']}"
    body = {"policy": policy["id"]}
    read(rest, "/v1/policies", user="rita")
    ask(rest, "POST", "/v1/policies", TEXT | {"name": "x"}, 403, user="rita")
    ask(rest, "PUT", path, TEXT, 403, etag="*", user="rita")
    ask(rest, "PUT", "/v1/clusters/west/policy", body, 403, etag="*", user="edda")
    ask(rest, "PUT", "/v1/clusters/east/policy", body, etag="*", user="edda")
    ask(rest, "PUT", path, TEXT | {"name": "y"}, etag="*", user="edda")
    ask(rest, "PUT", "/v1/clusters/west/policy", body, etag="*")
    ask(rest, "PUT", path, TEXT | {"name": "z"}, 403, etag="*", user="edda")
