"""Health is cached, and a worker that hangs does not block its monitor."""

import threading

import pytest

from scheduler_worker import remedies
from scheduler_worker.monitoring import stalled
from scheduler_worker.monitoring.health import Readiness
from tests.support.interrupted import raising


def test_the_result_is_cached():
    asked = []
    readiness = Readiness(lambda: asked.append(1) or ["the state"], fresh_s=60.0)
    assert readiness.missing() == readiness.missing() == readiness.last() == ["the state"]
    assert len(asked) == 1


def test_an_old_result_is_renewed():
    answers = [["the state"], []]
    readiness = Readiness(lambda: answers.pop(0), fresh_s=-1.0)
    assert readiness.missing() == ["the state"]
    assert readiness.missing() == []


def test_a_worker_that_hangs_does_not_block_and_is_called_once():
    released = threading.Event()
    asked = []

    def hang():
        asked.append(1)
        released.wait()
        return []

    readiness = Readiness(hang, fresh_s=60.0, timeout_s=0.01)
    assert readiness.missing() == ["the state does not answer within 0.01 s"]
    assert readiness.missing() == ["the state does not answer within 0.01 s"]
    assert readiness.last() == []
    released.set()
    assert (readiness._answer.result(), asked) == ([], [1])


def test_an_error_is_reported_without_secrets():
    fail = raising(OSError("redis://u:hush@h/ is away"))
    assert Readiness(fail).missing() == ["OSError: redis://***@h/ is away"]


def test_a_thread_without_a_recent_heartbeat_hangs():
    assert stalled(29.9, 30.0) is None
    assert stalled(31.0, 30.0) == "no heartbeat of the thread that moves messages for 31.0 s"


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        ("command not allowed when used memory > 'maxmemory'.", "info memory"),
        ("MISCONF Redis is configured to save RDB snapshots, but", "info persistence"),
        ("NOREPLICAS Not enough good replicas to write.", "info replication"),
        ("Redis is loading the dataset in memory", "info persistence"),
        ("You can't write against a read only replica.", "a failover is under way"),
        ("Connection refused", "redis-cli -u URL ping"),
    ],
)
def test_the_remedy_is_of_what_redis_says(said, fix):
    assert fix in remedies.of_state(f"The shared state at redis://r cannot be used: {said}")
