"""Two servers under one name."""

import logging

import pytest

from scheduler_worker.rpc.serving.server import NameCheck
from scheduler_worker.rpc.serving.settings import QueueNames


@pytest.fixture
def check() -> NameCheck:
    return NameCheck(QueueNames("nova", "topic", "one"))


def test_a_single_sighting_may_be_our_own_lost_connection(check, caplog):
    check.counted(2)
    check.counted(1)
    check.counted(2)
    assert not check.has_found
    assert caplog.text == ""


def test_another_server_is_reported_once_and_so_is_its_end(check, caplog):
    caplog.set_level(logging.INFO)
    for _ in range(3):
        check.counted(2)
    assert check.has_found
    assert caplog.text.count("the queue topic.one has 2 consumers") == 1
    check.counted(1)
    check.counted(1)
    assert not check.has_found
    assert caplog.text.count("No other worker runs under the name one any more") == 1
