"""The REST API without a server: resources, forms, versions, faults, rights, limits."""

import json
import logging
from functools import partial
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from scheduler_worker.api.presentation import cluster_id
from scheduler_worker.errors import ArchiveUnavailable
from scheduler_worker.model.audit import AuditEntry
from scheduler_worker.model.policies import FilterUse
from scheduler_worker.operations.callers import Grant
from scheduler_worker.service.documents import rules
from scheduler_worker.service.documents.book import Edited
from tests.support.interrupted import before_next, raising
from tests.support.rest import API, BALANCE, CPU, CPU_WEIGHT, MEMORY, NONE, Rest
from tests.support.rest_bodies import (
    JSON,
    add,
    attach,
    balanced,
    fault,
    made,
    properties,
    update,
    xml,
)
from tests.support.web import PASSWORD

HIGH = "<property><name>HighUtilization</name><value>70</value></property>"


def test_the_root_has_three_links_and_the_time(rest):
    root = xml(rest.request("GET", ""))
    assert len(root.findall("link")) == 3
    assert root.findtext("time") == "2023-11-14T22:13:20.000Z"


def test_units_have_their_kind_as_attribute_and_child(rest):
    root = xml(rest.request("GET", "/schedulingpolicyunits"))
    units = {each.get("id"): each for each in root}
    assert units[CPU].get("type") == units[CPU].findtext("type") == "filter"
    assert units[CPU_WEIGHT].findtext("type") == "weight"
    assert units[BALANCE].findtext("type") == "load_balancing"
    [selector] = [each for each in root if each.findtext("name") == "RankSum"]
    assert selector.find("type") is None
    assert selector.get("type") is None
    assert [p.findtext("value") for p in selector.iter("property")] == [
        "^-?[0-9]+$",
        "^(true|false)$",
    ]


def test_a_unit_has_its_properties_with_regexes(rest):
    unit = xml(rest.request("GET", f"/schedulingpolicyunits/{BALANCE}"))
    found = [(p.findtext("name"), p.findtext("value")) for p in unit.iter("property")]
    assert found[0] == ("CpuOverCommitDurationMinutes", "^([1-9][0-9]*)$")
    assert (len(found), found[1][0]) == (5, "HighUtilization")
    assert unit.findtext("description").startswith("Moves VMs off hosts")


def test_units_in_use_and_internal_ones_cannot_be_removed(rest):
    assert "none" in fault(rest.request("DELETE", f"/schedulingpolicyunits/{CPU}"), 409)
    unit = next(u for u in rest.administration.library().units if u.name == "RankSum")
    detail = fault(rest.request("DELETE", f"/schedulingpolicyunits/{unit.id}"), 400)
    assert "comes with the worker" in detail


def test_a_mandatory_field_that_is_missing(rest):
    response = rest.request("POST", "/schedulingpolicies", "<scheduling_policy/>")
    detail = "SchedulingPolicy [name] required for add"
    assert fault(response, 400, "Incomplete parameters") == detail
    response = rest.request("POST", f"/schedulingpolicies/{made(rest)}/filters", "<filter/>")
    assert "schedulingPolicyUnit.id" in fault(response, 400, "Incomplete parameters")


def test_a_unit_is_removed_from_a_policy_whether_it_is_a_member_or_not(rest):
    policy = made(rest)
    for kind, unit in (("filters", CPU), ("weights", CPU_WEIGHT), ("balances", BALANCE)):
        assert "Location" not in add(rest, policy, kind, unit).headers
        path = f"/schedulingpolicies/{policy}/{kind}"
        for method in ("GET", "DELETE"):
            assert fault(rest.request(method, f"{path}/unknown"), 404)
        for _ in range(2):  # as in oVirt
            assert xml(rest.request("DELETE", f"{path}/{unit}")).findtext("status") == "complete"
        assert len(xml(rest.request("GET", path))) == 0


@pytest.mark.parametrize(
    ("kind", "unit", "more", "why"),
    [
        ("filters", MEMORY, "<position>7</position>", "-1 (first), 0 or 1 (last)"),
        ("weights", CPU_WEIGHT, "<factor>1e30</factor>", "factor 1e+30 is not between"),
        ("balances", CPU, "", "is a filter, not a balance"),
    ],
)
def test_a_member_that_breaks_a_rule_changes_nothing(rest, kind, unit, more, why):
    policy = made(rest)
    before = rest.state()
    assert why in fault(add(rest, policy, kind, unit, more), 400)
    assert rest.state() == before


