"""``/v1/tuning-policies``: set, read, withdraw, and what two editors do to each other."""

import msgspec
import pytest

from scheduler_worker.errors import Conflict, PolicyStoreUnavailable
from scheduler_worker.operations.callers import Grant
from scheduler_worker.ports import ABSENT, Put, Transaction, TuningFileProblem
from tests.support.rest import Rest
from tests.support.tuners import BALLOON

ONE = "/v1/tuning-policies/balloon"
OTHER = BALLOON.replace("10", "20")


@pytest.fixture
def rest():
    return Rest("east")


def put(rest, text=BALLOON, path=ONE, user="admin@internal", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    headers = {"Content-Type": "application/json", **named}
    body = msgspec.json.encode({"text": text})
    return rest.request("PUT", path, body, headers=headers, user=user)


def test_a_policy_is_set_read_changed_and_withdrawn(rest):
    made = put(rest)
    assert made.status_code == 201
    expected = {"name": "balloon", "text": BALLOON, "origin": "set", "file": None}
    assert made.get_json() == expected
    read = rest.request("GET", ONE)
    assert read.get_json() == expected
    assert read.headers["ETag"] == made.headers["ETag"]
    changed = put(rest, OTHER, If_Match=made.headers["ETag"])
    assert changed.status_code == 200
    assert rest.tuning.texts() == {"balloon": OTHER}
    gone = rest.request("DELETE", ONE, headers={"If-Match": changed.headers["ETag"]})
    assert (gone.status_code, rest.tuning.texts()) == (204, {})
    assert rest.request("GET", ONE).status_code == 404
    entries = rest.store.audit()
    assert [each.action for each in entries] == ["tuning.set", "tuning.set", "tuning.withdraw"]
    assert (entries[0].before, entries[2].after) == (None, None)
    assert entries[1].before == msgspec.json.encode({"balloon": BALLOON}).decode()
    assert entries[1].after == entries[2].before == msgspec.json.encode({"balloon": OTHER}).decode()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 428), ({"If_Match": '"old"'}, 412), ({"If_None_Match": "*"}, 412),
        ({"If_Match": "*", "If_None_Match": "*"}, 412), ({"If_Match": "*"}, 200),
    ],
)  # fmt: skip
def test_an_existing_policy_is_changed_only_by_who_knows_it(rest, headers, status):
    put(rest)
    before = rest.state()
    assert put(rest, OTHER, **headers).status_code == status
    assert (rest.state() == before) == (status != 200)


def test_a_new_policy_needs_no_condition_and_may_have_one(rest):
    assert put(rest, If_Match="*").status_code == 412
    assert put(rest, If_None_Match="*").status_code == 201


def test_a_policy_is_withdrawn_only_by_who_knows_it(rest):
    put(rest)
    assert rest.request("DELETE", ONE).status_code == 428
    assert rest.request("DELETE", ONE, headers={"If-Match": '"old"'}).status_code == 412
    assert rest.tuning.texts() == {"balloon": BALLOON}


def test_of_two_changes_at_once_one_is_refused(rest):
    put(rest)
    [now] = rest.tuning.current()
    rest.tuning.set("balloon", OTHER, version=now.version)
    with pytest.raises(Conflict):
        rest.tuning.set("balloon", BALLOON, version=now.version)
    with pytest.raises(Conflict):
        rest.tuning.set("balloon", BALLOON, version=ABSENT)
    with pytest.raises(Conflict):
        rest.tuning.reset({"balloon": now.version})
    assert rest.tuning.texts() == {"balloon": OTHER}


def test_a_policy_of_a_file_is_replaced_and_returns(rest):
    rest.files.texts["balloon"] = BALLOON
    of_file = rest.request("GET", ONE)
    assert of_file.get_json() == {
        "name": "balloon", "text": BALLOON, "origin": "file", "file": "/balloon.yaml",
    }  # fmt: skip
    etag = of_file.headers["ETag"]
    refused = rest.request("DELETE", ONE, headers={"If-Match": etag})
    assert refused.status_code == 409
    assert "/balloon.yaml" in refused.get_json()["detail"]
    assert put(rest, OTHER, If_Match=etag).status_code == 200
    assert rest.request("DELETE", ONE, headers={"If-Match": "*"}).status_code == 204
    assert rest.request("GET", ONE).headers["ETag"] == etag


def test_all_that_was_set_is_withdrawn_at_once(rest):
    rest.files.texts["stays"] = BALLOON
    for name in ("a", "b", "c"):
        put(rest, path=f"/v1/tuning-policies/{name}")
    page = rest.request("GET", "/v1/tuning-policies?limit=3").get_json()
    assert [each["name"] for each in page["items"]] == ["a", "b", "c"]
    [last] = rest.request("GET", page["next"]).get_json()["items"]
    assert (last["name"], last["origin"]) == ("stays", "file")
    for _ in range(2):
        assert rest.request("DELETE", "/v1/tuning-policies").status_code == 204
        assert rest.tuning.texts() == {"stays": BALLOON}
    assert [each.action for each in rest.store.audit()] == ["tuning.set"] * 3 + ["tuning.reset"]


