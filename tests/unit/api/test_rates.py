"""Limits on the rate of requests, of users and of addresses."""

import pytest

from scheduler_worker.api.rates import MAX_REMEMBERED, RateLimits, TooManyRequests
from tests.support.clock import ManualClock
from tests.support.rest import Rest
from tests.support.web import PASSWORD, basic


def test_a_burst_passes_and_then_the_rate():
    clock = ManualClock()
    limits = RateLimits(clock, requests_per_second=2.0, burst=3)
    for _ in range(3):
        limits.check_user("anna")
    with pytest.raises(TooManyRequests) as refused:
        limits.check_user("anna")
    assert refused.value.wait_s == pytest.approx(0.5)
    limits.check_user("bert")
    limits.check_address("anna")  # an address of this name is another one
    clock.advance(0.5)
    limits.check_user("anna")
    with pytest.raises(TooManyRequests):
        limits.check_user("anna")
    clock.advance(60.0)
    for _ in range(3):
        limits.check_user("anna")
    with pytest.raises(TooManyRequests):
        limits.check_user("anna")


def test_without_a_limit_everything_passes_and_nothing_is_remembered():
    limits = RateLimits(ManualClock())
    for _ in range(1000):
        limits.check_user("anna")
    assert limits.remembered() == 0


def test_only_so_many_are_remembered():
    limits = RateLimits(ManualClock(), requests_per_second=1.0, burst=1)
    for number in range(MAX_REMEMBERED + 10):
        limits.check_address(str(number))
    assert limits.remembered() == MAX_REMEMBERED
    with pytest.raises(TooManyRequests):
        limits.check_address(str(MAX_REMEMBERED))


def limited():
    rest = Rest("east", requests_per_second=0.5, burst=2)
    return rest, rest.clock


@pytest.mark.parametrize(
    ("path", "form"), [("/v1/hosts", "application/problem+json"), ("/clusters", "application/xml")]
)
def test_both_forms_answer_429_with_retry_after(path, form):
    rest, clock = limited()
    assert [rest.request("GET", path).status_code for _ in range(3)] == [200, 200, 429]
    response = rest.request("GET", path)
    assert response.content_type.startswith(form)
    assert int(response.headers["Retry-After"]) == 3
    assert "Too many requests" in response.get_data(as_text=True)
    clock.advance(2.0)
    assert rest.request("GET", path).status_code == 200


def test_an_address_is_limited_before_its_password_is_checked():
    rest, _ = limited()
    form = {"grant_type": "password", "username": "admin@internal", "password": PASSWORD}
    for status in (200, 200, 429):
        response = rest.client.post(
            "/ovirt-engine/sso/oauth/token", data=form, environ_base={"REMOTE_ADDR": "192.0.2.7"}
        )
        assert response.status_code == status
    assert rest.request("GET", "/v1", user="nobody").status_code == 401  # from another address


def test_a_user_is_limited_over_all_addresses():
    rest, _ = limited()
    client = rest.client
    credentials = basic("admin@internal")
    found = [
        client.get(
            "/v1", headers=credentials, environ_base={"REMOTE_ADDR": f"192.0.2.{number}"}
        ).status_code
        for number in range(3)
    ]
    assert found == [200, 200, 429]
