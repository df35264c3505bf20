"""``/v1`` without a server: clusters, hosts, reservations, pages, ETags, problems, rights."""

import pytest

from scheduler_worker.errors import Conflict, StateUnavailable
from scheduler_worker.operations.callers import Grant
from scheduler_worker.service.inventory import listing
from scheduler_worker.service.policies.audit import Actor
from tests.support.rest import NONE, Rest
from tests.support.services import host


@pytest.fixture
def rest():
    return Rest("east", "west")


def read(rest, path, status=200, **options):
    response = rest.request("GET", path, **options)
    assert response.status_code == status, response.get_data(as_text=True)
    return response.get_json()


def names(page):
    return [each["name"] for each in page["items"]]


def problem(response, status):
    assert response.status_code == status, response.get_data(as_text=True)
    assert response.content_type == "application/problem+json"
    found = response.get_json()
    assert found["status"] == status
    assert found["type"] == "about:blank"
    assert found["instance"] == response.headers["Correlation-Id"]
    assert found["title"]
    return found


def test_the_entry_links_to_every_list(rest):
    entry = read(rest, "/v1")
    assert entry["links"]["list_hosts"] == "/v1/hosts"
    for path in entry["links"].values():
        assert rest.request("GET", path).status_code == 200


def test_clusters_have_the_policy_in_force(rest):
    rest.administration.attachments.attach("east", Actor("anna"), policy=NONE)
    rest.world.place("one", requested_destination={"host": "host-east"})
    east, west = read(rest, "/v1/clusters")["items"]
    assert east["policy"] == {"id": NONE, "name": "none", "version": 1}
    assert (east["hosts"], east["reservations"]) == (1, 1)
    assert west["policy"]["name"] == "nova"
    document = read(rest, "/v1/clusters/east")["document"]
    assert [each["unit"] for each in document["filters"]] == ["CPU", "Memory"]
    assert "'north'" in problem(rest.request("GET", "/v1/clusters/north"), 404)["detail"]


def test_hosts_have_what_is_used_and_reserved(rest):
    rest.world.report(host("host-east", cluster="east", vcpus_used=1, memory_mb_used=512))
    rest.world.place("one", vcpus=2, requested_destination={"host": "host-east"})
    found = read(rest, "/v1/hosts/host-east")
    assert found["vcpus"] == {"total": 4, "used": 1, "reserved": 2, "limit": 4}
    assert found["memory_mb"] == {"total": 8192, "used": 512, "reserved": 1024, "limit": 8192}
    assert found["reservations"] == 1
    assert found["record"]["vcpus_used"] == 1
    assert found["reported_at"] == "2023-11-14T22:13:20Z"
    assert read(rest, "/v1/hosts/uuid-host-east") == found


def test_hosts_are_filtered_by_cluster_name_and_state(rest):
    rest.world.report(
        host("off", cluster="east", service={"disabled": True, "disabled_reason": "repair"}),
        host("lost", cluster="west", service={"forced_down": True}),
        host("silent", cluster="west", updated_at=1.0),
    )
    rest.clock.advance(61.0)
    rest.world.report(
        host("host-east", cluster="east"),
        host("off", cluster="east", service={"disabled": True, "disabled_reason": "repair"}),
        host("lost", cluster="west", service={"forced_down": True}),
    )
    assert names(read(rest, "/v1/hosts?cluster=east")) == ["host-east", "off"]
    assert names(read(rest, "/v1/hosts?name=lost")) == ["lost"]
    assert names(read(rest, "/v1/hosts?name=null")) == []
    assert names(read(rest, "/v1/hosts?state=up")) == ["host-east"]
    down = read(rest, "/v1/hosts?state=down")["items"]
    assert {each["name"]: each["reason"] for each in down} == {
        "host-west": "it has not been heard of within 60 s",
        "lost": "its compute service is forced down",
        "silent": "it has not been heard of within 60 s",
    }
    [off] = read(rest, "/v1/hosts?state=disabled&cluster=east")["items"]
    assert off["reason"] == "its compute service is disabled: repair"
    assert read(rest, "/v1/hosts?cluster=east&state=down") == {"items": [], "next": None}


def test_a_name_of_several_hosts_is_refused_with_their_uuids(rest):
    for number in (1, 2):
        rest.world.report(
            host("ironic", uuid=f"node-{number}", nodename=f"n{number}", cluster="east")
        )
    found = problem(rest.request("GET", "/v1/hosts/ironic"), 409)
    assert "node-1, node-2" in found["detail"]
    assert read(rest, "/v1/hosts/n2")["uuid"] == "node-2"


def test_a_uuid_means_its_host_though_another_has_it_as_its_name(rest):
    rest.world.report(host("uuid-host-east", uuid="other", cluster="west"))
    assert read(rest, "/v1/hosts/uuid-host-east")["name"] == "host-east"


