"""``[nova_claims]``: what it turns on, and what it needs of ``[placement]``."""

import pytest

from scheduler_worker import conf as configuration
from scheduler_worker import factories, preflight
from scheduler_worker.conf import Configuration
from tests.support.workers import write_config

PLACEMENT = {"auth_type": "none", "endpoint": "http://127.0.0.1:1"}


@pytest.fixture
def load(tmp_path):
    def load(**groups) -> Configuration:
        file = write_config(tmp_path / "worker.conf", DEFAULT={"host": "w"}, **groups)
        return configuration.load(["--config-file", str(file)])

    return load


def refusals(conf: Configuration) -> list[str]:
    return preflight.refusals(conf, embedded=True)


def test_it_is_off_by_default(load):
    conf = load()
    settings = configuration.settings(conf)
    assert settings.claims is None
    assert settings.options.values["claims_in_placement"] is False
    assert factories.open_placement(conf, settings) is None


def test_it_is_turned_on(load):
    conf = load(nova_claims={"enabled": True}, placement=PLACEMENT)
    settings = configuration.settings(conf)
    assert settings.claims is not None
    assert settings.options.values["claims_in_placement"] is True
    assert refusals(conf) == []


def test_an_account_is_needed(load):
    [problem] = refusals(load(nova_claims={"enabled": True}))
    assert problem.startswith("[placement] auth_type: not set")


def test_placement_decides_what_no_enabled_filter_does(load):
    nova = {"enabled_filters": "ComputeFilter"}
    assert len(configuration.notices(load(filter_scheduler=nova))) == 3
    with_claims = load(filter_scheduler=nova, nova_claims={"enabled": True}, placement=PLACEMENT)
    assert configuration.notices(with_claims) == []


def test_the_options_of_placement_are_no_mistakes(load):
    conf = load(nova_claims={"enabled": True}, placement=PLACEMENT)
    assert configuration.unread(conf) == []
    assert configuration.unused(conf) == []
