"""Log-ins to the REST API by tokens of a Keystone, which keystonemiddleware asks over HTTP."""

from contextlib import contextmanager
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from oslo_config import cfg

from scheduler_worker.compose.api import build_embedded
from scheduler_worker.errors import ConfigError
from tests.support import json_server, web
from tests.support import keystone as fake
from tests.support.web import basic, users_file
from tests.support.workers import load_config

BASIC = basic("bert")
NEW = {"name": "mine"}


@pytest.fixture
def keystone():
    with json_server.serving(fake.FakeKeystone) as found:
        yield found


@pytest.fixture
def serving(keystone, tmp_path):
    """Makes an API with options of ``[api]``, and further ones of ``[keystone_authtoken]``."""

    @contextmanager
    def made(*, authtoken=(), **api):
        users = users_file(tmp_path, bert="administrator")
        loaded = load_config(
            tmp_path / "api.conf",
            DEFAULT={"transport_url": "local://keystone/"},
            api={"port": 0, "users_file": users, **api},
            policy_store={"connection": f"sqlite:///{tmp_path / 'policies.sqlite'}"},
            keystone_authtoken={**fake.options(keystone), **dict(authtoken)},
        )
        with build_embedded(loaded).running() as running:
            yield running

    return made


def ask(api, method="GET", path="/schedulingpolicies", body=b"", token=None, **headers):
    """Status, headers and document of an answer."""
    url = urlsplit(api.url)
    sent = {"Accept": "application/json", **headers}
    if token is not None:
        sent["X-Auth-Token"] = token
    answer = web.ask(url.port, url.path + path, method, body, sent)
    return answer.status, answer.headers, answer.document


def test_an_administrator_of_the_system_may_change_things_and_is_in_the_audit(serving, keystone):
    with serving(auth="keystone") as api:
        status, _, made = ask(api, "POST", body=NEW, token=keystone.token("admin", "member"))
        assert (status, made["name"]) == (201, "mine")
        [entry] = api.services.history.entries()
        assert (entry.user, entry.action) == ("anna@Corp (id-anna)", "policy.create")
        [stored] = [each for each in api.administration.library().policies() if not each.is_locked]
        assert stored.changed_by == "anna@Corp (id-anna)"


def test_roles_mean_what_the_options_say(serving, keystone):
    reader, member = keystone.token("reader"), keystone.token("member")
    with serving(auth="keystone") as api:
        assert ask(api, token=reader)[0] == 200
        assert ask(api, "POST", body=NEW, token=reader)[0] == 403
        assert ask(api, token=member)[0] == 403
        [refused, _] = api.services.history.entries()
        assert (refused.user, refused.result) == ("anna@Corp (id-anna)", "refused")
    with serving(auth="keystone", keystone_roles="member:policy_editor") as api:
        assert ask(api, "POST", body=NEW, token=member)[0] == 201
        assert ask(api, token=reader)[0] == 403


def test_tokens_of_projects_have_the_rights_that_the_rules_give_them(serving, keystone, tmp_path):
    infra = keystone.token("admin", scope=fake.project("infra"))
    other = keystone.token("admin", scope=fake.project("other"))
    with serving(auth="keystone") as api:
        assert ask(api, token=infra)[0] == 403
    rules = tmp_path / "policy.yaml"
    rules.write_text('"in_scope": "system_scope:all or project_id:id-infra"\n')
    with serving(auth="keystone", policy_file=rules) as api:
        assert ask(api, "POST", body=NEW, token=infra)[0] == 201
        assert ask(api, token=other)[0] == 403


def test_expired_unknown_and_revoked_tokens_are_refused(serving, keystone):
    revoked = keystone.token("reader")
    with serving(auth="keystone") as api:
        assert ask(api, token=revoked)[0] == 200
        del keystone.tokens[revoked]
        expired = keystone.token("admin", expires_in=timedelta(seconds=-1))
        for token in (revoked, expired, "nonsense", "n\xe4"):
            status, headers, document = ask(api, token=token)
            assert status == 401
            assert "unknown, expired or revoked" in document["detail"]
            assert f'Keystone uri="{keystone.url}"' in headers.get_all("WWW-Authenticate")


