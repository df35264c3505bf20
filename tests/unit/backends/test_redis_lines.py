"""A thread's own connection."""

import sys
import threading
from types import SimpleNamespace

from scheduler_worker.backends.redis.nodes import _Lines


class Pool:
    def __init__(self):
        self.released = []

    def get_connection(self):
        return SimpleNamespace()

    def release(self, connection):
        self.released.append(connection)


def ask_in_a_thread(lines):
    found = []
    thread = threading.Thread(target=lambda: found.append(lines.mine()._connection))
    thread.start()
    thread.join()
    return found


def test_it_goes_back_with_the_thread():
    pool = Pool()
    assert ask_in_a_thread(_Lines(pool)) == pool.released


def test_at_the_interpreters_end_nobody_waits_for_the_pool(monkeypatch):
    pool = Pool()
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    ask_in_a_thread(_Lines(pool))
    assert not pool.released
