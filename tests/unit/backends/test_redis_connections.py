"""Connections of threads to Redis, and outages, in which one thread asks for all."""

import sys
import threading
from unittest.mock import Mock

import pytest
from redis import exceptions

from scheduler_worker.backends.redis import connection, outage
from scheduler_worker.backends.redis.connection import RedisServer
from scheduler_worker.backends.redis.nodes import RedisNode, _Connections
from scheduler_worker.backends.redis.outage import Outages
from scheduler_worker.errors import StateAway, StateLost
from tests.support.threads import Threads


def used_by_a_thread(connections):
    with Threads(1) as threads:
        return threads.submit(lambda: connections.mine().raw).result()


def test_a_connection_returns_to_the_pool_when_its_thread_ends():
    pool = Mock()
    connection = used_by_a_thread(_Connections(pool, threading.Event()))
    pool.release.assert_called_once_with(connection)


def test_no_connection_is_returned_while_the_interpreter_exits(monkeypatch):
    pool = Mock()
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    used_by_a_thread(_Connections(pool, threading.Event()))
    pool.release.assert_not_called()


@pytest.mark.parametrize("call", ["get_connection", "get_connection.return_value.read_response"])
def test_a_connection_that_is_closed_under_a_thread_fails_with_a_redis_error(call):
    gone = TypeError("argument must be an int, or have a fileno() method.")
    node = RedisNode(Mock(**{f"return_value.{call}.side_effect": gone}), socket_timeout_s=1)
    with pytest.raises(TypeError):
        node.command("PING")
    node.disconnect()
    with pytest.raises(exceptions.ConnectionError, match="closed"):
        node.command("PING")


def test_in_a_cluster_an_outage_is_of_the_keys_of_one_server(monkeypatch):
    monkeypatch.setattr(outage, "GRACE_S", 0.0)
    away = Mock(**{"run.side_effect": exceptions.ConnectionError("away")})
    away.command.side_effect = away.run.side_effect
    nodes = Mock(is_single=False, of={"a": away, "b": Mock()}.get, group=lambda key: key)
    monkeypatch.setattr(connection, "open_nodes", lambda *_, **__: nodes)
    server = RedisServer("redis+cluster://h", retry_for_s=0.0, wait_replicas=0)
    with pytest.raises(StateLost):
        server.run("write", ["a"], [])
    asked = away.run.call_count
    with pytest.raises(StateLost):
        server.run("write", ["a"], [])
    assert away.run.call_count == asked, "the second call knows of the outage"
    assert server.run("write", ["b"], []) is nodes.of("b").run.return_value
    with pytest.raises(StateAway) as raised:
        server.run("write", ["a"], [])
    assert raised.type is StateAway, "another server answers"
    server.refuse()


def test_an_outage_ends_even_if_asking_fails_with_something_unexpected(monkeypatch):
    asked, ended, reported = threading.Event(), threading.Event(), threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: reported.set())

    def ask():
        asked.wait()
        raise TypeError("a fault of the client library")

    server, outages = "the server", Outages(closed=threading.Event())
    outages.begin(server, exceptions.ConnectionError("refused"), 0, ask)
    assert outages.defer(server, ended.set)
    asked.set()
    ended.wait()
    outages.check(server)
    assert server not in outages.known
    reported.wait()
