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
        limits.take("user", "anna")
    with pytest.raises(TooManyRequests) as refused:
        limits.take("user", "anna")
    assert refused.value.wait_s == pytest.approx(0.5)
    limits.take("user", "bert")
    limits.take("address", "anna")  # an address of this name is another one
    clock.advance(0.5)
    limits.take("user", "anna")
    with pytest.raises(TooManyRequests):
        limits.take("user", "anna")
    clock.advance(60.0)
    for _ in range(3):
        limits.take("user", "anna")
    with pytest.raises(TooManyRequests):
        limits.take("user", "anna")


def test_without_a_limit_everything_passes_and_nothing_is_remembered():
    limits = RateLimits(ManualClock())
    for _ in range(1000):
        limits.take("user", "anna")
    assert len(limits._full_at_s) == 0


def test_only_so_many_are_remembered():
    limits = RateLimits(ManualClock(), requests_per_second=1.0, burst=1)
    for number in range(MAX_REMEMBERED + 10):
        limits.take("address", str(number))
    assert len(limits._full_at_s) == MAX_REMEMBERED
    with pytest.raises(TooManyRequests):
        limits.take("address", str(MAX_REMEMBERED))


@pytest.fixture
def limited():
    return Rest("east", requests_per_second=0.5, burst=2)


@pytest.mark.parametrize(
    ("path", "form"), [("/v1/hosts", "application/problem+json"), ("/clusters", "application/xml")]
)
def test_both_forms_answer_429_with_retry_after(limited, path, form):
    assert [limited.request("GET", path).status_code for _ in range(3)] == [200, 200, 429]
    response = limited.request("GET", path)
    assert response.content_type.startswith(form)
    assert int(response.headers["Retry-After"]) == 3
    assert "Too many requests" in response.get_data(as_text=True)
    limited.clock.advance(2.0)
    assert limited.request("GET", path).status_code == 200


def test_an_address_is_limited_before_its_password_is_checked(limited):
    form = {"grant_type": "password", "username": "admin@internal", "password": PASSWORD}
    for status in (200, 200, 429):
        response = limited.client.post(
            "/ovirt-engine/sso/oauth/token", data=form, environ_base={"REMOTE_ADDR": "192.0.2.7"}
        )
        assert response.status_code == status
    assert limited.request("GET", "/v1", user="nobody").status_code == 401  # from another address


def test_a_user_is_limited_over_all_addresses(limited):
    for number, status in enumerate((200, 200, 429)):
        address = {"REMOTE_ADDR": f"192.0.2.{number}"}
        response = limited.client.get("/v1", headers=basic("admin@internal"), environ_base=address)
        assert response.status_code == status
