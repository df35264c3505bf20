"""Jobs end at their deadlines, also while all threads work on others."""

import threading

import pytest

from scheduler_worker.errors import PlacementUnavailable
from scheduler_worker.service.requests.jobs import Question, Singleflight
from scheduler_worker.service.state import waits
from scheduler_worker.waiters import complete
from tests.support.clock import follow
from tests.support.patience import SOON_S
from tests.support.threads import Threads


async def answer(question: Question[str]) -> str:
    return await question


def test_a_job_fails_at_its_deadline_while_the_threads_are_busy(clock, monkeypatch):
    follow(monkeypatch, waits)
    asked, go = threading.Event(), threading.Event()
    jobs: Singleflight[str] = Singleflight(clock, name="jobs", workers=1)

    def slow(*_) -> str:
        asked.set()
        assert go.wait(SOON_S)
        return "answer"

    questions = [Question("one", slow, clock.monotonic_s() + 9.0)]
    questions += [Question("two", slow, clock.monotonic_s() + wait_s) for wait_s in (5.0, 99.0)]
    for question in questions:
        jobs.submit(question)
    assert asked.wait(SOON_S)
    with Threads(3) as threads:
        asking = [threads.submit(complete, answer(each)) for each in questions]
        clock.advance(6.0)
        with pytest.raises(PlacementUnavailable, match="too slow"):
            asking[1].result(SOON_S)
        assert not asking[0].done()
        go.set()
        assert asking[0].result(SOON_S) == asking[2].result(SOON_S) == "answer"
    jobs.close(SOON_S)
