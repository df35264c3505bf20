"""Requests of a page of another origin, in whose browser a user has logged in by password."""

import pytest

from tests.support.rest_bodies import fault
from tests.support.web import PASSWORD

POLICIES = "/ovirt-engine/api/schedulingpolicies"
NAMED_XML = "<scheduling_policy><name>forged</name></scheduling_policy>"
OF_FORMS = ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
FOREIGN = (
    {"Sec-Fetch-Site": "same-site"},  # another port of this host
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
    {"Origin": "http://localhost:8081"},
    {"Origin": "https://localhost"},
    {"Origin": "null"},
)
OWN = (
    {},
    {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "http://localhost"},
)


@pytest.mark.parametrize("content_type", OF_FORMS)
def test_a_post_that_a_form_could_have_sent_changes_nothing(rest, content_type):
    before = rest.state()
    response = rest.request("POST", POLICIES, NAMED_XML, headers={"Content-Type": content_type})
    assert "needs the Content-Type" in fault(response, 415)
    assert rest.state() == before


def test_a_post_with_a_token_needs_no_content_type(rest):
    secret, _ = rest.sessions.token_for(rest.sessions.log_in("admin@internal", PASSWORD, ""))
    bearer = {"Authorization": f"Bearer {secret}", "Content-Type": ""}
    response = rest.request("POST", POLICIES, NAMED_XML, user=None, headers=bearer)
    assert response.status_code == 201


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("headers", FOREIGN)
def test_another_origin_gets_nothing_by_password(rest, method, headers):
    body = NAMED_XML if method == "POST" else ""
    before = rest.state()
    assert "another origin" in fault(rest.request(method, POLICIES, body, headers=headers), 403)
    assert rest.request("GET", "/v1", headers=headers).status_code == 403
    assert rest.state() == before


@pytest.mark.parametrize("headers", OWN)
def test_this_origin_and_programs_may_use_a_password(rest, headers):
    assert rest.request("POST", POLICIES, NAMED_XML, headers=headers).status_code == 201


def test_another_origin_tries_no_passwords_for_tokens(rest):
    form = {"grant_type": "password", "username": "admin@internal", "password": PASSWORD}
    path = "/ovirt-engine/sso/oauth/token"
    assert rest.client.post(path, data=form, headers=FOREIGN[0]).status_code == 403
    assert rest.client.post(path, data=form).status_code == 200