def test_an_update_leaves_absent_fields_and_an_empty_list_clears(rest):
    policy = balanced(rest)
    xml(update(rest, policy, properties(HighUtilization="70")))
    changed = xml(update(rest, policy, "<description>d</description>"))
    assert changed.findtext("properties/property/value") == "70"
    assert changed.findtext("description") == "d"
    assert xml(update(rest, policy, "<properties/>")).find("properties") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<locked>true</locked>", "Operation Failed"),
        ("<default_policy>true</default_policy>", "Operation Failed"),
        ("<policy>other</policy>", "Operation Failed"),
        ('<thresholds high="70"/>', "Operation Failed"),
        (f'<filters><filter id="{MEMORY}"/></filters>', "Operation Failed"),
        (f"<properties>{2 * HIGH}</properties>", "Operation Failed"),
        ("<colour>c</colour>", "Request syntactically incorrect."),
        ("<properties><propery/></properties>", "Request syntactically incorrect."),
        ("<locked>maybe</locked>", "Request syntactically incorrect."),
    ],
)
def test_what_a_policy_cannot_be_given_is_refused(rest, text, reason):
    policy = balanced(rest)
    before = rest.state()
    fault(update(rest, policy, text), 400, reason)
    body = f"<scheduling_policy><name>new</name>{text}</scheduling_policy>"
    fault(rest.request("POST", "/schedulingpolicies", body), 400, reason)
    assert rest.state() == before


def test_a_policy_that_is_sent_back_as_it_was_read_is_the_same(rest):
    policy = balanced(rest)
    xml(add(rest, policy, "filters", CPU, "<position>-1</position>"))
    xml(update(rest, policy, properties(HighUtilization="70")))
    path = f"/schedulingpolicies/{policy}"
    for headers in ({}, JSON):
        text = rest.request("GET", f"{path}?follow=filters,weights,balances", headers=headers).data
        assert rest.request("PUT", path, text, headers=headers).status_code == 200
    cluster = f"/clusters/{cluster_id('east')}"
    assert rest.request("PUT", cluster, rest.request("GET", cluster).data).status_code == 200
    assert rest.administration.library().policy(policy).document.version == 4
    assert "locked" in fault(update(rest, NONE, "<description>x</description>"), 400)


def member(kind, unit, more="", *, by_link=True):
    """A filter, weight or balance, named by its own id or by that of its unit."""
    if by_link:
        return f'<{kind} id="{unit}">{more}</{kind}>'
    return f'<{kind}>{more}<scheduling_policy_unit id="{unit}"/></{kind}>'


FIRST, LAST = "<position>-1</position>", "<position>1</position>"
CPU_FIRST = member("filter", CPU, FIRST)


@pytest.mark.parametrize(
    ("text", "is_as_now"),
    [
        ("<filters/><weights/><balances/><weight/>", True),
        ("<locked>false</locked><policy>whole</policy>", True),
        (f"<filters>{member('filter', MEMORY)}{CPU_FIRST}</filters>", True),
        (f"<filters>{CPU_FIRST}{member('filter', MEMORY, by_link=False)}</filters>", True),
        (f"<weights>{member('weight', CPU_WEIGHT, '<factor>2</factor>')}</weights>", True),
        (f"<balances>{member('balance', BALANCE)}</balances>", True),
        (f"<filters>{CPU_FIRST}</filters>", False),
        (f"<filters>{member('filter', CPU)}{member('filter', MEMORY)}</filters>", False),
        (f"<filters>{CPU_FIRST}{member('filter', MEMORY, LAST)}</filters>", False),
        (f"<weights>{member('weight', CPU_WEIGHT)}</weights>", False),
        (f"<weights>{member('weight', CPU, '<factor>2</factor>')}</weights>", False),
        (f"<balances>{member('balance', CPU)}</balances>", False),
    ],
)
def test_clients_send_parts_back_as_they_are_or_empty(rest, text, is_as_now):
    policy = balanced(rest, "whole")
    xml(add(rest, policy, "filters", CPU, FIRST))
    xml(add(rest, policy, "filters", MEMORY))
    xml(add(rest, policy, "weights", CPU_WEIGHT, "<factor>2</factor>"))
    before = rest.administration.library().policy(policy).document
    if is_as_now:
        assert xml(update(rest, policy, text)).get("id") == policy
    else:
        assert "cannot be set here" in fault(update(rest, policy, text), 400)
    assert rest.administration.library().policy(policy).document == before


