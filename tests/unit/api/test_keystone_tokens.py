"""Who calls, by what the middleware in front of the application says of a token."""

import pytest
from oslo_config import cfg

from scheduler_worker.api.keystone import _PROBLEM, KeystoneTokens
from scheduler_worker.api.problems import Refusal


def test_while_keystone_is_away_no_token_is_said_to_be_wrong():
    said = {_PROBLEM: "it does not answer", "HTTP_X_IDENTITY_STATUS": "Invalid"}
    with pytest.raises(Refusal) as refused:
        KeystoneTokens(cfg.ConfigOpts(), {}).caller({"HTTP_X_AUTH_TOKEN": "t"} | said)
    assert refused.value.status == 503


@pytest.mark.parametrize("said", [{}, {"HTTP_X_IDENTITY_STATUS": "Invalid"}])
def test_a_token_that_was_not_confirmed_is_refused(said):
    token = {"HTTP_X_AUTH_TOKEN": "t", "HTTP_X_USER_NAME": "anna", "HTTP_X_ROLES": "admin"}
    with pytest.raises(Refusal) as refused:
        KeystoneTokens(cfg.ConfigOpts(), {"admin": "administrator"}).caller(token | said)
    assert refused.value.status == 401
