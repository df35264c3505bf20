"""What is HTTP's own below ``/v1``: forms of requests, pages, ETags, preconditions, problems."""

import msgspec
import pytest

from scheduler_worker.errors import StateUnavailable
from scheduler_worker.operations.callers import Grant
from tests.support.interrupted import raising
from tests.support.rest import Rest
from tests.support.tuners import BALLOON

JSON = {"Content-Type": "application/json"}
ONE = "/v1/tuning-policies/balloon"
OTHER = BALLOON.replace("10", "20")


def problem(response, status):
    assert response.status_code == status, response.get_data(as_text=True)
    assert response.content_type == "application/problem+json"
    found = response.get_json()
    assert found["status"] == status
    assert found["type"] == "about:blank"
    assert found["instance"] == response.headers["Correlation-Id"]
    assert found["title"]
    return found


def put(rest, text=BALLOON, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return rest.request("PUT", ONE, msgspec.json.encode({"text": text}), headers=JSON | named)


def test_the_entry_links_to_every_list(rest):
    entry = rest.request("GET", "/v1").get_json()
    assert entry["links"]["list_hosts"] == "/v1/hosts"
    for path in entry["links"].values():
        assert rest.request("GET", path).status_code == 200


def test_the_description_names_every_operation_once(rest):
    paths = rest.v1.description["paths"].values()
    operations = [each for methods in paths for each in methods.values()]
    names = [each["operationId"] for each in operations]
    assert len(names) == len(set(names)) == 49
    assert all(each["summary"] for each in operations)


# Parameters and bodies


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x", "limit"), ("limit=", "limit"),
        ("state=asleep", "state"), ("state=null", "state"), ("colour=red", "colour"),
        ("limit=1&limit=2", "limit"), ("limit=1.0", "limit"), ("limit=-1", "limit"),
        ("cluster=north", "cluster"),
    ],
)  # fmt: skip
def test_a_parameter_that_is_wrong_is_named(rest, query, parameter):
    [error] = problem(rest.request("GET", f"/v1/hosts?{query}"), 400)["errors"]
    assert error["parameter"] == parameter
    assert error["detail"]


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("/v1/tuning-policies/a%20b", {"text": BALLOON}, "/name"),
        (ONE, {"text": "rules: {a: {output: }}"}, "/text"),
        (ONE, {"text": 7}, "/text"),
        (ONE, {"text": BALLOON, "name": "other"}, "/name"),
        (ONE, [], ""),
        ("/v1/rehearsals", {"added": [{"vcpus": 1}]}, "/added/0/host"),
    ],
)
def test_what_is_wrong_with_a_body_has_a_pointer(rest, path, body, pointer):
    method = "POST" if path == "/v1/rehearsals" else "PUT"
    found = problem(rest.request(method, path, msgspec.json.encode(body), headers=JSON), 400)
    assert {each["pointer"] for each in found["errors"]} == {pointer}


@pytest.mark.parametrize("path", ["/v1/hosts/a%00b", "/v1/hosts?host=a%00b", "/v1/hosts?a%1fb=1"])
def test_a_control_character_in_an_address_is_refused_before_the_log_in(rest, path):
    found = problem(rest.request("GET", path, user=None), 400)
    assert "holds a control character" in found["detail"]


def test_who_may_not_change_it_is_not_told_what_is_wrong_with_a_body(rest):
    rest.add_user("reader", Grant("reader"))
    body = msgspec.json.encode({"text": 7})
    problem(rest.request("PUT", ONE, body, headers=JSON, user="reader"), 403)
    *_, entry = rest.book.audit()
    assert (entry.user, entry.action, entry.result) == ("reader", "tuning:edit", "refused")


def test_a_control_character_in_a_body_is_refused_and_ends_of_lines_are_none(rest):
    [error] = problem(put(rest, f"{BALLOON}# \0"), 400)["errors"]
    assert error == {"detail": "holds a control character", "pointer": "/text"}
    assert put(rest, BALLOON.replace("\n", "\r\n")).status_code == 201


@pytest.mark.parametrize("path", ["/v1//hosts", "/v1//hosts/a", "/v1/hosts//a"])
def test_a_path_with_two_slashes_is_no_other_one(rest, path):
    problem(rest.request("GET", path), 404)


@pytest.mark.parametrize("body", [b"{", b'{"text": "\xff"}', b"[" * 5000, b'{"text":"\\ud800"}'])
def test_a_body_that_is_no_json_is_refused(rest, body):
    problem(rest.request("PUT", ONE, body, headers=JSON), 400)


def test_each_issue_of_a_text_has_its_line_and_column(rest):
    broken = "scope: VM\nrules:\n  shrink:\n    output: memory.balloon\n    targett: 1\n"
    found = problem(put(rest, broken), 400)
    assert "balloon:5:5: E_SCHEMA: rules.shrink" in found["detail"]
    places = {(each["line"], each["column"]): each["detail"] for each in found["errors"]}
    assert places.keys() == {(3, 3), (5, 5)}
    assert places[5, 5].startswith("E_SCHEMA: rules.shrink.targett: 'targett' is not known here")


@pytest.mark.parametrize("path", ["/v1/hosts", "/clusters", "/ovirt-engine/nothing"])
@pytest.mark.parametrize(("size", "connection"), [(100_001, "close"), (100_000, None)])
def test_a_large_body_is_not_read_for_a_caller_who_is_not_known(rest, path, size, connection):
    response = rest.request("POST", path, b"x" * size, user=None)
    assert response.status_code in {401, 404}
    assert response.headers.get("Connection") == connection