@pytest.mark.parametrize("name", ["host-east", "uuid-host-east"])
def test_a_host_is_found_without_reading_all(rest, monkeypatch, name):
    monkeypatch.setattr(listing, "hosts_of", None)
    assert read(rest, f"/v1/hosts/{name}")["name"] == "host-east"


def test_pages_follow_each_other_and_hold_everything_once(rest):
    rest.world.report(*(host(f"h{number}", cluster="east") for number in range(7)))
    path, found, pages = "/v1/hosts?limit=4&cluster=east", [], 0
    while path:
        response = rest.request("GET", path)
        page = response.get_json()
        found += [each["uuid"] for each in page["items"]]
        path = page["next"]
        assert response.headers.get("Link") == (f'<{path}>; rel="next"' if path else None)
        pages += 1
    assert pages == 2
    assert found == sorted({"uuid-host-east", *(f"uuid-h{number}" for number in range(7))})
    assert names(read(rest, "/v1/clusters?limit=1&marker=east")) == ["west"]


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x", "limit"), ("limit=", "limit"),
        ("state=asleep", "state"), ("state=null", "state"), ("colour=red", "colour"),
        ("limit=1&limit=2", "limit"), ("limit=1.0", "limit"), ("limit=-1", "limit"),
    ],
)  # fmt: skip
def test_a_parameter_that_is_wrong_is_named(rest, query, parameter):
    [error] = problem(rest.request("GET", f"/v1/hosts?{query}"), 400)["errors"]
    assert error["parameter"] == parameter
    assert error["detail"]


def test_an_unknown_cluster_is_named(rest):
    found = problem(rest.request("GET", "/v1/hosts?cluster=north"), 400)
    assert "known are east, west" in found["detail"]


@pytest.mark.parametrize("path", ["/v1/hosts", "/v1/hosts/host-east", "/v1/clusters", "/v1"])
def test_an_etag_is_strong_and_spares_the_body(rest, path):
    first = rest.request("GET", path)
    etag = first.headers["ETag"]
    assert etag.startswith('"')
    assert first.headers["Cache-Control"] == "private, no-cache"
    again = rest.request("GET", path, headers={"If-None-Match": f'"other", {etag}'})
    assert (again.status_code, again.data, again.headers["ETag"]) == (304, b"", etag)
    assert rest.request("GET", path, headers={"If-None-Match": '"other"'}).data == first.data


def test_an_etag_changes_with_its_host(rest):
    before = rest.request("GET", "/v1/hosts").headers["ETag"]
    rest.world.report(host("host-east", cluster="east", vcpus_used=1))
    response = rest.request("GET", "/v1/hosts", headers={"If-None-Match": before})
    assert response.status_code == 200
    assert response.headers["ETag"] != before


def reserved(rest):
    rest.world.place("one", requested_destination={"host": "host-east"})
    [found] = read(rest, "/v1/reservations")["items"]
    return found


def test_reservations_are_filtered_and_released(rest):
    found = reserved(rest)
    path = f"/v1/reservations/{found['id']}"
    assert read(rest, path) == found
    assert found["expires_at"] == "2023-11-14T22:18:20Z"
    for query, count in (
        ("cluster=east", 1), ("cluster=west", 0), ("host=host-east", 1), ("instance=one", 1),
        ("host=uuid-host-east&instance=two", 0),
    ):  # fmt: skip
        assert len(read(rest, f"/v1/reservations?{query}")["items"]) == count
    response = rest.request("DELETE", path)
    assert (response.status_code, response.data) == (204, b"")
    assert rest.world.reserved() == {}
    assert rest.world.inventory.release(["one"]) == 1  # repeated over RPC, it answers the same
    problem(rest.request("DELETE", path), 404)
    [entry] = rest.store.audit()
    assert (entry.user, entry.origin) == ("admin@internal", "127.0.0.1")
    assert (entry.action, entry.subject, entry.result) == (
        "reservation.release", found["id"], "done",
    )  # fmt: skip
    assert '"instance_uuid":"one"' in entry.before


def test_only_the_reservation_that_was_read_is_released(rest):
    found = reserved(rest)
    path = f"/v1/reservations/{found['id']}"
    etag = rest.request("GET", path).headers["ETag"]
    rest.clock.advance(1.0)
    rest.world.inventory.confirm(["one"])
    before = rest.state()
    problem(rest.request("DELETE", path, headers={"If-Match": etag}), 412)
    assert rest.state() == before
    now = rest.request("GET", path).headers["ETag"]
    assert rest.request("DELETE", path, headers={"If-Match": now}).status_code == 204


