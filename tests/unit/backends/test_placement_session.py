"""The session with Placement: what is an answer, what an error, and what the options mean."""

import json
import re
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from keystoneauth1 import exceptions as keystone_errors
from oslo_config import cfg

from scheduler_worker.backends.placement.session import PlacementSession, open_session
from scheduler_worker.errors import ConfigError, PlacementRefused, PlacementUnavailable


def session_of(answer: Any, **options: Any) -> PlacementSession:
    """A session that answers a request so, or fails with the error."""
    return PlacementSession(Mock(**{"request.side_effect": [answer]}), **options)


def response(status: int, body: Any = None) -> SimpleNamespace:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return SimpleNamespace(status_code=status, content=content)


def from_file(tmp_path: Any, text: str) -> cfg.ConfigOpts:
    path = tmp_path / "nova.conf"
    path.write_text(text)
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[str(path)], default_config_dirs=[])
    return conf


@pytest.mark.parametrize("status", [200, 204, 400, 404, 409])
@pytest.mark.parametrize(("sent", "body"), [({"a": 1}, {"a": 1}), (b"<html>gone</html>", None)])
def test_an_answer_is_returned_whatever_it_says(status, sent, body):
    session = session_of(response(status, sent))
    assert session.request("GET", "/x") == (status, body)


def test_code_and_detail_of_an_error():
    body = {"errors": [{"code": "placement.concurrent_update", "detail": "moved on"}]}
    session = session_of(response(409, body))
    answer = session.request("POST", "/allocations", {})
    assert answer.error == ("placement.concurrent_update", "moved on")
    assert not answer.is_ok


@pytest.mark.parametrize("body", [None, [], {"errors": []}, {"errors": ["text"]}, b"no json"])
def test_an_answer_without_errors_has_an_empty_one(body):
    assert session_of(response(409, body)).request("GET", "/x").error == ("", "")


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        *((response(status), PlacementUnavailable, str(status)) for status in (500, 502, 503)),
        *((response(status), PlacementRefused, "account") for status in (401, 403)),
        *(
            (error, PlacementUnavailable, str(error))
            for error in (
                keystone_errors.ConnectFailure("refused"),
                keystone_errors.ConnectTimeout("slow"),
                keystone_errors.ServiceUnavailable("Keystone is down"),
                keystone_errors.DiscoveryFailure("no version"),
            )
        ),
        *(
            (error, PlacementRefused, str(error))
            for error in (
                keystone_errors.Unauthorized("wrong password"),
                keystone_errors.EndpointNotFound("no endpoint in region r"),
                keystone_errors.SSLError("wrong certificate"),
            )
        ),
        (
            keystone_errors.ConnectFailure("no route to http://nova:secret@keystone/v3"),
            PlacementUnavailable,
            "no route to http://***@keystone/v3",
        ),
    ],
)
def test_what_may_be_over_soon_is_told_from_what_needs_an_operator(answer, error, text):
    with pytest.raises(error, match=re.escape(text)):
        session_of(answer).request("GET", "/x")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (response(200, {"resource_providers": []}), None),
        (response(406), "1.36"),
        (response(404), "404"),
        (response(403), "account"),
        (keystone_errors.ConnectFailure("refused"), "refused"),
    ],
)
def test_why_it_would_not_serve_a_worker(answer, problem):
    found = session_of(answer).problem()
    assert found is None if problem is None else problem in str(found)


@pytest.mark.parametrize(("asked", "expected"), [(None, 20.0), (3.0, 3.0), (50.0, 20.0)])
def test_the_caller_shortens_the_timeout_and_does_not_lengthen_it(asked, expected):
    session = session_of(response(200), timeout_s=20.0)
    session.request("GET", "/x", timeout_s=asked)
    assert session._adapter.request.call_args.kwargs["timeout"] == expected


def test_the_options_of_a_nova_conf(tmp_path):
    conf = from_file(
        tmp_path,
        "[placement]\n"
        "auth_type = password\nauth_url = http://keystone/v3\nusername = nova\npassword = x\n"
        "project_name = service\nuser_domain_name = Default\nproject_domain_name = Default\n"
        "region_name = north\nendpoint_override = http://placement/\ntimeout = 7\n",
    )
    session = open_session(conf, connections=3)
    adapter = session._adapter
    assert adapter.region_name == "north"
    assert adapter.service_type == "placement"
    assert adapter.interface == ["internal", "public"]
    assert adapter.get_endpoint() == "http://placement/"
    assert session._timeout_s == 7
    pool = adapter.session.session.get_adapter("http://placement/").poolmanager.connection_pool_kw
    assert (pool["maxsize"], pool["block"]) == (3, True)


def test_an_account_may_be_in_another_group(tmp_path):
    conf = from_file(
        tmp_path,
        "[placement]\nauth_section = service_user\n[service_user]\nauth_type = none\n"
        "endpoint = http://placement\n",
    )
    assert open_session(conf, connections=1)._adapter.get_endpoint() == "http://placement"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "auth_type: not set"),
        ("auth_type = pasword", "pasword"),
        ("auth_type = none\nvalid_interfaces = inside", "valid_interfaces"),
        ("auth_type = password\nauth_url = http://k\ntimeout = soon", "timeout"),
    ],
)
def test_options_that_cannot_work_are_refused(tmp_path, text, problem):
    with pytest.raises(ConfigError, match=problem):
        open_session(from_file(tmp_path, f"[placement]\n{text}\n"), connections=1)