# Answers


def test_a_filter_stays_in_the_link_to_the_next_page(rest):
    rest.world.report({"host": "h", "uuid": "u", "vcpus": 1, "memory_mb": 1, "local_gb": 1,
                       "cluster": "east"})  # fmt: skip
    response = rest.request("GET", "/v1/hosts?limit=1&cluster=east")
    path = response.get_json()["next"]
    assert response.headers["Link"] == f'<{path}>; rel="next"'
    last = rest.request("GET", path)
    assert [each["name"] for each in last.get_json()["items"]] == ["host-east"]
    assert (last.get_json()["next"], last.headers.get("Link")) == (None, None)


def test_an_etag_is_strong_and_changes_with_what_it_is_of(rest):
    first = rest.request("GET", "/v1/hosts")
    etag = first.headers["ETag"]
    assert etag.startswith('"')
    assert first.headers["Cache-Control"] == "private, no-cache"
    known = {"If-None-Match": f'"other", {etag}'}
    again = rest.request("GET", "/v1/hosts", headers=known)
    assert (again.status_code, again.data, again.headers["ETag"]) == (304, b"", etag)
    rest.world.report({"host": "host-east", "uuid": "uuid-host-east", "vcpus_used": 1})
    changed = rest.request("GET", "/v1/hosts", headers=known)
    assert (changed.status_code, changed.headers["ETag"] != etag) == (200, True)


def test_times_are_of_utc(rest):
    found = rest.request("GET", "/v1/hosts/host-east").get_json()
    assert found["reported_at"] == "2023-11-14T22:13:20Z"


# Preconditions


def test_a_change_answers_with_the_etag_that_is_read(rest):
    made = put(rest)
    assert (made.status_code, put(rest, OTHER).status_code) == (201, 428)
    assert rest.request("GET", ONE).headers["ETag"] == made.headers["ETag"]
    changed = put(rest, OTHER, If_Match=made.headers["ETag"])
    assert changed.status_code == 200
    etag = changed.headers["ETag"]
    gone = rest.request("DELETE", ONE, headers={"If-Match": etag})
    assert (gone.status_code, gone.data) == (204, b"")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 428), ({"If_Match": '"old"'}, 412), ({"If_None_Match": "*"}, 412),
        ({"If_Match": "*", "If_None_Match": "*"}, 412), ({"If_Match": "*"}, 200),
    ],
)  # fmt: skip
def test_an_existing_resource_is_changed_only_by_who_knows_it(rest, headers, status):
    assert put(rest, If_Match="*").status_code == 412
    assert put(rest, If_None_Match="*").status_code == 201
    before = rest.state()
    assert put(rest, OTHER, **headers).status_code == status
    assert (rest.state() == before) == (status != 200)


# Problems


@pytest.mark.parametrize(
    ("method", "path", "options", "status"),
    [
        ("GET", "/v1/nothing", {}, 404),
        ("GET", "/v1/hosts/nothing", {}, 404),
        ("PATCH", "/v1/hosts", {}, 405),
        ("GET", "/v1/hosts", {"headers": {"Accept": "application/xml"}}, 406),
        ("GET", "/v1/hosts", {"headers": {"Accept": "*/*, application/json;q=0"}}, 406),
        ("GET", "/v1/hosts", {"body": b"{}"}, 400),
        ("GET", "/v1/hosts", {"user": None}, 401),
        ("GET", "/v1/hosts", {"user": "nobody"}, 401),
        ("PUT", "/v1/tuning-policies/a", {"body": b"x" * 100_001}, 413),
        ("PUT", "/v1/tuning-policies/a", {"body": b"<a/>"}, 415),
    ],
)
def test_what_is_not_served_is_a_problem(rest, method, path, options, status):
    response = rest.request(method, path, **options)
    problem(response, status)
    if status == 405:
        assert "GET" in response.headers["Allow"]
    if status == 401:
        assert "Basic" in response.headers["WWW-Authenticate"]


def test_what_is_beside_the_root_is_none_of_ours(rest):
    assert rest.request("GET", "/v10").content_type != "application/problem+json"


@pytest.mark.parametrize(
    ("path", "hosts", "status"), [("/v1/hosts/twice", ("a", "b"), 409), ("/v1/decisions", (), 404)]
)
def test_a_refusal_has_its_status(path, hosts, status):
    rest = Rest("east", keeps_records=False)
    facts = {"host": "twice", "vcpus": 1, "memory_mb": 1, "local_gb": 1}
    rest.world.report(*(facts | {"uuid": each, "nodename": each} for each in hosts))
    problem(rest.request("GET", path), status)


def test_a_state_that_fails_is_503_and_a_defect_is_500(rest, monkeypatch, caplog):
    def fail(error):
        monkeypatch.setattr(rest.world.fleet, "refresh_globals", raising(error))
        return rest.request("GET", "/v1/hosts")

    response = fail(StateUnavailable("Redis is gone"))  # it may name the address
    assert "shared state cannot be used" in problem(response, 503)["detail"]
    assert "Redis is gone" in caplog.text
    assert response.headers["Retry-After"] == "1"
    assert "secret" not in problem(fail(ZeroDivisionError("secret detail")), 500)["detail"]
    assert "secret detail" in caplog.text


def test_nothing_changes_that_the_audit_cannot_record(rest, monkeypatch):
    monkeypatch.setattr(rest.book, "record", raising(StateUnavailable("no Redis")))
    assert "shared state" in problem(put(rest), 503)["detail"]
    assert {each.name: each.text for each in rest.tuning.current()} == {}