def test_a_reservation_that_changes_during_the_release_stays(rest):
    stored = rest.world.fleet.cluster("east")
    reserved(rest)
    [old] = stored.reservations.values()
    rest.clock.advance(1.0)
    rest.world.inventory.confirm(["one"])
    with pytest.raises(Conflict, match="read it again"):
        rest.world.inventory.release_one("east", old)
    assert rest.world.reserved() == {"host-east": ["one"]}


def test_one_of_two_reservations_of_an_instance_is_released(rest):
    reserved(rest)
    rest.world.inventory.confirm(["one"])  # so it keeps its room while it moves
    [first] = rest.world.fleet.cluster("east").reservations.values()
    rest.world.place("one", request_id="a move", requested_destination={"host": "host-west"})
    rest.world.inventory.release_one("east", first)
    assert rest.world.reserved() == {"host-west": ["one"]}


def test_a_release_that_fails_is_in_the_audit(rest, monkeypatch):
    found = reserved(rest)

    def fail(*arguments):
        raise Conflict("somebody else was first")

    monkeypatch.setattr(rest.world.inventory, "release_one", fail)
    problem(rest.request("DELETE", f"/v1/reservations/{found['id']}"), 409)
    assert [each.result for each in rest.store.audit()] == ["done", "refused"]
    assert "somebody else was first" in rest.store.audit()[1].reason


def test_who_may_not_release_gets_403_an_audit_entry_and_no_change(rest):
    found = reserved(rest)
    rest.add_user("bert", Grant("administrator", "west"), Grant("policy_editor", "east"))
    before = rest.state()
    response = rest.request("DELETE", f"/v1/reservations/{found['id']}", user="bert")
    assert "reservation:release, except in west" in problem(response, 403)["detail"]
    assert rest.state() == before
    [entry] = rest.store.audit()
    assert (entry.user, entry.action, entry.result) == ("bert", "reservation:release", "refused")
    rest.add_user("cleo", Grant("administrator", "east"))
    response = rest.request("DELETE", f"/v1/reservations/{found['id']}", user="cleo")
    assert response.status_code == 204


@pytest.mark.parametrize(
    ("method", "path", "options", "status"),
    [
        ("GET", "/v1/nothing", {}, 404),
        ("GET", "/v10", {}, 404),
        ("PATCH", "/v1/hosts", {}, 405),
        ("GET", "/v1/hosts", {"headers": {"Accept": "application/xml"}}, 406),
        ("GET", "/v1/hosts", {"body": b"{}"}, 400),
        ("GET", "/v1/hosts", {"user": None}, 401),
        ("GET", "/v1/hosts", {"user": "nobody"}, 401),
        ("PUT", "/v1/tuning-policies/a", {"body": b"x" * 100_001}, 413),
        ("PUT", "/v1/tuning-policies/a", {"body": b"<a/>"}, 415),
    ],
)
def test_what_is_not_served_is_a_problem(rest, method, path, options, status):
    response = rest.request(method, path, **options)
    if path == "/v10":  # is not below /v1
        assert response.status_code == 404
    else:
        problem(response, status)
    if status == 405:
        assert "GET" in response.headers["Allow"]
    if status == 401:
        assert "Basic" in response.headers["WWW-Authenticate"]


@pytest.mark.parametrize("path", ["/v1/hosts", "/clusters", "/ovirt-engine/nothing"])
@pytest.mark.parametrize(("size", "connection"), [(100_001, "close"), (100_000, None)])
def test_a_large_body_is_not_read_for_a_caller_who_is_not_known(rest, path, size, connection):
    response = rest.request("POST", path, b"x" * size, user=None)
    assert response.status_code in {401, 404}
    assert response.headers.get("Connection") == connection


def test_a_state_that_fails_is_503_and_a_defect_is_500(rest, monkeypatch, caplog):
    def fail(error):
        def failing(*arguments):
            raise error

        monkeypatch.setattr(rest.world.fleet, "refresh_globals", failing)

    fail(StateUnavailable("Redis is gone"))
    response = rest.request("GET", "/v1/hosts")
    assert problem(response, 503)["detail"] == "Redis is gone"
    assert response.headers["Retry-After"] == "1"
    fail(ZeroDivisionError("secret detail"))
    assert "secret" not in problem(rest.request("GET", "/v1/hosts"), 500)["detail"]
    assert "secret detail" in caplog.text


def test_the_access_log_names_the_user_and_the_status(rest, caplog):
    caplog.set_level("INFO", "scheduler_worker.operations.access")
    response = rest.request("GET", "/v1/hosts/none")
    line = caplog.messages[-1]
    assert line.startswith('127.0.0.1 admin@internal "GET /v1/hosts/none" 404 ')
    assert line.endswith(response.headers["Correlation-Id"])