@pytest.mark.parametrize(
    ("account", "why"),
    [
        ({"auth_url": "http://127.0.0.1:1/v3", "www_authenticate_uri": ""},
         "it cannot be reached]"),
        ({"password": "wrong"}, "refuses the question"),
    ],
    ids=["away", "refusing"],
)  # fmt: skip
def test_a_keystone_that_cannot_be_asked_is_an_outage_and_no_refusal(
    serving, keystone, account, why
):
    with serving(auth="both", authtoken=account) as api:
        status, headers, document = ask(api, token=keystone.token("admin"))
        assert (status, headers["Retry-After"]) == (503, "5")
        assert why in document["detail"]
        assert ask(api, **BASIC)[0] == 200
        assert ask(api)[0] == 401


def test_a_keystone_that_breaks_is_an_outage_until_it_is_back(serving, keystone):
    token = keystone.token("admin")
    with serving(auth="keystone") as api:
        for broken, answered in ((None, 200), (500, 503), (None, 200)):
            keystone.status = broken
            assert ask(api, token=token)[0] == answered


def test_both_kinds_of_users_side_by_side(serving, keystone):
    with serving(auth="both") as api:
        assert ask(api, token=keystone.token("reader"))[0] == 200
        assert ask(api, **BASIC)[0] == 200
        assert ask(api, token="gone", **BASIC)[0] == 401


def test_with_keystone_alone_there_are_no_local_users(serving, keystone, tmp_path):
    with serving(auth="keystone", users_file=tmp_path / "none.yaml") as api:
        assert ask(api, **BASIC)[0] == 401
        form = f"grant_type=password&username=bert&password={web.PASSWORD}".encode()
        path = "/ovirt-engine/sso/oauth/token"
        assert web.ask(urlsplit(api.url).port, path, "POST", form).status == 400


@pytest.mark.parametrize("auth", ["local", "keystone", "both"])
def test_headers_of_the_middleware_are_not_believed_from_clients(serving, auth):
    forged = {
        "X-Identity-Status": "Confirmed",
        "X-User-Name": "root",
        "X-User-Id": "1",
        "X-Roles": "admin",
        "OpenStack-System-Scope": "all",
    }
    with serving(auth=auth) as api:
        assert ask(api, **forged)[0] == 401
        assert ask(api, token="forged", **forged)[0] == 401


def test_a_token_means_nothing_where_keystone_is_not_asked(serving, keystone):
    with serving(auth="local") as api:
        assert ask(api, token=keystone.token("admin"))[0] == 401
        assert ask(api, **BASIC)[0] == 200


def test_no_global_configuration_is_read(serving, keystone):
    with serving(auth="keystone") as api:
        assert ask(api, token=keystone.token("admin"))[0] == 200
        assert cfg.CONF.keystone_authtoken.www_authenticate_uri is None


@pytest.mark.parametrize(
    ("api", "authtoken", "problem"),
    [
        ({"auth": "keystone"}, {"auth_url": ""}, r"\[keystone_authtoken\] auth_url: not set"),
        ({"auth": "both"}, {"auth_type": ""}, r"\[keystone_authtoken\] auth_type.*: not set"),
        ({"auth": "keystone"}, {"auth_type": "telepathy"}, r"\[keystone_authtoken\]: .*telepathy"),
        ({"keystone_roles": "admin:boss"}, {}, r"\[api\] keystone_roles: .*boss"),
        ({"auth": "magic"}, {}, r"\[api\] auth: .*magic"),
    ],
)
def test_options_that_do_not_work_are_named(serving, api, authtoken, problem):
    with pytest.raises(ConfigError, match=problem), serving(authtoken=authtoken, **api):
        pass
