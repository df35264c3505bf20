"""The loop of a broker connection, on real descriptors."""

import os
from typing import Any

import pytest

from scheduler_worker.rpc.serving.connection import Loop
from tests.support.descriptors import many_descriptors


def test_descriptors_above_1023_are_waited_for():
    with many_descriptors():
        loop = Loop()
        to_read, to_write = os.pipe()
        source: Any
        with open(to_read, "rb") as source, open(to_write, "wb", buffering=0) as sink:
            assert source.fileno() > 1023
            assert not loop.wait(source, timeout_s=0)
            sink.write(b"!")
            assert loop.wait(source)
            called = []
            source.read(1)
            loop.call_soon(lambda: called.append(True))
            assert not loop.wait(source)
            loop.run_due()
            assert called == [True]


def test_a_loop_that_is_gone_holds_no_descriptors():
    """As of a server that a reload builds to check the files, and never starts."""
    loop = Loop()
    held = loop._wake_read, loop._wake_write
    del loop
    for each in held:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(each)
