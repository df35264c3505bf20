"""``/v1/balancing``: what balancing does, and the mode, beside a worker that runs the rounds."""

import msgspec
import pytest

from scheduler_worker.errors import Conflict, StateUnavailable
from scheduler_worker.operations.callers import Grant
from tests.support.balancers import Scenario, even_load
from tests.support.rest import Rest

ONE = "/v1/balancing/default"
MODE = f"{ONE}/mode"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def scenario():
    return Scenario(mode="dry_run")


@pytest.fixture
def rest(scenario):
    """An API without a balancer of its own, on the state of the workers."""
    return Rest(world=scenario.beside())


def put(rest, mode, user="admin@internal", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = msgspec.json.encode({"mode": mode})
    return rest.request("PUT", MODE, body, headers=JSON | named, user=user)


def test_what_a_round_proposed_and_what_is_under_way_are_shown(scenario, rest):
    while not (scenario.status()["last_round"] or {}).get("considered"):
        scenario.round()
    found = rest.request("GET", ONE).get_json()
    assert (found["cluster"], found["policy"], found["balance"]) == (
        "default", "spread@1", "EvenLoad",
    )  # fmt: skip
    assert (found["mode"], found["origin"]) == ("dry_run", "default")
    [proposal] = found["last_round"]["considered"]
    assert (proposal["vm"], proposal["outcome"]) == ("v2", "would be asked for")
    assert found["last_round"]["busy_hosts"] == ["a"]
    assert found["under_way"] == found["waiting"] == []

    assert put(rest, "on", If_Match="*").status_code == 200
    scenario.round()
    [under_way] = rest.request("GET", ONE).get_json()["under_way"]
    assert (under_way["vm"], under_way["candidates"]) == ("v2", ["b", "a"])
    assert under_way["asked_at"] < under_way["overdue_at"]
    scenario.round(after_s=100)  # nothing was heard of it
    [waiting] = rest.request("GET", "/v1/balancing").get_json()["items"][0]["waiting"]
    assert (waiting["vm"], waiting["failures"]) == ("v2", 1)
    assert "nothing was heard" in waiting["why"]


def test_a_mode_is_set_and_withdrawn_with_its_entries_in_the_audit(scenario, rest):
    read = rest.request("GET", MODE)
    assert read.get_json() == {
        "cluster": "default", "policy": "spread@1", "mode": "dry_run", "origin": "default",
    }  # fmt: skip
    made = put(rest, "off", If_Match=read.headers["ETag"])
    assert (made.get_json()["mode"], made.get_json()["origin"]) == ("off", "set")
    scenario.round()
    assert scenario.status()["last_round"]["nothing_because"] == "it is switched off"
    etag = rest.request("GET", MODE).headers["ETag"]
    assert etag == made.headers["ETag"]
    assert rest.request("DELETE", MODE, headers={"If-Match": etag}).status_code == 204
    assert rest.request("GET", MODE).headers["ETag"] == read.headers["ETag"]
    entries = [(each.action, each.before, each.after) for each in rest.store.audit()]
    assert entries == [
        ("balancing.switch", None, '{"mode":"off"}'),
        ("balancing.switch", '{"mode":"off"}', None),
    ]


@pytest.mark.parametrize(("headers", "status"), [({}, 428), ({"If_Match": '"old"'}, 412)])
def test_a_mode_changes_only_by_who_knows_it(rest, headers, status):
    before = rest.state()
    assert put(rest, "off", **headers).status_code == status
    assert rest.state() == before


def test_another_policy_in_between_is_noticed(scenario, rest, monkeypatch):
    """Between the check of If-Match and the write: ``on`` is not for a policy that nobody saw."""
    switch = rest.balancing.switch

    def late(*arguments, **named):
        scenario.attach(even_load("other"))
        switch(*arguments, **named)

    monkeypatch.setattr(rest.balancing, "switch", late)
    refused = put(rest, "on", If_Match="*")
    assert refused.status_code == 409
    assert "changed in the meantime" in refused.get_json()["detail"]
    assert rest.request("GET", MODE).get_json()["origin"] == "default"
    assert [each.result for each in rest.store.audit()] == ["done", "refused"]


def test_expected_is_compared_in_each_attempt(scenario):
    seen = scenario.balancing.mode("default")
    scenario.balancing.switch("default", "off", expected=seen)
    with pytest.raises(Conflict, match="changed in the meantime"):
        scenario.balancing.switch("default", "on", expected=seen)
    assert scenario.balancing.mode("default").mode == "off"


def test_there_is_nothing_to_switch_on_without_a_balance(scenario, rest):
    scenario.attach({"id": "plain", "name": "plain", "version": 1})
    refused = put(rest, "on", If_Match="*")
    assert (refused.status_code, refused.mimetype) == (400, "application/problem+json")
    assert "no balance to switch on" in refused.get_json()["detail"]


@pytest.mark.parametrize("path", ["/v1/balancing/nowhere", "/v1/balancing/nowhere/mode"])
def test_an_unknown_cluster_is_not_found(rest, path):
    assert rest.request("GET", path).status_code == 404


def test_the_mode_of_an_unknown_cluster_is_not_changed(rest):
    path, body = "/v1/balancing/nowhere/mode", msgspec.json.encode({"mode": "off"})
    asked = {"If-Match": "*"}
    assert rest.request("PUT", path, body, headers=JSON | asked).status_code == 404
    assert rest.request("DELETE", path, headers=asked).status_code == 404
    assert rest.store.audit() == []


def test_administrators_switch_in_their_clusters_and_readers_read(rest):
    rest.add_user("reader", Grant("reader"))
    rest.add_user("editor", Grant("policy_editor"))
    rest.add_user("own", Grant("administrator", "default"))
    rest.add_user("other", Grant("administrator", "west"))
    for user, status in {"reader": 403, "editor": 403, "other": 403, "own": 200}.items():
        assert rest.request("GET", ONE, user=user).status_code == 200
        assert put(rest, "off", user=user, If_Match="*").status_code == status


def test_without_the_shared_state_the_answer_is_503(rest, monkeypatch):
    def fail(*_, **__):
        raise StateUnavailable("no connection")

    monkeypatch.setattr(rest.world.fleet.store, "changes", fail)
    found = rest.request("GET", ONE)
    assert (found.status_code, found.headers["Retry-After"]) == (503, "1")
