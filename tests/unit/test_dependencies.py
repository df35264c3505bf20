"""Internals of libraries that the code relies on; each fails by name when a release moves it.

Every library named here is capped in setup.cfg at the major version that was tested. Before a cap
is raised, these tests say what to look at: the name of the internal, and the module that uses it.
"""

import inspect
from configparser import ConfigParser
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import amqp
import hiredis
import pytest
from amqp import serialization
from amqp.transport import TCPTransport
from oslo_config import cfg
from packaging.requirements import Requirement
from redis import connection as redis_connection
from redis import crc, sentinel

from scheduler_worker.rpc.oslo import oslo_messaging

# isort: split
from oslo_messaging import transport as oslo_transport
from oslo_messaging._drivers import amqp as oslo_amqp
from oslo_messaging._drivers import base as oslo_driver
from oslo_messaging._drivers import common, impl_rabbit
from oslo_messaging._metrics import client as metrics
from oslo_messaging._tracing import client as tracing

SETUP = Path(__file__).resolve().parents[2] / "setup.cfg"

AMQP = "scheduler_worker/rpc/amqp/"
REDIS = "scheduler_worker/backends/redis/"
OSLO = "scheduler_worker/rpc/"


def call(*positional: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with which our code calls a function, or a library calls ours."""
    return positional, named


SELF = object()

FUNCTIONS = [
    (amqp.Message, "_serialize_properties", call(SELF), AMQP + "properties.py, pings.py"),
    (serialization, "decode_properties_basic", call(b"", 0), AMQP + "properties.py"),
    (TCPTransport, "__init__", call(SELF, "host", 5.0), AMQP + "stream.py"),
    (TCPTransport, "_setup_transport", call(SELF), AMQP + "stream.py overrides it"),
    (TCPTransport, "_shutdown_transport", call(SELF), AMQP + "stream.py overrides it"),
    (TCPTransport, "_read", call(SELF, 7, initial=True), AMQP + "stream.py overrides it"),
    (TCPTransport, "write", call(SELF, b""), AMQP + "stream.py overrides it"),
    (amqp.Connection, "on_inbound_frame", None, AMQP + "link.py feeds it frames"),
    (amqp.Connection, "heartbeat_tick", call(SELF), AMQP + "link.py"),
    (amqp.Connection, "drain_events", call(SELF, timeout=1.0), AMQP + "link.py"),
    (amqp.Connection, "collect", call(SELF), AMQP + "link.py"),
    (amqp.Connection, "Transport", call(SELF, "host", 5.0), AMQP + "link.py overrides it"),
    (amqp.Channel, "confirm_select", call(SELF), AMQP + "link.py"),
    (
        amqp.Channel,
        "send_method",
        call(SELF, (60, 20), "BssbbbbF", (), wait=None),
        AMQP + "link.py",
    ),
    (redis_connection, "parse_url", call("redis://host"), REDIS + "addresses.py"),
    (redis_connection.ConnectionPool, "get_connection", call(SELF), REDIS + "nodes.py"),
    (redis_connection.ConnectionPool, "release", call(SELF, None), REDIS + "nodes.py"),
    (redis_connection.Connection, "connect", call(SELF), REDIS + "nodes.py"),
    (redis_connection.Connection, "disconnect", call(SELF), REDIS + "nodes.py"),
    (redis_connection.Connection, "on_connect", call(SELF), REDIS + "nodes.py"),
    (redis_connection.Connection, "send_command", call(SELF, "INFO"), REDIS + "nodes.py"),
    (redis_connection.Connection, "send_packed_command", call(SELF, [b""]), REDIS + "nodes.py"),
    (redis_connection.Connection, "read_response", call(SELF), REDIS + "nodes.py"),
    (sentinel.SentinelConnectionPool, "__init__", call(SELF, "s", None), REDIS + "addresses.py"),
    (crc, "key_slot", call(b"key"), REDIS + "nodes.py"),
    (oslo_driver.BaseDriver, "__init__", call(SELF, None, None, "nova", ()), OSLO + "local.py"),
    (oslo_amqp, "pack_context", call({}, {}), OSLO + "local.py"),
    (oslo_amqp, "_add_unique_id", call({}), OSLO + "local.py"),
    (common, "serialize_msg", call({}), OSLO + "local.py"),
    (common, "deserialize_msg", call({}), OSLO + "local.py"),
    (common, "deserialize_remote_exception", call("", ()), OSLO + "local.py"),
]


@pytest.mark.parametrize(
    ("owner", "name", "arguments", "used_by"),
    FUNCTIONS,
    ids=[f"{owner.__name__}.{name}" for owner, name, *_ in FUNCTIONS],
)
def test_a_function_is_called_as_before(owner, name, arguments, used_by):
    moved = f"{owner.__name__}.{name} has moved or changed; see {used_by}"
    assert hasattr(owner, name), moved
    if arguments is None:
        return
    positional, named = arguments
    try:
        inspect.signature(getattr(owner, name)).bind(*positional, **named)
    except TypeError as error:
        pytest.fail(f"{moved}: {error}")


def unconnected_amqp() -> amqp.Connection:
    """A connection that has not been opened: no socket."""
    return amqp.Connection(
        "127.0.0.1:1",
        "user",
        "password",
        login_method="PLAIN",
        virtual_host="/",
        heartbeat=10,
        connect_timeout=1.0,
        client_properties={},
        on_blocked=print,
        on_unblocked=print,
        frame_handler=lambda _connection, _on_method: print,
    )


def attributes(owner: Any, *names: str) -> list[str]:
    return [name for name in names if not hasattr(owner, name)]


def test_a_connection_to_rabbitmq_has_the_attributes_that_the_link_uses():
    connection = unconnected_amqp()
    used = ("bytes_sent", "bytes_recv", "frame_max", "heartbeat", "_transport")
    assert attributes(connection, *used) == [], AMQP + "link.py"
    connection.channels = {}
    channel = amqp.Channel(connection, 1)
    assert attributes(channel, "cancel_callbacks", "channel_id") == [], AMQP + "link.py"


def test_a_transport_to_rabbitmq_writes_through_the_attribute_that_the_stream_sets():
    transport = TCPTransport("127.0.0.1:1", 1.0)
    assert attributes(transport, "sock", "host", "connected") == [], AMQP + "stream.py"
    written: list[bytes] = []
    transport._write = written.append
    transport.write(b"frame")
    assert written == [b"frame"], AMQP + "stream.py sets _write to the socket's sendall"


def test_errors_of_rabbitmq_have_the_classes_that_are_told_apart():
    assert issubclass(amqp.AccessRefused, amqp.ChannelError)
    assert issubclass(amqp.NotAllowed, amqp.AMQPError)
    assert issubclass(amqp.PreconditionFailed, amqp.ChannelError)
    assert issubclass(amqp.NotFound, amqp.ChannelError)
    assert amqp.AccessRefused.code == 403


def test_a_connection_to_redis_has_the_attributes_that_the_nodes_use():
    pool = redis_connection.ConnectionPool(redis_connect_func=print, socket_timeout=1.0)
    connection = pool.connection_class(**pool.connection_kwargs)
    used = ("is_connected", "redis_connect_func", "retry")
    assert attributes(connection, *used) == [], REDIS + "nodes.py"
    assert not connection.is_connected
    assert connection.redis_connect_func is print
    assert hiredis.pack_command(cast("Any", ("GET", "k"))) == b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"


def test_oslo_transport_gives_driver_options_and_url():
    conf = cfg.ConfigOpts()
    conf([])
    transport = oslo_messaging.get_rpc_transport(conf, "local://dependencies/")
    assert attributes(transport, "conf", "_driver") == [], OSLO + "transport.py"
    assert attributes(transport._driver, "conf", "_url") == [], OSLO + "transport.py"


def test_oslo_option_lists_are_where_they_were():
    assert {"transport_url", "control_exchange"} <= {o.name for o in oslo_transport._transport_opts}
    assert "heartbeat_timeout_threshold" in {each.name for each in impl_rabbit.rabbit_opts}
    assert metrics.oslo_messaging_metrics
    assert tracing.oslo_messaging_tracing


@pytest.mark.parametrize("name", ["amqp", "redis", "oslo.messaging"])
def test_a_library_whose_internals_are_used_is_capped_at_the_tested_major(name):
    setup = ConfigParser(interpolation=None)
    setup.read(SETUP)
    lines = setup["options"]["install_requires"].split()
    (found,) = (each for each in map(Requirement, lines) if each.name == name)
    installed = version(name)
    following = f"{int(installed.partition('.')[0]) + 1}.0"
    assert found.specifier.contains(installed), f"{name} {installed} is not what setup.cfg permits"
    assert not found.specifier.contains(following), f"setup.cfg permits {name} {following}"