def test_nothing_changes_that_the_audit_cannot_record(rest, monkeypatch):
    def fail(entry):
        raise PolicyStoreUnavailable("no database")

    monkeypatch.setattr(rest.store, "record", fail)
    response = put(rest)
    assert (response.status_code, response.get_json()["detail"]) == (503, "no database")
    assert rest.tuning.texts() == {}


BAD = [
    ("/v1/tuning-policies/a%20b", {"text": BALLOON}, "/name"),
    (ONE, {"text": "rules: {a: {output: }}"}, "/text"),
    (ONE, {"text": 7}, "/text"),
    (ONE, {}, "/text"),
    (ONE, {"text": BALLOON, "colour": "red"}, "/colour"),
    (ONE, [], ""),
]


@pytest.mark.parametrize(("path", "body", "pointer"), BAD)
def test_what_is_wrong_is_named_and_changes_nothing(rest, path, body, pointer):
    before = rest.state()
    response = rest.request(
        "PUT", path, msgspec.json.encode(body), headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 400
    errors = response.get_json()["errors"]
    assert {each["pointer"] for each in errors} == {pointer}
    assert rest.state() == before


BROKEN = "scope: VM\nrules:\n  shrink:\n    output: memory.balloon\n    targett: 1\n"


def test_each_issue_of_a_text_has_its_line_and_column(rest):
    refused = put(rest, BROKEN)
    assert refused.status_code == 400
    found = refused.get_json()
    assert "balloon:5:5: E_SCHEMA: rules.shrink" in found["detail"]
    places = {(each["line"], each["column"]): each["detail"] for each in found["errors"]}
    assert places.keys() == {(3, 3), (5, 5)}
    assert places[5, 5].startswith("E_SCHEMA: rules.shrink.targett: 'targett' is not known here")


def alarms(rest):
    return rest.request("GET", "/v1/tuning-alarms").get_json()["items"]


def test_an_alarm_has_its_policy_file_place_and_line_and_ends_with_its_cause(rest):
    assert alarms(rest) == []
    rest.files.texts["balloon"] = BROKEN
    first, last = alarms(rest)
    assert last.pop("message").startswith(
        "E_SCHEMA: rules.shrink.targett: 'targett' is not known here"
    )
    assert last == {
        "policy": "balloon", "origin": "file", "file": "/balloon.yaml",
        "line": 5, "column": 5, "text": "    targett: 1",
    }  # fmt: skip
    assert first["line"] == 3
    rest.files.texts["balloon"] = BALLOON
    assert alarms(rest) == []


def test_alarms_without_a_place_name_what_they_are_about(rest):
    rest.files.problems = (TuningFileProblem("/etc/tuning", "Permission denied"),)
    rest.files.texts = {"many": "".join(f"k{number}: 1\n" for number in range(20))}
    rest.files.clusters = "clustres: {}"
    record = Put("t:odd", b'"rules: 1"')
    rest.world.state.write("@tuning", [Transaction([record])])
    found = alarms(rest)
    nowhere = dict.fromkeys(("policy", "line", "column", "text"))
    assert found[0] == nowhere | {
        "origin": "file", "file": "/etc/tuning", "message": "Permission denied",
    }  # fmt: skip
    more = [each for each in found if each["message"].startswith("and ")]
    assert [(each["policy"], each["line"]) for each in more] == [("many", None)]
    of_clusters = [each for each in found if each["file"] == "/tuning.yaml"]
    assert [(each["policy"], each["text"]) for each in of_clusters] == [(None, "clustres: {}")]
    odd = [each for each in found if each["policy"] == "odd"]
    assert {(each["origin"], each["file"]) for each in odd} == {("set", None)}


@pytest.mark.parametrize("body", [b"{", b'{"text": "\xff"}', b"[" * 5000, b'{"text":"\\ud800"}'])
def test_a_body_that_is_no_json_is_refused(rest, body):
    headers = {"Content-Type": "application/json"}
    assert rest.request("PUT", ONE, body, headers=headers).status_code == 400
    assert rest.tuning.texts() == {}


@pytest.mark.parametrize("grant", [Grant("policy_editor", "east"), Grant("reader")])
def test_an_editor_of_one_cluster_may_not_change_what_is_for_all(rest, grant):
    rest.add_user("bert", grant)
    put(rest)
    before = rest.state()
    assert put(rest, OTHER, user="bert", If_Match="*").status_code == 403
    for path in (ONE, "/v1/tuning-policies"):
        response = rest.request("DELETE", path, user="bert", headers={"If-Match": "*"})
        assert response.status_code == 403
    assert rest.state() == before
    refused = [each for each in rest.store.audit() if each.result == "refused"]
    assert [each.action for each in refused] == ["tuning:edit"] * 3
    assert rest.request("GET", ONE, user="bert").status_code == 200
