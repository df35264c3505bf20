"""While a server does not answer, callers fail at once, and one thread asks it."""

import threading

from redis import exceptions

from scheduler_worker.backends.redis.outage import Outages

SERVER = "the server"


def test_an_outage_ends_even_if_asking_fails_with_something_unexpected(monkeypatch):
    asked, ended, reported = threading.Event(), threading.Event(), threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: reported.set())

    def ask():
        asked.wait()
        raise TypeError("a fault of the client library")

    outages = Outages(closed=threading.Event())
    outages.begin(SERVER, exceptions.ConnectionError("refused"), ask)
    assert outages.defer(SERVER, ended.set)
    asked.set()
    ended.wait()
    outages.check(SERVER)
    assert not outages.is_on(SERVER)
    reported.wait()
