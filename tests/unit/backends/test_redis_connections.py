"""Connections of threads to Redis, and outages, in which one thread asks for all."""

import sys
import threading
from types import SimpleNamespace

import pytest
from redis import exceptions
from redis.connection import ConnectionPool

from scheduler_worker.backends.redis.nodes import RedisNode, _Connections
from scheduler_worker.backends.redis.outage import Outages


class Pool(ConnectionPool):
    def __init__(self):
        self.released = []

    def get_connection(self, *_, **__):
        return SimpleNamespace()

    def release(self, connection):
        self.released.append(connection)


def used_by_a_thread(connections):
    found = []
    thread = threading.Thread(target=lambda: found.append(connections.mine().raw), daemon=True)
    thread.start()
    thread.join()
    assert found
    return found


def test_a_connection_returns_to_the_pool_when_its_thread_ends():
    pool = Pool()
    assert used_by_a_thread(_Connections(pool, threading.Event())) == pool.released


def test_no_connection_is_returned_while_the_interpreter_exits(monkeypatch):
    pool = Pool()
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    used_by_a_thread(_Connections(pool, threading.Event()))
    assert not pool.released


class SocketGone:
    """A connection that another thread has closed, as redis-py leaves it."""

    is_connected = True

    def send_packed_command(self, _words):
        raise TypeError("argument must be an int, or have a fileno() method.")

    def disconnect(self):
        pass


class PoolOfGone(Pool):
    def __init__(self, **_):
        super().__init__()

    def get_connection(self, *_, **__):
        return SocketGone()

    def disconnect(self, inuse_connections=True):
        pass


class PoolClosedMeanwhile(PoolOfGone):
    def get_connection(self, *_, **__):
        raise TypeError("argument must be an int, or have a fileno() method.")


@pytest.mark.parametrize("pool", [PoolOfGone, PoolClosedMeanwhile])
def test_a_connection_that_is_closed_under_a_thread_fails_with_a_redis_error(pool):
    node = RedisNode(pool, socket_timeout_s=1)
    with pytest.raises(TypeError):
        node.command("PING")
    node.disconnect()
    with pytest.raises(exceptions.ConnectionError, match="closed"):
        node.command("PING")


def test_an_outage_ends_even_if_asking_fails_with_something_unexpected(monkeypatch):
    asked, ended, reported = threading.Event(), threading.Event(), threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: reported.set())

    def ask():
        asked.wait()
        raise TypeError("a fault of the client library")

    server, outages = "the server", Outages(closed=threading.Event())
    outages.begin(server, exceptions.ConnectionError("refused"), ask)
    assert outages.defer(server, ended.set)
    asked.set()
    ended.wait()
    outages.check(server)
    assert server not in outages.known
    reported.wait()