@pytest.mark.parametrize("stored", [0, 1])
@pytest.mark.parametrize("sent", [0, 1])
def test_a_factor_that_is_sent_counts_even_if_it_is_0(rest, stored, sent):
    policy = made(rest)
    xml(add(rest, policy, "weights", CPU_WEIGHT, f"<factor>{stored}</factor>"))
    text = f"<weights>{member('weight', CPU_WEIGHT, f'<factor>{sent}</factor>')}</weights>"
    assert update(rest, policy, text).status_code == (200 if sent == stored else 400)


def test_a_new_policy_may_come_with_empty_parts(rest):
    text = "<scheduling_policy><name>new</name><filters/><locked>false</locked></scheduling_policy>"
    assert xml(rest.request("POST", "/schedulingpolicies", text), 201).findtext("name") == "new"


@pytest.mark.parametrize(
    ("text", "is_as_now"),
    [
        ("<properties/>", True),
        (properties(HighUtilization="70"), True),
        ("<description>other</description>", False),
        (properties(HighUtilization="71"), False),
        (properties(LowUtilization="70"), False),
    ],
)
def test_a_copy_has_what_its_source_has(rest, text, is_as_now):
    policy = balanced(rest)
    xml(update(rest, policy, properties(HighUtilization="70")))
    named = f"<scheduling_policy><name>copy</name>{text}</scheduling_policy>"
    path = f"/schedulingpolicies/{policy}/clone"
    answer = rest.request("POST", path, f"<action>{named}</action>")
    if is_as_now:
        assert xml(answer).findtext("scheduling_policy/properties/property/value") == "70"
    else:
        assert "cannot be set here" in fault(answer, 400)


def test_a_locked_policy_can_be_cloned(rest):
    text = "<action><scheduling_policy><name>mine</name></scheduling_policy></action>"
    response = rest.request("POST", f"/schedulingpolicies/{NONE}/clone", text)
    copy = xml(response).find("scheduling_policy")
    assert copy.findtext("locked") == "false"
    assert copy.findtext("properties/property/name") == "CpuOverCommitDurationMinutes"
    filters = xml(rest.request("GET", f"/schedulingpolicies/{copy.get('id')}/filters"))
    assert [(each.get("id"), each.findtext("position")) for each in filters] == [
        (CPU, "-1"),
        (MEMORY, "0"),
    ]


def test_follow_puts_collections_into_a_policy(rest):
    policy = xml(rest.request("GET", f"/schedulingpolicies/{NONE}?follow=filters,Weights,balances"))
    assert policy.findtext("filters/filter/position") == "-1"
    assert policy.find("balances/balance").get("id") == BALANCE
    for name in ("weights", "weight"):  # SDKs read the latter
        assert policy.findtext(f"{name}/weight/factor") == "2"
    assert policy.find("filters/filter/scheduling_policy_unit/name") is None


def test_follow_goes_deeper(rest):
    path = f"/schedulingpolicies/{NONE}?follow=filters.schedulingPolicyUnit"
    policy = xml(rest.request("GET", path))
    assert policy.findtext("filters/filter/scheduling_policy_unit/name") == "CPU"
    path = f"/schedulingpolicies/{NONE}/weights?follow=scheduling_policy_unit"
    [weight] = xml(rest.request("GET", path))
    assert weight.findtext("scheduling_policy_unit/type") == "weight"
    assert "filters" in fault(rest.request("GET", "/schedulingpolicies?follow=hosts"), 400)


@pytest.mark.parametrize(("limit", "count"), [("0", 0), ("1", 1), ("99", 2), ("-1", 2)])
def test_max_truncates(rest, limit, count):
    assert len(xml(rest.request("GET", f"/schedulingpolicies?max={limit}"))) == count


