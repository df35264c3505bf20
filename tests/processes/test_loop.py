"""The loop of a broker connection, on real descriptors."""

import os

import pytest

from scheduler_worker.rpc.serving import connection
from scheduler_worker.rpc.serving.connection import Loop
from tests.support.descriptors import many_descriptors
from tests.support.patience import PROCESS_S, SOON_S, eventually
from tests.support.threads import Threads


def test_descriptors_above_1023_are_waited_for():
    with many_descriptors():
        loop = Loop()
        to_read, to_write = os.pipe()
        with open(to_read, "rb") as source, open(to_write, "wb", buffering=0) as sink:
            assert to_read > 1023
            assert not loop.wait(to_read, timeout_s=0)
            sink.write(b"!")
            assert loop.wait(to_read)
            called = []
            source.read(1)
            loop.call_soon(lambda: called.append(True))
            assert not loop.wait(to_read)
            loop.run_due()
            assert called == [True]


def test_callbacks_that_have_time_end_no_doze_until_the_loop_is_woken(monkeypatch):
    assert not Loop().doze()
    monkeypatch.setattr(connection, "_DOZE_S", PROCESS_S)
    loop = Loop()
    with Threads(1) as thread:
        dozing = thread.submit(loop.doze)
        eventually(lambda: loop._sleeps)
        loop.wake()
        loop.call_soon(lambda: None, has_time=True)
        assert loop._sleeps
        loop.wake()
        assert dozing.result(SOON_S)


def test_a_loop_that_is_gone_holds_no_descriptors():
    """As of a server that a reload builds to check the files, and never starts."""
    loop = Loop()
    held = loop._wake_read, loop._wake_write
    del loop
    for each in held:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(each)
