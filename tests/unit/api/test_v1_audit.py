"""``GET /v1/audit``, and how long entries are kept."""

import pytest

from scheduler_worker.errors import PolicyStoreUnavailable
from scheduler_worker.operations.callers import Grant
from scheduler_worker.policy_store import AuditEntry
from scheduler_worker.service.policies.audit import PURGED_AT_ONCE
from scheduler_worker.service.policies.reconciler import Reconciler
from tests.support.rest import Rest


@pytest.fixture
def rest():
    rest = Rest("east")
    rest.add_user("bert", Grant("policy_editor"))
    for name, user in (("one", "admin@internal"), ("two", "bert")):
        body = f"<scheduling_policy><name>{name}</name></scheduling_policy>"
        assert rest.request("POST", "/schedulingpolicies", body, user=user).status_code == 201
        rest.clock.advance(3600.0)
    assert rest.request("GET", "/v1/audit", user="bert").status_code == 403
    return rest


def listed(rest, query=""):
    response = rest.request("GET", f"/v1/audit?{query}")
    assert response.status_code == 200, response.get_data(as_text=True)
    return response.get_json()


def ids(rest, query):
    return [each["id"] for each in listed(rest, query)["items"]]


def test_the_audit_says_who_did_what_from_where(rest):
    first, second, refused = listed(rest)["items"]
    assert first["user"] == "admin@internal"
    assert first["origin"] == "127.0.0.1"
    assert first["action"] == "policy.create"
    assert first["at"] == "2023-11-14T22:13:20Z"
    assert first["before"] is None
    assert first["after"]["name"] == "one"
    assert second["user"] == "bert"
    assert (refused["action"], refused["result"]) == ("audit:read", "refused")
    assert "no right" in refused["reason"]


def test_the_audit_is_filtered(rest):
    second = listed(rest)["items"][1]
    for query, found in (
        ("user=bert", ["2", "3"]),
        ("user=bert&result=done", ["2"]),
        ("action=policy.create", ["1", "2"]),
        (f"resource={second['resource']}", ["2"]),
        ("since=2023-11-14T23:13:20Z", ["2", "3"]),
        ("until=2023-11-14T23:13:20Z", ["1"]),
        ("since=2023-11-15T00:13:20%2B01:00&until=2023-11-15T00:13:20Z", ["2"]),
    ):
        assert ids(rest, query) == found, query


def test_pages_of_the_audit_keep_the_filter(rest):
    first = listed(rest, "user=bert&limit=1")
    assert [each["id"] for each in first["items"]] == ["2"]
    second = rest.request("GET", first["next"]).get_json()
    assert [each["id"] for each in second["items"]] == ["3"]
    assert rest.request("GET", second["next"]).get_json() == {"items": [], "next": None}


@pytest.mark.parametrize(
    "query",
    ["since=yesterday", "since=0.5", "since=2023-11-14T23:13:20", "marker=x", "result=maybe"],
)
def test_a_wrong_parameter_is_400(rest, query):
    assert rest.request("GET", f"/v1/audit?{query}").status_code == 400


def test_old_entries_are_deleted_in_batches(rest):
    for number in range(PURGED_AT_ONCE + 5):
        entry = AuditEntry(at_s=rest.clock.time_s(), user="anna", action="x", subject=str(number))
        rest.store.record(entry)
    kept = Reconciler(rest.administration, report=print)
    assert kept.purge() == 0
    rest.clock.advance(2 * 86_400.0)
    assert rest.request("GET", "/v1/audit", user="bert").status_code == 403
    purging = Reconciler(rest.administration, report=print, audit_retention_days=1.0)
    assert purging.purge() == PURGED_AT_ONCE + 5 + 3
    assert [each["action"] for each in listed(rest)["items"]] == ["audit:read"]


def test_a_store_that_fails_is_reported_and_does_not_end_the_reconciler(rest, monkeypatch):
    def fail(**arguments):
        raise PolicyStoreUnavailable("no database")

    monkeypatch.setattr(rest.store, "purge_audit", fail)
    said = []
    purging = Reconciler(rest.administration, report=said.append, audit_retention_days=1.0)
    assert purging.purge() == 0
    assert said == ["Old entries of the audit are not deleted yet: no database"]
