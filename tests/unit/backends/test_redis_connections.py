"""Each thread has its own connection to Redis, which returns to the pool with the thread."""

import sys
import threading
from types import SimpleNamespace

from redis.connection import ConnectionPool

from scheduler_worker.backends.redis.nodes import _Connections


class Pool(ConnectionPool):
    def __init__(self):
        self.released = []

    def get_connection(self, *_, **__):
        return SimpleNamespace()

    def release(self, connection):
        self.released.append(connection)


def used_by_a_thread(connections):
    found = []
    thread = threading.Thread(target=lambda: found.append(connections.mine()._connection))
    thread.start()
    thread.join()
    return found


def test_a_connection_returns_to_the_pool_when_its_thread_ends():
    pool = Pool()
    assert used_by_a_thread(_Connections(pool)) == pool.released


def test_no_connection_is_returned_while_the_interpreter_exits(monkeypatch):
    pool = Pool()
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    used_by_a_thread(_Connections(pool))
    assert not pool.released