def test_max_must_be_a_number(rest):
    assert "max" in fault(rest.request("GET", "/clusters?max=many"), 400)


@pytest.mark.parametrize("base", ["/ovirt-engine/api", "/ovirt-engine/api/v4", "/api"])
def test_links_share_the_path_that_the_client_uses(rest, base):
    response = rest.client.get(
        f"{base}/schedulingpolicies/{NONE}/", auth=("admin@internal", PASSWORD)
    )
    assert xml(response).get("href") == f"{base}/schedulingpolicies/{NONE}"


@pytest.mark.parametrize("path", ["/ovirt-engine/api/v9", "/ovirt-engine/api"])
def test_an_unknown_version_is_refused(rest, path):
    headers = {} if path.endswith("9") else {"Version": "9"}
    assert "there are 3, 4" in fault(rest.request("GET", path, headers=headers), 400)


def test_json_both_ways(rest):
    response = rest.request(
        "POST", "/schedulingpolicies", '{"name": "packing", "description": "d"}', headers=JSON
    )
    policy = response.get_json()
    assert (response.status_code, response.mimetype) == (201, "application/json")
    assert (policy["name"], policy["locked"]) == ("packing", "false")
    body = json.dumps({"position": 1, "scheduling_policy_unit": {"id": CPU}})
    path = f"/schedulingpolicies/{policy['id']}/filters"
    assert rest.request("POST", path, body, headers=JSON).get_json()["position"] == "1"
    assert len(rest.request("GET", path, headers=JSON).get_json()["filter"]) == 1
    response = rest.request("GET", "/schedulingpolicies/unknown", headers=JSON)
    assert response.get_json() == {
        "detail": "Entity not found: unknown",
        "reason": "Operation Failed",
    }


def test_parameters_of_a_form_do_not_count(rest):
    json = {name: f"{form}; charset=utf-8" for name, form in JSON.items()}
    assert rest.request("GET", "/clusters", headers=json).is_json
    body = b'{"name": "with a charset"}'
    assert rest.request("POST", "/schedulingpolicies", body, headers=json).status_code == 201


def test_forms_that_are_not_served(rest):
    assert fault(rest.request("GET", "", headers={"Accept": "image/png"}), 406)
    response = rest.request(
        "POST", "/schedulingpolicies", "a: b", headers={"Content-Type": "text/yaml"}
    )
    assert fault(response, 415)


# Log-in


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer x"}, {"Authorization": "?"}])
@pytest.mark.parametrize("path", ["", "/schedulingpolicies", "/nowhere"])
def test_without_credentials_nothing_is_shown(rest, headers, path):
    response = rest.request("GET", path, user=None, headers=headers)
    assert fault(response, 401)
    assert response.headers["WWW-Authenticate"].startswith("Basic")


def log_in(rest, password=PASSWORD, **more):
    form = {"grant_type": "password", "username": "admin@internal", "password": password, **more}
    return rest.client.post("/ovirt-engine/sso/oauth/token", data=form)


def test_a_token_is_given_used_and_revoked(rest):
    answer = log_in(rest, scope="ovirt-app-api").get_json()
    assert answer["token_type"] == "bearer"
    assert int(answer["exp"]) == (rest.clock.time_s() + 3600) * 1000
    bearer = {"Authorization": f"Bearer {answer['access_token']}"}
    assert rest.request("GET", "", user=None, headers=bearer).status_code == 200
    out = rest.client.post(
        "/ovirt-engine/services/sso-logout", data={"token": answer["access_token"]}
    )
    assert (out.status_code, out.get_json()) == (200, {})
    assert rest.request("GET", "", user=None, headers=bearer).status_code == 401


def test_wrong_log_ins_are_errors_and_then_slowed(rest):
    for _ in range(3):
        response = log_in(rest, "wrong password")
        assert (response.status_code, response.get_json()["error_code"]) == (400, "access_denied")
    response = log_in(rest)
    assert (response.status_code, response.headers["Retry-After"]) == (429, "2")
    assert "error" in response.get_json()
    other = log_in(rest, grant_type="client_credentials")
    assert other.get_json()["error_code"] == "unsupported_grant_type"
    assert rest.client.get("/ovirt-engine/sso/oauth/token").status_code == 405


