"""The console without a browser: log-ins, sessions, forged requests, headers, assets."""

import json
import re

import pytest

from scheduler_worker.api.console import load_assets
from scheduler_worker.api.sessions import token_digest
from scheduler_worker.operations.callers import Grant
from scheduler_worker.service.policies.api_tokens import SharedApiTokens
from tests.support.rest import IDLE_S, TTL_S, Rest
from tests.support.web import PASSWORD

COOKIE = "scheduler_console"
USER, REFRESH = {"Console-Activity": "user"}, {"Console-Activity": "refresh"}
SELF = ("script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'")


class Browser:
    """Keeps cookies, as werkzeug's client does, and sends what the page sends."""

    def __init__(self, rest, scheme="http"):
        self.rest = rest
        self.base = f"{scheme}://localhost"
        self.csrf = ""

    def send(self, method, path, body=None, *, headers=None, csrf=True, **options):
        found = {**USER, **(headers or {})}
        if csrf and self.csrf:
            found["X-CSRF-Token"] = self.csrf
        data = b"" if body is None else json.dumps(body)
        if body is not None:
            found.setdefault("Content-Type", "application/json")
        return self.rest.request(
            method, path, data, user=None, headers=found, base_url=self.base, **options
        )

    def log_in(self, user="anna", password=PASSWORD, **body):
        given = body or {"user": user, "password": password}
        response = self.send("POST", "/console/session", given)
        if response.status_code == 201:
            self.csrf = response.get_json()["csrf_token"]
        return response

    def status(self, path="/v1/hosts", **options):
        return self.send("GET", path, **options).status_code


@pytest.fixture
def rest():
    found = Rest("east", "west")
    found.add_user("anna", Grant("administrator"))
    found.add_user("rita", Grant("reader"))
    return found


@pytest.fixture
def browser(rest):
    return Browser(rest)


def test_the_page_is_served_at_every_path_with_a_strict_policy(browser):
    page = browser.send("GET", "/console")
    for path in ("/console/", "/console/fleet", "/console/hosts/some%20host"):
        assert browser.send("GET", path).data == page.data
    policy = page.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert all(each in policy for each in SELF)
    assert "unsafe" not in policy
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert page.headers["Referrer-Policy"] == "no-referrer"


def test_the_page_has_no_script_or_style_within_and_names_only_assets_that_there_are(browser):
    page = browser.send("GET", "/console").get_data(as_text=True)
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)
    named = re.findall(r'(?:src|href)="(/console/assets/[^"]+)"', page)
    assert len(named) == 3
    assert [browser.status(each) for each in named] == [200] * 3


def test_scripts_import_only_scripts_that_there_are():
    assets = load_assets()
    texts = {name: each.content.decode() for name, each in assets.items() if name.endswith(".js")}
    imported = {name for text in texts.values() for name in re.findall(r'from "\./(.+?)"', text)}
    assert imported
    assert imported <= set(texts)
    assert all("http://" not in text and "https://" not in text for text in texts.values())


def test_an_asset_that_the_browser_has_is_not_sent_again(browser):
    first = browser.send("GET", "/console/assets/main.js")
    assert first.content_type == "text/javascript; charset=utf-8"
    again = browser.send(
        "GET", "/console/assets/main.js", headers={"If-None-Match": first.headers["ETag"]}
    )
    assert (again.status_code, again.data) == (304, b"")
    assert browser.status("/console/assets/none.js") == 404
    assert browser.status("/console/assets/..%2fconsole.py") == 404
    assert browser.send("PUT", "/console/fleet", {}).status_code == 405


def test_a_log_in_opens_a_session_for_the_whole_api(browser):
    assert browser.status() == 401
    anonymous = browser.send("GET", "/console/session").get_json()
    assert anonymous.pop("version")
    assert anonymous.pop("log_in") == ["password"]
    assert anonymous.pop("rights") == []
    assert anonymous == dict.fromkeys(("user", "csrf_token", "idle_ends_at", "ends_at"))
    response = browser.log_in()
    assert response.status_code == 201
    assert browser.status() == 200
    assert (
        browser.status("/ovirt-engine/api/clusters", headers={"Accept": "application/json"}) == 200
    )
    found = browser.send("GET", "/console/session").get_json()
    assert found == response.get_json()
    assert found["user"] == "anna"
    assert "reservation:release" in found["rights"]


