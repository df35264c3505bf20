"""Parts of the bus; servers and clients are tested in ``tests/contract/test_transport.py``."""

import uuid

import pytest
from oslo_config import cfg

from scheduler_worker.errors import (
    ConfigError,
)
from scheduler_worker.rpc import transport
from scheduler_worker.rpc.transport import Bus
from tests.support.patience import SOON_S


@pytest.fixture
def conf() -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    conf([])
    return conf


# URLs


def test_options_get_our_defaults_and_may_be_registered_twice(conf):
    transport.register_opts(conf)
    transport.register_opts(conf)
    assert (conf.transport_url, conf.control_exchange) == ("local:/", "nova")
    assert conf.oslo_messaging_rabbit.heartbeat_timeout_threshold == 10


def test_the_configured_url_is_used(conf):
    transport.register_opts(conf)
    conf.set_override("transport_url", "local://configured/")
    assert Bus(conf).url == "local://configured/"


def test_the_embedded_bus_is_used_where_no_url_is_configured(conf):
    assert Bus(conf).url == "local:///"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("local:/", "local:///"),
        (
            "rabbit://me:SECRET@one:5672,me:SECRET@two:5673/vhost",
            "rabbit://one:5672,two:5673/vhost",
        ),
    ],
)
def test_a_bus_hides_its_credentials(conf, url, shown):
    bus = Bus(conf, url=url)
    assert bus.url == shown
    assert "SECRET" not in repr(vars(bus).values()) + repr(bus)


@pytest.mark.parametrize("url", ["nosuch://host/", "no-scheme", "rabbit://host:port/"])
def test_a_url_that_cannot_work_is_a_config_error(conf, url):
    with pytest.raises(ConfigError, match="transport_url"):
        Bus(conf, url=url)


def test_a_bus_closes_twice(conf):
    with Bus(conf) as bus:
        pass
    bus.close()


def test_oslo_messagings_ping_is_answered_where_it_is_enabled(conf):
    transport.register_opts(conf)
    conf.set_override("rpc_ping_enabled", True)
    with Bus(conf, url=f"local://{uuid.uuid4().hex}/") as bus:
        server = bus.server("t", "s", [])
        server.start()
        assert bus.client("t", timeout_s=SOON_S).call("oslo_rpc_server_ping", {}) == "pong"
        assert server.stop(SOON_S)