# Rights


@pytest.fixture
def many(rest):
    """Users of every role, and a policy that is attached to both clusters."""
    rest.add_user("reader", Grant("reader"))
    rest.add_user("east", Grant("policy_editor", "east"))
    rest.add_user("both", Grant("policy_editor", "east"), Grant("administrator", "west"))
    rest.add_user("nobody")
    policy = made(rest, "common")
    for cluster in ("east", "west"):
        xml(attach(rest, cluster, policy))
    return rest, policy


def test_what_a_user_may_not_do_is_403_audited_and_changes_nothing(many):
    rest, policy = many
    before = rest.state()
    attempts = [
        rest.request("GET", "/schedulingpolicies", user="nobody"),
        rest.request("POST", "/schedulingpolicies", "<scheduling_policy/>", user="reader"),
        update(rest, policy, "<name>x</name>", user="east"),
        *(add(rest, policy, kind, CPU, user="east") for kind in ("filters", "weights", "balances")),
        rest.request("DELETE", f"/schedulingpolicies/{policy}/filters/{CPU}", user="reader"),
        rest.request("DELETE", f"/schedulingpolicies/{policy}", user="east"),
        attach(rest, "west", policy, user="east"),
        rest.request("DELETE", f"/schedulingpolicyunits/{CPU}", user="both"),
    ]
    for each in attempts:
        assert "not authorized" in fault(each, 403)
    assert rest.state() == before
    refused = [each for each in rest.book.audit() if each.result == "refused"]
    assert refused[7].reason == "the user has no right to policy:delete in east, west"
    assert [(each.user, each.action) for each in refused] == [
        ("nobody", "api:read"),
        ("reader", "policy:create"),
        *[("east", "policy:edit")] * 4,
        ("reader", "policy:edit"),
        ("east", "policy:delete"),
        ("east", "cluster:attach"),
        ("both", "unit:delete"),
    ]
    assert {each.origin for each in refused} == {"127.0.0.1"}


def test_an_edit_is_not_made_in_a_cluster_that_was_attached_since_its_check(rest, monkeypatch):
    rest.add_user("east", Grant("policy_editor", "east"))
    policy = made(rest, "own", user="east")
    xml(attach(rest, "east", policy, user="east"))
    for edit in (
        lambda: update(rest, policy, "<description>x</description>", user="east"),
        lambda: add(rest, policy, "filters", CPU, user="east"),
    ):
        xml(attach(rest, "west", NONE))
        overtake = partial(attach, rest, "west", policy)
        before_next(monkeypatch, rest.world.state, "write", overtake)
        before = rest.book.documents().policy(policy)
        assert "not authorized" in fault(edit(), 403)
        assert rest.book.documents().policy(policy) == before
    assert rest.book.audit()[-1].reason == "the user has no right to policy:edit in east, west"


def test_what_a_user_may_do_in_their_clusters(many):
    rest, policy = many
    assert update(rest, policy, "<description>x</description>", user="both").status_code == 200
    own = made(rest, "own", user="east")
    xml(attach(rest, "east", own, user="east"))
    xml(update(rest, own, "<description>x</description>", user="east"))
    xml(attach(rest, "east", NONE, user="east"))
    assert rest.request("DELETE", f"/schedulingpolicies/{own}", user="east").status_code == 200
    assert rest.request("GET", "/clusters", user="reader").status_code == 200
    last = rest.book.audit()[-1]
    assert (last.user, last.action, last.subject) == ("east", "policy.remove", own)


# Limits and failures


@pytest.mark.parametrize(
    "body",
    ["<scheduling_policy>", f"<scheduling_policy><name>{'x' * 200_000}</name></scheduling_policy>"],
    ids=["open", "huge"],
)
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_bad_body_is_400_and_changes_nothing(rest, method, body):
    policy = made(rest)
    before = rest.state()
    path = "/schedulingpolicies" + (f"/{policy}" if method == "PUT" else "")
    assert fault(rest.request(method, path, body), 400, "Request syntactically incorrect.")
    assert rest.state() == before


SHARED = Rest("east")