def test_the_cookie_is_kept_from_scripts_and_other_sites(rest):
    [cookie] = Browser(rest).log_in().headers.getlist("Set-Cookie")
    assert cookie.startswith(f"{COOKIE}=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    [cookie] = Browser(rest, "https").log_in().headers.getlist("Set-Cookie")
    assert cookie.startswith(f"__Host-{COOKIE}=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Secure"} <= set(cookie.split("; "))


def test_a_wrong_log_in_says_why_and_opens_nothing(browser):
    for _ in range(3):
        response = browser.log_in(password="wrong")
        assert response.status_code == 401
        assert "not correct" in response.get_json()["detail"]
    slowed = browser.log_in()
    assert slowed.status_code == 429
    assert int(slowed.headers["Retry-After"]) >= 1
    assert browser.status() == 401


@pytest.mark.parametrize(
    ("body", "content_type", "status", "said"),
    [
        ({"user": "anna", "password": PASSWORD}, "text/plain", 415, "application/json"),
        ({"user": "anna", "secret": PASSWORD}, "application/json", 400, "/secret"),
        ({"user": 3}, "application/json", 400, "/user"),
    ],
)
def test_a_body_that_is_no_log_in_is_refused(browser, body, content_type, status, said):
    response = browser.send(
        "POST", "/console/session", body, headers={"Content-Type": content_type}
    )
    assert response.status_code == status
    assert said in response.get_json()["detail"]


def test_a_page_gets_no_challenge_for_which_browsers_ask_for_passwords(browser):
    assert "Basic" not in browser.send("GET", "/v1/hosts").headers["WWW-Authenticate"]
    plain = browser.rest.request("GET", "/v1/hosts", user=None)
    assert "Basic" in plain.headers["WWW-Authenticate"]


def test_a_change_needs_the_sessions_token(rest, browser):
    rest.world.place("one", requested_destination={"host": "host-east"})
    path = "/v1/reservations/one@uuid-host-east"
    browser.log_in()
    forged = browser.send("DELETE", path, csrf=False)
    assert forged.status_code == 403
    assert "X-CSRF-Token" in forged.get_json()["detail"]
    other = Rest()
    other.add_user("anna", Grant("administrator"))
    stranger = Browser(other)
    stranger.log_in()
    wrong = browser.send("DELETE", path, csrf=False, headers={"X-CSRF-Token": stranger.csrf})
    assert wrong.status_code == 403
    forged = browser.send("POST", "/ovirt-engine/api/schedulingpolicies", {}, csrf=False)
    assert forged.status_code == 403
    assert rest.world.reserved()
    assert browser.send("DELETE", path).status_code == 204
    assert not rest.world.reserved()


def test_a_reader_may_read_and_is_told_what_else(browser):
    assert browser.log_in("rita").get_json()["rights"] == ["api:read"]
    assert browser.status() == 200
    assert browser.send("DELETE", "/v1/reservations/none").status_code in {403, 404}


def test_a_session_that_nobody_uses_ends_though_its_page_refreshes_itself(rest, browser):
    browser.log_in()
    for _ in range(4):
        rest.clock.advance(IDLE_S / 4 - 1)
        assert browser.status(headers=REFRESH) == 200
    rest.clock.advance(10)
    assert browser.status(headers=REFRESH) == 401


def test_a_session_that_is_used_goes_on_until_its_end(rest, browser):
    browser.log_in()
    steps = int(TTL_S // (IDLE_S / 2)) - 1
    for _ in range(steps):
        rest.clock.advance(IDLE_S / 2)
        assert browser.status() == 200
    info = browser.send("GET", "/console/session").get_json()
    assert info["idle_ends_at"] == info["ends_at"]
    rest.clock.advance(TTL_S - steps * IDLE_S / 2 + 1)
    assert browser.status() == 401


def test_a_log_out_ends_the_session_and_takes_the_cookie_back(rest, browser):
    browser.log_in()
    kept = rest.client.get_cookie(COOKIE).value
    assert browser.send("DELETE", "/console/session", csrf=False).status_code == 403
    response = browser.send("DELETE", "/console/session")
    assert response.status_code == 204
    assert rest.client.get_cookie(COOKIE) is None
    rest.client.set_cookie(COOKIE, kept)
    assert browser.status() == 401


def test_a_new_log_in_ends_the_browsers_old_session(rest, browser):
    browser.log_in()
    old = rest.client.get_cookie(COOKIE).value
    browser.log_in(password="wrong")
    assert browser.status() == 200
    browser.log_in("rita")
    assert browser.status() == 200
    rest.client.set_cookie(COOKIE, old)
    assert browser.status() == 401


def test_a_session_ends_with_its_user_and_is_no_token(rest, browser):
    browser.log_in()
    secret = rest.client.get_cookie(COOKIE).value
    bearer = {"Authorization": f"Bearer {secret}"}
    assert rest.request("GET", "/v1/hosts", user=None, headers=bearer).status_code == 401
    token, _ = rest.sessions.token_for(rest.sessions.log_in("anna", PASSWORD, "127.0.0.1"))
    rest.client.set_cookie(COOKIE, token)
    assert browser.status() == 401
    rest.client.set_cookie(COOKIE, secret)
    assert browser.status() == 200
    del rest.users["anna"]
    assert browser.status() == 401


def test_a_session_that_ended_while_it_was_used_is_not_stored_again(rest, browser):
    browser.log_in()
    tokens = SharedApiTokens(rest.world.fleet.store)
    digest = token_digest(rest.client.get_cookie(COOKIE).value)
    token = tokens.find(digest)
    assert token is not None
    SharedApiTokens(rest.world.fleet.store).remove(digest)
    for _ in range(2):  # the second time it is known that it was removed
        tokens.extend(token)
        assert tokens.find(digest) is None
    assert browser.status() == 401


def test_an_invitation_logs_in_once(rest, browser):
    secret = rest.console.invitations.invite("anna")
    assert browser.log_in(invitation=secret).get_json()["user"] == "anna"
    again = Browser(rest).log_in(invitation=secret)
    assert again.status_code == 403
    assert "only once" in again.get_json()["detail"]


def test_without_the_option_there_is_no_console():
    rest = Rest(console=False)
    assert rest.request("GET", "/console", user=None).status_code == 404