@given(text=st.text(st.characters(codec="utf-8"), max_size=80))
def test_any_text_in_a_policy_is_stored_as_it_is_or_refused(text):
    body = f"<scheduling_policy><name>{escape(text)}</name></scheduling_policy>"
    before = SHARED.state()
    response = SHARED.request("POST", "/schedulingpolicies", body.encode())
    if response.status_code == 201:
        path = f"/schedulingpolicies/{xml(response, 201).get('id')}"
        stored = SHARED.administration.library().policy(path.rpartition("/")[2]).document.name
        assert stored == text.replace("\r\n", "\n").replace("\r", "\n")
        assert xml(SHARED.request("GET", path)).findtext("name") == stored
        assert SHARED.request("DELETE", path).status_code == 200
    else:
        assert response.status_code == 400
        assert SHARED.state() == before


def test_what_is_not_there(rest):
    assert fault(add(rest, "unknown", "filters", CPU), 404)
    assert fault(rest.request("GET", "/schedulingpolicies/unknown/filters"), 404)
    assert fault(rest.request("GET", "/nowhere"), 404)
    assert "/ovirt-engine/api" in fault(rest.request("GET", "/ovirt-engine"), 404)
    response = rest.request("DELETE", "/schedulingpolicies")
    assert fault(response, 405)
    assert response.headers["Allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/schedulingpolicies/a%00b", b""),
        ("/clusters?search=a%00b", b""),
        ("/schedulingpolicies", b'{"name": "x", "description": "a\\u0000b"}'),
        ("/schedulingpolicies", b"<scheduling_policy><name>a\0b</name></scheduling_policy>"),
        ("/ovirt-engine/sso/oauth/token", b"grant_type=password&username=a%00b"),
    ],
)
def test_a_control_character_is_refused_before_the_store(rest, path, body):
    form = "application/json" if body.startswith(b"{") else "application/xml"
    method = "POST" if body else "GET"
    response = rest.request(method, path, body, headers={"Content-Type": form})
    assert response.status_code == 400


def test_a_path_with_two_slashes_leads_nowhere(rest):
    assert fault(rest.request("GET", "/schedulingpolicies//filters"), 404)


def test_a_state_that_fails_is_503_and_a_defect_is_500(rest, monkeypatch, caplog):
    def fail(error):
        monkeypatch.setattr(rest.book, "documents", raising(error))
        return rest.request("GET", "/schedulingpolicies")

    response = fail(ArchiveUnavailable("postgresql://db.example is away."))
    assert "archive of policies cannot be used" in fault(response, 503)
    assert "db.example" not in response.text
    assert "db.example" in caplog.text
    assert response.headers["Retry-After"] == "1"
    detail = fault(fail(ZeroDivisionError("a secret")), 500)
    assert "secret" not in detail
    assert "a secret" in caplog.text


def test_each_request_is_logged_with_its_id(rest, caplog):
    caplog.set_level(logging.INFO, "scheduler_worker.operations.access")
    response = rest.request("GET", f"/schedulingpolicies/{NONE}?correlation_id=abc-1")
    assert response.headers["Correlation-Id"] == "abc-1"
    [line] = [each.message for each in caplog.records if "abc-1" in each.message]
    assert line.startswith(f'127.0.0.1 admin@internal "GET {API}/schedulingpolicies/{NONE}" 200 ')
    headers = {"Correlation-Id": "bad id\t"}
    assert rest.request("GET", "", headers=headers).headers["Correlation-Id"].startswith("req-")
    rest.add_user("x\nforged", Grant("reader"))  # as another service's user may be called
    rest.request("GET", "", user="x\nforged")
    assert r"x\nforged" in caplog.records[-1].message


def test_a_unit_that_is_gone_is_still_shown(rest):
    policy = made(rest)
    stored = rest.book.documents().policy(policy)
    document = structs.replace(stored.document, filters=(FilterUse(unit="Gone"),))
    gone = structs.replace(stored, document=document)
    entry = AuditEntry(at_s=1.0, user="anna", action="policy.update", subject=policy)
    rest.book.edit(lambda now: Edited(rules.with_policy(now, gone), [entry]))
    [found] = xml(rest.request("GET", f"/schedulingpolicies/{policy}/filters"))
    assert found.get("id") == "Gone"
